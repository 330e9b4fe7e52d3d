# SPDX-License-Identifier: Apache-2.0
"""8-bit products by `pmaddubsw`, which adds two of them in int16 with saturation. Weights are packed so that no sum
saturates.

For two neighbours x0, x1 in 0…255, the sum x0 * w0 + x1 * w1 fits in int16 if |w0 + w1| <= 128, or if w0 and w1 have
different signs. With x1 inverted to 255 - x1,

    x0 * w0 + x1 * w1 = x0 * w0 + (255 - x1) * (-w1) + 255 * w1,

and the first two terms fit if |w0 - w1| <= 128; the third is a constant, which goes into the bias. So four bytes of x
are packed as two pairs p q, followed by the same with every second byte inverted, P Q:

    p q P Q        loads from p, q and P on give p q, q P and P Q

The weights of a vector of channels for four bytes of x are an entry of a list. The entry says which of the three loads
they multiply, and holds the weights in that order. If none of the three fits for all channels of a vector, there are
two entries, with half of each weight. Weights are constants, so all of this is decided when they are packed. An entry
takes three instructions; products of int16 take four.
"""

from __future__ import annotations

import numpy as np

from ...ir.dims import ceildiv, product, round_up
from ..base import PACKING_CALL, Operand, extent_symbols
from ..conv2d.geometry import Geometry
from ..packing import packer
from ..site import Site
from .dot import DotConv, DotMatMul, DotProducts, PackedForm, as_outputs, pack_sums, packing_offset, runs_of

#: Bytes of x that an entry multiplies.
STEP = 4
#: The largest |w0 ± w1| for which a sum fits in int16: 255 * 128 < 2^15.
MAX_WEIGHT_SUM = 128
#: For loads at p, q and P: whether the first and the second pair of weights multiply a pair of x whose second byte is
#: inverted.
_INVERTED = ((False, False), (True, False), (True, True))


def _grouped(array: np.ndarray, outputs_first: bool, zero: int, groups: int, runs: int, lanes: int) -> np.ndarray:
    """Returns the weights minus their zero point, int16 [vectors][runs][groups of 4][lanes][pairs][2], with zeros
    after the last channel."""
    packed = []
    for group in np.split(as_outputs(array, outputs_first), groups):
        outputs = group.shape[0]
        # A channel has its weights in the order (kh, kw, i): [outputs][runs][groups of 4][pairs][2].
        depth = np.moveaxis(group, 1, -1).reshape(outputs, runs, -1, 2, 2).astype(np.int16)
        padded = np.zeros((round_up(outputs, lanes), *depth.shape[1:]), np.int16)
        padded[:outputs] = depth - packing_offset(array.dtype.name, zero)
        packed.append(np.moveaxis(padded.reshape(-1, lanes, *depth.shape[1:]), 1, 3))
    return np.concatenate(packed)


def _choose_loads(grouped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns arrays [vectors][runs][groups of 4]: the pair at which an entry's load begins (0 p, 1 q, 2 P), and
    whether the weights are split into two entries."""
    first, second = grouped[..., 0], grouped[..., 1]
    plain = (np.abs(first + second) > MAX_WEIGHT_SUM).any(axis=3)
    # A weight of an inverted byte is negated, and int8 does not hold 128.
    inverted = ((np.abs(first - second) > MAX_WEIGHT_SUM) | (second == -128)).any(axis=3)
    # A load is possible if both pairs fit in all channels of the vector (axis 3).
    fails = np.stack([np.where(kind, inverted, plain).any(axis=-1) for kind in np.array(_INVERTED)])
    return fails.argmin(axis=0), fails.all(axis=0)


def _is_inverted(index: np.ndarray) -> np.ndarray:
    """Returns bool [vectors][runs][groups of 4][1][pairs]: whether the second byte of a pair is inverted."""
    return np.array(_INVERTED)[index][:, :, :, None, :]


def _exists(is_split: np.ndarray) -> np.ndarray:
    """Returns bool [vectors][runs][groups of 4][2]: whether the first and the second entry exist."""
    return np.stack([np.ones_like(is_split), is_split], axis=-1)


@packer("pmaddubsw_weights")
def pack_weights(array: np.ndarray, *packing) -> np.ndarray:
    """Packs weights as int8 [entries][lanes][4].

    packing: the arguments of all packers here. They are outputs_first, the layout of a weight matrix; the zero point of
        the weights; groups; runs of a window; lanes of a vector.
    """
    grouped = _grouped(array, *packing)
    index, is_split = _choose_loads(grouped)
    weights = np.stack([grouped[..., 0], np.where(_is_inverted(index), -grouped[..., 1], grouped[..., 1])], axis=-1)
    # The load at q begins with the second pair.
    weights = np.where((index == 1)[..., None, None, None], weights[..., ::-1, :], weights)
    second_half = weights >> 1
    entries = np.stack([np.where(is_split[..., None, None, None], weights - second_half, weights), second_half], axis=3)
    return entries[_exists(is_split)].astype(np.int8)


@packer("pmaddubsw_moves")
def pack_moves(array: np.ndarray, *packing) -> np.ndarray:
    """Returns uint8 [entries]: the pairs of bytes from the start of the entry before to that of the entry. The first
    entry of a run counts from the end of the run before."""
    index, is_split = _choose_loads(_grouped(array, *packing))
    positions = STEP * np.arange(index.shape[2]) + index
    # The second of two entries begins where the first does.
    moves = np.stack([np.diff(positions, prepend=0), np.zeros_like(positions)], axis=-1)
    return moves[_exists(is_split)].astype(np.uint8)


@packer("pmaddubsw_lists")
def pack_lists(array: np.ndarray, *packing) -> np.ndarray:
    """Returns int32 [vectors][1 + runs]: the index of the first entry, and the number of entries of each run."""
    counts = _exists(_choose_loads(_grouped(array, *packing))[1]).sum(axis=(2, 3), dtype=np.int32)
    totals = counts.sum(axis=1, keepdims=True)
    first = totals.cumsum(axis=0, dtype=np.int32) - totals
    return np.concatenate([first, counts], axis=1, dtype=np.int32)


@packer("pmaddubsw_sums")
def pack_pmaddubsw_sums(array: np.ndarray, outputs_first: bool, zero: int, groups: int, runs: int, lanes: int,
                     x_zero: int) -> np.ndarray:
    """Returns int32 [O]: the correction of sums for inverted bytes and the zero point of x."""
    grouped = _grouped(array, outputs_first, zero, groups, runs, lanes)
    inverted = np.where(_is_inverted(_choose_loads(grouped)[0]), grouped[..., 1], 0).sum(axis=(1, 2, 4), dtype=np.int32)
    sums = pack_sums(array, outputs_first, zero, x_zero)
    return sums + 255 * inverted.reshape(groups, -1)[:, :sums.size // groups].reshape(-1)


@packer("pmaddubsw_bias")
def pack_pmaddubsw_bias(bias: np.ndarray, array: np.ndarray, *packing) -> np.ndarray:
    """Returns the bias plus `pack_pmaddubsw_sums` of these arguments, int32 [O]; sums wrap."""
    return (pack_pmaddubsw_sums(array, *packing).view(np.uint32) + bias.reshape(-1).view(np.uint32)).view(np.int32)


class Pmaddubsw(DotProducts):
    """The base class of both kernels, whose weights are lists of entries."""

    name = "pmaddubsw"
    is_pmaddubsw = True

    def unable(self, site: Site, s: Geometry, w_zero: int) -> str | None:
        if not site.isa.saturates:
            return "other 8-bit products take fewer instructions"
        if site.compact:
            return "lists are longer than weights, and each has a kernel of its own"
        if 1 not in site.values:
            return "the weights must be known"
        return "input channels must be a multiple of four" if s.ic % STEP else None

    def form(self, site: Site, zero: int) -> PackedForm:
        # An element is two bytes. mgc_pack_twice makes int8 unsigned, so the zero point is counted from the lowest x.
        return PackedForm(dtype="uint16", step=STEP, x_offset=0, zero=zero - int(np.iinfo(site.x.dtype).min),
                          name="twice")

    def operands(self, site: Site, s: Geometry, x: Operand, weights: tuple[bool, int], form: PackedForm,
                 vectors: int) -> tuple[tuple[Operand, ...], dict]:
        runs, lanes = runs_of(s)[0], site.isa.lanes
        G, OC, ENTRIES = extent_symbols("G", "OC", "ENTRIES")
        packing = *weights, s.g, runs, lanes
        bias = (Operand("b", 2, G * OC, ("pmaddubsw_bias", *packing, form.zero), also=(1,)) if site.has(2) else
                Operand("b", 1, G * OC, ("pmaddubsw_sums", *packing, form.zero), "int32"))
        return (x, Operand("w", 1, ENTRIES * lanes * STEP, ("pmaddubsw_weights", *packing), "int8"), bias,
                Operand("moves", 1, ENTRIES, ("pmaddubsw_moves", *packing), "uint8"),
                Operand("lists", 1, G * ceildiv(OC, lanes) * (1 + runs), ("pmaddubsw_lists", *packing), "int32")), {
                    "ENTRIES": _entries(site, s, *weights)}

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool) -> float:
        pixels, (runs, length) = product((s.n, s.oh, s.ow)), runs_of(s)
        # For each entry 1.75 a pixel, and 1 in each tile of 13 pixels. For each pixel 3.5 for a vector of results, more
        # than with two vectors of channels in a tile, and 0.1 for an element that is packed.
        return (PACKING_CALL + _entries(site, s, outputs_first, w_zero) * (1.75 * pixels + ceildiv(pixels, 13))
                + pixels * s.g * (3.5 * ceildiv(s.oc, site.isa.lanes) + 0.1 * runs * length))


def _entries(site: Site, s: Geometry, outputs_first: bool, zero: int) -> int:
    """Returns the number of entries in all lists."""
    is_split = _choose_loads(_grouped(site.values[1], outputs_first, zero, s.g, runs_of(s)[0], site.isa.lanes))[1]
    return int(is_split.size + is_split.sum())


class PmaddubswConv(Pmaddubsw, DotConv):
    """Computes convolutions, channels last."""


class PmaddubswMatMul(Pmaddubsw, DotMatMul):
    """Computes products with a constant matrix on the right."""
