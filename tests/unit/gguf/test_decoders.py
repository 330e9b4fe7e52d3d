# SPDX-License-Identifier: Apache-2.0
"""GGUF files of each architecture and encoding: logits beside those of the formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.unit.gguf.files import SHAPES, logits, weights, write
from tvm_megcc.errors import MegccError, MissingTool, ModelError
from tvm_megcc.frontends.gguf.blocks import _DECODERS, floats
from tvm_megcc.frontends.gguf.file import read
from tvm_megcc.frontends.gguf.transformer import transformer
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ops.quantized.blocks import Blocks
from tvm_megcc.ops.quantized.nbits import dequantize_weights
from tvm_megcc.runtime import reference

gguf = pytest.importorskip("gguf")

TOKENS = [3, 17, 0, 39, 17, 8, 25]


def states(graph) -> dict[str, np.ndarray]:
    return {name: np.zeros([extent if isinstance(extent, int) else 0 for extent in graph.types[name].shape], np.float32)
            for name in graph.inputs if name != "input_ids"}


def run_in_parts(graph, sizes: list[int]) -> list[np.ndarray]:
    """Logits behind each part of the tokens, by the interpreter."""
    given, results, at = states(graph), [], 0
    for size in sizes:
        found = reference.run(graph, {"input_ids": np.array([TOKENS[at:at + size]]), **given})
        given = {name: found[name.replace("past_key_values", "present")] for name in given}
        at += size
        results.append(found["logits"][0])
    return results


@pytest.mark.parametrize("name", SHAPES)
def test_architectures(name, tmp_path):
    """Tokens one by one, and several at once."""
    shape = SHAPES[name]
    tensors = weights(shape)
    path = write(tmp_path / "model.gguf", shape, tensors)
    wanted = logits(shape, tensors, TOKENS)
    one = run_in_parts(transformer(read(path), 1, 16), [1] * len(TOKENS))
    np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4)
    several = run_in_parts(transformer(read(path), Symbol("sequence_length"), 16), [3, 1, 2, 1])
    np.testing.assert_allclose(several, wanted[[2, 3, 5, 6]], rtol=1e-4, atol=1e-4)


def test_a_window_does_not_change_the_scale_of_positions(tmp_path):
    """Only Gemma 3 leaves positions unscaled there. A window that is longer than the text has no effect."""
    shape, found = SHAPES["phi3"], []
    for window in (0, 16):
        path = write(tmp_path / f"{window}.gguf", shape.with_(window=window), weights(shape))
        file = read(path)
        scaled = {**file.metadata, "phi3.rope.scaling.type": "linear", "phi3.rope.scaling.factor": 4.0}
        found.append(run_in_parts(transformer(type(file)(path, scaled, file.tensors), 1, 16), [1] * len(TOKENS)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("encoding", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_encodings_of_a_model(encoding, tmp_path):
    """The weights are those that the encoding stands for."""
    shape = SHAPES["llama"].with_(encoding=encoding)
    path = write(tmp_path / "model.gguf", shape, weights(shape))
    stored = {name: floats(tensor) for name, tensor in read(path).tensors.items()}
    found = run_in_parts(transformer(read(path), 1, 16), [1] * len(TOKENS))
    np.testing.assert_allclose(found, logits(shape, stored, TOKENS), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("target", ["c", "x86-64-v4", "arm64-v86"])
@pytest.mark.parametrize("activations", ["int8", "float32"])
@pytest.mark.parametrize("encoding", ["Q4_0", "Q5_1", "Q8_0"])
def test_a_vocabulary_that_is_the_head_too_is_stored_once(encoding, activations, target, tmp_path):
    """As its product reads it: a file that has it twice becomes larger by the whole of it."""
    sizes = []
    for tied in (True, False):
        shape = SHAPES["llama"].with_(encoding=encoding, vocabulary=2000, layers=1, tied=tied)
        path = write(tmp_path / "model.gguf", shape, weights(shape))
        sizes.append(len(tvm_megcc.compile(path, target, dims={"sequence_length": 1}, activations=activations,
                                           bounds={"past_sequence_length": 16}).image))
    numbers = 2000 * 64 * (4 if encoding == "Q4_0" else 8) // 8
    assert sizes[0] + numbers < sizes[1]


@pytest.mark.parametrize("target, options, prefetches", [
    ("x86-64-v4", {"cache": "int8"}, True), ("x86-64-v3", {"optimize": "size"}, False), ("arm64-v82", {}, False)])
def test_attention_prefetches_keys_and_values(target, options, prefetches, tmp_path):
    """On CPUs where this was measured to be faster, and where size does not matter more."""
    shape = SHAPES["llama"].with_(layers=1)
    path = write(tmp_path / "model.gguf", shape, weights(shape))
    compiled = tvm_megcc.compile(path, target, dims={"sequence_length": 1}, bounds={"past_sequence_length": 16},
                                 **options)
    (text,) = (text for name, text in compiled.sources.items() if name.startswith("kernels/attention"))
    assert ("prefetch_key(k + t * k_row, next, " in text) == prefetches
    assert ("mgc_prefetch_ahead(v_head, " in text) == prefetches


@pytest.mark.parametrize("encoding", _DECODERS)
def test_products_have_the_weights_of_the_encoding(encoding):
    """To the bit, from drawn bytes; only those whose offsets are no multiple of their scales keep offsets."""
    kind = gguf.GGMLQuantizationType[encoding]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(0).integers(0, 256, (6, size)).astype(np.uint8)
    with np.errstate(all="ignore"):
        bits, block, decode = _DECODERS[encoding]
        numbers, scale, offset = decode(data)
    finite = np.isfinite(scale).all(1) & np.isfinite(offset).all(1)
    assert finite.any()
    scale, offset = (np.broadcast_to(array, (6, elements // block)).astype(np.float32)[finite]
                     for array in (scale, offset))
    weights = Blocks(bits, block, numbers.astype(np.uint8)[finite], scale, offset)
    moved, less = weights.centred()
    assert (less is None) == (encoding not in ("Q4_1", "Q5_1", "Q4_K", "Q5_K"))
    stored = Blocks(bits, block, moved, scale, offset).stored
    np.testing.assert_array_equal(dequantize_weights(stored, scale, less, bits, block, elements), weights.dequantized())


@pytest.mark.slow
@pytest.mark.parametrize("activations", ["int8", "float32"])
@pytest.mark.parametrize("encoding", ["Q4_1", "Q8_0"])
def test_compiled(encoding, activations, tmp_path):
    """A prompt at once, then tokens one by one, in C; the second sequence is as the first. Activations of int8 are as
    far from the formulas as their steps are wide."""
    shape = SHAPES["llama"].with_(encoding=encoding)
    path = write(tmp_path / "model.gguf", shape, weights(shape))
    stored = {name: floats(tensor) for name, tensor in read(path).tensors.items()}
    try:
        compiled = tvm_megcc.compile(path, dims="sequence_length=1,2..8", activations=activations)
        session = tvm_megcc.load(compiled.save(tmp_path / "model"))
    except MissingTool as missing:
        pytest.skip(str(missing))
    wanted = logits(shape, stored, TOKENS)
    for _ in range(2):
        at = 0
        for size in (4, 1, 1, 1):
            found = session.run({"input_ids": np.array([TOKENS[at:at + size]])})["logits"]
            at += size
            far = (1e-4, 2e-4) if activations == "float32" else (0, 0.1)
            np.testing.assert_allclose(found[0], wanted[at - 1], *far)
        assert session.states["past_sequence_length"] == [len(TOKENS)]
        session.reset()


@pytest.mark.parametrize("change, reason", [
    ({"drop": "blk.1.attn_k.weight"}, "has no tensor 'blk.1.attn_k.weight'"),
    ({"drop": "output_norm.weight"}, "has no tensor 'output_norm.weight'"),
    ({"add": {"blk.0.ffn_gate_exps.weight": np.zeros((2, 64), np.float32)}}, "has tensors that llama does not have"),
    ({"add": {"blk.0.attn_q.weight": np.zeros((64, 60), np.float32)}}, "wanted is [64, 64]"),
])
def test_tensors_that_do_not_fit(change, reason, tmp_path):
    tensors = weights(SHAPES["llama"])
    tensors.pop(change.get("drop"), None)
    tensors |= change.get("add", {})
    with pytest.raises(ModelError, match=r"model\.gguf") as raised:
        transformer(read(write(tmp_path / "model.gguf", SHAPES["llama"], tensors)), 1, 16)
    assert reason in str(raised.value)


@pytest.mark.parametrize("key, value, reason", [
    ("llama.block_count", (0, 4), "llama.block_count is '0'; a number from 1"),
    ("llama.attention.head_count", ("4", 8), "llama.attention.head_count is '4'"),
    ("llama.attention.head_count_kv", (3, 4), "4 heads of queries do not share 3 of keys"),
    ("llama.rope.dimension_count", (18, 4), "rotary embeddings turn 18 of 16 numbers"),
    ("llama.expert_count", (8, 4), "llama.expert_count is 8, which is not supported"),
    ("llama.rope.scaling.type", ("yarn", 8), "rope.scaling.type is 'yarn'"),
    ("llama.rope.scaling.type", (7, 4), "rope.scaling.type is '7'; a text is wanted"),
    ("llama.expert_count", (np.array([0, 0]), 9), "expert_count is [0 0], which is not supported"),
    ("split.count", (3, 2), "one of several files"),
    ("split.count", (np.array([1, 1]), 9), "one of several files"),
    ("general.architecture", (np.array([1, 1]), 9), "is of the architecture '[1 1]'"),
    ("general.architecture", ("mamba", 8), "is of the architecture 'mamba'; llama, qwen2"),
    ("llama.attention.layer_norm_rms_epsilon", (float("nan"), 6), "a positive number is wanted"),
])
def test_metadata_that_do_not_fit(key, value, reason, tmp_path):
    file = read(write(tmp_path / "model.gguf", SHAPES["llama"], weights(SHAPES["llama"])))
    changed = type(file)(file.path, {**file.metadata, key: value[0]}, file.tensors)
    with pytest.raises(ModelError) as raised:
        transformer(changed, 1, 16)
    assert reason in str(raised.value)


@pytest.mark.parametrize("options, reason", [
    ({"bounds": {"past": 8}}, "bound 'past': the model has no such extent; past_sequence_length is"),
    ({"bounds": {"past_sequence_length": 100}}, "the model was trained for 64 tokens"),
    ({"input_shapes": {"input_ids": (0, 1)}}, "its shape is [1, sequence_length]"),
    ({"states": {"logits": "input_ids"}}, "are not for GGUF files"),
    ({"constants": {"input_ids": 1}}, "are not for GGUF files"),
])
def test_options_that_do_not_fit(options, reason, tmp_path):
    path = write(tmp_path / "model.gguf", SHAPES["llama"], weights(SHAPES["llama"]))
    with pytest.raises(MegccError) as raised:
        tvm_megcc.compile(path, **options)
    assert reason in str(raised.value)
