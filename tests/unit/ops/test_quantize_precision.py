# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear divides in the precision that its attribute says, or its scale's type from operator set 23 on.

ONNX: "precision: The precision of the division operation between x and y_scale. If not provided, it will be the same as
the type of y_scale."
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.differential.cases import Case
from tests.differential.comparison import in_numpy

NUMBERS = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
LIMITS = {TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.INT4: (-8, 7)}
FLOAT, FLOAT16, BFLOAT16 = NUMBERS
ROWS = [  # type of x, of the scale, attributes, type of the result
    (FLOAT16, FLOAT16, {}, TensorProto.UINT8),
    (FLOAT16, FLOAT16, {"axis": 1}, TensorProto.INT8),
    (FLOAT, FLOAT16, {}, TensorProto.INT8),
    (FLOAT16, FLOAT, {"precision": FLOAT16}, TensorProto.INT8),
    (FLOAT, FLOAT, {"precision": FLOAT16, "axis": 1}, TensorProto.UINT8),
    (FLOAT16, FLOAT16, {"precision": FLOAT, "axis": 1}, TensorProto.INT8),
    (FLOAT16, FLOAT16, {"axis": 1, "block_size": 2}, TensorProto.INT8),
    (FLOAT16, FLOAT16, {}, TensorProto.INT4),
    (BFLOAT16, BFLOAT16, {}, TensorProto.INT8),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_precision_of_the_division(row, known: bool):
    of_x, of_scale, attributes, _ = row
    generator = np.random.default_rng(3)
    x = (generator.standard_normal((3, 4, 50)) * 20).astype(NUMBERS[of_x])
    shape = (3, 2, 50) if "block_size" in attributes else (4,) if "axis" in attributes else ()
    scale = np.asarray(generator.random(shape) * 0.3 + 0.1).astype(NUMBERS[of_scale])
    model = model_of(x, scale, row, 23, known)
    feeds = {"x": x} if known else {"x": x, "s": scale}
    (found,) = in_numpy(Case(0, 0, "QuantizeLinear", 23, "", model, feeds)).values()
    np.testing.assert_array_equal(found, expected(x, scale, row))


def test_before_operator_set_23_it_divides_in_float32():
    x, scale = np.array([46.75], np.float16), np.array(0.4946, np.float16)
    model = model_of(x, scale, (FLOAT16, FLOAT16, {}, TensorProto.UINT8), 21, True)
    (found,) = in_numpy(Case(0, 0, "QuantizeLinear", 21, "", model, {"x": x})).values()
    assert found == 95  # 94.52 in float32, 94.5 in float16


def model_of(x: np.ndarray, scale: np.ndarray, row, opset: int, known: bool) -> onnx.ModelProto:
    of_x, of_scale, attributes, to = row
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=to, **attributes),
             helper.make_node("Cast", ["q"], ["y"], to=FLOAT)]
    inputs = [helper.make_tensor_value_info("x", of_x, x.shape)]
    if not known:
        inputs.append(helper.make_tensor_value_info("s", of_scale, scale.shape))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, x.shape)],
                              [numpy_helper.from_array(scale, "s")] if known else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def expected(x: np.ndarray, scale: np.ndarray, row) -> np.ndarray:
    _, of_scale, attributes, to = row
    precision = NUMBERS[attributes.get("precision", of_scale)]
    scale = (np.repeat(scale, 2, 1) if "block_size" in attributes else scale.reshape(-1, 1) if scale.ndim else scale)
    wide = x.astype(precision).astype(np.float32) / scale.astype(precision).astype(np.float32)
    return np.clip(np.rint(wide.astype(precision).astype(np.float32)), *LIMITS[to])
