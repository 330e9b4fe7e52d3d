# SPDX-License-Identifier: Apache-2.0
"""Writes a tokenizer as C: its tables, the sources that read them, and a program that prints tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from .... import folders, paths
from ....codegen.c_source.render import environment
from ....errors import MegccError, refused_by_system
from ....foreign import identifier
from ....version import VERSION
from .file import NAMES, read
from .sentencepiece import SentencePiece
from .tables import tables
from .tokenizer import Vocabulary
from .unigram import Unigram
from .wordpiece import WordPieces

_MAKEFILE = """# SPDX-License-Identifier: 0BSD
CFLAGS ?= -O2
{name}_tokens: $(wildcard *.c *.h)
\t$(CC) -std=c99 $(CFLAGS) $(LDFLAGS) $(wildcard *.c) -o $@
"""

#: Class of a tokenizer -> its name in C, the type and size of its work memory, and other sources that it needs. The
#: program reads lines of up to MAX_TOKENS bytes. The factors before it are estimates of how much longer normalization
#: makes a line; a line that becomes longer ends the program.
_IN_C = {Vocabulary: ("tokenizer", "uint32_t", "MEGCC_TOKENIZER_NORMAL_WORK(4 * MAX_TOKENS)", ("normalizer",)),
         WordPieces: ("wordpiece", "uint8_t", "MEGCC_WORDPIECE_WORK({found.longest_word})", ()),
         SentencePiece: ("sentencepiece", "uint32_t", "MEGCC_SENTENCEPIECE_WORK(8 * MAX_TOKENS)", ()),
         Unigram: ("unigram", "uint32_t", "MEGCC_UNIGRAM_WORK(16 * MAX_TOKENS)", ("normalizer",))}


class TokensVariables(TypedDict):
    """The context of language_model/tokens.c.j2, which `contents` renders.

    version: version of tvm_megcc, such as "1.4.0".
    name: the tokenizer's, a C identifier.
    kind: "tokenizer" (byte pairs), "wordpiece", "sentencepiece" or "unigram": a part of the names of its header and
        functions.
    unit: C type of the tokenizer's work memory, "uint32_t" or "uint8_t".
    work: the elements of the work memory, a constant expression in C.
    """

    version: str
    name: str
    kind: str
    unit: str
    work: str


def write(path: str | Path, output: str | Path | None = None, name: str | None = None) -> dict:
    """Writes the folder of a tokenizer, and returns a report: folder, name, kind, vocabulary size, and the tokens
    before and after a text, -1 for none.

    Args:
        path: a file that `read` reads.
        output: the folder; default is the name with `_tokenizer`.
        name: its name in C; default is that of the file, or of its folder if the file is tokenizer.json.

    Raises:
        MegccError: as `read`; if the folder has other files, or cannot be written.
    """
    path = Path(path)
    given = path.resolve()
    name = identifier(name or (given.parent.name if given.name in NAMES else given.stem))
    found = read(path)
    files = contents(name, found)
    folder = Path(output or f"{name}_tokenizer")
    folders.refuse_precious(folder, [path])
    try:
        others = {each.name for each in folder.iterdir()} - {*files, f"{name}_tokens"} if folder.is_dir() else set()
        if others:
            raise MegccError(f"{folder} has other files, such as {min(others)}: name a new folder")
        folders.replace(folder, files, keep="")
    except OSError as error:
        raise refused_by_system(error, f"{folder} cannot be written") from None
    first, last = (found.first, found.last) if isinstance(found, WordPieces | Unigram) else (-1, -1)
    return {"folder": str(folder), "name": name, "kind": _kind(found), "tokens": len(found.tokens), "first": first,
            "last": last}


def _kind(found) -> str:
    """Returns the algorithm of a tokenizer, for people."""
    if isinstance(found, SentencePiece):
        return f"SentencePiece {'unigram' if found.unigram else 'BPE'}"
    if isinstance(found, Unigram):
        return "Unigram"
    return "WordPiece" if isinstance(found, WordPieces) else "SentencePiece BPE" if found.pieces else "BPE"


def contents(name: str, found) -> dict[str, bytes]:
    """Returns the files of the folder of a tokenizer, `found`, by name."""
    kind, unit, work, more = _IN_C[type(found)]
    if isinstance(found, Vocabulary) and not found.form:
        more = ()
    names = [f"megcc_{part}{end}" for part in (kind, *more) for end in (".h", ".c")]
    runtime = [paths.c_runtime() / "lm" / file for file in (*names, "megcc_strings.h")]
    program = environment().get_template("language_model/tokens.c.j2").render(
        TokensVariables(version=VERSION, name=name, kind=kind, unit=unit, work=work.format(found=found)))
    source = tables(name, found) if isinstance(found, Vocabulary) else found.text(name)
    return {**{file.name: file.read_bytes() for file in runtime}, "main.c": program.encode(),
            "Makefile": _MAKEFILE.format(name=name).encode(),
            f"{name}_tokenizer.c": source.encode()}


def text(report: dict) -> str:
    """Returns the report of `write` as a line."""
    ends = [f"{report[end]} {where}" for end, where in (("first", "before"), ("last", "after")) if report[end] >= 0]
    return (f"{report['folder']}: {report['kind']} with {report['tokens']:,} tokens"
            + (f"; the network expects {' and '.join(ends)} a text" if ends else "") + "\n")
