# SPDX-License-Identifier: Apache-2.0
"""The reader of GGUF files and its decoders beside the package gguf, and damaged files."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest

from tests.unit.gguf.files import SHAPES, weights, write
from tvm_megcc.errors import MegccError, ModelError
from tvm_megcc.frontends.gguf import import_gguf
from tvm_megcc.frontends.gguf.blocks import blocks, floats
from tvm_megcc.frontends.gguf.file import ENCODINGS, Encoding, Tensor, read

gguf = pytest.importorskip("gguf")

QUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL")


def encoding(name: str) -> Encoding:
    return next(each for each in ENCODINGS.values() if each.name == name)


def test_sizes_of_encodings():
    """Those of the package, of each encoding that it has too."""
    for code, ours in ENCODINGS.items():
        kind = gguf.GGMLQuantizationType(code)
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (ours.name, (ours.elements, ours.size))


@pytest.mark.parametrize("name", QUANTISED)
def test_any_bytes(name):
    """Blocks of random bytes whose scales are finite: the same floats, bit for bit."""
    kind = encoding(name)
    raw = np.random.default_rng(1).integers(0, 256, (512, kind.size), np.uint8)
    with np.errstate(invalid="ignore"):
        wanted = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    finite = np.isfinite(wanted).all(1)
    raw, wanted = raw[finite], wanted[finite]
    tensor = Tensor("w", wanted.shape, kind, raw.reshape(-1))
    np.testing.assert_array_equal(floats(tensor), wanted)
    found = blocks(tensor)
    assert found.numbers.max() < 1 << found.bits


def test_scales_that_are_no_numbers():
    raw = np.full((2, 18), 255, np.uint8)
    with pytest.raises(MegccError, match="'w' has scales that are no finite numbers"):
        floats(Tensor("w", (2, 32), encoding("Q4_0"), raw.reshape(-1)))


def test_an_encoding_that_nobody_decodes():
    with pytest.raises(MegccError, match="'w' is of Q2_K; F32, F16, BF16"):
        blocks(Tensor("w", (1, 256), encoding("Q2_K"), np.zeros(84, np.uint8)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    shape = SHAPES["llama"].with_(layers=1, encoding="Q4_0")
    return write(tmp_path_factory.mktemp("gguf") / "sound.gguf", shape, weights(shape),
                 **{"tokenizer.tokens": (["a", "b"], gguf.GGUFValueType.ARRAY)}).read_bytes()


def _read(path, data: bytes):
    path.write_bytes(data)
    return read(path)


def test_metadata_and_tensors(sound, tmp_path):
    file = _read(tmp_path / "a.gguf", sound)
    assert file.metadata["general.architecture"] == "llama" and file.metadata["llama.embedding_length"] == 64
    assert file.metadata["tokenizer.tokens"] == ["a", "b"]
    assert file.tensors["blk.0.ffn_down.weight"].shape == (64, 96)


@pytest.mark.parametrize("data, reason", [
    (b"", "does not begin with GGUF"),
    (b"GGUF", "ends at byte 4"),
    (b"GGUF" + struct.pack("<I", 1), "has version 1; 2 and 3 are read"),
    (b"GGUF" + struct.pack(">I", 3), "is a big-endian file"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "ends at byte"),
    (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "ends at byte"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63), "ends at byte"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 99), "'a' is of type 99"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 9, 1), "an array of type 9"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<I", 5), "'w' has 5 axes"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 4, 77, 0), "the encoding 77"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 31, 2, 0), "blocks of 32"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 0, 0, 0), "blocks of 1"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 2**62, 0, 0), "may reach 2 GB"),
    (b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"w" + struct.pack("<IQIQ", 1, 8, 0, 32), "are not in the file"),
])
def test_damage(data, reason, tmp_path):
    with pytest.raises(ModelError) as raised:
        _read(tmp_path / "a.gguf", data)
    assert reason in str(raised.value)


def test_no_file(tmp_path):
    with pytest.raises(ModelError, match="cannot be read"):
        read(tmp_path / "none.gguf")


@pytest.mark.parametrize("key, reason", [
    ("block_count", "has 16,777,216 layers, and"), ("attention.key_length", "wanted is"),
    ("attention.head_count", "wanted is")])
def test_a_small_file_takes_no_gigabytes(key, reason, sound, tmp_path):
    """Extents of the metadata are compared with the file's tensors before tables are made of them."""
    data = bytearray(sound)
    keys = [key] if key != "attention.key_length" else [key, "attention.value_length"]
    for name in keys:
        end = sound.index(f"llama.{name}".encode()) + len(f"llama.{name}") + 4
        data[end:end + 4] = struct.pack("<I", 1 << 24)
    (tmp_path / "a.gguf").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as raised:
            import_gguf(tmp_path / "a.gguf")
        assert reason in str(raised.value) and tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(4))
def test_mutants(seed, sound, tmp_path):
    """Bytes changed, cut or repeated: a graph, or an error of ours."""
    random = np.random.default_rng(seed)
    head = sound.index(b"blk.0.ffn_down")  # the metadata and the table of tensors, mostly
    for _ in range(60):
        data = bytearray(sound)
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(4, head + 900))
            data[at] = int(random.choice([0, 1, 255, random.integers(0, 256)]))
        if random.random() < 0.2:
            del data[int(random.integers(8, len(data))):]
        (tmp_path / "a.gguf").write_bytes(bytes(data))
        try:
            import_gguf(tmp_path / "a.gguf")
        except MegccError:
            pass
