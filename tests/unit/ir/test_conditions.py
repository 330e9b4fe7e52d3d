# SPDX-License-Identifier: Apache-2.0
"""What shape rules demand of extents that are known only when the model runs."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from tests.opened import opened
from tvm_megcc.errors import ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.conditions import Condition, recording, require_at_most, require_equal, undecided
from tvm_megcc.ir.dims import Symbol, substitute
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.shapes import Bucket, hull
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.base import OPERATORS, operator
from tvm_megcc.runtime.reference import run

N, M = Symbol("n"), Symbol("m")


def test_what_numbers_decide_is_an_error_or_nothing():
    with recording() as found:
        require_at_most(3, 3, "fits")
        require_at_most(1, N, "a symbol is at least 1")
        require_equal(N * 2 // 2, N, "the same")
        with pytest.raises(ShapeError, match="too many"):
            require_at_most(N + 1, N, "too many")
        with pytest.raises(ShapeError, match="differ"):
            require_equal(N, 0, "differ")
    assert not found


def test_the_rest_is_recorded_where_it_is_stated():
    with recording("outer") as outer:
        require_at_most(5, N, "five")
        with recording("inner") as inner:
            require_equal(N, M, "alike")
        require_at_most(5, N, "again")
    assert [str(condition) for condition in outer] == ["outer: five: 5 <= n"]
    assert [str(condition) for condition in inner] == ["inner: alike: n == m"]


def test_bounds_decide_at_compile_time():
    condition = Condition(5, "<=", N, "the best 5")
    buckets = [Bucket((("n", 1, 3),)), Bucket((("n", 8, None),))]
    assert hull(buckets).limits == {"n": (1, None)}
    assert undecided([condition], hull(buckets).limits) == (condition,)
    assert undecided([condition], hull(buckets[1:]).limits) == ()
    with pytest.raises(ShapeError, match="none of the shapes asked for fits the model: the best 5: 5 <= n"):
        undecided([condition], hull(buckets[:1]).limits)


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_shapes_that_satisfy_the_conditions_are_shapes_of_the_operator(kind: str):
    """Whatever the conditions let through, the same rule takes as numbers, with the same result."""
    for index, case in enumerate(OPERATORS[kind].cases):
        for some in opened(kind, case):
            for values in some.drawn(20, index):
                if not some.accepts(values):
                    continue
                try:
                    results = operator(kind).infer(some.attrs, *some.types_at(values))
                except ShapeError as error:
                    pytest.fail(f"{kind}[{index}] with {values} satisfies {list(map(str, some.conditions))}: {error}")
                expected = [tuple(substitute(dim, values) for dim in t.shape) for t in some.results]
                assert [t.shape for t in results] == expected, f"{kind}[{index}] with {values}"


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_the_shapes_of_a_case_satisfy_its_conditions(kind: str):
    for case in OPERATORS[kind].cases:
        for some in opened(kind, case):
            assert some.accepts(some.symbols)


@pytest.mark.parametrize("rows", [1, 99, 100, 101, 102, 120])
def test_slices_of_axes_shorter_than_what_they_count_from_their_end(rows: int):
    """Begin at 0; those of no elements are folded."""
    graph = import_onnx(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 3] x) => (float[r, c] y) '
        "<int64[2] start = {-100, 1}, int64[2] end = {2, 1}, int64[2] axes = {0, 1}> "
        "{ y = Slice (x, start, end, axes) }"))
    x = np.zeros((rows, 3), np.float32)
    assert run(graph, {"x": x})["y"].shape == x[-100:2, 1:1].shape


@pytest.mark.parametrize("rows", [3, 4])
def test_the_interpreter_keeps_to_conditions(rows: int):
    """Those of operators that are folded, too: a product with no columns is none any more."""
    graph = import_onnx(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, n] x, float[4, 0] w) => (float[r, c] y) '
        "{ y = MatMul (x, w) }"))
    feeds = {"x": np.zeros((2, rows), np.float32), "w": np.zeros((4, 0), np.float32)}
    if rows == 4:
        assert run(graph, feeds)["y"].shape == (2, 0)
        return
    with pytest.raises(ShapeError, match="n = 3 does not fit: MatMul 'y'"):
        run(graph, feeds)


def test_zero_points_go_with_scales():
    types = [TensorType("int8", (3, N)), TensorType("float32", (3,)), TensorType("int8", (M,))]
    attrs = Attrs(axis=0, block=0, dtype="float32")
    with recording() as found:
        operator("dequantize_linear").infer(attrs, *types)
    assert [str(condition).rpartition(": ")[2] for condition in found] == ["m == 3"]
    with pytest.raises(ShapeError, match="zero point int8"):
        operator("dequantize_linear").infer(attrs, *types[:2], TensorType("int8", ()))


def test_operands_of_free_extents_have_to_broadcast():
    """Of two symbols neither is taken to be 1, nor of a symbol and a number."""
    add = operator("add")
    with recording() as found:
        (result,) = add.infer(Attrs(), TensorType("float32", (N, 4)), TensorType("float32", (M, 4)))
        add.infer(Attrs(), TensorType("float32", (N, M)), TensorType("float32", (3, 1)))
    assert result.shape == (N, 4)
    assert [str(condition).rpartition(": ")[2] for condition in found] == ["n == m", "n == 3"]
