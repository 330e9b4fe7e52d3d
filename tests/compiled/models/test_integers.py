# SPDX-License-Identifier: Apache-2.0
"""Quantised networks compiled and run: on every CPU the bits of the numpy meaning."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.qdq import random_network
from tests.qdq_models import of_quantised_operators, random_model
from tests.unit.passes.test_integers import drawn
from tvm_megcc.compiler import compile_graph
from tvm_megcc.context import Context
from tvm_megcc.errors import MissingTool
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime.reference import run
from tvm_megcc.target import TARGETS, parse_targets


@pytest.mark.parametrize("target", [
    "native", *(pytest.param(name, marks=pytest.mark.slow)
                for name in ("c", "x86-64", "x86-64-v3", "arm64", "arm64-v82", "arm64-v86", "armv7", "riscv64",
                             "cortex-m3", "wasm32-simd128")),
    pytest.param("riscv64-v256", marks=[pytest.mark.slow, pytest.mark.long])])
@pytest.mark.parametrize("optimize", ["speed", pytest.param("size", marks=pytest.mark.long)])
def test_same_bits_everywhere(target, optimize, tmp_path):
    for seed in range(6 if target == "c" else 2):
        graph = random_network(seed)
        inputs = drawn(graph)
        expected = run(before_layouts(graph, Context(TARGETS["c"])), inputs)
        folder = compile_graph(graph, parse_targets(target), optimize=optimize).save(tmp_path / str(seed))
        try:
            session = tvm_megcc.load(folder, None if target == "native" else target)
        except MissingTool as missing:
            pytest.skip(str(missing))
        for name, array in session.run(inputs).items():
            np.testing.assert_array_equal(np.asarray(array), expected[name])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", "arm64", *(pytest.param(name, marks=pytest.mark.long)
                                                         for name in ("c", "arm64-v82"))])
def test_random_models(target, tmp_path):
    """Models of ONNX, compiled: the bits of their numpy meaning, on every CPU."""
    for seed in range(20 if target == "native" else 7):
        proto, inputs = random_model(seed)
        graph = import_onnx(proto)
        (expected,) = run(before_layouts(graph, Context(TARGETS["c"])), inputs).values()
        folder = compile_graph(graph, parse_targets(target)).save(tmp_path / str(seed))
        try:
            session = tvm_megcc.load(folder, None if target == "native" else target)
        except MissingTool as missing:
            pytest.skip(str(missing))
        np.testing.assert_array_equal(np.asarray(next(iter(session.run(inputs).values()))), expected)


@pytest.mark.parametrize("seeds", [pytest.param(range(4), marks=pytest.mark.slow),
                                   pytest.param(range(4, 200), marks=pytest.mark.long)])
def test_random_models_mean_the_same_elsewhere(seeds, tmp_path):
    """Compiled: what ONNX's reference evaluator makes of a model, and ONNX Runtime of quantised operators."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # It would put QLinearSoftmax in place of Softmax, which takes whole numbers of steps in 1 only.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for seed in seeds:
        proto, inputs = random_model(seed)
        operators = of_quantised_operators(proto)
        engine = onnxruntime.InferenceSession(operators.SerializeToString(), options,
                                              providers=["CPUExecutionProvider"])
        for name, made, (wanted,) in (("qdq", proto, ReferenceEvaluator(proto).run(None, inputs)),
                                      ("operators", operators, engine.run(None, inputs))):
            folder = compile_graph(import_onnx(made), parse_targets("native")).save(tmp_path / f"{name}{seed}")
            (found,) = tvm_megcc.load(folder).run(inputs).values()
            steps = np.abs(np.asarray(found).astype(np.int64) - wanted)
            assert steps.max() <= 1 and (steps > 0).sum() <= 1 + wanted.size // 1000, (seed, name, (steps > 0).mean())
