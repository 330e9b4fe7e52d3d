# SPDX-License-Identifier: Apache-2.0
"""Attributes of boxes of text that the operator refuses."""

import pytest

from tvm_megcc.errors import ShapeError
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.vision.db_boxes import DbBoxes

ATTRS = {"threshold": 0.3, "least": 0.5, "ratio": 1.6, "dilated": 1, "most": 9, "height": 8, "width": 8}


@pytest.mark.parametrize(("name", "value"), [
    ("ratio", float("nan")), ("ratio", float("inf")), ("ratio", -0.1), ("ratio", 1e30), ("threshold", float("nan")),
    ("threshold", float("-inf")), ("least", float("inf")), ("most", 0), ("height", 0)])
def test_an_attribute_out_of_range_is_refused(name: str, value: float):
    """Attributes become C literals, and a margin becomes an integer."""
    x = TensorType("float32", (8, 8))
    assert len(DbBoxes.infer(Attrs(ATTRS), x)) == 3
    with pytest.raises(ShapeError, match="are supported"):
        DbBoxes.infer(Attrs(ATTRS | {name: value}), x)
