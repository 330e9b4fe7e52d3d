# SPDX-License-Identifier: Apache-2.0
"""What a tensor is: element type, logical shape, layout in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .dims import Dim, ceildiv, product

#: Element types in the order of `DType` in schema/megcc.fbs: name, C type, bytes.
DTYPES = {
    "float32": ("float", 4), "float16": ("uint16_t", 2), "float64": ("double", 8),
    "int8": ("int8_t", 1), "uint8": ("uint8_t", 1), "int16": ("int16_t", 2), "uint16": ("uint16_t", 2),
    "int32": ("int32_t", 4), "uint32": ("uint32_t", 4), "int64": ("int64_t", 8), "uint64": ("uint64_t", 8),
    "bool": ("uint8_t", 1),
}


@dataclass(frozen=True)
class Layout:
    """How the logical shape (always ONNX's order) lies in memory.

    kind: "plain" row-major; "nhwc" rank 4, channels last; "nchwc" channels (axis 1) in blocks of `block`,
        that is [N][ceil(C/block)][H][W][block] (any number of spatial axes), pad lanes unspecified.
    """

    kind: str = "plain"
    block: int = 0

    def __str__(self) -> str:
        return f"nchw{self.block}c" if self.kind == "nchwc" else self.kind


PLAIN = Layout()
NHWC = Layout("nhwc")


def nchwc(block: int) -> Layout:
    return Layout("nchwc", block)


@dataclass(frozen=True)
class TensorType:
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
        """Channels including pad lanes (nchwc), in whole blocks."""
        return ceildiv(self.shape[1], self.layout.block) * self.layout.block

    @property
    def stored(self) -> Dim:
        """Number of elements in memory, padding included."""
        if self.layout.kind != "nchwc":
            return self.size
        return product((self.shape[0], self.slots, *self.shape[2:]))

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype][1]

    @property
    def bytes(self) -> Dim:
        return self.stored * self.itemsize

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.shape)

    def with_layout(self, layout: Layout) -> TensorType:
        return replace(self, layout=layout)

    def with_shape(self, shape) -> TensorType:
        return replace(self, shape=tuple(shape))


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(np.bool_ if dtype == "bool" else dtype)


def to_layout(array: np.ndarray, layout: Layout) -> np.ndarray:
    """The bytes of a logical array as they lie in memory, flat."""
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
    """The logical array from its bytes in memory; the inverse of `to_layout`."""
    shape, layout = type_.shape, type_.layout
    if layout.kind == "plain":
        return flat.reshape(shape)
    if layout.kind == "nhwc":
        return np.moveaxis(flat.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    blocked = flat.reshape(shape[0], type_.slots // layout.block, *shape[2:], layout.block)
    padded = np.moveaxis(blocked, -1, 2).reshape(shape[0], type_.slots, *shape[2:])
    return padded[:, :shape[1]]
