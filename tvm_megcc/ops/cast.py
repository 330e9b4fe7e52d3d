# SPDX-License-Identifier: Apache-2.0
"""Conversion of element types: the operator, and ONNX's Cast and CastLike."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import MegccError
from ..ir.graph import Attrs
from ..ir.narrow import SIXTEEN_BITS, bits_of, carrier
from ..ir.types import DTYPES, ORDINARY, TensorType
from .base import Case, OnnxNode, decomposes, f32, register
from .elementwise import Elementwise, cast_to
from .rules import saturate

#: Test values for conversions to storage-only types of 4, 8 and 16 bits: ties, the largest and the smallest number of
#: each, and numbers out of range.
_NARROW_VALUES = [sign * number for sign in (1, -1) for number in (
    0.0, 0.124, 0.25, 0.75, 1.0, 1.0625, 1.1875, 1.25, 2.5, 5.0, 7.0, 2.0**-7, 2.0**-9, 2.0**-10, 3 * 2.0**-11,
    2.0**-16, 2.0**-17, 1e-7, 2.0**-40, 240.0, 247.0, 248.0, 249.0, 448.0, 463.9, 464.0, 465.0, 57344.0, 61439.0,
    61440.0, 1e6, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 3.38e38, 3.4e38, np.inf)]

#: Test values for conversions to float16: ties to both sides, subnormal numbers, the largest number and larger ones.
_FLOAT16_VALUES = [sign * number for sign in (1, -1) for number in (
    0.0, 1.0, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-11 + 2.0**-20, 2.0**-14, 2.0**-14 - 2.0**-25, 2.0**-24,
    2.0**-25, 3 * 2.0**-25, 2.0**-26, 65504.0, 65519.0, 65520.0, 1e9, 1e-30, 0.1, np.inf)]


def _all_bit_patterns(dtype: str) -> np.ndarray:
    """Returns all values of a type of up to 8 bits, or 2000 values of a 16-bit type. A NaN is replaced, since the bits
    of NaNs are not compared."""
    if DTYPES[dtype].bytes == 1:
        numbers = np.arange(1 << bits_of(dtype), dtype=np.uint8).view(np.dtype(dtype))
    else:
        numbers = (np.arange(2000, dtype=np.uint16) * 32 + 1).view(np.dtype(dtype))
    return np.where(np.isnan(numbers.astype(np.float32)), numbers[1], numbers)


def rounding(dtype: str) -> tuple[Attrs, Attrs]:
    """Returns the attributes of the two casts that round float32 numbers to a dtype of 16 bits and widen them again."""
    return Attrs(dtype=dtype, rounds=True), Attrs(dtype="float32")


@register
class Cast(Elementwise):
    """Converts a tensor of any shape and dtype to attribute `dtype`, as ONNX's Cast, relax.astype and Relay's cast.

    A float that becomes an integer is truncated and saturates, and NaN becomes 0; integers wrap.

    Optional attributes: for 8-bit floats (ir/narrow.py) `saturate`, by default true, and `rounding` of powers of two,
    by default "up". `rounds`: the model itself has this cast, so its rounding has to be kept
    (passes/precision/storage_types.py).
    """

    kind = "cast"
    relax = ("relax.astype",)
    relay = ("cast",)
    cases = (Case((f32(3, 5),), {"dtype": "int32"}), Case((((7,), "int64"),), {"dtype": "float32"}),
             Case((f32(4),), {"dtype": "bool"}), Case((((9,), "int32"),), {"dtype": "uint8"}),
             Case((((9,), "bool"),), {"dtype": "float32"}),
             Case((f32(6),), {"dtype": "int8"}, values={0: np.array([np.nan, np.inf, -np.inf, 300, -300, -1.9])}),
             Case((f32(4),), {"dtype": "int64"}, values={0: np.array([np.nan, 1e30, -1e30, 2.5])}),
             *(Case((f32(len(_NARROW_VALUES)),), {"dtype": dtype, **attrs}, values={0: np.array(_NARROW_VALUES)})
               for dtype in DTYPES if dtype not in ORDINARY
               for attrs in (({}, {"saturate": False}, {"rounding": "nearest"}) if "float8" in dtype else ({},))),
             *(Case((((len(_all_bit_patterns(dtype)),), dtype),), {"dtype": carrier(dtype)},
                    values={0: _all_bit_patterns(dtype)}) for dtype in DTYPES if dtype not in ORDINARY),
             # 36 elements, more than a vector has, and 8, which fill one at most.
             *(Case((((len(values),), source),), {"dtype": dtype}, values={0: values})
               for source, dtype in (("float32", "float16"), ("float16", "float32"))
               for values in (_FLOAT16_VALUES, _FLOAT16_VALUES[:8])),
             Case((((2, 20, 3, 5), "float32"),), {"dtype": "float16"}),
             Case((((2, 9, 4, 3), "float16"),), {"dtype": "float32"}),
             Case((((9,), "int64"),), {"dtype": "uint4"},
                  values={0: np.array([-9, 16, 100, -3, 7, 8, 15, 0, 2**40 + 5])}),
             Case((((16,), "int4"),), {"dtype": "float16"}, values={0: _all_bit_patterns("int4")}))

    @classmethod
    def infer(cls, attrs: Attrs, a: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(attrs.dtype, a.shape),)

    @classmethod
    def compute(cls, attrs: Attrs, a: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            return (saturate(a, attrs.dtype, attrs.get("saturate", True), attrs.get("rounding", "up")),)


def element_type(number: int) -> str:
    """Returns our dtype for a number of ONNX's enum TensorProto.DataType.

    Raises:
        MegccError: if the element type is not supported.
    """
    import onnx
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(number).name
    except KeyError:
        dtype = f"element type {number}"
    if dtype not in DTYPES:
        raise MegccError(f"converts to {dtype}, which is not supported")
    return dtype


@decomposes("Cast", "CastLike")
def import_cast(node: OnnxNode) -> tuple[str, ...]:
    """Imports Cast, to the type of attribute `to`, and CastLike, to the type of the second operand.

    Raises:
        MegccError: for conversions between strings and numbers, and for types and round modes that are not supported.
    """
    import onnx
    to_string = node.is_string(1) if node.op_type == "CastLike" else node.attr("to") == onnx.TensorProto.STRING
    if node.is_string(0) != to_string:
        raise MegccError("converts strings and numbers, which is not supported")
    if node.is_string(0):
        return node.inputs[:1]
    source = node.type_of(node.inputs[0]).dtype
    dtype = node.type_of(node.inputs[1]).dtype if node.op_type == "CastLike" else element_type(node.attr("to"))
    rounding = node.attr("round_mode", "up")
    if rounding not in ("up", "down", "nearest"):
        raise MegccError(f"rounds {rounding}; up, down and nearest are supported")
    attrs: dict[str, Any] = {}
    if dtype in SIXTEEN_BITS and source == "float32":
        attrs["rounds"] = True
    if dtype.startswith("float8") and source != dtype:
        if not node.attr("saturate", 1):
            attrs["saturate"] = False
        if dtype == "float8_e8m0fnu" and rounding != "up":
            attrs["rounding"] = rounding
    return node.emit("cast", node.inputs[:1], dtype=dtype, **attrs) if attrs else cast_to(node, node.inputs[0], dtype)
