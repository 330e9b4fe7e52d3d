# SPDX-License-Identifier: Apache-2.0
"""Products and convolutions of 8-bit operands minus their zero points, summed in int32.

Importers and passes/quantization emit them, with an elementwise operator after them that requantizes the sums to 8 bits
(ir/lanes.py) and becomes the kernel's epilogue.
"""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.expr import Expr, call, clip
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, register
from ..math.matmul import MatMul
from ..nn.conv import Conv2d

INT8_TYPES = ("int8", "uint8")
#: Dtypes of the first operand of a convolution. int16 is for 8-bit numbers minus a zero point known at run time only.
CENTRED_TYPES = (*INT8_TYPES, "int16")


def _require_int8(kind: str, a: TensorType, b: TensorType, bias: TensorType | None,
                  a_dtypes: tuple[str, ...] = INT8_TYPES) -> None:
    """Raises ShapeError for wrong dtypes of operands. kind: the operator, for the message. a_dtypes: those of a."""
    for type_, dtypes in ((a, a_dtypes), (b, INT8_TYPES)):
        if type_.dtype not in dtypes:
            raise ShapeError(f"{kind} of {type_}; operands are {' or '.join(dtypes)}")
    if bias is not None and bias.dtype != "int32":
        raise ShapeError(f"{kind} with bias {bias}, not int32")


def requantize_expr(real: Expr, zero: int, low: int, high: int) -> Expr:
    """Returns the expression that quantises `real`, floats that are already divided by the result's scale: rounds them
    to the nearest, ties to even, adds the zero point, and saturates to [low, high]."""
    nearest = clip(call("nearest", real), low - zero, high - zero)
    return nearest + zero if zero else nearest


def requantize_factor(scale: np.ndarray, result: np.ndarray) -> np.ndarray:
    """Returns the multiplier from the scale of sums to the scale of the result, in float32 as ONNX Runtime computes
    it."""
    return (scale / result).astype(np.float32)


def _centred(array: np.ndarray, zero: int) -> np.ndarray:
    """Returns quantised numbers minus their zero point."""
    return array.astype(np.float64) - zero


def _add_bias(values: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Adds a bias to sums of float64, which are exact, and wraps to int32. The bias broadcasts; None for none."""
    exact = values.astype(np.int64)
    return (exact if bias is None else exact + bias).astype(np.int32)


@register
class Conv2dInteger(Conv2d):
    """conv2d of (x - x_zero) and (w - w_zero), summed in int32, as ONNX's ConvInteger. Pads are x_zero.

    Operands: x int8 or uint8 [N, C, H, W], or int16 with x_zero 0; w int8 or uint8 [O, C / groups, KH, KW]; b int32
    [O].
    Result: int32 [N, O, OH, OW]. Attributes: those of conv2d; `x_zero`, `w_zero`: the zero points.
    """

    kind = "conv2d_integer"
    onnx, relax, relay = (), (), ()

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, w: TensorType, b: TensorType | None = None) -> tuple[TensorType, ...]:
        _require_int8("convolution", x, w, b, CENTRED_TYPES)
        if x.dtype == "int16" and attrs.x_zero:
            raise ShapeError(f"zero point {attrs.x_zero} of {x}, which is centred")
        (sums,) = Conv2d.infer(attrs, x, w, b)
        return (TensorType("int32", sums.shape),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        (sums,) = Conv2d.compute(attrs, _centred(x, attrs.x_zero), _centred(w, attrs.w_zero))
        return (_add_bias(sums, None if b is None else b.reshape(-1, 1, 1)),)


@register
class MatMulInteger(MatMul):
    """matmul of (a - a_zero) and (b - b_zero), summed in int32, as ONNX's MatMulInteger.

    Operands: a and b int8 or uint8, bias int32 [N], with the shapes of matmul. Result: int32. Attributes: those of
    matmul; `a_zero`, `b_zero`: the zero points.
    """

    kind = "matmul_integer"
    onnx, relax, relay = (), (), ()

    @staticmethod
    def infer(attrs: Attrs, a: TensorType, b: TensorType, bias: TensorType | None = None) -> tuple[TensorType, ...]:
        _require_int8("product", a, b, bias)
        (sums,) = MatMul.infer(attrs, a, b, bias)
        return (TensorType("int32", sums.shape),)

    @staticmethod
    def compute(attrs: Attrs, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        (sums,) = MatMul.compute(attrs, _centred(a, attrs.a_zero), _centred(b, attrs.b_zero))
        return (_add_bias(sums, bias),)


def _random_integers(count: int, dtype: str, seed: int) -> np.ndarray:
    """Returns random numbers over the whole range of a dtype, including its limits."""
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(seed).integers(limits.min, limits.max + 1, count)
    drawn[:2] = (limits.min, limits.max)[:count]
    return drawn


def _case(x, w, bias=True, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, x_zero=0, w_zero=0,
          dtypes=("int8", "int8"), constant=(1, 2), ends=False) -> Case:
    """Returns a case of conv2d_integer. ends: all numbers are limits of their ranges, except that weights are not
    -128."""
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups, "x_zero": x_zero,
             "w_zero": w_zero}
    values = {0: _random_integers(int(np.prod(x)), dtypes[0], 1), 1: _random_integers(int(np.prod(w)), dtypes[1], 2),
              2: np.random.default_rng(3).integers(-2**20, 2**20, w[0])}
    if ends:
        values |= {0: np.where(values[0] < 0, -128, 127), 1: np.where(values[1] < 64, -127, 127)}
    return Case(((x, dtypes[0]), (w, dtypes[1]), ((w[0],), "int32") if bias else None), attrs, constant, values)


_SAME = (1, 1, 1, 1)
Conv2dInteger.cases = (
    _case((1, 3, 5, 7), (4, 3, 1, 1), x_zero=-128),
    _case((1, 32, 7, 7), (48, 32, 1, 1), x_zero=127, ends=True),
    _case((2, 17, 5, 5), (20, 17, 1, 1), bias=False, x_zero=5),
    _case((1, 16, 9, 9), (33, 16, 1, 1), strides=(2, 2), x_zero=-3),
    _case((1, 1, 28, 28), (8, 1, 5, 5), pads=(2, 2, 2, 2), x_zero=-128),
    _case((1, 3, 19, 23), (16, 3, 3, 3), strides=(2, 2), pads=(0, 0, 1, 1), x_zero=255, dtypes=("uint8", "int8")),
    _case((1, 32, 14, 14), (32, 32, 3, 3), pads=_SAME, x_zero=0, dtypes=("uint8", "uint8"), w_zero=128),
    _case((2, 20, 11, 13), (37, 20, 3, 3), pads=_SAME, x_zero=128, dtypes=("uint8", "uint8"), w_zero=0),
    _case((1, 16, 10, 9), (16, 16, 3, 3), pads=(2, 1, 0, 3), strides=(3, 2), w_zero=255, dtypes=("int8", "uint8")),
    _case((1, 32, 9, 17), (16, 32, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 2), x_zero=-7),
    _case((1, 4, 2, 2), (5, 4, 3, 3), pads=(4, 4, 4, 4), strides=(2, 3), x_zero=9, w_zero=-9),
    _case((1, 32, 8, 8), (32, 16, 3, 3), pads=_SAME, groups=2, x_zero=1, ends=True),
    _case((2, 64, 6, 5), (96, 32, 1, 1), groups=2, x_zero=-128),
    _case((1, 6, 8, 8), (9, 2, 3, 3), pads=_SAME, groups=3, x_zero=3),
    _case((1, 16, 12, 12), (16, 1, 3, 3), pads=_SAME, groups=16, x_zero=-5, ends=True),
    _case((2, 40, 15, 13), (40, 1, 3, 3), pads=_SAME, strides=(2, 2), groups=40, x_zero=128, w_zero=121,
          dtypes=("uint8", "uint8")),
    _case((1, 8, 7, 20), (8, 1, 3, 4), pads=(2, 3, 1, 0), dilations=(2, 3), groups=8, x_zero=127),
    _case((1, 64, 25, 5), (64, 1, 25, 5), groups=64, x_zero=-128),
    _case((1, 5, 4, 4), (10, 1, 3, 3), pads=_SAME, groups=5, x_zero=-1),
    _case((1, 37, 6, 9), (37, 1, 3, 3), pads=_SAME, groups=37, x_zero=255, dtypes=("uint8", "int8")),
    _case((1, 20, 5, 6), (20, 1, 3, 4), pads=_SAME, groups=20, w_zero=255, dtypes=("int8", "uint8")),
    _case((1, 300, 1, 1), (70, 300, 1, 1), x_zero=64),
    _case((1, 19, 37, 41), (21, 19, 3, 3), pads=(0, 1, 2, 1), x_zero=-128, ends=True),
    _case((2, 40, 5, 6), (44, 40, 3, 3), bias=False, pads=(3, 0, 0, 2), x_zero=255, dtypes=("uint8", "int8")),
    _case((1, 64, 21, 29), (64, 64, 1, 1), x_zero=3),
    _case((1, 8, 6, 6), (12, 8, 3, 3), pads=_SAME, constant=(), x_zero=-128),
    _case((1, 11, 6, 7), (21, 11, 3, 3), pads=_SAME, dtypes=("int16", "int8")),
    _case((1, 6, 6, 7), (6, 1, 3, 3), pads=_SAME, groups=6, dtypes=("int16", "uint8"), w_zero=128),
    _case((1, 24, 6, 9), (18, 24, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 1), x_zero=127, w_zero=255,
          dtypes=("int8", "uint8")),
    _case((2, 20, 7, 11), (20, 1, 4, 2), pads=(1, 2, 3, 0), strides=(3, 1), groups=20, x_zero=-128, w_zero=100,
          dtypes=("int8", "uint8")),
    _case((1, 33, 6, 19), (33, 1, 5, 5), pads=(2, 2, 2, 2), groups=33, x_zero=255, dtypes=("uint8", "int8")),
    _case((2, 11, 3, 2), (11, 1, 3, 3), bias=False, pads=_SAME, groups=11, x_zero=47),
    _case((1, 10, 24, 1), (10, 1, 10, 1), groups=10, x_zero=12),
    _case((1, 18, 29, 1), (19, 18, 5, 1), pads=(2, 0, 3, 0), strides=(2, 1), x_zero=-128),
    _case((1, 5, 4, 1), (6, 5, 3, 1), pads=(1, 1, 1, 0), strides=(1, 2), x_zero=9, w_zero=-9),
    _case((1, 7, 1, 12), (7, 1, 1, 5), strides=(1, 2), groups=7, x_zero=-9),
    _case((1, 20, 4, 4), (20, 1, 3, 3), pads=_SAME, strides=(2, 2), groups=20, x_zero=30),
    _case((1, 16, 5, 5), (15, 16, 3, 3), pads=_SAME, strides=(2, 2), x_zero=-20),
    _case((1, 3, 6, 6), (8, 3, 3, 3), pads=(0, 0, 1, 1), strides=(2, 2), x_zero=1),
    # With one pixel, per-channel operands have a number for each element.
    _case((1, 24, 15, 1), (24, 1, 15, 1), groups=24, x_zero=-128),
    _case((1, 12, 3, 3), (9, 12, 3, 3), x_zero=7),
    # Tiles of two heights; weights with a large zero point.
    _case((1, 16, 7, 19), (12, 16, 1, 1), x_zero=3, w_zero=40, dtypes=("uint8", "uint8")),
    _case((1, 8, 3, 133), (12, 8, 3, 3), pads=_SAME, x_zero=-3, w_zero=40, dtypes=("int8", "uint8")),
)


def _product(a, b, bias=None, trans_a=0, trans_b=0, constant=(1, 2), a_zero=0, b_zero=0,
             dtypes=("int8", "int8")) -> Case:
    values = {0: _random_integers(int(np.prod(a)), dtypes[0], 1), 1: _random_integers(int(np.prod(b)), dtypes[1], 2)}
    return Case(((a, dtypes[0]), (b, dtypes[1]), ((bias,), "int32") if bias else None),
                {"trans_a": trans_a, "trans_b": trans_b, "a_zero": a_zero, "b_zero": b_zero}, constant, values)


MatMulInteger.cases = (
    _product((1, 64), (64, 10), 10, a_zero=-128),
    _product((1, 37), (1000, 37), 1000, trans_b=1, a_zero=127),
    _product((3, 5, 40), (40, 33), 33, a_zero=255, b_zero=131, dtypes=("uint8", "uint8")),
    _product((31, 17), (17, 48), a_zero=-1, b_zero=3),
    _product((7, 13), (13, 21), 21, constant=()),
    _product((2, 3, 9, 20), (2, 3, 20, 35), constant=(), a_zero=5, b_zero=-5),
    _product((2, 4, 6, 8), (2, 1, 10, 8), trans_b=1, constant=(), dtypes=("uint8", "int8"), a_zero=128),
    _product((5, 30, 9), (5, 30, 18), trans_a=1, constant=()),
    _product((9, 600), (600, 37), 37, constant=(), dtypes=("uint8", "uint8"), a_zero=0, b_zero=255),
)
