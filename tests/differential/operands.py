# SPDX-License-Identifier: Apache-2.0
"""What the one node of a case reads."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from .cases import Case


def operands(case: Case) -> list[np.ndarray | None]:
    """Of the one node; None for one that is absent."""
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in case.model.graph.initializer} | case.feeds
    return [known[name] if name else None for name in case.model.graph.node[0].input]


def attribute(case: Case, name: str):
    """The value, or what the schema gives where it is absent."""
    if name in case.attributes:
        value = case.attributes[name]
        return float(np.float32(value)) if isinstance(value, float) else value
    row = onnx.defs.get_schema(case.kind, case.opset, "").attributes[name]
    value = onnx.helper.get_attribute_value(row.default_value)
    return value.decode() if isinstance(value, bytes) else value
