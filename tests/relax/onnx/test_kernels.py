# SPDX-License-Identifier: Apache-2.0
"""ONNX files through the importer of TVM get the kernels that they get by themselves."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

from tvm.relax.frontend.onnx import from_onnx

import tvm_megcc
from tests.onnx_models import model, node
from tvm_megcc.compiler import compile_graph
from tvm_megcc.frontends.relax.importer import import_region
from tvm_megcc.target import parse_targets

from ..modules import assert_same, megcc, reference, run


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


#: The convolution beside the body comes first in the file; the importer writes its bias behind the body.
RESIDUAL = model([node("Conv", "x v c", "s", strides=[2, 2]),
                  node("Conv", "x w b", "h", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "h", "r"),
                  node("Conv", "r u b", "k", pads=[1, 1, 1, 1]), node("Add", "s k", "a"), node("Relu", "a", "y")],
                 {"x": [1, 16, 8, 8]}, {"y": [1, 32, 4, 4]},
                 {"v": array(32, 16, 1, 1), "c": array(32), "w": array(32, 16, 3, 3), "u": array(32, 32, 3, 3),
                  "b": array(32)})
FILES = {"residual": RESIDUAL}


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
    assert kernels(inside) == kernels(tvm_megcc.compile(FILES[name], target, name="alone"))


def inputs_of(made) -> list[np.ndarray]:
    generator, known = np.random.default_rng(1), {tensor.name for tensor in made.graph.initializer}
    arrays = []
    for value in made.graph.input:
        if value.name not in known:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            floats = value.type.tensor_type.elem_type == 1
            arrays.append(generator.standard_normal(shape, np.float32) if floats else generator.integers(-3, 3, shape))
    return arrays


@pytest.mark.parametrize("name", FILES)
def test_results_are_those_of_tvm(name):
    mod, inputs = from_onnx(FILES[name]), inputs_of(FILES[name])
    assert_same(run(megcc.build(mod, "megcc-c"), inputs), run(reference(mod), inputs))
