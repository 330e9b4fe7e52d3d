# SPDX-License-Identifier: Apache-2.0
"""Loads and stores in templates, for operands that are float32 or float16 in memory and float vectors in registers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.narrow import SIXTEEN_BITS
from ...ir.types import DTYPES


@dataclass(frozen=True)
class ElementAccess:
    """The C functions for one dtype. Templates find them by the operand, in the variable `stored`:
    `{{ stored.x.load }}(p)`, `{{ stored.y.store }}(p, v)`. `{{ stored.x.load }}_n(p, n)` loads the first n lanes only.

    type: the C type of an element. set1: the function that broadcasts an element to all lanes.
    """

    type: str
    load: str
    store: str
    set1: str

    @staticmethod
    def of(dtype: str, half: bool) -> ElementAccess:
        """half: whether the kernel computes in float16."""
        if dtype == "float16" and half:
            return ElementAccess("mgc_float16", "mgc_load", "mgc_store", "mgc_set1")
        suffix = f"_{DTYPES[dtype].short}" if dtype in SIXTEEN_BITS else ""
        return ElementAccess(DTYPES[dtype].c_type, f"mgc_load{suffix}", f"mgc_store{suffix}", f"mgc_set1{suffix}")
