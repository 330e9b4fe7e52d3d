# SPDX-License-Identifier: Apache-2.0
"""Packs constants in the order in which kernels read them, when a model is compiled.

`Operand.pack = (name, *arguments)` names a packer.

Each packer is a pure function of arrays in the logical order of ONNX. `lanes`: elements of a vector. Blocks have 16
output channels, so that vectors of 4, 8 and 16 lanes read the same bytes. Only the last block is narrower: its channels
are rounded up to whole vectors. `[O/16][K][16]` in a docstring is the order of axes: blocks of 16 output channels, in
each the K weights, of each weight the 16 channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

BLOCK = 16
"""The number of output channels in a block of packed weights. Wider tiles have wider blocks (`Tiling.block`)."""

PACKERS: dict[str, Callable[..., np.ndarray]] = {}
Packer = TypeVar("Packer", bound=Callable[..., np.ndarray])


def packer(name: str) -> Callable[[Packer], Packer]:
    """Registers a packer under the name that operands use."""
    def add(function: Packer) -> Packer:
        PACKERS[name] = function
        return function
    return add


def pack(packing: tuple[Any, ...], *arrays: np.ndarray, dtype: str = "") -> np.ndarray:
    """Returns the packed array, flat.

    packing: (name of the packer, *arguments), as in `Operand.pack`.
    arrays: the constant of the operand, then the constants that `Operand.also` names.
    dtype: `Operand.dtype`, to which the numbers are converted; "": the packer chooses.
    """
    name, *arguments = packing
    packed = np.ascontiguousarray(PACKERS[name](*arrays, *arguments)).reshape(-1)
    return packed.astype(np.dtype(dtype), copy=False) if dtype else packed


@packer("channel")
def pack_channel(array: np.ndarray, lanes: int) -> np.ndarray:
    """Packs one value per channel, with zeros up to whole vectors."""
    return _padded(array.reshape(-1), 0, lanes)


@packer("conv_oihw")
def pack_conv(array: np.ndarray, lanes: int, groups: int = 1, block: int = BLOCK, step: int = BLOCK) -> np.ndarray:
    """Packs [O, I, KH, KW], for each group as [O/16][I/16, KH, KW, I%16][16]. block, step: as in `pack_columns`.

    Input channels are not padded: their last block may have fewer than 16.
    """
    return np.concatenate([_pack_group(part, lanes, block, step) for part in np.split(array, groups)])


def _pack_group(array: np.ndarray, lanes: int, block: int = BLOCK, step: int = BLOCK) -> np.ndarray:
    """Packs the weights [O, I, KH, KW] of one group."""
    outputs, inputs = array.shape[:2]
    blocks = [np.moveaxis(array[:, i:i + BLOCK], 1, -1).reshape(outputs, -1) for i in range(0, inputs, BLOCK)]
    return pack_columns(np.concatenate(blocks, axis=1).T, lanes, block=block, step=step)


@packer("taps")
def pack_taps(array: np.ndarray, lanes: int) -> np.ndarray:
    """Packs [O, I, KH, KW] as [O/16][I, KH, KW][16]. I is 1 in a depthwise convolution."""
    return pack_columns(array.reshape(array.shape[0], -1).T, lanes)


@packer("conv_iohw")
def pack_conv_transpose(array: np.ndarray, lanes: int, groups: int = 1) -> np.ndarray:
    """Packs [I, O, KH, KW], O of one group, as `conv_oihw` packs [O, I, KH, KW]."""
    return np.concatenate([_pack_group(part.swapaxes(0, 1), lanes) for part in np.split(array, groups)])


@packer("conv_oyxi")
def pack_input_channels(array: np.ndarray) -> np.ndarray:
    """Packs [I, O, KH, KW] as [O][KH, KW][I]."""
    return array.transpose(1, 2, 3, 0)


@packer("columns")
def pack_columns(array: np.ndarray, lanes: int, transposed: bool = False, block: int = BLOCK,
                 step: int = BLOCK) -> np.ndarray:
    """Packs a matrix [K, N], or [N, K] if transposed, as [N/block][K][block].

    N is padded with zeros to a multiple of `lanes`. step: columns of a tile. The columns after the last whole tile are
    one block of their own width, because one narrower tile reads them all.
    """
    if transposed:
        array = array.T
    array = _padded(array, 1, lanes)
    columns = array.shape[1]
    tail = columns // step * step
    blocks = [(start, min(start + block, columns)) for start in range(0, tail, block)]
    packed, offset = np.empty(array.size, array.dtype), 0
    for start, stop in [*blocks, (tail, columns)]:
        part = array[:, start:stop]
        packed[offset:offset + part.size].reshape(part.shape)[...] = part
        offset += part.size
    return packed


@packer("recurrent")
def pack_recurrent(array: np.ndarray, lanes: int, products: tuple[int, ...]) -> np.ndarray:
    """Packs the weights of a recurrent layer, [D, G*H, K], for each direction and product as [H/16][K][gates][16].

    D: directions. G: gates. H: units. K: inputs of a unit. products: the number of gates that each matrix product
    computes, in the order of the rows.
    """
    units = array.shape[1] // sum(products)
    parts = []
    for direction in array:
        first = 0
        for gates in products:
            # [K, gates, H], a block of units at a time
            weights = _padded(direction[first * units:(first + gates) * units].reshape(gates, units, -1), 1, lanes)
            weights = np.moveaxis(weights, -1, 0)
            parts += [weights[..., unit:unit + BLOCK].reshape(-1) for unit in range(0, weights.shape[-1], BLOCK)]
            first += gates
    return np.concatenate(parts)


def _padded(array: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    if array.shape[axis] % multiple == 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, -array.shape[axis] % multiple)
    return np.pad(array, widths)
