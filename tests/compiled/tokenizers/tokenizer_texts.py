# SPDX-License-Identifier: Apache-2.0
"""Drawn texts of mixed scripts, vocabularies that are trained on them, and the tokenizer in C as a library."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import numpy as np

from tests.compiled.runtime.test_runtime import CC, FLAGS, ROOT, call
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.tokenizers import file as tokenizer_file
from tvm_megcc.tools.lm.tokenizers.tables import tables
from tvm_megcc.tools.lm.tokenizers.tokenizer import Vocabulary

LM = ROOT / "lm"
SPLITS = ("gpt-2", "smollm", "llama-bpe", "qwen2")
#: Blocks of code points, and what splits and decoders treat apart.
_BLOCKS = [(0x20, 0x7f), (0x20, 0x7f), (0xa0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xe80), (0x1e00, 0x2070),
           (0x2070, 0x2190), (0x2460, 0x2500), (0x3000, 0x3100), (0x4e00, 0x4f00), (0xac00, 0xad00), (0xff00, 0xffef),
           (0x1d400, 0x1d800), (0x1f300, 0x1f700), (0x10000, 0x10400), (0x0, 0xd800), (0xe000, 0x110000)]
_PIECES = [
    " ", "  ", "   ", "\n", "\r\n", "\n\n  ", "\t", " \t\n", "\u3000", "\u00a0", "\u0085", "'s", "'LL", "'re", "'ve",
    "'D", "'\u017f", "don't", "I'M", "1", "23", "4567", "89 01", "\u00b2\u00bd", "\u0664\u0665", "\u2167", "e\u0301",
    "\u200d", "\ufe0f", "\u2581", "\u2581\u2581", "\x00", "\ufffd", "ab", "hello", " world", "...", "--", "://", "(x)",
    "<|end|>", "<|end", "<|end|>>", "<s>", "<0x41>", "[INST]", " [INST]"]
SPECIAL = ["<|end|>", "<|end|>>", "<s>", "[INST]", "\u2581<p>", "\u00e9\u00e9!"]


def text(seed: int) -> str:
    draw = random.Random(seed)
    parts = []
    for _ in range(draw.randrange(12)):
        low, high = draw.choice(_BLOCKS)
        word = "".join(chr(draw.randrange(low, high)) for _ in range(draw.randrange(1, 9)))
        parts.append(draw.choice([draw.choice(_PIECES), draw.choice(_PIECES), draw.choice(SPECIAL), word, " " + word]))
    return "".join(parts)


def training() -> list[str]:
    """Texts without special tokens, of a part of all characters, so that some are unknown."""
    found = []
    for seed in range(100_000_000, 100_003_000):
        given = text(seed)
        for each in ("<|end", "INST", "<s>", "<p>"):
            given = given.replace(each, "")
        found.append("".join(each for each in given if each < "\u0600" or "\u4e00" <= each < "\u4e40"))
    return found


def byte_level(split: str, size: int = 1200) -> dict:
    """The metadata of byte-level BPE, trained on drawn texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(training(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return {**_trained(made), "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": split}


def pieces(every_byte: bool = True, prefix: bool = True, size: int = 1200) -> dict:
    """The metadata of SentencePiece's BPE, trained on drawn texts, with or without tokens of bytes."""
    from tokenizers import Tokenizer, models, normalizers, trainers

    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.train_from_iterator(training(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False))
    trained = _trained(made)
    extra = [f"<0x{byte:02X}>" for byte in range(256)] if every_byte else []
    tokens = ["<unk>", *extra, *trained["tokenizer.ggml.tokens"]]
    draw = np.random.default_rng(1)
    scores = [0.0] * (1 + len(extra)) + [
        -float(draw.integers(0, len(tokens) // 4)) for _ in trained["tokenizer.ggml.tokens"]]  # some are equal
    types = [2] + [6] * len(extra) + list(trained["tokenizer.ggml.token_type"])
    return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_space_prefix": prefix}


def mutants(data: bytes, count: int, folder: Path) -> None:
    """Checks that changed files are read or refused. data: of a tokenizer.json."""
    draw, read = random.Random(3), 0
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(changed))
            changed[at:at + draw.randrange(3)] = draw.choice(
                [b"", b"{", b"}", b"[", b'"', b"\\", b"\\ud800", b"-1", b"1e9", b"9" * 20, b"null", b"\xff",
                 bytes([draw.randrange(256)])])
        (folder / "tokenizer.json").write_bytes(changed)
        try:
            tokenizer_file.read(folder)
            read += 1
        except MegccError:
            pass
    assert 0 < read < count


def _trained(tokenizer) -> dict:
    import json

    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {"tokenizer.ggml.tokens": [*tokens, *SPECIAL],
            "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
            "tokenizer.ggml.token_type": [1] * len(tokens) + [3, 3, 3, 4, 4, 4]}


class Compiled:
    """A tokenizer in C, compiled as a library.

    kind: the name of its source, megcc_KIND.c.
    unit: the type of its work memory.
    more: sources that it needs besides.
    """

    kind: str
    unit: type = np.uint32
    more: tuple[str, ...] = ()

    def __init__(self, folder: Path, tables: str):
        (folder / "t_tokenizer.c").write_text(tables)
        library = folder / "t.so"
        sources = [LM / f"megcc_{kind}.c" for kind in (self.kind, *self.more)]
        call([CC, *FLAGS, f"-I{LM}", "-fPIC", "-shared", *sources, folder / "t_tokenizer.c", "-o", library])
        self.library = ctypes.CDLL(str(library))
        self.tables = ctypes.c_char.in_dll(self.library, "t_tokenizer")

    def run(self, data: bytes, flags: tuple[int, ...], room: int, work: int) -> list[int]:
        """Returns the tokens of a text. room: the most tokens; work: elements of the work memory."""
        size, number, pointer = ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p
        tokens, memory = np.full(room + 1, 7, np.uint32), np.full(work + 1, 7, self.unit)
        count = getattr(self.library, f"megcc_{self.kind}_encode")(
            pointer(ctypes.addressof(self.tables)), data, size(len(data)), *flags, pointer(tokens.ctypes.data),
            number(room), pointer(memory.ctypes.data), size(work * memory.itemsize))
        assert tokens[room] == 7 and memory[work] == 7
        assert count >= 0, "the work memory is too small"
        return tokens[:min(count, room)].tolist()


class InC(Compiled):
    """The tokenizer of a vocabulary of byte pairs."""

    kind = "tokenizer"
    more = ("normalizer",)

    def __init__(self, folder: Path, vocabulary: Vocabulary):
        super().__init__(folder, tables("t", vocabulary))
        pointer = ctypes.c_void_p
        for name, arguments in (("add", [pointer, pointer, ctypes.c_uint32]), ("end", [pointer])):
            function = getattr(self.library, f"megcc_decoder_{name}")
            function.argtypes = [*arguments, ctypes.c_char_p, ctypes.c_size_t]
            function.restype = ctypes.c_size_t

    def encode(self, data: bytes, special: bool = True, room: int = -1, work: int = -1) -> list[int]:
        return self.run(data, (special,), room if room >= 0 else 3 * len(data) + 8,  # NFC can be longer
                        work if work >= 0 else 6 * (3 * len(data) + 1))

    def decode(self, tokens: list[int]) -> list[str]:
        """The text, in the pieces that arrive."""
        decoder, room = ctypes.create_string_buffer(6), ctypes.create_string_buffer(4096)
        found = []
        for token in tokens:
            count = self.library.megcc_decoder_add(ctypes.addressof(self.tables), decoder, token, room, 4096)
            found.append(room.raw[:count].decode())
        count = self.library.megcc_decoder_end(decoder, room, 4096)
        return [*found, room.raw[:count].decode()]
