# SPDX-License-Identifier: Apache-2.0
"""Expressions without idle limits have the same values: random ones over the whole range of their operands."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import Arg, Call, Const, X, arg, call, clip, maximum
from tvm_megcc.ir.intervals import INT32, interval, simplify

#: Operands of the tests: sums, a scale, a residual, a real of which nothing is known.
KINDS = ["i", "f", "i", "f"]
BOUNDS = [INT32, (1e-6, 0.7), (-128, 127), None]
_INT = np.iinfo(np.int32)


def _operands(generator) -> list[np.ndarray]:
    sums = generator.integers(_INT.min, _INT.max + 1, 500) >> generator.integers(0, 32, 500)
    sums[:4] = _INT.min, _INT.max, -1, 0
    strange = generator.standard_normal(500).astype(np.float32)
    strange[:4] = np.nan, np.inf, -np.inf, 3e38
    return [sums.astype(np.int32), generator.uniform(1e-6, 0.7, 500).astype(np.float32),
            generator.integers(-128, 128, 500).astype(np.int8), strange]


def _drawn(draw: random.Random, kind: str, depth: int):
    if depth == 0 or draw.random() < 0.1:
        return draw.choice([Arg(0), Arg(2)] if kind == "i" else [Arg(1), Arg(1), Arg(3)])
    inner = _drawn(draw, kind, depth - 1)
    if kind == "i":
        number = Const(float(draw.choice([0, 1, -128, 127, 255, -4, 4, 300, -2**31, 2**31 - 1])))
        return draw.choice([lambda: Call(draw.choice(["add", "sub", "min", "max"]), (inner, number)),
                            lambda: call("nearest", _drawn(draw, "f", depth - 1)),
                            lambda: call("add", inner, _drawn(draw, "i", depth - 1))])()
    return draw.choice([lambda: call("real", _drawn(draw, "i", depth - 1)), lambda: inner * 0.3, lambda: inner / 0.07,
                        lambda: call(draw.choice(["add", "sub", "mul", "min", "max"]), inner,
                                     _drawn(draw, "f", depth - 1))])()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_the_same_values(dtype):
    draw, operands, fewer = random.Random(1), _operands(np.random.default_rng(2)), 0
    for _ in range(100):
        expr = _drawn(draw, "i", draw.randint(1, 5))
        found = simplify(expr, BOUNDS, KINDS, dtype)
        np.testing.assert_array_equal(lanes.evaluate(found, operands, dtype), lanes.evaluate(expr, operands, dtype),
                                      err_msg=f"{expr} became {found}")
        fewer += found != expr
        bounds = interval(expr, BOUNDS, KINDS)
        values = lanes.evaluate(expr, operands, "int32")
        assert bounds is None or (bounds[0] <= values.min() and values.max() <= bounds[1]), expr
    assert fewer > 20


def test_what_is_left():
    scaled = call("real", X) * arg(1)
    whole = clip(call("nearest", scaled), -118, 137) + -10
    assert simplify(whole, BOUNDS, KINDS, "int8") == call("nearest_within", scaled) + -10
    # A rectifier is a limit that says something.
    positive = maximum(call("nearest_within", scaled), -10) + -10
    assert simplify(clip(call("nearest", scaled), -10, 137) + -10, BOUNDS, KINDS, "int8") == positive
    # A scale that is not known may be infinite.
    unknown = call("nearest", call("real", X) * arg(3))
    assert simplify(unknown, BOUNDS, KINDS, "int8") == unknown
    assert simplify((arg(2) + 4) - 4, BOUNDS, KINDS) == arg(2)


def test_intervals_of_rounded_numbers():
    # A larger shift brings a negative number nearer to zero, so the least result has the smallest shift.
    assert interval(call("shift_down", X, arg(1)), [(-100, 100), (1, 3)], "ii") == (-50, 50)
    assert interval(call("shift_down", X, arg(1)), [(-100, 100), INT32], "ii") == INT32
    # A number between 0.4 and 0.6 is rounded to 0 or 1.
    tenfold = call("nearest_within", X) * 10
    assert interval(tenfold, [(0.4, 0.6)], "f") == (0, 10)
    assert simplify(call("min", tenfold, 6), [(0.4, 0.6)], "f") == call("min", tenfold, 6)
