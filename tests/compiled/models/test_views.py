# SPDX-License-Identifier: Apache-2.0
"""Operators for which nothing runs, as their result is their operand's memory: through the container and the runtime,
as the first, a middle, the last and the only operator of a model."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests.c_flags import native_compiler
from tests.onnx_models import model, node

#: Operator, shape and type of its operand, constants that are its further operands, attributes. The first axis can be
#: open.
VIEWS = {
    "reshape": ("Reshape", (4, 3, 8), "float32", [[-1, 2, 12]], {}),
    "reshape_to_a_vector": ("Reshape", (4, 3, 8), "int64", [[-1]], {}),
    "flatten": ("Flatten", (4, 3, 8, 5), "float32", [], {"axis": 2}),
    "flatten_all": ("Flatten", (4, 3), "float64", [], {"axis": 0}),
    "squeeze": ("Squeeze", (4, 1, 6, 1), "float32", [[1, 3]], {}),
    "unsqueeze": ("Unsqueeze", (4, 6), "uint8", [[0, 2]], {}),
    "identity": ("Identity", (4, 6), "float32", [], {}),
    "dropout": ("Dropout", (4, 6), "float32", [], {}),
    "cast_to_itself": ("Cast", (4, 6), "float32", [], {"to": 1}),
    "transpose_of_ones": ("Transpose", (4, 1, 6, 1), "float32", [], {"perm": [1, 0, 3, 2]}),
    "slice_of_rows": ("Slice", (4, 5), "float32", [[1], [3], [0]], {}),
    "slice_behind_ones": ("Slice", (1, 7, 6), "int32", [[2], [5], [1]], {}),
    "expand_to_itself": ("Expand", (4, 6), "float32", [[1, 6]], {}),
    "tile_once": ("Tile", (4, 6), "float32", [[1, 1]], {}),
    "pad_nothing": ("Pad", (4, 6), "float32", [[0, 0, 0, 0]], {}),
    "depth_to_space_of_one": ("DepthToSpace", (4, 3, 2, 2), "float32", [], {"blocksize": 1}),
}
EXTENTS = (4, 3, 5)


def network(is_open: bool):
    """Every view at every place: of the input and read by an operator, between two, written by one, and alone."""
    nodes, inputs, outputs, constants = [], {}, [], {}
    for name, (kind, shape, dtype, operands, attributes) in VIEWS.items():
        inputs[name] = dtype, ["n" if is_open and shape[0] > 1 else shape[0], *shape[1:]]
        constants |= {f"{name}_{index}": np.array(operand, np.int64) for index, operand in enumerate(operands)}
        more = "".join(f" {name}_{index}" for index in range(len(operands)))

        def view(source: str, result: str, kind=kind, more=more, attributes=attributes):
            return node(kind, source + more, result, **attributes)

        def kernel(source: str, result: str):
            return node("Add", f"{source} {source}", result)

        nodes += [view(name, f"{name}_a"), kernel(f"{name}_a", f"{name}_first"),
                  kernel(name, f"{name}_b"), view(f"{name}_b", f"{name}_c"), kernel(f"{name}_c", f"{name}_middle"),
                  kernel(name, f"{name}_d"), view(f"{name}_d", f"{name}_last"), view(name, f"{name}_only")]
        outputs += [f"{name}_{place}" for place in ("first", "middle", "last", "only")]
    return model(nodes, inputs, outputs, constants)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "optimize", "is_open"), [
    ("c", "size", True), pytest.param("native", "speed", False, marks=pytest.mark.slow),
    pytest.param("c", "size", False, marks=pytest.mark.slow)])
def test_views_at_every_place(target: str, optimize: str, is_open: bool, tmp_path):
    native_compiler()
    made = network(is_open)
    ranges = {"dispatch": "reshape[0]=3..9"} if is_open else {}
    artifact = tvm_megcc.compile(made, target, optimize=optimize, **ranges)
    session = tvm_megcc.load(artifact.save(tmp_path / "views"))
    # Of any number of rows [1:3] may be cut short.
    runs = {"add", "elementwise", "copy", *(["slice"] if is_open else [])}
    assert {call["kind"] for call in session.calls} <= runs
    generator = np.random.default_rng(0)
    for extent in EXTENTS if is_open else EXTENTS[:1]:
        feeds = {name: generator.integers(0, 9, (extent if shape[0] > 1 else 1, *shape[1:])).astype(dtype)
                 for name, (_, shape, dtype, *_) in VIEWS.items()}
        expected = ReferenceEvaluator(made).run(None, feeds)
        found = session.run(feeds)
        for output, wanted in zip(made.graph.output, expected, strict=True):
            assert found[output.name].dtype == wanted.dtype, output.name
            np.testing.assert_array_equal(found[output.name], wanted, err_msg=output.name)
