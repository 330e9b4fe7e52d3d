#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one token of a decoder with a KV cache, ours and ONNX Runtime's, on one thread.

    benchmarks/decoder.py                       # four layers, eight heads of 64, float32
    benchmarks/decoder.py --int4                # a Llama of four layers of 1024, MatMulNBits with accuracy_level 4

Ours keeps the cache as states; ONNX Runtime reads the past cache from the caller's memory and writes a new one with the
token. Runs alternate; times are medians, and the ratio is the median of the ratios of pairs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tvm_megcc
from tests import decoders

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 4, 8, 64, 1000, 1088


def models(int4: bool) -> dict[str, onnx.ModelProto]:
    if int4:
        return {"Llama of 4 bits, four heads of keys": with_int4_weights(decoders.llama(LAYERS, 16, 4, WIDTH, 16000)),
                "Llama of 4 bits, 16 heads of keys": with_int4_weights(decoders.llama(LAYERS, 16, 16, WIDTH, 8192))}
    return {"GPT-2": decoders.gpt2(LAYERS, HEADS, WIDTH, VOCABULARY, longest=CONTEXT),
            "Llama, two heads of keys": decoders.llama(LAYERS, HEADS, 2, WIDTH, VOCABULARY)}


def with_int4_weights(proto: onnx.ModelProto, block: int = 32) -> onnx.ModelProto:
    """Returns the model with MatMulNBits in place of products by constants. A block's scale is its element of the
    largest magnitude over -8, as in llama.cpp's Q4_0."""
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        depth, columns = weights[node.input[1]].shape
        blocks = weights.pop(node.input[1]).T.reshape(columns, depth // block, block)
        scale = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1) / -8
        numbers = np.clip(np.rint(blocks / scale) + 8, 0, 15).astype(np.uint8)
        packed, scales = f"{node.input[1]}.packed", f"{node.input[1]}.scales"
        weights[packed], weights[scales] = numbers[..., ::2] | numbers[..., 1::2] << 4, scale.reshape(-1)
        node.CopyFrom(onnx.helper.make_node("MatMulNBits", [node.input[0], packed, scales], node.output,
                                            domain="com.microsoft", K=depth, N=columns, bits=4, block_size=block,
                                            accuracy_level=4))
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    if all(row.domain != "com.microsoft" for row in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return proto


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compared(name: str, proto: onnx.ModelProto, folder: str, pairs: int = 60) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    artifact = tvm_megcc.compile(proto, "native", input_shapes={"input_ids": (1, 1)}, name="decoder",
                                 bounds={"past_sequence_length": CONTEXT}, states={"present.*": "past_key_values.*"})
    ours = tvm_megcc.load(artifact.save(Path(folder) / name))
    shapes = {port.name: port.shape for port in ours.state_ports if port.name not in ours.counters}
    for past in (64, 512, 1024):
        rng = np.random.default_rng(past)
        given = decoders.fed(proto, np.array([[3]]), past)
        caches = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
        binding = theirs.io_binding()
        for key, array in {**given, **{key: cache[:, :, :past].copy() for key, cache in caches.items()}}.items():
            binding.bind_cpu_input(key, array)
        for key in decoders.names_of_results(proto):
            binding.bind_output(key)

        def token() -> np.ndarray:
            return ours.run(given)["logits"]  # noqa: B023

        times: list[tuple[float, float]] = []
        for _ in range(pairs):
            ours.reset({**caches, "past_sequence_length": np.array([past])})
            theirs.run_with_iobinding(binding)
            times.append((seconds(token), seconds(lambda: theirs.run_with_iobinding(binding))))  # noqa: B023
        own, other = (statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(a / b for a, b in times)
        print(f"{name}, past {past}: {own * 1e6:,.0f} us, ONNX Runtime {other * 1e6:,.0f} us, ratio {ratio:.2f}; arena "
              f"{ours.program['arena_bytes']:,} bytes", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--int4", action="store_true", help="weights of 4 bits in blocks of 32, activations of int8")
    with tempfile.TemporaryDirectory() as made:
        for title, decoder in models(parser.parse_args().int4).items():
            compared(title, decoder, made)
