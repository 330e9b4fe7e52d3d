# SPDX-License-Identifier: Apache-2.0
"""Rules of operators that move, pick, order and make elements, of products and of quantisation."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from .draw import ANY, FLOATS, Draw, Rule, function_of


def _any(node: Draw, low: int = 0, high: int = 4) -> np.ndarray:
    return node.add(node.values(node.shape(low, high), node.one(*ANY)))


def reshape(node: Draw) -> None:
    """To factors in another order, one of which may be left to TVM."""
    x = _any(node)
    factors = [int(extent) for extent in node.rng.permutation(x.shape)] if x.ndim else []
    while len(factors) > 1 and node.chance(0.5):
        factors[:2] = [factors[0] * factors[1]]
    if len(factors) < 5 and node.chance(0.4):
        factors.insert(node.whole(0, len(factors)), 1)
    if factors and 0 not in factors and node.chance(0.3):
        factors[node.whole(0, len(factors) - 1)] = -1
    node.attributes = {"shape": factors}


def squeeze(node: Draw) -> None:
    shape = list(node.shape(0, 3))
    for _ in range(node.whole(1, 2)):
        shape.insert(node.whole(0, len(shape)), 1)
    x = node.add(node.values(shape, node.one(*ANY)))
    ones = [axis - x.ndim * node.whole(0, 1) for axis, extent in enumerate(shape) if extent == 1]
    node.maybe("axis", node.one(ones[0], ones), 0.7)


def expand(node: Draw) -> None:
    x = _any(node, 0, 3)
    count = node.whole(1, 2)
    axes = [int(axis) - (x.ndim + count) * node.whole(0, 1) for axis in node.rng.permutation(x.ndim + count)[:count]]
    node.attributes = {"axis": node.one(axes, axes[0]) if count == 1 else axes}


def only(low: int = 0) -> Rule:
    return lambda node: _any(node, low) is None


def permute(node: Draw) -> None:
    x = _any(node)
    node.maybe("axes", [int(axis) - x.ndim * node.whole(0, 1) for axis in node.rng.permutation(x.ndim)], 0.8)


def concat(node: Draw) -> None:
    dtype, shape = node.one(*ANY), list(node.shape(1))
    axis = node.axis(len(shape))
    for _ in range(node.whole(1, 4)):
        if node.kind == "concat":
            shape[axis] = node.whole(1, 5)
        node.add(node.values(shape, dtype), 0.2)
    if node.kind == "concat":
        node.attributes = {"axis": axis}
    else:
        node.attributes = {"axis": node.axis(len(shape) + 1)}
    node.make = lambda *operands: function_of(node.kind)(list(operands), **node.attributes)


def split(node: Draw) -> None:
    x = _any(node, 1)
    axis = node.axis(x.ndim)
    extent = x.shape[axis]
    places = sorted(node.whole(0, extent) for _ in range(node.whole(1, 3)))
    node.attributes = {"axis": axis, "indices_or_sections": node.one(places, node.whole(1, max(extent, 1)))}


def take(node: Draw) -> None:
    x = _any(node, 1)
    axis = node.axis(x.ndim) if node.chance(0.8) else None
    extent = x.size if axis is None else x.shape[axis]
    mode = node.one("fast", "fast", "clip", "wrap")
    low, high = (0, max(extent - 1, 0)) if mode == "fast" else (-extent, 2 * extent)
    node.add(node.values(node.shape(0, 2), node.one("int32", "int64"), low, high), 0.5)
    node.attributes = {"mode": mode} | ({} if axis is None else {"axis": axis})


def broadcast_to(node: Draw) -> None:
    shape = node.shape()
    node.add(node.values(node.broadcast(shape), node.one(*ANY)))
    node.attributes = {"shape": list(shape)}


def reverse_sequence(node: Draw) -> None:
    x = node.add(node.values(node.shape(2, empty=0), node.one(*ANY)))
    seq, batch = (int(axis) for axis in node.rng.permutation(x.ndim)[:2])
    node.add(node.values((x.shape[batch],), node.one("int32", "int64"), 1, x.shape[seq]), 0.5)
    node.attributes = {"seq_axis": seq, "batch_axis": batch}


def quantise(node: Draw) -> None:
    dtype = node.one("int8", "uint8")
    shape = node.shape(1, 4, 0)
    forward = node.kind == "quantize"
    axis = node.axis(len(shape))
    each = (shape[axis],) if node.chance(0.5) else ()
    node.add(node.values(shape, "float32", -9, 9) if forward else
             node.values(shape, dtype, np.iinfo(dtype).min, np.iinfo(dtype).max))
    node.add(node.scale(*each), 1)
    node.add(node.values(each, dtype if node.chance(0.7) else "int32", 0 if dtype == "uint8" else -9, 9), 1)
    node.attributes = {"axis": axis, "out_dtype": dtype if forward else node.one("float32", "float32", "float16")}


def order(node: Draw) -> None:
    """Of numbers that are different: which of equal ones comes first is not said."""
    x = node.add(node.distinct(node.shape(1, 3, 0), node.one("float32", "float32", "float64", "int32", "int64")))
    axis = node.axis(x.ndim)
    node.attributes = {"axis": axis}
    if node.kind == "topk":
        node.attributes |= {"k": node.whole(1, x.shape[axis]), "ret_type": node.one("both", "values", "indices")}
        node.maybe("largest", bool(node.whole(0, 1)))
    else:
        node.maybe("descending", bool(node.whole(0, 1)))
    if node.kind != "sort":
        node.maybe("dtype", node.one("int32", "int64"))


def _places(node: Draw, shape, extent: int) -> np.ndarray:
    """None from the end, which TVM reads in front of the operand."""
    return node.add(node.values(shape, node.one("int32", "int64", "int64"), 0, extent - 1), 0.5)


def scatter_elements(node: Draw) -> None:
    """Where a number is put, each place is there once. TVM 0.27 takes an axis from the end for another one, and has
    other places where indices are fewer on another axis."""
    x = node.add(node.values(node.shape(1, 3, 0), node.one(*FLOATS[:3], "int32", "int64"), 1, 3))
    axis = node.whole(0, x.ndim - 1)
    reduction = node.one("update", "add", "mul", "min", "max")
    shape = tuple(node.whole(1, extent) if at == axis else extent for at, extent in enumerate(x.shape))
    rows = np.argsort(node.rng.random((*shape[:axis], *shape[axis + 1:], x.shape[axis])), axis=-1)
    rows = np.moveaxis(rows[..., :shape[axis]], -1, axis)
    node.add(rows.astype(node.one("int32", "int64")), 0.5)
    node.add(node.values(shape, x.dtype.name, 1, 3), 0.2)
    node.attributes = {"axis": axis, "reduction": reduction}


def _tuples(node: Draw, shape, depth: int, count: int) -> np.ndarray:
    """Places that are different."""
    chosen = node.rng.permutation(int(np.prod(shape[:depth])))[:count]
    return np.stack(np.unravel_index(chosen, shape[:depth]), axis=-1).astype("int64")


def scatter_nd(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, 3, 0), node.one(*FLOATS[:3], "int32"), 1, 3))
    depth = node.whole(1, x.ndim)
    places = node.add(_tuples(node, x.shape, depth, node.whole(1, 5)), 0.5)
    node.add(node.values((*places.shape[:-1], *x.shape[depth:]), x.dtype.name, 1, 3), 0.2)
    node.attributes = {"reduction": node.one("update", "add", "mul", "min", "max")}


def gather_elements(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, 3, 0), node.one(*ANY)))
    axis = node.axis(x.ndim)
    shape = [node.whole(1, extent) for extent in x.shape]
    shape[axis] = node.whole(1, 6)
    _places(node, shape, x.shape[axis])
    node.attributes = {"axis": axis}


def gather_nd(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, 4, 0), node.one(*ANY)))
    batch = node.whole(0, min(2, x.ndim - 1))
    depth = node.whole(1, x.ndim - batch)
    shape = (*x.shape[:batch], *(node.whole(1, 4) for _ in range(node.whole(0, 2))), depth)
    limits = np.array(x.shape[batch:batch + depth])
    node.add((node.rng.random(shape) * limits).astype("int64"), 0.5)
    node.attributes = {"batch_dims": batch}


def index_tensor(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, 3, 0), node.one(*ANY)))
    shape = node.shape(1, 2, 0)
    for axis in range(node.one(1, 1, min(2, x.ndim))):
        _places(node, shape, x.shape[axis])
    node.make = lambda x, *indices: op.index_tensor(x, list(indices))


def one_hot(node: Draw) -> None:
    depth = node.whole(1, 5)
    x = node.add(node.values(node.shape(0, 3), node.one("int32", "int64"), -2, depth))
    dtype = node.one("float32", "int32", "int8")
    on, off = node.one((1, 0), (5, -1))
    axis = node.axis(x.ndim + 1) if node.chance(0.5) else -1
    node.attributes = {"depth": depth, "axis": axis, "dtype": dtype}
    node.make = lambda x: op.one_hot(x, *(relax.prim_value(_number(value, dtype)) for value in (on, off)), depth, axis)


def _number(value: float, dtype: str):
    from tvm import tirx

    return tirx.FloatImm(dtype, value) if np.dtype(dtype).kind == "f" else tirx.IntImm(dtype, value)


def triangle(node: Draw) -> None:
    _any(node, 2)
    node.maybe("k", node.whole(-4, 4), 0.8)


def _spans(node: Draw, shape) -> list[tuple[int, int, int]]:
    """Begin, end and step of each axis: also beyond the ends and from there, but never of nothing."""
    spans = []
    for extent in shape:
        step = node.one(1, 1, 2, 3, -1, -2)
        first = node.whole(0, extent - 1)
        last = node.whole(first + 1, extent + 2) if step > 0 else node.whole(-extent - 2, first - 1 - extent)
        if step > 0 and last < extent and node.chance(0.3):
            last -= extent
        spans.append((first - extent * int(node.chance(0.2)), last, step))
    return spans


def strided_slice(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, 4, 0), node.one(*ANY)))
    axes = node.axes(x.ndim)
    spans = _spans(node, [x.shape[axis] for axis in axes])
    begin, end, strides = (list(each) for each in zip(*spans, strict=True))
    if node.chance(0.3):
        strides = None
        begin = [node.whole(0, x.shape[axis] - 1) for axis in axes]
        end = [each + node.whole(1, 3) for each in begin]
    node.attributes = {"axes": axes, "begin": begin, "end": end} | ({} if strides is None else {"strides": strides})


def dynamic_slice(node: Draw) -> None:
    x = node.add(node.values(node.shape(1, 3, 0), node.one(*ANY)))
    for each in zip(*_spans(node, x.shape), strict=True):
        node.add(np.array(each, "int64"), 1)


def repeat(node: Draw) -> None:
    x = _any(node, 1)
    node.attributes = {"repeats": node.whole(1, 3)}
    node.maybe("axis", node.axis(x.ndim), 0.8)


def flip(node: Draw) -> None:
    node.attributes = {"axis": node.axis(_any(node, 1).ndim)}


def pad(node: Draw) -> None:
    mode = node.one("constant", "constant", "reflect", "replicate", "circular")
    low = 1 if mode == "constant" else 3
    x = node.values(tuple(node.whole(low, 5) for _ in range(node.whole(1, 4))), node.one(*FLOATS, "int32", "int8"))
    most = 2 if mode != "constant" else 3
    widths = [(0, 0) if node.chance(0.4) else (node.whole(0, most), node.whole(0, most)) for _ in x.shape]
    node.add(x)
    node.attributes = {"pad_width": [width for pair in widths for width in pair], "pad_mode": mode}
    if mode == "constant":
        node.maybe("pad_value", float(node.one(0, 1, -2)))


def tile(node: Draw) -> None:
    x = _any(node, 0, 3)
    node.attributes = {"repeats": [node.whole(1, 3) for _ in range(node.whole(1, x.ndim + 1))]}


def pixel_shuffle(node: Draw) -> None:
    factor = node.whole(1, 3)
    node.add(node.values((node.whole(1, 2), factor**2 * node.whole(1, 3), node.whole(1, 4), node.whole(1, 4)),
                         node.one(*FLOATS)))
    node.attributes = {"upscale_factor": factor}


def filled(node: Draw) -> None:
    """What has no operand of its own is added to one, for something has to be fed."""
    dtype, shape = node.one(*FLOATS, "int32", "int64"), node.shape(0, 4, 0)
    node.add(node.values(shape, dtype))
    like, own = node.kind.endswith("_like"), node.one(dtype, None)
    node.attributes = {"dtype": own} if like else {"shape": list(shape), "dtype": dtype}
    value = [relax.const(np.array(node.whole(-3, 3), dtype))] if node.kind.startswith("full") else []

    def make(x):
        made = function_of(node.kind)(x, *value, own) if like else function_of(node.kind)(list(shape), *value, dtype)
        return op.add(x, made)
    node.make = make


def arange(node: Draw) -> None:
    start, step, count = node.whole(-5, 5), node.one(1, 2, 3, -1), node.whole(1, 6)
    dtype = node.one("int64", "int32", "float32")
    node.add(node.values((count,), dtype))
    node.attributes = {"start": start, "end": start + step * count, "step": step, "dtype": dtype}
    node.make = lambda x: op.add(x, op.arange(**node.attributes))


def matmul(node: Draw) -> None:
    batch, rows, depth, columns = node.shape(0, 2, 0), node.whole(1, 7), node.whole(1, 9), node.whole(1, 7)
    dtype = node.one("float32", "float32", "float32", "float16", "float64", "int8", "int32")
    left = (depth,) if node.chance(0.1) else (*batch, rows, depth)
    right = (depth,) if node.chance(0.1) else (*node.broadcast(batch), depth, columns)
    node.add(node.values(left, dtype))
    node.add(node.values(right, dtype), 0.5)
    if dtype in ("float16", "int8"):
        node.maybe("out_dtype", "float32" if dtype == "float16" else "int32", 0.8)


def outer(node: Draw) -> None:
    dtype = node.one(*FLOATS, "int32")
    for _ in "ab":
        node.add(node.values((node.whole(1, 6),), dtype), 0.2)


EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "i,j->ij", "bij,bkj->bik", "ij,ij->i", "ijk->ikj",
             "bhid,bhjd->bhij", "i,i->", "...ij,...jk->...ik")


def einsum(node: Draw) -> None:
    equation, extents = node.one(*EQUATIONS), {}
    for letters in equation.split("->")[0].split(","):
        shape = [extents.setdefault(letter, node.whole(1, 5)) for letter in letters.replace("...", "n")]
        node.add(node.values(shape, "float32"), 0.2)
    node.attributes = {"subscripts": equation}
    node.make = lambda *operands: op.einsum(list(operands), equation)


RULES: dict[str, Rule] = {
    "reshape": reshape, "squeeze": squeeze, "expand_dims": expand, "flatten": only(), "nn.batch_flatten": only(1),
    "permute_dims": permute, "concat": concat, "stack": concat, "split": split, "take": take,
    "broadcast_to": broadcast_to, "reverse_sequence": reverse_sequence, "quantize": quantise, "dequantize": quantise,
    "topk": order, "sort": order, "argsort": order, "scatter_elements": scatter_elements, "scatter_nd": scatter_nd,
    "gather_elements": gather_elements, "gather_nd": gather_nd, "index_tensor": index_tensor, "one_hot": one_hot,
    "tril": triangle, "triu": triangle, "strided_slice": strided_slice, "dynamic_strided_slice": dynamic_slice,
    "repeat": repeat, "flip": flip, "nn.pad": pad, "tile": tile, "nn.pixel_shuffle": pixel_shuffle,
    **dict.fromkeys(("full", "full_like", "zeros", "zeros_like", "ones", "ones_like"), filled), "arange": arange,
    "size": only(), "matmul": matmul, "outer": outer, "einsum": einsum}
