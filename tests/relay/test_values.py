# SPDX-License-Identifier: Apache-2.0
"""What Relay means where operators of other frameworks mean something else: TVM's own results, value by value."""

from __future__ import annotations

import numpy as np
import pytest

from .modules import TARGET, evaluated, megcc, module, relay, run_vm

NAN, INF = np.nan, np.inf
#: Halves, neighbours of halves, whole numbers that have none, extremes, and floats of any bits.
FLOATS = np.concatenate([
    np.arange(-8, 8, 0.25), np.random.default_rng(0).integers(-4000, 4000, 300) + 0.5,
    [0.49999997, -0.49999997, 0.50000006, 2.0**22 + 0.5, 2.0**22 + 1.5, -2.0**22 - 0.5, 2.0**23 - 0.5, 2.0**23 + 1,
     2.0**24 + 1, 1e10, 3e38, -3e38, 1e-40, -1e-40, -0.0, INF, -INF, NAN]]).astype("float32")
BITS = np.random.default_rng(1).integers(0, 2**32, 1000, dtype=np.uint64).astype("uint32").view("float32")
ROWS = np.array([[1, NAN, 3, NAN, 5, -INF], [NAN] * 6, [INF, NAN, INF, 1, 2, 3], [-INF, -INF, NAN, -INF, 0, 0],
                 [NAN, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, NAN], [0.0, -0.0, 0.0, -0.0, 0, 0], [-0.0, 0.0, -0.0, 0, 0, 0],
                 [3, 3, NAN, 3, 1, 1], [1, 1, 2, 2, NAN, NAN], [INF, INF, -INF, -INF, 0, 1]], "float32")


def compare(build, *arrays) -> None:
    mod = module(build, *((array.shape, array.dtype.name) for array in arrays))
    partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    assert not megcc.report(partitioned).theirs
    for ours, theirs in zip(run_vm(partitioned, arrays), evaluated(mod["main"], arrays), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_round():
    """Halves away from zero."""
    compare(lambda x: relay.round(x), np.concatenate([FLOATS, BITS]))


@pytest.mark.parametrize("operator", ["argmax", "argmin"])
def test_index_of_an_extreme(operator):
    """NaN yields to any number; the first of equals, or the last."""
    compare(lambda x: [getattr(relay, operator)(x, axis=axis, select_last_index=last)
                       for last in (False, True) for axis in (0, 1, None)], ROWS)


def test_nothing_but_infinities():
    """TVM's index is -1 there, which is none; ours is one of the axis."""
    x = np.full((1, 4), -INF, "float32")
    mod = module(lambda x: relay.argmax(x, axis=1), (1, 4))
    (ours,) = run_vm(megcc.partition_for_megcc(mod, target=TARGET), [x])
    assert ours.tolist() == [0] and evaluated(mod["main"], [x])[0].tolist() == [-1]
