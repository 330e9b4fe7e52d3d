# SPDX-License-Identifier: Apache-2.0
"""Operators of a domain of one's own, as docs/extern.md shows them."""

import numpy as np

from tvm_megcc import extern

SOFT_CLIP = extern.Operator(
    "com.example", "SoftClip", source="soft_clip.c", inputs={"x": "float32"}, outputs={"y": "float32"},
    attributes={"limit": 1.0, "power": int},
    compute=lambda attrs, x: [x ** attrs.power / (1 + np.abs(x ** attrs.power) / attrs.limit)])

PAIRS = extern.Operator(
    "com.example", "Pairs", source="soft_clip.c", function="pairs", inputs={"a": "int32", "b": "int32"},
    outputs={"sum": "int32", "product": "int32"}, shapes=lambda attrs, a, b: [a + b, a + b],
    tasks=lambda attrs, a, b: a[0], workspace=lambda attrs, a, b: 4 * b[0])
