# SPDX-License-Identifier: Apache-2.0
"""Decides whether an array equals an expected result, for `compare` and `bench --against`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runtime.session import Array

#: Integers of at most this many bytes count as quantised floats; wider ones, and booleans, as indices, labels or masks.
MAX_QUANTISED_BYTES = 2


def difference(value: Array, expected: Array, tolerance: float, least_cosine: float = -1.0) -> dict[str, Any]:
    """Returns how far `value` is from `expected`, and whether it counts as equal.

    The criterion depends on the dtype of `expected`. NaN equals NaN, and an infinity equals itself.

    * floats: the largest error is at most `tolerance` times the largest magnitude, the cosine at least `least_cosine`.
    * quantised integers: the same, or at most half of the values (or the only one) are off by one quantum, since
      engines round differently; more than half would not be rounding.
    * other integers, strings: at most the share `tolerance` of them differ, by any amount.

    Returns:
        For arrays of different shapes: equal, shape, expected_shape. For others:

        * equal: whether `value` counts as equal.
        * kind: "real" for floats, "quantised" or "integer".
        * max_error: the largest error where both are finite, in quanta for integers.
        * largest: the largest magnitude in `expected`.
        * relative: max_error / largest; None if only `largest` is 0.
        * cosine: of the angle between both, as vectors of the finite elements.
        * share: the fraction of the elements that differ.
        * unlike: the number of elements that are NaN or infinite in one array only, or infinite with another sign.
    """
    if value.shape != expected.shape:
        return {"equal": False, "shape": list(value.shape), "expected_shape": list(expected.shape)}
    if expected.dtype == object:    # strings are compared as numbers, the same for equal strings
        codes: dict[object, int] = {}
        value, expected = (np.array([codes.setdefault(string, len(codes)) for string in array.reshape(-1)], np.int64)
                           for array in (value, expected))
    kind = ("real" if expected.dtype.kind == "f" else
            "quantised" if expected.dtype.kind in "iu" and expected.dtype.itemsize <= MAX_QUANTISED_BYTES
            else "integer")
    same = (value == expected) | (np.isnan(value) & np.isnan(expected))
    a, b = value.astype(np.float64).reshape(-1), expected.astype(np.float64).reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b)
    unlike = int((~finite & ~same.reshape(-1)).sum())
    a, b = a[finite], b[finite]
    error, largest = float(np.abs(a - b).max(initial=0.0)), float(np.abs(b).max(initial=0.0))
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    cosine = float(a @ b) / norm if norm else 1.0
    differ = same.size - int(same.sum())
    fraction = differ / max(same.size, 1)
    close = error <= tolerance * largest and cosine >= least_cosine and not unlike
    equal = differ == 0 or {"real": close, "integer": fraction <= tolerance,
                            "quantised": close or (error <= 1 and differ <= max(1, same.size // 2))}[kind]
    return {"equal": equal, "kind": kind, "max_error": error, "largest": largest,
            "relative": error / largest if largest else None if error else 0.0, "cosine": cosine, "share": fraction,
            "unlike": unlike}


def uninformative(expected: Array) -> str:
    """Returns why a comparison with this result is not informative, such as all zeros; "" if it is."""
    if not expected.size:
        return "is empty"
    if expected.dtype.kind in "fc" and np.isnan(expected).all():
        return "is NaN everywhere"
    first = expected.reshape(-1)[0]
    return f"is {first} everywhere" if expected.size > 1 and bool((expected == first).all()) else ""


def text(found: Mapping[str, Any]) -> str:
    """Prints the finding of `difference` in words."""
    if "shape" in found:
        return f"shape {found['shape']} instead of {found['expected_shape']}"
    if found["kind"] == "real":
        relative = "" if found["relative"] is None else f"{found['relative']:.2g} of "
        words = [f"max error {found['max_error']:.3g} ({relative}{found['largest']:.4g})",
                 f"cosine {found['cosine']:.8f}"]
    else:
        words = [f"{found['share']:.2%} of values differ"] if found["share"] else ["every value is the same"]
        if found["share"] and found["kind"] == "quantised":
            words.insert(0, f"max error {found['max_error']:.0f} quant{'um' if found['max_error'] == 1 else 'a'} of "
                            f"{found['largest']:.0f}")
    if found["unlike"]:
        words.append(f"{found['unlike']:,} NaN or infinite on one side only")
    return ", ".join(words)
