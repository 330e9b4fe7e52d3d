# SPDX-License-Identifier: Apache-2.0
"""8-bit products by `pmaddubsw`, which adds two of them in int16 and saturates. Weights are packed so that no sum
can saturate.

For two neighbours x0, x1 in 0…255 the sum x0 * w0 + x1 * w1 fits in int16 if |w0 + w1| <= 128, or if w0 and w1 have
different signs. With x1 inverted, 255 - x1,

    x0 * w0 + x1 * w1 = x0 * w0 + (255 - x1) * (-w1) + 255 * w1,

and the first two fit if |w0 - w1| <= 128; the third is known, and goes into the bias. So each four bytes of x are laid
out as they are, p q, and after them with every second byte inverted, P Q, two bytes each:

    p q P Q        what begins at p, q or P is p q, q P or P Q

and the weights of a vector of channels by four bytes of x are an entry of a list: which of the three they multiply, and
the weights in that order. Where none of the three fits for all channels of a vector, there are two entries, of
halves. Weights are known, so all of that is decided when they are packed. An entry takes three instructions where
products of int16 take four.
"""

from __future__ import annotations

import numpy as np

from ...ir.dims import ceildiv, product, round_up
from ..base import Operand, extent_symbols
from ..conv2d.geometry import Geometry
from ..packing import packer
from ..site import Site
from .dot import DotConv, DotMatMul, DotProducts, Laid, as_outputs, less, pack_sums, runs_of

#: Bytes of x that an entry multiplies.
STEP = 4
#: The largest sum of two weights: 255 * 128 fits in int16.
MOST = 128
#: Which of the two pairs of bytes are inverted in loads at p, q and P.
_TURNED = ((False, False), (True, False), (True, True))


def _grouped(array: np.ndarray, outputs_first: bool, zero: int, groups: int, runs: int, lanes: int) -> np.ndarray:
    """Returns the weights minus their zero point, int16 [vectors][runs][groups of 4][lanes][pairs][2]; zeros past the
    channels."""
    found = []
    for group in np.split(as_outputs(array, outputs_first), groups):
        outputs = group.shape[0]
        depth = np.moveaxis(group, 1, -1).reshape(outputs, runs, -1, 2, 2).astype(np.int16)
        padded = np.zeros((round_up(outputs, lanes), *depth.shape[1:]), np.int16)
        padded[:outputs] = depth - less(array.dtype.name, zero)
        found.append(np.moveaxis(padded.reshape(-1, lanes, *depth.shape[1:]), 1, 3))
    return np.concatenate(found)


def _forms(grouped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns, as [vectors][runs][groups of 4], where the load of an entry begins, in pairs of bytes, and whether there
    are two entries."""
    first, second = grouped[..., 0], grouped[..., 1]
    plain = (np.abs(first + second) > MOST).any(axis=3)
    turned = ((np.abs(first - second) > MOST) | (second == -128)).any(axis=3)
    fails = np.stack([np.where(kind, turned, plain).any(axis=-1) for kind in np.array(_TURNED)])
    return fails.argmin(axis=0), fails.all(axis=0)


def _is_inverted(place: np.ndarray) -> np.ndarray:
    """Returns, as [vectors][runs][groups of 4][1][pairs], whether the second byte of a pair is inverted."""
    return np.array(_TURNED)[place][:, :, :, None, :]


def _there(doubled: np.ndarray) -> np.ndarray:
    """Returns, as [vectors][runs][groups of 4][2], whether there is a first and a second entry."""
    return np.stack([np.ones_like(doubled), doubled], axis=-1)


@packer("pmaddubsw_weights")
def pack_weights(array: np.ndarray, *how) -> np.ndarray:
    """Packs weights as int8 [entries][lanes][4].

    how: as for all packers here: outputs_first, the layout of weights that are a matrix; their zero point; groups; runs
        of a window; lanes of a vector.
    """
    grouped = _grouped(array, *how)
    place, doubled = _forms(grouped)
    weights = np.stack([grouped[..., 0], np.where(_is_inverted(place), -grouped[..., 1], grouped[..., 1])], axis=-1)
    # Weights for the load at q have the second pair first.
    weights = np.where((place == 1)[..., None, None, None], weights[..., ::-1, :], weights)
    half = weights >> 1
    entries = np.stack([np.where(doubled[..., None, None, None], weights - half, weights), half], axis=3)
    return entries[_there(doubled)].astype(np.int8)


@packer("pmaddubsw_moves")
def pack_moves(array: np.ndarray, *how) -> np.ndarray:
    """Returns uint8 [entries]: by how many pairs of bytes an entry begins after the one before it. The first entry of a
    run counts from the end of the run before."""
    place, doubled = _forms(_grouped(array, *how))
    at = STEP * np.arange(place.shape[2]) + place
    # The second of two entries begins where the first does.
    return np.stack([np.diff(at, prepend=0), np.zeros_like(at)], axis=-1)[_there(doubled)].astype(np.uint8)


@packer("pmaddubsw_lists")
def pack_lists(array: np.ndarray, *how) -> np.ndarray:
    """Returns int32 [vectors][1 + runs]: the index of the first entry, and the number of entries of each run."""
    counts = _there(_forms(_grouped(array, *how))[1]).sum(axis=(2, 3), dtype=np.int32)
    last = counts.sum(axis=1, keepdims=True).cumsum(axis=0, dtype=np.int32)
    return np.concatenate([last - counts.sum(axis=1, keepdims=True), counts], axis=1, dtype=np.int32)


@packer("pmaddubsw_sums")
def pack_pmaddubsw_sums(array: np.ndarray, outputs_first: bool, zero: int, groups: int, runs: int, lanes: int,
                     x_zero: int) -> np.ndarray:
    """Returns int32 [O], the correction of the sums of products, for inverted bytes and the zero point of x."""
    grouped = _grouped(array, outputs_first, zero, groups, runs, lanes)
    turned = np.where(_is_inverted(_forms(grouped)[0]), grouped[..., 1], 0).sum(axis=(1, 2, 4), dtype=np.int32)
    sums = pack_sums(array, outputs_first, zero, x_zero)
    return sums + 255 * turned.reshape(groups, -1)[:, :sums.size // groups].reshape(-1)


@packer("pmaddubsw_bias")
def pack_pmaddubsw_bias(bias: np.ndarray, array: np.ndarray, *given) -> np.ndarray:
    """Returns the bias with this correction added; int32 wraps."""
    return (pack_pmaddubsw_sums(array, *given).view(np.uint32) + bias.reshape(-1).view(np.uint32)).view(np.int32)


class Pmaddubsw(DotProducts):
    """The base class of both kernels, whose weights are lists of entries."""

    name = "pmaddubsw"
    is_pmaddubsw = True

    def refuse(self, site: Site) -> str | None:
        if not site.isa.saturates:
            return "other 8-bit products take fewer instructions"
        if site.compact:
            return "lists are longer than weights, and each has a kernel of its own"
        if 1 not in site.values:
            return "the weights must be known"
        return super().refuse(site) or (
            "input channels must be a multiple of four" if self.geometry(site).ic % STEP else None)

    def laid(self, site: Site, zero: int) -> Laid:
        return Laid("uint16", STEP, 0, zero - int(np.iinfo(site.x.dtype).min), "twice")

    def operands(self, site: Site, s: Geometry, x: Operand, how: tuple, laid: Laid,
                 vectors: int) -> tuple[tuple[Operand, ...], dict]:
        runs, lanes = runs_of(s)[0], site.isa.lanes
        G, OC, ENTRIES = extent_symbols("G", "OC", "ENTRIES")
        given = *how, s.g, runs, lanes
        bias = (Operand("b", 2, G * OC, ("pmaddubsw_bias", *given, laid.zero), also=(1,)) if site.has(2) else
                Operand("b", 1, G * OC, ("pmaddubsw_sums", *given, laid.zero), "int32"))
        return (x, Operand("w", 1, ENTRIES * lanes * STEP, ("pmaddubsw_weights", *given), "int8"), bias,
                Operand("moves", 1, ENTRIES, ("pmaddubsw_moves", *given), "uint8"),
                Operand("lists", 1, G * ceildiv(OC, lanes) * (1 + runs), ("pmaddubsw_lists", *given), "int32")), {
                    "ENTRIES": _entries(site, s, *how)}

    def cycles(self, site: Site, s: Geometry, w_zero: int, outputs_first: bool = True) -> float:
        pixels, (runs, length) = product((s.n, s.oh, s.ow)), runs_of(s)
        # The end of a tile takes some cycles more than that of two vectors of channels.
        return (300 + _entries(site, s, outputs_first, w_zero) * (1.75 * pixels + ceildiv(pixels, 13))
                + pixels * s.g * (3.5 * ceildiv(s.oc, site.isa.lanes) + 0.1 * runs * length))


def _entries(site: Site, s: Geometry, outputs_first: bool, zero: int) -> int:
    """Returns the number of entries in all lists."""
    doubled = _forms(_grouped(site.values[1], outputs_first, zero, s.g, runs_of(s)[0], site.isa.lanes))[1]
    return int(doubled.size + doubled.sum())


class PmaddubswConv(Pmaddubsw, DotConv):
    """Computes convolutions, channels last."""


class PmaddubswMatMul(Pmaddubsw, DotMatMul):
    """Computes products with a constant matrix on the right."""
