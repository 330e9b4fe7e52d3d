# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of an embedding model or reranker in C: its tables, its work memory, and the tokens around strings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import paths
from ...errors import MegccError
from .tokenizers import file as tokenizer_file
from .tokenizers.sentencepiece import SentencePiece
from .tokenizers.tables import tables
from .tokenizers.tokenizer import Vocabulary
from .tokenizers.unigram import Unigram
from .tokenizers.wordpiece import WordPieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: The highest type of a token: C has bytes for them.
_MOST_TYPE = 255
#: The default capacity of the buffer for a string: bytes for each token of the context. An estimate, since most tokens
#: are shorter; who compiles the C may define another capacity.
_BYTES_PER_TOKEN = 16


@dataclass(frozen=True)
class Encoder:
    """A tokenizer in C.

    found: its tables' contents.
    kind: "tokenizer" (byte pairs), "unigram" or "wordpiece": a part of the names of its header and functions.
    unit: C type of its work memory, "uint32_t" or "uint8_t".
    modules: the sources of c_runtime/lm that it needs, without "megcc_".
    """

    found: Vocabulary | WordPieces | Unigram
    kind: str
    unit: str
    modules: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, has_padding: bool = True) -> Encoder:
        """Reads the tokenizer.json of a folder. has_padding: as of `tokenizer_file.read`.

        Raises:
            MegccError: if it is damaged or not supported.
        """
        found = tokenizer_file.read(folder / "tokenizer.json", has_padding=has_padding)
        assert not isinstance(found, SentencePiece)  # no tokenizer.json
        if isinstance(found, WordPieces):
            return cls(found, "wordpiece", "uint8_t", ("wordpiece",))
        if isinstance(found, Unigram):
            return cls(found, "unigram", "uint32_t", ("unigram", "normalizer"))
        return cls(found, "tokenizer", "uint32_t", ("tokenizer", *(["normalizer"] if found.form else [])))

    def text_bytes(self, context: int) -> int:
        """Returns the default capacity of the buffer for a string; 0: the work memory does not depend on strings."""
        return 0 if self.kind == "wordpiece" else _BYTES_PER_TOKEN * context

    def work(self, capacity: str) -> str:
        """Returns the elements of the work memory as C. capacity: that of the buffer for a string, as C."""
        if isinstance(self.found, WordPieces):
            return f"MEGCC_WORDPIECE_WORK({self.found.longest_word})"
        if isinstance(self.found, Unigram):
            return f"MEGCC_UNIGRAM_WORK({capacity})"
        return f"MEGCC_TOKENIZER_{'NORMAL_' if self.found.form else ''}WORK({capacity})"

    def files(self, name: str, *modules: str) -> dict[str, bytes]:
        """Returns the tables of the tokenizer, and sources of the runtime: its own and `modules`."""
        lm = paths.c_runtime() / "lm"
        runtime = [lm / f"megcc_{module}{end}" for module in (*modules, *self.modules) for end in (".h", ".c")]
        source = tables(name, self.found) if isinstance(self.found, Vocabulary) else self.found.text(name)
        return {f"{name}_tokenizer.c": source.encode()} | {
            f"runtime/{'include' if path.suffix == '.h' else 'src'}/{path.name}": path.read_bytes()
            for path in (*runtime, lm / "megcc_strings.h")}


@dataclass(frozen=True)
class Around:
    """The tokens that a tokenizer adds to one string, or to two, with their types.

    added: before the first string, after it, and, for two strings, after the second: (token, type) of each.
    types: the type of the tokens of each string.
    """

    added: tuple[tuple[tuple[int, int], ...], ...]
    types: tuple[int, ...]

    @classmethod
    def of(cls, package: Tokenizer, strings: int) -> Around:
        """Asks the package tokenizers. strings: their number, 1 or 2.

        Raises:
            MegccError: if the tokens of one string have different types, or other tokens come between them, and for
                types that are no bytes.
        """
        # Any string that has tokens.
        probe = next((text for text in ("a", *package.get_vocab())
                      if package.encode(text, add_special_tokens=False).ids), "")
        encoding = package.encode(probe, probe if strings == 2 else None)
        rows: list[tuple[int, int, Any]] = list(
            zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True))
        added: list[list[tuple[int, int]]] = [[]]
        types: list[int] = []
        for token, type_, sequence in rows:
            if sequence is None:
                added[-1].append((token, type_))
            elif sequence == len(types):
                types.append(type_)
                added.append([])
            elif sequence != len(types) - 1 or added[-1] or type_ != types[-1]:
                raise MegccError("the tokenizer's post-processor changes the order of strings, or gives their tokens "
                                 "different types")
        if len(types) != strings:
            raise MegccError("the tokenizer's post-processor leaves out a string")
        most = max(type_ for _, type_, _ in rows)
        if most > _MOST_TYPE:
            raise MegccError(f"the tokenizer's post-processor has types of tokens up to {most}, and C has bytes")
        return cls(tuple(map(tuple, added)), tuple(types))
