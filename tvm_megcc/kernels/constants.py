# SPDX-License-Identifier: Apache-2.0
"""Numbers of an operator's attributes as constants in C, and in the names of kernels."""

from __future__ import annotations

import numpy as np

from ..ir.narrow import narrowed
from ..ir.types import DTYPES


def c_constant(value: float, dtype: str) -> str:
    """Returns a value as a C constant of an element type. For a storage-only type, such as float8, returns its bits."""
    if DTYPES[dtype].carrier:
        bits = narrowed(np.array(value, np.float64), dtype).view(f"u{DTYPES[dtype].bytes}")
        return f"{int(bits)}u"
    if dtype.startswith("float"):
        number = float(value)
        if number != number:
            return "MGC_NAN"
        if number in (float("inf"), float("-inf")):
            return "MGC_INF" if number > 0 else "-MGC_INF"
        return repr(number) if dtype == "float64" else f"{number!r}f"
    number = int(value)
    if number == -2**63:
        return "INT64_MIN"
    return f"{number}" if abs(number) < 2**31 else f"{number}{'u' if number >= 2**63 else ''}ll"


def constant_name(*constants: str) -> str:
    """Returns C constants as a part of a kernel's name: `_0p75_1em05` for 0.75f and 1e-05f."""
    words = (c.removesuffix("f").removesuffix(".0").replace(".", "p").replace("-", "m").replace("+", "")
             for c in constants)
    return "".join(f"_{word}" for word in words)
