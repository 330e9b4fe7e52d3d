# SPDX-License-Identifier: Apache-2.0
"""Writes a tokenizer as C: its tables, the sources that read them, and a program that prints tokens."""

from __future__ import annotations

from pathlib import Path

from ... import folders, paths
from ...codegen.c_source.render import environment
from ...errors import MegccError, refused_by_system
from ...foreign import identifier
from ...version import VERSION
from . import tokenizer_file
from .tables import tables
from .wordpiece import WordPieces

_MAKEFILE = """# SPDX-License-Identifier: 0BSD
CFLAGS ?= -O2
{name}_tokens: $(wildcard *.c *.h)
\t$(CC) -std=c99 $(CFLAGS) $(LDFLAGS) $(wildcard *.c) -o $@
"""


def write(path: str | Path, output: str | Path | None = None, name: str | None = None) -> dict:
    """Writes the folder of a tokenizer, and returns a report: folder, name, kind, vocabulary size, and the tokens
    before and after a text, -1 for none.

    Args:
        path: a file that `tokenizer_file.read` reads.
        output: the folder; default is the name with `_tokenizer`.
        name: its name in C; default is that of the file, or of its folder if the file is tokenizer.json.

    Raises:
        MegccError: as `tokenizer_file.read`; if the folder has other files, or cannot be written.
    """
    path = Path(path)
    given = path.resolve()
    name = identifier(name or (given.parent.name if given.name in tokenizer_file.NAMES else given.stem))
    found = tokenizer_file.read(path)
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
    pieces = isinstance(found, WordPieces)
    return {"folder": str(folder), "name": name, "kind": "WordPiece" if pieces else "BPE", "tokens": len(found.tokens),
            "first": found.first if pieces else -1, "last": found.last if pieces else -1}


def contents(name: str, found) -> dict[str, bytes]:
    """Returns the files of the folder."""
    kind, unit, work = "tokenizer", "uint32_t", "MEGCC_TOKENIZER_WORK(MOST)"
    if isinstance(found, WordPieces):
        kind, unit, work = "wordpiece", "uint8_t", f"MEGCC_WORDPIECE_WORK({found.longest_word})"
    runtime = [paths.c_runtime() / "lm" / each for each in (f"megcc_{kind}.h", f"megcc_{kind}.c", "megcc_strings.h")]
    program = environment().get_template("language_model/tokens.c.j2").render(
        version=VERSION, name=name, kind=kind, unit=unit, work=work)
    return {**{each.name: each.read_bytes() for each in runtime}, "main.c": program.encode(),
            "Makefile": _MAKEFILE.format(name=name).encode(),
            f"{name}_tokenizer.c": (found.text(name) if kind == "wordpiece" else tables(name, found)).encode()}


def text(report: dict) -> str:
    ends = [f"{report[end]} {where}" for end, where in (("first", "before"), ("last", "after")) if report[end] >= 0]
    return (f"{report['folder']}: {report['kind']} with {report['tokens']:,} tokens"
            + (f"; the network expects {' and '.join(ends)} a text" if ends else "") + "\n")
