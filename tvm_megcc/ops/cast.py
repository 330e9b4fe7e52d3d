# SPDX-License-Identifier: Apache-2.0
"""Conversion of element types: the operator, and ONNX's Cast and CastLike."""

from __future__ import annotations

import numpy as np

from ..errors import MegccError
from ..ir.graph import Attrs
from ..ir.narrow import SIXTEEN_BITS, bits_of, carrier
from ..ir.types import DTYPES, ORDINARY, TensorType
from .base import Case, OnnxNode, decomposes, f32, register
from .elementwise import Elementwise, cast_to
from .rules import saturate

#: Numbers to test conversions to 4, 8 and 16 bits: ties, the largest, the smallest, and out of range.
_STORED = [sign * number for sign in (1, -1) for number in (
    0.0, 0.124, 0.25, 0.75, 1.0, 1.0625, 1.1875, 1.25, 2.5, 5.0, 7.0, 2.0**-7, 2.0**-9, 2.0**-10, 3 * 2.0**-11,
    2.0**-16, 2.0**-17, 1e-7, 2.0**-40, 240.0, 247.0, 248.0, 249.0, 448.0, 463.9, 464.0, 465.0, 57344.0, 61439.0,
    61440.0, 1e6, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 3.38e38, 3.4e38, np.inf)]

#: The same for float16: ties to both sides, subnormal numbers, the largest number and larger ones.
_FLOAT16 = [sign * number for sign in (1, -1) for number in (
    0.0, 1.0, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-11 + 2.0**-20, 2.0**-14, 2.0**-14 - 2.0**-25, 2.0**-24,
    2.0**-25, 3 * 2.0**-25, 2.0**-26, 65504.0, 65519.0, 65520.0, 1e9, 1e-30, 0.1, np.inf)]


def _codes(dtype: str) -> np.ndarray:
    """Returns all values of an 8-bit type, some of a longer one, without NaN, whose bits are not compared."""
    bits = np.arange(1 << bits_of(dtype), dtype=np.uint8) if DTYPES[dtype].bytes == 1 else \
        np.arange(2000, dtype=np.uint16) * 32 + 1
    numbers = bits.view(np.dtype(dtype))
    return np.where(np.isnan(numbers.astype(np.float32)), numbers[1], numbers)


def rounding(dtype: str) -> tuple[Attrs, Attrs]:
    """Returns the attributes of the two casts that round float32 numbers to a dtype of 16 bits and widen them again."""
    return Attrs(dtype=dtype, rounds=True), Attrs(dtype="float32")


@register
class Cast(Elementwise):
    """Conversion to attribute `dtype`: floats to integers saturate and NaN becomes 0, integers wrap.

    Optional attributes for 8-bit floats (ir/narrow.py): `saturate` (default true) and `rounding` of powers of two
    (default "up"). `rounds`: the cast is one of the model itself, not of our decompositions
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
             *(Case((f32(len(_STORED)),), {"dtype": dtype, **attrs}, values={0: np.array(_STORED)})
               for dtype in DTYPES if dtype not in ORDINARY
               for attrs in ({}, {"saturate": False}, {"rounding": "nearest"})[:1 + ("float8" in dtype) * 2]),
             *(Case(((_codes(dtype).shape, dtype),), {"dtype": carrier(dtype)}, values={0: _codes(dtype)})
               for dtype in DTYPES if dtype not in ORDINARY),
             *(Case(((np.shape(_FLOAT16[:n]), source),), {"dtype": dtype}, values={0: _FLOAT16[:n]})
               for source, dtype in (("float32", "float16"), ("float16", "float32")) for n in (len(_FLOAT16), 8)),
             Case((((2, 20, 3, 5), "float32"),), {"dtype": "float16"}),
             Case((((2, 9, 4, 3), "float16"),), {"dtype": "float32"}),
             Case((((9,), "int64"),), {"dtype": "uint4"},
                  values={0: np.array([-9, 16, 100, -3, 7, 8, 15, 0, 2**40 + 5])}),
             Case((((16,), "int4"),), {"dtype": "float16"}, values={0: _codes("int4")}))

    @classmethod
    def infer(cls, attrs: Attrs, a: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(attrs.dtype, a.shape),)

    @classmethod
    def compute(cls, attrs: Attrs, a: np.ndarray) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            return (saturate(a, attrs.dtype, attrs.get("saturate", True), attrs.get("rounding", "up")),)


def element_type(number: int) -> str:
    """Returns our dtype for ONNX's number of an element type."""
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
    import onnx
    to_text = node.is_string(1) if node.op_type == "CastLike" else node.attr("to") == onnx.TensorProto.STRING
    if node.is_string(0) != to_text:
        raise MegccError("converts strings and numbers, which is not supported")
    if node.is_string(0):
        return node.inputs[:1]
    own = node.type_of(node.inputs[0]).dtype
    dtype = node.type_of(node.inputs[1]).dtype if node.op_type == "CastLike" else element_type(node.attr("to"))
    rounding = node.attr("round_mode", "up")
    if rounding not in ("up", "down", "nearest"):
        raise MegccError(f"rounds {rounding}; up, down and nearest are supported")
    attrs = {} if node.attr("saturate", 1) else {"saturate": False}
    if dtype == "float8_e8m0fnu" and rounding != "up":
        attrs["rounding"] = rounding
    if dtype in SIXTEEN_BITS and own == "float32":
        attrs = {"rounds": True}
    elif not attrs or not dtype.startswith("float8") or own == dtype:
        return cast_to(node, node.inputs[0], dtype)
    return node.emit("cast", node.inputs[:1], dtype=dtype, **attrs)
