# SPDX-License-Identifier: Apache-2.0
"""Sums of two quantised numbers by way of reals: the same results for every pair."""

import numpy as np
import pytest

from tests.graphs import Builder
from tvm_megcc.context import Context
from tvm_megcc.frontends.tflite.quantized import fixed_point
from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import arg, call, clip, functions_of
from tvm_megcc.ops.quantized.lookup_table import all_values
from tvm_megcc.passes.quantization.fixed_point_sums import as_float32, simpler_sums, sum_in_float32
from tvm_megcc.target import TARGETS


def quantised_sum(scales, zeros, low, high, sign=1, between=lambda term: term):
    """As the TFLite reader spells it."""
    twice = 2 * max(scales[:2])
    terms = []
    for index, scale in enumerate(scales[:2]):
        factor = fixed_point.multiplier(scale / twice)
        wide = between((arg(index) - zeros[index]) * 2**20)
        terms.append(call("rescale_fixed", wide, factor.significand, factor.shift))
    down = fixed_point.multiplier(twice / (2**20 * scales[2]))
    total = terms[0] + terms[1] if sign > 0 else terms[0] - terms[1]
    return clip(call("rescale_fixed", total, down.significand, down.shift) + zeros[2], low, high)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_every_pair_has_the_same_sum(dtype):
    rng, limits = np.random.default_rng(7), np.iinfo(dtype)
    # Of powers of two, every second sum is a half.
    draws = [((0.5, 0.5, 1.0), (limits.min, 3, 1)), ((1.0, 0.25, 0.5), (0, limits.max, limits.min))]
    for _ in range(4):
        scales = [float(np.float32(scale)) for scale in np.exp(rng.normal(-3, 0.8, 3))]
        draws.append((tuple(scales), tuple(map(int, rng.integers(limits.min, limits.max + 1, 3)))))
    columns, rows = np.meshgrid(all_values(dtype), all_values(dtype))
    for index, (scales, zeros) in enumerate(draws):
        expr = quantised_sum(scales, zeros, zeros[2] if index % 3 == 0 else limits.min, limits.max, 1 - index % 2 * 2)
        found = as_float32(expr, dtype, dtype, dtype)
        assert found is not None and "rescale_fixed" not in functions_of(found), (scales, zeros)
        np.testing.assert_array_equal(lanes.evaluate(found, [rows, columns], dtype),
                                      lanes.evaluate(expr, [rows, columns], dtype))


@pytest.mark.parametrize(("target", "in_reals"), [("x86-64-v3", True), ("arm64", True), ("c", False),
                                                 ("cortex-m4", False), ("cortex-m55", False)])
def test_cpus_without_vectors_or_with_fixed_point_keep_integers(target, in_reals):
    b = Builder()
    y = b.op("elementwise", b.input("a", 1, 8, dtype="int8"), b.input("b", 1, 8, dtype="int8"), dtype="int8",
             expr=quantised_sum((1.0, 0.25, 0.5), (0, 127, -128), -128, 127))
    (op,) = sum_in_float32(b.graph(y), Context(TARGETS[target])).ops
    assert ("rescale_fixed" not in functions_of(op.attrs.expr)) == in_reals


def test_what_is_no_such_sum_stays():
    scales, zeros = (0.3, 0.2, 0.4), (1, 2, 3)
    wraps = quantised_sum(scales, zeros, -128, 127, between=lambda term: term * 2**5)
    limited = quantised_sum(scales, zeros, -128, 127, between=lambda term: call("max", term, -1000))
    square = call("rescale_fixed", (arg(0) - 1) * (arg(1) - 2), 2**30, -5)
    for expr in (wraps, limited, square, arg(0) + arg(1), call("rescale_fixed", arg(0) + 1, 2**30, -5)):
        assert as_float32(expr, "int8", "int8", "int8") is None


def test_sums_of_reals_do_without_their_division():
    """Factors near halves, powers of two among them; of a few draws, pairs tell the difference."""
    rng, found = np.random.default_rng(5), [0, 0]
    draws = [(0.5, 0.5, 1.0), (1.0, 0.25, 0.5), (0.1, 0.1, 0.2), *np.exp(rng.normal(-3, 0.8, (12, 3)))]
    columns, rows = np.meshgrid(all_values("int8"), all_values("uint8"))
    for scales in draws:
        first, second, divisor = (float(np.float32(scale)) for scale in scales)
        a, b = clip(arg(0) - 7, -100, 155), arg(1) - -128
        expr = clip(call("nearest_within", (call("real", a) * first + call("real", b) * second) / divisor), 0, 255)
        for in_integers in (False, True):
            same = simpler_sums(expr, ((0.0, 255.0), (-128.0, 127.0)), "ii", in_integers)
            found[in_integers] += ("shift_down" if in_integers else "div") in functions_of(same)
            np.testing.assert_array_equal(*(lanes.evaluate(each, [rows, columns], "int32") for each in (same, expr)))
    assert found[False] <= len(draws) - 13 and found[True] >= 11
    unbounded = simpler_sums(expr, ((-2.0**31, 2.0**31 - 1), (-2.0**31, 2.0**31 - 1)), "ii", True)
    assert unbounded == expr
