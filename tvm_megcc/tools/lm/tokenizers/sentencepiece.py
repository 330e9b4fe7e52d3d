# SPDX-License-Identifier: Apache-2.0
"""Reads a tokenizer.model of SentencePiece, and prints its tables as C for c_runtime/lm/megcc_sentencepiece.c.

Source: sentencepiece_model.proto of SentencePiece, whose names of fields the numbers below have. The file is not
trusted: every length, number and string is checked here, and nowhere else.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ....errors import MegccError, quoted
from .arrays import NO_TOKEN, array, heading
from .tokenizer import metadata_value
from .trie import Trie

#: ModelProto.SentencePiece.Type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
#: TrainerSpec.ModelType
UNIGRAM, BPE = 1, 2
#: Numbers of fields: of ModelProto, of its SentencePiece, of TrainerSpec and of NormalizerSpec.
_PIECES, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _TREAT_WHITESPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_PRECOMPILED_CHARSMAP, _ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 2, 3, 4, 5
#: The difference between the scores of the least likely token and an unknown character: kUnkPenalty in
#: unigram_model.cc of SentencePiece.
_UNKNOWN_PENALTY = 10


@dataclass(frozen=True)
class SentencePiece:
    """A model of SentencePiece.

    tokens: strings; all differ among those that are found in a text.
    scores: float32 values.
    types: `NORMAL` to `BYTE`.
    unigram: whether the most likely sequence of tokens is found; otherwise pairs are merged.
    bytes_known: whether characters that are no tokens become tokens of their bytes.
    prefix, suffix: whether a space is added before or after a text.
    single_spaces: whether several spaces are one, and none where a text begins and ends.
    escape: whether spaces are U+2581 in tokens.
    trie, replaced: a double-array trie of what normalization replaces, and the replacements, strings that end with 0
        (`charsmap`); empty for none.
    """

    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]
    unigram: bool
    bytes_known: bool
    prefix: bool
    suffix: bool
    single_spaces: bool
    escape: bool
    trie: tuple[int, ...]
    replaced: bytes

    def text(self, name: str) -> str:
        """Returns a C source that defines `const megcc_sentencepiece NAME_tokenizer`."""
        encoded = [token.encode() for token in self.tokens]
        words = Trie.of({encoded[index]: index for index, kind in enumerate(self.types)
                         if kind in (NORMAL, USER_DEFINED)})
        defined = sorted(encoded[index] for index, kind in enumerate(self.types) if kind == USER_DEFINED)
        # Tokens of bytes are "<0x00>" to "<0xFF>" (`_check`).
        byte = {int(self.tokens[index][3:5], 16): index for index, kind in enumerate(self.types) if kind == BYTE}
        normal = [score for score, kind in zip(self.scores, self.types, strict=True) if kind == NORMAL]
        unknown = struct.unpack("<f", struct.pack("<f", min(normal) - _UNKNOWN_PENALTY))[0]
        # The fields of the struct in megcc_sentencepiece.h, in its order: numbers first, then arrays.
        arrays = {
            "bytes": ("uint8_t", b"".join(defined)),
            "text": ("uint32_t", [0, *accumulate(map(len, defined))]),
            "score": ("float", [f"{score.hex()}f" for score in self.scores]),
            "is_defined": ("uint8_t", [int(kind == USER_DEFINED) for kind in self.types] if defined else []),
            "byte": ("uint32_t", [byte.get(value, NO_TOKEN) for value in range(256)] if self.bytes_known else []),
            "trie": ("uint32_t", self.trie),
            "replaced": ("uint8_t", self.replaced),
        }
        numbers = [len(encoded), len(defined), self.types.index(UNKNOWN), self.unigram, self.prefix,
                   self.suffix, self.single_spaces, self.escape, self.bytes_known]
        shown = [*map(int, numbers), f"{unknown.hex()}f"]
        return "\n".join([
            heading(name, "megcc_sentencepiece.h"), '#include "megcc_strings.h"\n', words.text(f"{name}_words"),
            *(array(f"{name}_{key}", unit, values) for key, (unit, values) in arrays.items() if values),
            f"extern const megcc_sentencepiece {name}_tokenizer;",
            f"const megcc_sentencepiece {name}_tokenizer = {{", *(f"    {value}," for value in shown),
            f"    &{name}_words,",
            *(f"    {f'{name}_{key}' if values else 'NULL'}," for key, (_, values) in arrays.items()), "};", ""])


def of(data: bytes) -> SentencePiece:
    """Reads a tokenizer.model.

    Raises:
        MegccError: if it is damaged, or of a kind that is not supported.
    """
    pieces, trainer, normalizer = [], b"", b""
    for field, value in _fields(data):
        if field == _PIECES:
            pieces.append(_piece(_bytes(value)))
        elif field == _TRAINER_SPEC:  # a message that comes twice is merged, as Protocol Buffers require
            trainer += _bytes(value)
        elif field == _NORMALIZER_SPEC:
            normalizer += _bytes(value)
    if not pieces:
        raise MegccError("no tokenizer.model: it has no pieces")
    tokens, scores, types = (tuple(column) for column in zip(*pieces, strict=True))
    training, rules = dict(_fields(trainer)), dict(_fields(normalizer))
    kind, bytes_known = _number(training, _MODEL_TYPE, UNIGRAM), bool(_number(training, _BYTE_FALLBACK, 0))
    if kind not in (UNIGRAM, BPE):
        raise MegccError(f"the tokenizer.model is of type {quoted(kind)}; unigram (1) and BPE (2) are supported")
    _check(tokens, types, bytes_known)
    if kind == BPE and UNUSED in types:
        raise MegccError("the tokenizer.model has unused pieces, which are not supported for BPE")
    trie, replaced = charsmap(_bytes(rules.get(_PRECOMPILED_CHARSMAP, b"")))
    adds_space = bool(_number(rules, _ADD_DUMMY_PREFIX, 1))
    after_text = bool(_number(training, _TREAT_WHITESPACE_AS_SUFFIX, 0))
    return SentencePiece(tokens, scores, types, unigram=kind == UNIGRAM, bytes_known=bytes_known,
                         prefix=adds_space and not after_text, suffix=adds_space and after_text,
                         single_spaces=bool(_number(rules, _REMOVE_EXTRA_WHITESPACES, 1)),
                         escape=bool(_number(rules, _ESCAPE_WHITESPACES, 1)), trie=trie, replaced=replaced)


def of_gguf(metadata: Mapping[str, object], tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
            ) -> SentencePiece:
    """Reads a GGUF file's metadata of a unigram model (tokenizer.ggml.model "t5").

    Raises:
        MegccError: if they are damaged.
    """
    if not len(tokens) == len(types) == len(scores) or "" in tokens or not all(1 <= kind <= BYTE for kind in types):
        raise MegccError("the tokens of the GGUF file have no types or scores, or others than SentencePiece's")
    if not all(abs(score) <= float(np.finfo(np.float32).max) for score in scores):  # false for NaN, too
        raise MegccError("the GGUF file has tokens with scores that are no numbers of float32")
    bytes_known = BYTE in types
    _check(tokens, types, bytes_known)
    rules = metadata.get("tokenizer.ggml.precompiled_charsmap", np.zeros(0, np.uint8))
    if not isinstance(rules, np.ndarray) or rules.dtype.itemsize != 1:
        raise MegccError("the GGUF file has a precompiled_charsmap that is not an array of bytes")
    trie, replaced = charsmap(rules.tobytes())
    return SentencePiece(tuple(tokens), tuple(scores), tuple(types), unigram=True, bytes_known=bytes_known,
                         prefix=bool(metadata_value(metadata, "add_space_prefix", True)), suffix=False,
                         single_spaces=bool(metadata_value(metadata, "remove_extra_whitespaces", False)),
                         escape=True, trie=trie, replaced=replaced)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (number of the field, value) of a message in the wire format of Protocol Buffers. A value is a number
    (wire type 0, varint) or bytes (1: 8 bytes, 2: a length and as many bytes, 5: 4 bytes)."""
    position = 0

    def number() -> int:
        """Reads a varint: 7 bits in each byte, the lowest first, and bit 7 set in all bytes but the last."""
        nonlocal position
        value = 0
        for shift in range(0, 70, 7):
            if position == len(data):
                break
            position += 1
            value |= (data[position - 1] & 0x7f) << shift
            if data[position - 1] < 0x80:
                return value
        raise MegccError("no tokenizer.model: it ends within a number, or has one that is too long")

    while position < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(key & 7, -1)
        if key & 7 == 2:
            size = number()
        if size < 0 or size > len(data) - position:
            raise MegccError("no tokenizer.model: it has a field of another kind, or one beyond its end")
        yield key >> 3, data[position:position + size]
        position += size


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MegccError("the tokenizer.model has a number where there are bytes")
    return value


def _number(fields: dict[int, int | bytes], field: int, otherwise: int) -> int:
    """Returns the number in a field; `otherwise` if the message does not have it."""
    value = fields.get(field, otherwise)
    if not isinstance(value, int):
        raise MegccError("the tokenizer.model has bytes where there is a number")
    return value


def _piece(data: bytes) -> tuple[str, float, int]:
    """Returns token, score and type of a message SentencePiece."""
    fields = dict(_fields(data))
    score, kind = _bytes(fields.get(_SCORE, bytes(4))), _number(fields, _TYPE, NORMAL)
    try:
        token = _bytes(fields.get(_PIECE, b"")).decode()
    except UnicodeDecodeError:
        raise MegccError("the tokenizer.model has a piece that is not UTF-8") from None
    if not token or len(score) != 4 or not math.isfinite(struct.unpack("<f", score)[0]) or not 1 <= kind <= BYTE:
        raise MegccError(f"the tokenizer.model has a piece {quoted(token)} without text, score or type")
    if "\0" in token:
        raise MegccError("the tokenizer.model has a piece with U+0000, which is not supported")
    return token, struct.unpack("<f", score)[0], kind


def _check(tokens: Sequence[str], types: Sequence[int], bytes_known: bool) -> None:
    """Raises MegccError for tokens that are equal or contradict their types. A control token may be equal to a token of
    text, since it is not looked up by its text."""
    for group in ((NORMAL, USER_DEFINED, UNUSED), (UNKNOWN, CONTROL, BYTE)):
        found = [token for token, kind in zip(tokens, types, strict=True) if kind in group]
        if len(set(found)) < len(found):
            raise MegccError("two pieces of the tokenizer.model are equal")
    if types.count(UNKNOWN) != 1 or NORMAL not in types:
        raise MegccError("the tokenizer.model has no piece for unknown characters, several of them, or no other piece")
    byte = {token for token, kind in zip(tokens, types, strict=True) if kind == BYTE}
    if byte != ({f"<0x{value:02X}>" for value in range(256)} if bytes_known else set()):
        raise MegccError("the tokenizer.model has pieces for some bytes only, or for bytes that are not used")


def charsmap(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Reads a normalization (precompiled_charsmap): a double-array trie and the replacement strings. Checks that no
    walk of the C code leaves them, by walking all paths of the trie at once, level by level.

    Source: darts.h of Darts-clone. A node has a child for each byte that may follow: the child by byte b is at the
    node's begin ^ b, if the label there is b. A leaf, the child by byte 0, has the offset of a replacement as its
    value. The bits of a unit: 0 to 7 the label, with bit 31, which leaves have set; 8 whether there is a leaf; 9 to 30
    the offset to the children's begin (`_offsets`); or, in a leaf, 0 to 30 the value.

    Raises:
        MegccError: if it is damaged.
    """
    if not data:
        return (), b""
    size = int.from_bytes(data[:4], "little")  # of the trie in bytes
    if len(data) < 4 or size > len(data) - 4 or size % 4 or not size:
        raise MegccError("the normalization of the tokenizer.model is damaged")
    trie, replaced = np.frombuffer(data, "<u4", size // 4, 4), data[4 + size:] + b"\0"
    labels, begins = np.arange(256, dtype=np.uint32), _offsets(trie[:1])
    reached = np.zeros(len(trie), bool)
    while len(begins):
        if (begins | 0xff).max() >= len(trie):  # begin ^ b for the largest of all bytes b
            raise MegccError("the normalization of the tokenizer.model is damaged: it leads beyond its end")
        reached[begins] = True
        nodes = begins[:, None] ^ labels
        nodes = nodes[trie[nodes] & 0x800000ff == labels]
        begins = nodes ^ _offsets(trie[nodes])
        leaves = begins[(trie[nodes] >> 8 & 1) == 1]
        values = np.unique(trie[leaves[leaves < len(trie)]] & 0x7fffffff)
        if (leaves >= len(trie)).any() or not all(
                value < len(replaced) and _is_text(replaced[value:replaced.index(b"\0", value)]) for value in
                values.tolist()):
            raise MegccError("the normalization of the tokenizer.model is damaged: a replacement is not UTF-8")
        # Go on with begins that are new, and with those beyond the end, which the next round refuses.
        begins = np.unique(begins[(begins >= len(trie)) | ~reached[np.minimum(begins, len(trie) - 1)]])
    return tuple(trie.tolist()), replaced


def _offsets(units: np.ndarray) -> np.ndarray:
    """Returns the offsets of units: bits 10 to 30, in units of 256 if bit 9 is set."""
    return units >> 10 << (units >> 6 & 8)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
