# SPDX-License-Identifier: Apache-2.0
"""Tensor types: dtype, logical shape and layout in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes  # noqa: F401  (its types become known to numpy by name)
import numpy as np

from .dims import Dim, ceildiv, number, product, static


class ElementType(NamedTuple):
    """A dtype as kernels store it.

    c_type: its type in C.
    bytes: the size of an element.
    short: its name in names of C functions.
    carrier: for a storage-only dtype, the dtype in which its numbers are computed (ir/narrow.py); "" for others.
    """

    c_type: str
    bytes: int
    short: str
    carrier: str = ""


#: Element types by numpy's names, in the order of `DType` in schema/megcc.fbs.
DTYPES = {
    "float32": ElementType("float", 4, "f32"), "float16": ElementType("uint16_t", 2, "f16", "float32"),
    "float64": ElementType("double", 8, "f64"),
    "int8": ElementType("int8_t", 1, "i8"), "uint8": ElementType("uint8_t", 1, "u8"),
    "int16": ElementType("int16_t", 2, "i16"), "uint16": ElementType("uint16_t", 2, "u16"),
    "int32": ElementType("int32_t", 4, "i32"), "uint32": ElementType("uint32_t", 4, "u32"),
    "int64": ElementType("int64_t", 8, "i64"), "uint64": ElementType("uint64_t", 8, "u64"),
    "bool": ElementType("uint8_t", 1, "b8"),
    "bfloat16": ElementType("uint16_t", 2, "bf16", "float32"),
    "float8_e4m3fn": ElementType("uint8_t", 1, "f8e4m3fn", "float32"),
    "float8_e4m3fnuz": ElementType("uint8_t", 1, "f8e4m3fnuz", "float32"),
    "float8_e5m2": ElementType("uint8_t", 1, "f8e5m2", "float32"),
    "float8_e5m2fnuz": ElementType("uint8_t", 1, "f8e5m2fnuz", "float32"),
    "float8_e8m0fnu": ElementType("uint8_t", 1, "f8e8m0fnu", "float32"),
    "float4_e2m1fn": ElementType("uint8_t", 1, "f4e2m1fn", "float32"),
    "int4": ElementType("uint8_t", 1, "i4", "int8"), "uint4": ElementType("uint8_t", 1, "u4", "uint8"),
    "int2": ElementType("uint8_t", 1, "i2", "int8"), "uint2": ElementType("uint8_t", 1, "u2", "uint8"),
}

#: The dtypes that all front ends and interfaces support; the others occur in ONNX models and Python only.
ORDINARY = tuple(dtype for dtype, element in DTYPES.items() if not element.carrier or dtype == "float16")


@dataclass(frozen=True)
class Layout:
    """The order in memory of the elements of a tensor, whose logical shape is always in ONNX's order.

    kind: "plain": row-major. "nhwc": channels last, rank 4. "nchwc": channels (axis 1) in blocks of `block`, that is
        [N][ceil(C/block)][H][W][block], with any number of spatial axes; the contents of pad lanes are unspecified.
    block: the number of channels in a block of "nchwc"; 0 for others.
    """

    kind: str = "plain"
    block: int = 0

    def __str__(self) -> str:
        return f"nchw{self.block}c" if self.kind == "nchwc" else self.kind


PLAIN = Layout()
NHWC = Layout("nhwc")


def nchwc(block: int) -> Layout:
    """Returns the layout with channels in blocks."""
    return Layout("nchwc", block)


@dataclass(frozen=True)
class TensorType:
    """The type of a value. shape: in ONNX's order, whatever the layout."""

    dtype: str
    shape: tuple[Dim, ...]
    layout: Layout = PLAIN

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        suffix = "" if self.layout == PLAIN else f":{self.layout}"
        return f"{self.dtype}[{dims}]{suffix}"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of logical elements."""
        return product(self.shape)

    @property
    def slots(self) -> Dim:
        """The number of channels including pad lanes (nchwc): a multiple of the block."""
        return ceildiv(self.shape[1], self.layout.block) * self.layout.block

    @property
    def stored(self) -> Dim:
        """The number of elements in memory, including pad lanes."""
        if self.layout.kind != "nchwc":
            return self.size
        return product((self.shape[0], self.slots, *self.shape[2:]))

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].bytes

    @property
    def c_type(self) -> str:
        """The C type of an element."""
        return DTYPES[self.dtype].c_type

    @property
    def c_unsigned(self) -> str:
        """The unsigned type in which integers are added and multiplied, so that they wrap; at least 32 bits, because C
        promotes narrower types to int."""
        return "uint64_t" if self.itemsize == 8 else "uint32_t"

    @property
    def bytes(self) -> Dim:
        return self.stored * self.itemsize

    @property
    def is_static(self) -> bool:
        return self.static_shape is not None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape if every extent is a number, else None."""
        return static(self.shape)

    @property
    def static_size(self) -> int | None:
        """The number of logical elements if every extent is a number, else None."""
        return None if (shape := self.static_shape) is None else math.prod(shape)

    @property
    def static_bytes(self) -> int | None:
        """The bytes in memory if every extent is a number, else None."""
        return None if self.static_shape is None else number(self.bytes)

    def with_layout(self, layout: Layout) -> TensorType:
        return self if layout is self.layout else TensorType(self.dtype, self.shape, layout)

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        return TensorType(self.dtype, tuple(shape), self.layout)


def to_layout(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns the elements of an array in memory order, as a 1-D array; pad lanes are 0. array: in ONNX's order."""
    if layout.kind == "plain":
        return np.ascontiguousarray(array).reshape(-1)
    if layout.kind == "nhwc":
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)).reshape(-1)
    images, channels, *spatial = array.shape
    blocks = -(-channels // layout.block)
    padded = np.zeros((images, blocks * layout.block, *spatial), array.dtype)
    padded[:, :channels] = array
    blocked = padded.reshape(images, blocks, layout.block, *spatial)
    return np.ascontiguousarray(np.moveaxis(blocked, 2, -1)).reshape(-1)


def from_layout(flat: np.ndarray, type_: TensorType) -> np.ndarray:
    """Returns an array in ONNX's order from its elements in memory order; the inverse of `to_layout`.

    Args:
        flat: a 1-D array.
        type_: the type, with known extents.
    """
    shape, layout = tuple(map(number, type_.shape)), type_.layout
    if layout.kind == "plain":
        return flat.reshape(shape)
    if layout.kind == "nhwc":
        return np.moveaxis(flat.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    slots = number(type_.slots)
    blocked = flat.reshape(shape[0], slots // layout.block, *shape[2:], layout.block)
    padded = np.moveaxis(blocked, -1, 2).reshape(shape[0], slots, *shape[2:])
    return padded[:, :shape[1]]
