# SPDX-License-Identifier: Apache-2.0
"""Symbolic extents compute what integers compute."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_megcc.ir import dims, extent_bounds
from tvm_megcc.ir.dims import Symbol

NAMES = ("batch", "height", "width")
VALUES = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})


def extend(children):
    positive = st.integers(1, 9)
    return st.one_of(
        st.builds(lambda a, b: ("+", a, b), children, children),
        st.builds(lambda a, b: ("-", a, b), children, children),
        st.builds(lambda a, b: ("*", a, b), children, children),
        st.builds(lambda a, b: ("//", a, b), children, positive),
        st.builds(lambda a, b: ("%", a, b), children, positive),
        st.builds(lambda a, b: ("ceil", a, b), children, positive),
        st.builds(lambda a, b: ("round", a, b), children, positive),
        st.builds(lambda a, b: ("min", a, b), children, children),
        st.builds(lambda a, b: ("max", a, b), children, children))


TREES = st.recursive(st.one_of(st.sampled_from(NAMES), st.integers(-20, 20)), extend, max_leaves=6)

COMBINE = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "ceil": dims.ceildiv, "round": dims.round_up, "min": dims.dim_min, "max": dims.dim_max,
}


def build(tree, leaf):
    if isinstance(tree, tuple):
        return COMBINE[tree[0]](build(tree[1], leaf), build(tree[2], leaf))
    return leaf(tree)


def symbolic(tree):
    return build(tree, lambda leaf: Symbol(leaf) if isinstance(leaf, str) else leaf)


@given(TREES, VALUES)
@settings(max_examples=300, deadline=None)
def test_substitution_computes_what_integers_compute(tree, values):
    expected = build(tree, lambda leaf: values[leaf] if isinstance(leaf, str) else leaf)
    assert dims.substitute(symbolic(tree), values) == expected


@given(TREES, VALUES)
@settings(max_examples=200, deadline=None)
def test_partial_substitution(tree, values):
    first = dims.substitute(symbolic(tree), {"batch": values["batch"]})
    assert "batch" not in dims.symbols(first)
    assert dims.substitute(first, values) == dims.substitute(symbolic(tree), values)


@given(TREES)
@settings(max_examples=100, deadline=None)
def test_equal_expressions_have_equal_hashes_and_texts(tree):
    one, two = symbolic(tree), symbolic(tree)
    assert one == two and hash(one) == hash(two) and repr(one) == repr(two)


@given(TREES, VALUES)
@settings(max_examples=200, deadline=None)
def test_c_text(tree, values):
    """The helpers of megcc_kernel.h, in Python: far from their limits they are its own arithmetic."""
    helpers = {"megcc_size_add": operator.add, "megcc_size_mul": operator.mul, "megcc_size_div": operator.floordiv,
               "megcc_size_min": min, "megcc_size_max": max}
    dim = symbolic(tree)
    assert eval(dims.to_c(dim), helpers, dict(values)) == dims.substitute(dim, values)


@given(TREES, VALUES, VALUES)
@settings(max_examples=300, deadline=None)
def test_interval(tree, low, high):
    bounds = {name: (min(low[name], high[name]), max(low[name], high[name])) for name in low}
    dim = symbolic(tree)
    least, most = extent_bounds.interval(dim, bounds)
    for values in (low, high, {name: sum(pair) // 2 for name, pair in bounds.items()}):
        assert least <= dims.evaluate(dim, values) <= most
    assert extent_bounds.interval(dim, {name: (value, value) for name, value in low.items()}) \
        == (dims.evaluate(dim, low),) * 2
    least, most = extent_bounds.interval(dim, {name: (bound[0], None) for name, bound in bounds.items()})
    for values in (low, high):
        assert (least is None or least <= dims.evaluate(dim, values)) and \
            (most is None or dims.evaluate(dim, values) <= most)


def test_windows_on_windows_are_one_division():
    h = Symbol("h")
    halved = (h - 1) // 2 + 1
    assert (halved - 1) // 2 + 1 == (h - 1) // 4 + 1
    assert repr((halved - 2) // 3) == "(h - 3)//6"


def test_what_differs():
    n, h = Symbol("n"), Symbol("h")
    assert dims.differ(n * 4, 4) and dims.differ(n * h, n * h + 1) and dims.differ(3, 4)
    assert not dims.differ(h // 8 * 8, h) and not dims.differ(n, n)


def test_likely():
    batch, width = Symbol("batch", 4), Symbol("width", 30)
    assert dims.likely((batch * width + 3) // 2) == 61 and dims.likely(7) == 7
    assert batch == Symbol("batch") and hash(batch) == hash(Symbol("batch"))


@given(st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=50, deadline=None)
def test_products_divide_exactly(a, b):
    n, h = Symbol("n"), Symbol("h")
    assert (n * h * (a * b)) // (h * a) == n * b
    assert (n * a) // n == a
    assert (n * h + n * 3) // n == h + 3


def test_normal_form():
    n = Symbol("n")
    assert n + 1 - 1 == n
    assert n - n == 0
    assert n * 0 == 0
    assert (2 * n + 4) // 2 == n + 2
    assert repr(2 * n - 3) == "2*n - 3"
    assert dims.round_up(n * 8, 8) == n * 8


@pytest.mark.parametrize("dim", [7, Symbol("n"), Symbol("n") * 3 + 1])
def test_symbols(dim):
    assert dims.symbols(dim) == (frozenset() if dim == 7 else frozenset({"n"}))


def test_multiples_divide_exactly():
    """What flattening makes of [batch, 512, frames - 6]."""
    batch, frames = Symbol("batch"), Symbol("frames")
    whole = batch * frames - 6 * batch
    assert dims.floordiv(512 * whole, whole) == 512
    assert dims.floordiv(3 * (batch + 1), batch + 1) == 3
    assert not isinstance(dims.floordiv(3 * batch + 2, batch + 1), int)
