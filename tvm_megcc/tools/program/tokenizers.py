# SPDX-License-Identifier: Apache-2.0
"""Steps from text to tokens: a tokenizer in C, and the tokens that a network expects around a text or a pair of strings
(c_runtime/lm/megcc_tokens.h)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ... import paths
from ...errors import InternalError, MegccError
from ..lm.tokenizers import file as tokenizer_file
from ..lm.tokenizers.sentencepiece import SentencePiece
from ..lm.tokenizers.tables import tables
from ..lm.tokenizers.tokenizer import Vocabulary, tokenizers_package
from ..lm.tokenizers.unigram import Unigram
from ..lm.tokenizers.wordpiece import WordPieces
from .settings import Settings
from .steps import Tokenizer, ValueType

#: The keys of a step besides inputs and outputs.
KEYS = ("most", "around", "special", "padding")
INPUTS = ("text", "pair")
OUTPUTS = ("tokens", "mask", "types", "count")
#: The largest number of tokens of a result, and of bytes of a text.
_MOST_TOKENS, _MOST_BYTES = 1 << 20, 1 << 22
#: How many times as long a text may become by normalization: to NFC three times (Unicode Standard Annex 15, table of
#: expansion factors); to NFKC, of a character such as U+FDFA with a mark of 3 bytes for each space, 13 times.
_GROWTH_COMPOSED, _GROWTH = 4, 16
#: The most bytes of a number of tokens.
_TOKEN = 4

_Found = Vocabulary | WordPieces | SentencePiece | Unigram


@dataclass(frozen=True)
class Around:
    """The tokens that a network expects around a text, each a pair of token and token type.

    before, after: of the text, or of both. between: the two strings of a pair. types: token types of the strings.
    """

    before: tuple[tuple[int, int], ...] = ()
    between: tuple[tuple[int, int], ...] = ()
    after: tuple[tuple[int, int], ...] = ()
    types: tuple[int, int] = (0, 0)

    @property
    def all(self) -> tuple[tuple[int, int], ...]:
        return (*self.before, *self.between, *self.after)


class Call(NamedTuple):
    """A step in C.

    found: the tokenizer. kind: a part of the names of its header and functions.
    most: the length of each result. around: what stands around the strings.
    special: whether strings of special tokens in a text are these tokens; None: the function does not ask.
    padding: the token after the last one.
    work: bytes of work memory of the tokenizer.
    results: the types of all outputs.
    """

    found: _Found
    kind: str
    most: int
    around: Around
    special: bool | None
    padding: int
    work: int
    results: Mapping[str, ValueType]


def call(step: Tokenizer, given: Mapping[str, ValueType]) -> Call:
    """Returns the call of a step. given: the types of its inputs.

    Raises:
        MegccError: for an input that is no text, a setting of another kind, a file that is no tokenizer, and where the
            tokens around a text leave none for it.
    """
    settings = Settings(step, {step.function: KEYS})
    for direction, names, known in (("input", step.inputs, INPUTS), ("output", step.outputs, OUTPUTS)):
        for name in names:
            if name not in known:
                raise MegccError(f"a tokenizer has no {direction} '{name}'; it has {', '.join(known)}")
    if "text" not in given:
        raise MegccError("its input 'text' gets no value")
    for name, type_ in given.items():
        if type_.dtype != "uint8" or sum(extent != 1 for extent in type_.shape) > 1 or type_.bytes > _MOST_BYTES:
            raise MegccError(f"its input '{name}' is a text, uint8[bytes], not {type_}")
    most = settings.integer("most", 1, _MOST_TOKENS)
    path = Path(step.function)
    found = _read(path)
    around, padding = _expected(path, found, is_pair="pair" in given)
    if not settings.flag("around", True):
        around = Around(types=around.types)
    if len(around.all) >= most:
        raise MegccError(f"'most' is {most}, and there are {len(around.all)} tokens around the text")
    special = settings.flag("special", True)
    return Call(found, _kind(found), most, around, None if isinstance(found, SentencePiece) else special,
                settings.integer("padding", 0, (1 << 31) - 1, padding),
                _work(found, max(type_.bytes for type_ in given.values())),
                {name: ValueType("int64", (1,) if name == "count" else (most,)) for name in OUTPUTS})


def source(name: str, found: _Found) -> str:
    """Returns the tables of a tokenizer as C, which defines `NAME_tokenizer`."""
    return tables(name, found) if isinstance(found, Vocabulary) else found.text(name)


def runtime(calls: Sequence[Call]) -> dict[str, bytes]:
    """Returns the files of the runtime that tokenizers need, by their paths in the folder."""
    stems = {"megcc_strings", "megcc_tokens", *(f"megcc_{call.kind}" for call in calls)}
    if any(isinstance(call.found, Unigram) or (isinstance(call.found, Vocabulary) and call.found.form)
           for call in calls):
        stems.add("megcc_normalizer")
    return {f"runtime/{'include' if path.suffix == '.h' else 'src'}/{path.name}": path.read_bytes()
            for path in sorted((paths.c_runtime() / "lm").glob("*.[ch]")) if path.stem in stems}


def token_labels(path: Path) -> list[bytes]:
    """Returns the bytes of each token in a text, for `labels`: nothing for special tokens.

    Raises:
        MegccError: for a file that is no tokenizer.
    """
    from ..lm.tokenizers.tables import token_bytes

    found = _read(path)
    if isinstance(found, Vocabulary):
        encoded = token_bytes(found)
    elif isinstance(found, WordPieces):
        encoded = [token.removeprefix("##").encode() if token.startswith("##") else f" {token}".encode()
                   for token in found.tokens]
    else:
        encoded = [token.replace("\u2581", " ").encode() for token in found.tokens]
    special = [each if isinstance(each, str) else each[0] for each in getattr(found, "special", ())]
    hidden = set(special)
    return [b"" if token in hidden else text for token, text in zip(found.tokens, encoded, strict=True)]


def _read(path: Path) -> _Found:
    """Reads a tokenizer. Where the padding token has flags that are not supported, its string is ordinary text."""
    try:
        return tokenizer_file.read(path)
    except InternalError:
        raise
    except MegccError:
        return tokenizer_file.read(path, has_padding=False)


def _kind(found: _Found) -> str:
    return {Vocabulary: "tokenizer", WordPieces: "wordpiece", SentencePiece: "sentencepiece",
            Unigram: "unigram"}[type(found)]


def _work(found: _Found, size: int) -> int:
    """Returns the bytes of work memory for a text of `size` bytes, as the macros of the headers in c_runtime/lm do."""
    if isinstance(found, WordPieces):
        return 4 * found.longest_word
    if isinstance(found, Vocabulary):
        return _TOKEN * (6 * (_GROWTH_COMPOSED * size + 1) if found.form else 5 * (size + 1))
    normal = _GROWTH * (size + 1)
    if isinstance(found, SentencePiece):
        return _TOKEN * (5 * (normal + 1) + normal // 4 + 2)
    return _TOKEN * (4 * (normal + 1) + (normal + 1) // 2 + 2)


def _expected(path: Path, found: _Found, is_pair: bool) -> tuple[Around, int]:
    """Returns the tokens around a text, or around a pair of strings, and the token of padding.

    Raises:
        MegccError: for a pair where the file does not say what is between the strings.
    """
    file = next((path / name for name in tokenizer_file.NAMES if (path / name).is_file()), path) if path.is_dir() \
        else path
    if file.suffix != ".json":
        if is_pair:
            raise MegccError(f"{file} does not say which tokens are between two strings: tokenizer.json does")
        first, last = (getattr(found, end, -1) for end in ("first", "last"))
        return Around(before=((first, 0),) * (first >= 0), after=((last, 0),) * (last >= 0)), 0
    data = file.read_text("utf-8")
    try:
        package = tokenizers_package().Tokenizer.from_str(data)
    except Exception as error:  # the package raises Exception itself
        if isinstance(error, MegccError):
            raise
        raise MegccError(f"{file}: the package tokenizers refuses it: {error}") from None
    package.no_padding()
    package.no_truncation()
    padding: Any = json.loads(data).get("padding")
    pad = int(padding.get("pad_id", 0)) if isinstance(padding, dict) else 0
    return _around(package.encode("a", "a") if is_pair else package.encode("a")), pad


def _around(encoding: Any) -> Around:
    """Returns what the package tokenizers puts around a text or a pair."""
    rows = list(zip(encoding.sequence_ids, encoding.ids, encoding.type_ids, strict=True))
    own = [[at for at, (sequence, _, _) in enumerate(rows) if sequence == number] for number in (0, 1)]
    pairs = [(token, type_) for _, token, type_ in rows]
    if not own[0]:
        return Around(before=tuple(pairs))
    last = own[1] or own[0]
    return Around(
        before=tuple(pairs[:own[0][0]]), between=tuple(pairs[own[0][-1] + 1:own[1][0]]) if own[1] else (),
        after=tuple(pairs[last[-1] + 1:]), types=(pairs[own[0][0]][1], pairs[own[1][0]][1] if own[1] else 0))
