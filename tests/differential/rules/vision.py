# SPDX-License-Identifier: Apache-2.0
"""Boxes, regions and grids; columns of images; attention over sequences."""

from __future__ import annotations

import numpy as np

from ..draw import Draw
from .windows import extents_of, groups


def affine_grid(draw: Draw) -> None:
    rank = draw.one((2, 2, 3))
    batch = draw.whole(1, 2)
    draw.maybe("align_corners", draw.whole(0, 1))
    draw.add_values((batch, rank, rank + 1), 0.2)
    draw.add_ints([batch, draw.whole(1, 3), *extents_of(draw, rank)], 0.95)


def boxes(draw: Draw, count: int, extents: tuple[int, int]) -> np.ndarray:
    """[count, 4]: x1, y1, x2, y2, some of them beyond the image."""
    height, width = extents
    first = draw.rng.uniform(-1, 0.7, (count, 2)) * (width, height)
    return np.concatenate([first, first + draw.rng.uniform(0, 1, (count, 2)) * (width, height)], 1)


def roi_align(draw: Draw) -> None:
    extents, count, batch = (draw.whole(2, 7), draw.whole(2, 7)), draw.whole(1, 3), draw.whole(1, 2)
    draw.maybe("coordinate_transformation_mode", draw.one(("half_pixel", "output_half_pixel")))
    draw.maybe("mode", draw.one(("avg", "max")))
    draw.maybe("output_height", draw.whole(1, 4))
    draw.maybe("output_width", draw.whole(1, 4))
    draw.maybe("sampling_ratio", draw.whole(0, 3))
    draw.maybe("spatial_scale", draw.one((1.0, 0.5, 2.0)))
    draw.add_values((batch, draw.whole(1, 4), *extents), 0.1)
    draw.add(boxes(draw, count, extents).astype(draw.dtype("T1")), 0.2)
    draw.add(draw.rng.integers(0, batch, count), 0.3)


def max_roi_pool(draw: Draw) -> None:
    extents, count, batch = (draw.whole(2, 7), draw.whole(2, 7)), draw.whole(1, 3), draw.whole(1, 2)
    draw.attributes["pooled_shape"] = [draw.whole(1, 4), draw.whole(1, 4)]
    draw.maybe("spatial_scale", draw.one((1.0, 0.5)))
    draw.add_values((batch, draw.whole(1, 4), *extents), 0.1)
    own = np.concatenate([draw.rng.integers(0, batch, (count, 1)), np.rint(np.abs(boxes(draw, count, extents)))], 1)
    draw.add(own.astype(draw.dtype("T")), 0.2)


def non_max_suppression(draw: Draw) -> None:
    batch, classes, count = draw.whole(1, 2), draw.whole(1, 3), draw.whole(1, 8)
    draw.maybe("center_point_box", draw.whole(0, 1))
    own = np.stack([boxes(draw, count, (4, 4)) for _ in range(batch)])
    if draw.attributes.get("center_point_box"):
        own[..., 2:] = np.abs(own[..., 2:])  # a width and a height
    draw.add(own.astype("float32"), 0.1)
    scores = draw.rng.permutation(batch * classes * count).reshape(batch, classes, count) / (batch * classes * count)
    draw.add(scores.astype("float32"), 0.1)
    for value in (np.array(draw.whole(0, 5), "int64"), np.array(draw.one((0.0, 0.3, 0.5, 1.0)), "float32"),
                  np.array(draw.one((-1.0, 0.25, 0.6)), "float32")):
        if draw.chance(0.7):
            draw.add(value if draw.chance(0.6) else value.reshape(1), 0.9)
        elif draw.chance(0.5):
            draw.add(None)
        else:
            return


def deform_conv(draw: Draw) -> None:
    extents, kernel = [draw.whole(2, 6), draw.whole(2, 6)], [draw.whole(1, 3), draw.whole(1, 3)]
    count, inputs, outputs = groups(draw)
    shares = draw.one([share for share in (1, 2, 3) if inputs % share == 0])
    pads = draw.maybe("pads", [draw.whole(0, 2) for _ in range(4)]) or [0] * 4
    strides = draw.maybe("strides", [draw.whole(1, 2) for _ in range(2)]) or [1, 1]
    dilations = draw.maybe("dilations", [draw.whole(1, 2) for _ in range(2)]) or [1, 1]
    draw.attributes |= {"group": count, "offset_group": shares}
    draw.maybe("kernel_shape", kernel)
    spread = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
    extents = [max(extent, width) for extent, width in zip(extents, spread, strict=True)]
    result = [(extent + pads[at] + pads[at + 2] - spread[at]) // strides[at] + 1 for at, extent in enumerate(extents)]
    batch, taps = draw.whole(1, 2), kernel[0] * kernel[1]
    draw.add_values((batch, inputs, *extents), 0.05)
    draw.add_values((outputs, inputs // count, *kernel), 0.8)
    draw.add(draw.values((batch, shares * taps * 2, *result), draw.dtype("T"), low=-1.5, high=1.5), 0.1)
    draw.add(draw.values((outputs,), draw.dtype("T")) if draw.chance(0.5) else None, 0.8)
    if draw.chance(0.5):
        draw.add(draw.values((batch, shares * taps, *result), draw.dtype("T"), low=0, high=1), 0.1)


def col2im(draw: Draw) -> None:
    rank = draw.one((1, 2, 2, 3))
    block, image = [draw.whole(1, 3) for _ in range(rank)], extents_of(draw, rank)
    pads = draw.maybe("pads", [draw.whole(0, 2) for _ in range(2 * rank)]) or [0] * 2 * rank
    strides = draw.maybe("strides", [draw.whole(1, 2) for _ in range(rank)]) or [1] * rank
    dilations = draw.maybe("dilations", [draw.whole(1, 2) for _ in range(rank)]) or [1] * rank
    spread = [(taps - 1) * step + 1 for taps, step in zip(block, dilations, strict=True)]
    image = [max(extent, width) for extent, width in zip(image, spread, strict=True)]
    blocks = [(extent + pads[at] + pads[at + rank] - spread[at]) // strides[at] + 1 for at, extent in enumerate(image)]
    draw.add_values((draw.whole(1, 2), draw.whole(1, 3) * int(np.prod(block)), int(np.prod(blocks))), 0.05)
    draw.add_ints(image, 0.95, "int64")
    draw.add_ints(block, 0.95, "int64")


def max_unpool(draw: Draw) -> None:
    rank = draw.one((1, 2, 2))
    kernel, extents = [draw.whole(1, 3) for _ in range(rank)], [draw.whole(1, 4) for _ in range(rank)]
    strides = draw.maybe("strides", [draw.whole(1, 3) for _ in range(rank)]) or [1] * rank
    draw.attributes["kernel_shape"] = kernel
    result = [(extent - 1) * step + taps for extent, step, taps in zip(extents, strides, kernel, strict=True)]
    lead = (draw.whole(1, 2), draw.whole(1, 3))
    more = [draw.whole(0, 2) for _ in result] if draw.chance(0.4) else None
    whole = int(np.prod(result))
    places = np.stack([draw.rng.permutation(whole)[:int(np.prod(extents))] for _ in range(int(np.prod(lead)))])
    if places.shape[1] < int(np.prod(extents)):  # windows overlap by so much that there is not a place for each
        places = draw.rng.integers(0, 1, (places.shape[0], int(np.prod(extents))))
    offsets = np.arange(places.shape[0])[:, None] * whole
    draw.add_values((*lead, *extents), 0.1)
    draw.add((places + offsets).reshape(*lead, *extents).astype("int64"), 0.2)
    if more:
        draw.add_ints([*lead, *(extent + extra for extent, extra in zip(result, more, strict=True))], 0.95, "int64")


def upsample(draw: Draw) -> None:
    shape = draw.shape(2, 4, 0)
    draw.maybe("mode", draw.one(("nearest", "linear")))
    scales = [1.0 if at < len(shape) - 2 else draw.one((1.0, 2.0, 1.5, 3.0)) for at in range(len(shape))]
    draw.add_values(shape, 0.1)
    if "scales" in draw.schema.attributes:
        draw.attributes["scales"] = scales
    else:
        draw.add(np.array(scales, "float32"), 0.9)


def attention(draw: Draw) -> None:
    batch, queries, keys, width, deep = (draw.whole(1, 2), draw.whole(1, 5), draw.whole(1, 5), draw.whole(1, 4),
                                         draw.whole(1, 4))
    own = draw.one((1, 2))
    heads = own * draw.one((1, 2, 3))
    flat = draw.chance(0.5)
    past = draw.whole(1, 3) if draw.chance(0.3) else 0
    draw.dtypes["T2"] = draw.dtype("T1")
    if flat:
        draw.attributes |= {"q_num_heads": heads, "kv_num_heads": own}
    draw.maybe("is_causal", draw.whole(0, 1))
    draw.maybe("scale", draw.one((0.5, 1.0)), 0.3)
    draw.maybe("softcap", draw.one((0.0, 2.0)), 0.3)
    for count, extent, size in ((heads, queries, width), (own, keys, width), (own, keys, deep)):
        draw.add_values((batch, extent, count * size) if flat else (batch, count, extent, size), 0.05, low=-2, high=2)
    total, mask = keys + past, None
    if draw.chance(0.5):
        shape = [(queries, total), (batch, 1, queries, total), (batch, heads, queries, total), (1, 1, 1, total)][
            draw.whole(0, 3)]
        mask = draw.rng.random(shape) < 0.7
        mask[..., 0] = True
        if draw.dtype("U") != "bool":
            draw.dtypes["U"] = draw.dtypes["T1"]
            mask = np.where(mask, 0, -3).astype(draw.dtypes["T1"])
    draw.add(mask, 0.5)
    if past:
        for size in (width, deep):
            draw.add_values((batch, own, past, size), 0.05, low=-2, high=2)
        draw.outputs = 3
    elif draw.chance(0.2):
        draw.outputs = 3


def rotary(draw: Draw) -> None:
    batch, length, heads, half = draw.whole(1, 2), draw.whole(1, 5), draw.whole(1, 3), draw.whole(1, 4)
    part = draw.whole(1, half) if draw.chance(0.4) else half
    flat = draw.chance(0.5)
    if flat or draw.chance(0.3):
        draw.attributes["num_heads"] = heads
    if part != half or draw.chance(0.2):
        draw.attributes["rotary_embedding_dim"] = 2 * part
    draw.maybe("interleaved", draw.whole(0, 1))
    draw.add_values((batch, length, heads * 2 * half) if flat else (batch, heads, length, 2 * half), 0.05)
    ids, rows = draw.chance(0.6), draw.whole(5, 8)
    for _ in range(2):
        draw.add(draw.values((rows, part) if ids else (batch, length, part), draw.dtype("T"), low=-1, high=1), 0.7)
    if ids:
        draw.add(draw.rng.integers(0, rows, (batch, length)), 0.2)


def tensor_scatter(draw: Draw) -> None:
    shape = list(draw.shape(3, 4, 0))
    axis = draw.maybe("axis", draw.one([*range(1, len(shape)), *range(1 - len(shape), 0)]))
    axis = -2 if axis is None else axis
    update = list(shape)
    update[axis] = draw.whole(1, shape[axis])
    mode = draw.maybe("mode", draw.one(("linear", "circular")))
    draw.add_values(tuple(shape), 0.1)
    draw.add_values(tuple(update), 0.1)
    if draw.chance(0.8):
        most = shape[axis] - (update[axis] if mode != "circular" else 1)
        draw.add(draw.rng.integers(0, most + 1, shape[0]), 0.4)


RULES = {"AffineGrid": affine_grid, "RoiAlign": roi_align, "MaxRoiPool": max_roi_pool,
         "NonMaxSuppression": non_max_suppression, "DeformConv": deform_conv, "Col2Im": col2im,
         "MaxUnpool": max_unpool, "Upsample": upsample, "Attention": attention, "RotaryEmbedding": rotary,
         "TensorScatter": tensor_scatter}
