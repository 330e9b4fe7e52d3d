# SPDX-License-Identifier: Apache-2.0
"""ONNX files through the importer of TVM get the kernels that they get by themselves."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

pytest.importorskip("tvm", reason="TVM is not installed")

from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import from_onnx

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.compiler import compile_graph
from tvm_megcc.frontends.relax.importer import import_region
from tvm_megcc.frontends.tvm_versions import RelaxTensor
from tvm_megcc.target import parse_targets

from ..modules import assert_same, megcc, module, run


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


#: The convolution beside the body comes first in the file; the importer writes its bias behind the body.
RESIDUAL = model([node("Conv", "x v c", "s", strides=[2, 2]),
                  node("Conv", "x w b", "h", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "h", "r"),
                  node("Conv", "r u b", "k", pads=[1, 1, 1, 1]), node("Add", "s k", "a"), node("Relu", "a", "y")],
                 {"x": [1, 16, 8, 8]}, {"y": [1, 32, 4, 4]},
                 {"v": array(32, 16, 1, 1), "c": array(32), "w": array(32, 16, 3, 3), "u": array(32, 32, 3, 3),
                  "b": array(32)})
TABLE = {"t": array(9, 4)}
INDICES, MATRIX = ("int64", [5]), [3, 8]
FILES = {
    "residual": RESIDUAL,
    "line": model([node("Conv", "x w b", "h", pads=[1, 1]), node("Relu", "h", "y")], {"x": [1, 6, 12]},
                  {"y": [1, 8, 12]}, {"w": array(8, 6, 3), "b": array(8)}),
    "rows from the end": model([node("Gather", "t i", "y")], {"i": INDICES}, {"y": [5, 4]}, TABLE),
    "columns from the end": model([node("Gather", "x i", "y", axis=1)], {"x": MATRIX, "i": INDICES}, {"y": [3, 5]}),
    "elements from the end": model([node("GatherElements", "t i", "y")], {"i": ("int64", [5, 4])}, {"y": [5, 4]},
                                   TABLE),
    "points from the end": model([node("GatherND", "x i", "y")], {"x": MATRIX, "i": ("int64", [5, 2])}, {"y": [5]}),
    "scattered from the end": model([node("ScatterND", "x i u", "y")],
                                    {"x": MATRIX, "i": ("int64", [1, 1]), "u": [1, 8]}, {"y": MATRIX}),
    "dynamic quantisation": model([node("DynamicQuantizeLinear", "x", "q s z")], {"x": MATRIX},
                                  {"q": ("uint8", MATRIX), "s": [], "z": ("uint8", [])}),
    "hard swish": model([node("HardSwish", "x", "y")], {"x": MATRIX}, {"y": MATRIX}),
    "transposed": model([node("ConvTranspose", "x w b", "y", strides=[2, 2])], {"x": [1, 6, 5, 4]},
                        {"y": [1, 8, 11, 9]}, {"w": array(6, 8, 3, 3), "b": array(8)}),
    "limits": model([node("MatMul", "x w", "p"), node("Max", "p l", "m"), node("Min", "m p h", "y")], {"x": MATRIX},
                    {"y": [3, 5]}, {"w": array(8, 5), "l": np.float32(-0.5), "h": array(1, 5)}),
    "tile": model([node("Tile", "x r", "y")], {"x": MATRIX}, {"y": [6, 24]}, {"r": np.array([2, 3])}),
    **{f"pad {mode}": model([node("Pad", "x p", "y", mode=mode)], {"x": MATRIX}, {"y": [6, 13]},
                            {"p": np.array([1, 0, 2, 5])}) for mode in ("reflect", "edge")},
    **{f"{kind} {keepdims}": model([node("Exp", "x", "e"),
                                    node(f"Reduce{kind}", "e", "y", axes=[1], keepdims=keepdims)],
                               {"x": MATRIX}, {"y": [3, 1] if keepdims else [3]})
       for kind in ("L1", "L2", "SumSquare", "LogSum") for keepdims in (0, 1)},
}


def integer(value: int):
    return relax.const(np.asarray(value, np.int64), "int64")


def kernels(artifact) -> Counter:
    """How often each kernel is called; digests of expressions depend on the order of operands, and are left out."""
    names = (call["kernel"] for call in artifact.manifest["programs"][0]["calls"])
    return Counter(re.sub(r"_[0-9a-f]{4,6}(?=_)", "", name).replace("add_to", "add") for name in names)


@pytest.mark.parametrize("name", FILES)
def test_kernels_are_those_of_the_file(name):
    target = "x86-64-v3"
    mod = megcc.partition_for_megcc(from_onnx(FILES[name]), target=f"megcc-{target}")
    (region,) = filter(megcc.is_ours, mod.functions.values())
    inside = compile_graph(import_region(region, "region"), parse_targets(target), name="region")
    alone = tvm_megcc.compile(FILES[name], target, name="alone")
    assert kernels(inside) == kernels(alone)
    assert inside.manifest["programs"][0]["weight_bytes"] == alone.manifest["programs"][0]["weight_bytes"]


def inputs_of(proto) -> list[np.ndarray]:
    generator, known = np.random.default_rng(1), {tensor.name for tensor in proto.graph.initializer}
    arrays = []
    for value in proto.graph.input:
        if value.name not in known:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            floats = value.type.tensor_type.elem_type == 1
            arrays.append(generator.standard_normal(shape, np.float32) if floats else generator.integers(-3, 3, shape))
    return arrays


@pytest.mark.parametrize("name", FILES)
def test_results_are_those_of_onnx(name):
    """Not those of TVM: where an index counts from the end, TVM 0.26 reads outside the tensor."""
    inputs = inputs_of(FILES[name])
    evaluator = ReferenceEvaluator(FILES[name])
    expected = evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True)))
    assert_same(run(megcc.build(from_onnx(FILES[name]), "megcc-c"), inputs), list(map(np.asarray, expected)))


def test_other_numbers_are_what_they_say():
    """An index that counts from elsewhere than the end, and numbers in bytes of 7 bits."""
    generator = np.random.default_rng(0)
    x, i = generator.standard_normal((9, 4), np.float32), np.array([-1, 2, -4, 0])

    def moved(emit, x, i):
        return emit(op.take(x, emit(op.where(emit(op.less(i, integer(0))), emit(op.add(i, integer(5))), i)), 0))

    mod = module(moved, RelaxTensor((9, 4), "float32"), RelaxTensor((4,), "int64"))
    assert_same(run(megcc.build(mod, "megcc-c"), [x, i]), [x[np.where(i < 0, i + 5, i)]])
    numbers = model(
        [node("ReduceMax", "x", "M", keepdims=0), node("ReduceMin", "x", "m", keepdims=0), node("Max", "M o", "h"),
         node("Min", "m o", "l"), node("Sub", "h l", "w"), node("Div", "w n", "s"), node("Div", "l s", "d"),
         node("Sub", "o d", "f"), node("Clip", "f o n", "c"), node("Round", "c", "r"), node("Cast", "r", "z", to=2),
         node("QuantizeLinear", "x s z", "q")],
        {"x": [9, 4]}, {"q": ("uint8", [9, 4])}, {"o": np.float32(0), "n": np.float32(127)})
    (got,) = run(megcc.build(from_onnx(numbers), "megcc-c"), [x])
    assert 100 < got.max() <= 128
