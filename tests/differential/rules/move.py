# SPDX-License-Identifier: Apache-2.0
"""Operators that move, select and count elements."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from ..draw import Draw, broadcast, element_type, types_of


def axes_operand(draw: Draw, axes: list[int]) -> None:
    """Axes as an attribute or, since opset 13 or 18, as an operand."""
    if "axes" in draw.schema.attributes:
        draw.attributes["axes"] = axes
    else:
        draw.add_ints(axes, dtype="int64")


def reshape(draw: Draw) -> None:
    shape = draw.shape(0, 5, 0.05)
    wanted = list(draw.rng.permutation([extent for extent in shape if extent != 1 or draw.chance(0.5)]).astype(int))
    for _ in range(draw.whole(0, 2)):
        wanted.insert(draw.whole(0, len(wanted)), 1)
    zero = draw.maybe("allowzero", 1, 0.2) or 0
    if 0 not in shape and wanted and draw.chance(0.5):
        wanted[draw.whole(0, len(wanted) - 1)] = -1
    if not zero:
        for at, extent in enumerate(wanted):
            if at < len(shape) and shape[at] == extent and draw.chance(0.3):
                wanted[at] = 0
    draw.add_values(shape, 0.1)
    draw.add_ints(wanted, 0.8, "int64")


def transpose(draw: Draw) -> None:
    shape = draw.shape(1, 6)
    draw.maybe("perm", [int(axis) for axis in draw.rng.permutation(len(shape))], 0.85)
    draw.add_values(shape, 0.1)


def flatten(draw: Draw) -> None:
    shape = draw.shape(1, 5)
    draw.maybe("axis", draw.whole(0, len(shape)) if draw.opset < 11 else draw.whole(-len(shape), len(shape)))
    draw.add_values(shape, 0.1)


def squeeze(draw: Draw) -> None:
    shape = list(draw.shape(1, 5))
    axes = draw.axes(len(shape), 3)
    for axis in axes:
        shape[axis] = 1
    if draw.opset < 11:
        axes = [axis % len(shape) for axis in axes]
    draw.add_values(tuple(shape), 0.1)
    if draw.chance(0.8):
        axes_operand(draw, axes)


def unsqueeze(draw: Draw) -> None:
    shape = draw.shape(0, 4)
    more = draw.whole(1, 2)
    axes = draw.axes(len(shape) + more, more)
    axes = [axis % (len(shape) + len(axes)) for axis in axes]
    if draw.opset >= 11:
        axes = [axis - (len(shape) + len(axes)) * int(draw.chance(0.3)) for axis in axes]
    draw.add_values(shape, 0.1)
    axes_operand(draw, axes)


def concat(draw: Draw) -> None:
    shape = draw.shape(1, 5)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    draw.attributes["axis"] = axis
    for _ in range(draw.whole(1, 4)):
        own = list(shape)
        own[axis] = draw.whole(0, 5)
        draw.add_values(tuple(own), 0.2)


def split(draw: Draw) -> None:
    shape = list(draw.shape(1, 4))
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    draw.maybe("axis", axis, 1)
    parts = [draw.whole(0 if draw.opset >= 13 else 1, 4) for _ in range(draw.whole(1, 4))]
    even = draw.chance(0.4)
    if even:
        parts = [parts[0]] * len(parts)
    shape[axis] = sum(parts)
    draw.outputs = len(parts)
    draw.add_values(tuple(shape), 0.1)
    if even and draw.chance(0.7):
        if "num_outputs" in draw.schema.attributes:
            draw.attributes["num_outputs"] = len(parts)
    elif "split" in draw.schema.attributes:
        draw.attributes["split"] = parts
    else:
        draw.add_ints(parts, 0.9, "int64")


def slice_(draw: Draw) -> None:
    shape = draw.shape(1, 5)
    axes = draw.axes(len(shape))
    ends = [draw.one((1, 2, -1, 100, -100, 2**31 - 1, 2**63 - 1, -2**31, 3)) for _ in axes]
    starts = [draw.one((0, 1, -1, 2, -3, 100, -100)) for _ in axes]
    steps = [draw.one((1, 1, 2, -1, -2, 5)) for _ in axes]
    draw.add_values(shape, 0.1)
    if "starts" in draw.schema.attributes:
        draw.attributes |= {"starts": starts, "ends": ends, "axes": [axis % len(shape) for axis in axes]}
        return
    dtype = draw.dtype("Tind")
    ends = [max(min(end, np.iinfo(dtype).max), np.iinfo(dtype).min) for end in ends]
    whole = draw.chance(0.2)
    if whole:
        starts, ends = starts[:1], ends[:1]
    for numbers in (starts, ends):
        draw.add_ints(numbers, 0.8, dtype)
    if not whole:
        draw.add_ints(axes, 0.9, dtype)
        if draw.chance(0.7):
            draw.add_ints(steps, 0.9, dtype)


def pad(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    mode = draw.maybe("mode", draw.one(("constant", "reflect", "edge")))
    least = 0 if draw.chance(0.7) or mode == "reflect" else -1
    pads = [draw.whole(least, min(3, extent - 1) if mode == "reflect" else 3) for extent in (*shape, *shape)]
    for at, extent in enumerate(shape):
        if extent == 1:
            pads[at] = max(pads[at], 0)
    draw.add_values(shape, 0.1)
    if "pads" in draw.schema.attributes:
        draw.attributes["pads"] = pads
        draw.maybe("value", float(draw.whole(-2, 2)))
        return
    some = draw.opset >= 18 and draw.chance(0.3)
    axes = draw.axes(len(shape)) if some else list(range(len(shape)))
    draw.add_ints([pads[axis % len(shape) + side * len(shape)] for side in (0, 1) for axis in axes], 0.8, "int64")
    if draw.chance(0.5):
        draw.add(draw.values((), draw.input_dtype(0)), 0.8)
    elif some:
        draw.add(None)
    if some:
        draw.add_ints(axes, 1, draw.dtype("Tind"))


def tile(draw: Draw) -> None:
    shape = draw.shape(0, 4)
    draw.add_values(shape, 0.1)
    draw.add_ints([draw.one((0, 1, 1, 2, 3)) for _ in shape], 0.8, "int64")


def expand(draw: Draw) -> None:
    shape = draw.shape(0, 4)
    target = [draw.whole(1, 3) if extent == 1 else draw.one((1, extent)) for extent in shape]
    target = target[draw.whole(0, len(target)):] if draw.chance(0.3) else [2] * draw.whole(0, 1) + target
    draw.add_values(shape, 0.1)
    draw.add_ints(target, 0.8, "int64")


def gather(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    axis = draw.maybe("axis", draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)) or 0
    low = -shape[axis] if draw.opset >= 11 else 0
    draw.add_values(shape, 0.3)
    draw.add(draw.values(draw.shape(0, 3), draw.dtype("Tind"), low=low, high=shape[axis] - 1), 0.5)


def gather_elements(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    axis = draw.maybe("axis", draw.axis(len(shape))) or 0
    own = [draw.whole(1, extent) for extent in shape]
    own[axis] = draw.whole(1, 6)
    draw.add_values(shape, 0.2)
    draw.add(draw.values(tuple(own), draw.dtype("Tind"), low=-shape[axis], high=shape[axis] - 1), 0.5)


def gather_nd(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    batch = draw.maybe("batch_dims", draw.whole(0, min(len(shape) - 1, 2))) or 0
    depth = draw.whole(1, len(shape) - batch)
    lead = (*shape[:batch], *draw.shape(0, 2, 0))
    draw.add_values(shape, 0.2)
    draw.add(points(draw, shape[batch:batch + depth], lead), 0.5)


def points(draw: Draw, extents: tuple[int, ...], lead: tuple[int, ...]) -> np.ndarray:
    columns = [draw.rng.integers(-extent, extent, lead) for extent in extents]
    return np.stack(columns, axis=-1).astype("int64")


def scatter_elements(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    axis = draw.maybe("axis", draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)) or 0
    own = [draw.whole(1, extent) for extent in shape]
    reduction = draw.maybe("reduction", draw.one(("none", "add", "mul", "max", "min")))
    order = np.argsort(draw.rng.random((*own[:axis % len(shape)], shape[axis], *own[axis % len(shape) + 1:])),
                       axis=axis)
    indices = np.take(order, range(own[axis]), axis=axis)  # none twice
    if reduction not in (None, "none") and draw.chance(0.5):
        indices = draw.rng.integers(0, shape[axis], own)
    if draw.opset >= 11:
        indices = np.where(draw.rng.random(own) < 0.3, indices - shape[axis], indices)
    draw.add_values(shape, 0.2)
    draw.add(indices.astype(draw.dtype("Tind")), 0.5)
    draw.add(draw.values(tuple(own), draw.input_dtype(0)), 0.2)


def scatter_nd(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    depth = draw.whole(1, len(shape))
    reduction = draw.maybe("reduction", draw.one(("none", "add", "mul", "max", "min")))
    places = int(np.prod(shape[:depth]))
    count = draw.whole(1, places)
    again = reduction not in (None, "none") and draw.chance(0.5)
    flat = draw.rng.integers(0, places, count) if again else draw.rng.permutation(places)[:count]
    draw.add_values(shape, 0.2)
    draw.add(np.stack(np.unravel_index(flat, shape[:depth]), axis=-1).astype("int64"), 0.5)
    draw.add(draw.values((count, *shape[depth:]), draw.input_dtype(0)), 0.2)


def shape_of(draw: Draw) -> None:
    for name in ("start", "end"):
        draw.maybe(name, draw.whole(-3, 3), 0.4)
    draw.add_values(draw.shape(), 0.1)


def constant_of_shape(draw: Draw) -> None:
    if draw.chance(0.8):
        draw.attributes["value"] = numpy_helper.from_array(draw.values((1,), draw.dtype("T2")))
    draw.add_ints(draw.shape(), 0.7, "int64")


def range_(draw: Draw) -> None:
    dtype = draw.dtype("T")
    step = draw.one((1, 2, 3, -1, -2))
    start = draw.whole(-5, 5)
    for number in (start, start + step * draw.whole(-1, 6), step):
        draw.add(np.array(number, dtype), 0.7)


def one_hot(draw: Draw) -> None:
    shape, depth = draw.shape(0, 3), draw.whole(1, 6)
    draw.maybe("axis", draw.whole(-len(shape) - 1, len(shape)))
    indices = np.trunc(draw.values(shape, draw.dtype("T1"), low=-depth, high=depth))  # those cast to int64 are whole
    draw.add(indices.astype(draw.dtype("T1")), 0.2)
    draw.add(np.array(depth if draw.chance(0.5) else [depth], draw.dtype("T2")), 0.8)
    draw.add(draw.values((2,), draw.dtype("T3")), 0.8)


def top_k(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    axis = draw.maybe("axis", draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1))
    axis = -1 if axis is None else axis
    count = draw.whole(1, shape[axis])
    draw.maybe("largest", draw.whole(0, 1))
    draw.maybe("sorted", 1)
    x = draw.values(shape, draw.input_dtype(0))
    draw.add(x, 0.1)
    if "k" in draw.schema.attributes:
        draw.attributes["k"] = count
    else:
        draw.add_ints([count], 0.8, "int64")
    draw.outputs = 2


def eye_like(draw: Draw) -> None:
    draw.maybe("k", draw.whole(-3, 3))
    draw.add_values(draw.shape(2, 2, 0), 0.1)


def trilu(draw: Draw) -> None:
    draw.maybe("upper", draw.whole(0, 1))
    draw.add_values(draw.shape(2, 4), 0.1)
    if draw.chance(0.7):
        draw.add(np.array(draw.whole(-6, 6), "int64"), 0.8)


def cum_sum(draw: Draw) -> None:
    shape = draw.shape(1, 4)
    for name in ("exclusive", "reverse"):
        draw.maybe(name, draw.whole(0, 1))
    draw.add_values(shape, 0.1)
    draw.add(np.array(draw.axis(len(shape)), draw.dtype("T2")), 0.9)


def bit_cast(draw: Draw) -> None:
    source = draw.dtype("T1")
    same = [dtype for dtype in types_of(draw.schema, "T2") if np.dtype(dtype).itemsize == np.dtype(source).itemsize
            and (dtype == "bool") == (source == "bool")]
    draw.attributes["to"] = element_type(np.zeros(1, draw.one(same)))
    draw.add_values(draw.shape(), 0.1)


def compress(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    extent = int(np.prod(shape))
    if draw.chance(0.7):
        axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
        draw.attributes["axis"], extent = axis, shape[axis]
    draw.add_values(shape, 0.1)
    draw.add(draw.rng.random(draw.whole(1, extent)) < 0.5, 0.7)


def reverse_sequence(draw: Draw) -> None:
    shape = draw.shape(2, 4, 0)
    batch = draw.maybe("batch_axis", draw.whole(0, 1), 1)
    draw.attributes["time_axis"] = 1 - batch
    draw.add_values(shape, 0.1)
    draw.add(draw.values((shape[batch],), "int64", low=1, high=shape[1 - batch]), 0.5)


def unique(draw: Draw) -> None:
    shape = draw.shape(1, 3, 0)
    draw.maybe("axis", draw.axis(len(shape)), 0.4)
    draw.maybe("sorted", draw.whole(0, 1))
    draw.outputs = draw.whole(1, 4)
    draw.add(draw.values(shape, draw.input_dtype(0), low=-2, high=2), 0.1)


def center_crop_pad(draw: Draw) -> None:
    shape = draw.shape(1, 4, 0)
    axes = draw.axes(len(shape)) if draw.chance(0.5) else None
    if axes:
        draw.attributes["axes"] = axes
    draw.add_values(shape, 0.1)
    draw.add_ints([draw.whole(1, 8) for _ in axes or shape], 0.9)


def cast(draw: Draw) -> None:
    dtypes = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
              "uint64", "bool")
    source, target = draw.one(dtypes), draw.one(dtypes)
    reals = np.dtype(target).kind in "ui" and np.dtype(source).kind == "f"  # of what does not fit nothing is said
    low, high = (0 if reals and np.dtype(target).kind == "u" else -100, 100)
    draw.add(draw.values(draw.shape(), source, low=low, high=high), 0.1)
    if draw.schema.name == "CastLike":
        draw.add(np.zeros((1,), target), 0.5)
    else:
        draw.attributes["to"] = element_type(np.zeros(1, target))


def where(draw: Draw) -> None:
    shape = draw.shape()
    draw.add_values(broadcast(draw, shape), 0.1)
    draw.add_values(shape, 0.2)
    draw.add_values(broadcast(draw, shape), 0.2)


def non_zero(draw: Draw) -> None:
    draw.add(draw.values(draw.shape(0, 4), draw.input_dtype(0), low=-1, high=1), 0.1)


RULES = {"Reshape": reshape, "Transpose": transpose, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
         "Concat": concat, "Split": split, "Slice": slice_, "Pad": pad, "Tile": tile, "Expand": expand,
         "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "Scatter": scatter_elements,
         "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "Shape": shape_of,
         "ConstantOfShape": constant_of_shape, "Range": range_, "OneHot": one_hot, "TopK": top_k, "EyeLike": eye_like,
         "Trilu": trilu, "CumSum": cum_sum, "CumProd": cum_sum,
         "BitCast": bit_cast, "Compress": compress, "ReverseSequence": reverse_sequence,
         "Unique": unique, "CenterCropPad": center_crop_pad, "Cast": cast, "CastLike": cast, "Where": where,
         "NonZero": non_zero}
