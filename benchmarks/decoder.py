#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times one token of a decoder with a KV cache, ours and ONNX Runtime's, on one thread.

    benchmarks/decoder.py                       # four layers, eight heads of 64, float32

Ours keeps the cache as states; ONNX Runtime reads the past cache from the caller's memory and writes a new one with the
token. Runs alternate; times are medians, and the ratio is the median of the ratios of pairs.
"""

from __future__ import annotations

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
MODELS = {"GPT-2": decoders.gpt2(LAYERS, HEADS, WIDTH, VOCABULARY, longest=CONTEXT),
          "Llama, two heads of keys": decoders.llama(LAYERS, HEADS, 2, WIDTH, VOCABULARY)}


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
    with tempfile.TemporaryDirectory() as made:
        for title, decoder in MODELS.items():
            compared(title, decoder, made)
