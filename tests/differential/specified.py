# SPDX-License-Identifier: Apache-2.0
"""The text of the specification in numpy, for operators where neither reference has all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from .cases import Case
from .operands import attribute, operands
from .resized import resized


def erf(case: Case) -> np.ndarray:
    (x,) = operands(case)
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def global_lp_pool(case: Case) -> np.ndarray:
    """"Applies lp pool pooling across the values in the same channel"."""
    (x,), order = operands(case), attribute(case, "p")
    sums = (np.abs(x.astype(np.float64)) ** order).sum(tuple(range(2, x.ndim)), keepdims=True)
    return (sums ** (1 / order)).astype(x.dtype)


def local_response(case: Case) -> np.ndarray:
    """"X / (bias + alpha / size * square_sum) ^ beta", of channels from c - floor((size - 1) / 2) to
    c + ceil((size - 1) / 2)."""
    (x,), size = operands(case), attribute(case, "size")
    wide, before, behind = x.astype(np.float64), (size - 1) // 2, -(-(size - 1) // 2)
    squares = np.stack([(wide[:, max(0, c - before):c + behind + 1] ** 2).sum(1) for c in range(x.shape[1])], 1)
    factor = attribute(case, "bias") + attribute(case, "alpha") / size * squares
    return (wide / factor ** attribute(case, "beta")).astype(x.dtype)


def rows_before_13(case: Case) -> np.ndarray:
    """Hardmax: "input will be coerced into a 2-dimensional tensor", before operator set 13."""
    (x,), axis = operands(case), attribute(case, "axis")
    lines = x if case.opset >= 13 else x.reshape(*x.shape[:axis % x.ndim], -1)
    axis = axis if case.opset >= 13 else lines.ndim - 1
    first = np.expand_dims(lines.argmax(axis), axis)
    hit = np.zeros_like(lines)
    np.put_along_axis(hit, first, 1, axis)
    return hit.reshape(x.shape)


def convolved_in_two_axes(case: Case) -> np.ndarray:
    """QLinearConv of one spatial axis as one of two, the first of which has one element."""
    if case.model.graph.node[0].op_type != "QLinearConv" or operands(case)[0].ndim != 3:
        raise ValueError("has no line of one axis")
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    (node,), feeds = model.graph.node, dict(case.feeds)
    for name in (node.input[0], node.input[3]):
        if name in feeds:
            feeds[name] = feeds[name][:, :, None]
    for value in (*model.graph.input, *model.graph.initializer):
        if value.name in (node.input[0], node.input[3]):
            dims = value.dims if isinstance(value, onnx.TensorProto) else value.type.tensor_type.shape.dim
            dims.insert(2, 1 if isinstance(value, onnx.TensorProto) else onnx.TensorShapeProto.Dimension(dim_value=1))
    for row in node.attribute:
        first = {"strides": [1], "dilations": [1], "kernel_shape": [1], "pads": [0]}.get(row.name)
        if first:
            half = len(row.ints) // 2 if row.name == "pads" else 0
            row.ints[:] = [*first, *row.ints] if not half else [0, *row.ints[:half], 0, *row.ints[half:]]
    model.graph.output[0].ClearField("type")
    found, = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    return found[:, :, 0]


def transposed(case: Case) -> np.ndarray:
    """ConvTranspose: "output_shape[i] = stride[i] * (input_size[i] - 1) + output_padding[i] + ((kernel_shape[i] - 1) *
    dilations[i] + 1) - pads[start_i] - pads[end_i]", of taps added where they fall."""
    x, w, bias = (*operands(case), None)[:3]
    rank, groups = x.ndim - 2, attribute(case, "group")
    strides, dilations, more = (case.attributes.get(name, [least] * rank) for name, least in (
        ("strides", 1), ("dilations", 1), ("output_padding", 0)))
    pads, auto = case.attributes.get("pads", [0] * 2 * rank), case.attributes.get("auto_pad", "NOTSET")
    taps = w.shape[2:]
    if auto in ("SAME_UPPER", "SAME_LOWER"):  # "output_shape[i] = input_shape[i] * strides[i]"; pads are not below 0
        totals = [(tap - 1) * spread + 1 + extra - step for tap, spread, extra, step in zip(
            taps, dilations, more, strides, strict=True)]
        more = [extra + max(-total, 0) for extra, total in zip(more, totals, strict=True)]
        halves = [max(total, 0) // 2 for total in totals]
        others = [max(total, 0) - half for total, half in zip(totals, halves, strict=True)]
        pads = halves + others if auto == "SAME_UPPER" else others + halves
    whole = [step * (extent - 1) + (tap - 1) * spread + 1 + max(extra, 0) for step, extent, tap, spread, extra in zip(
        strides, x.shape[2:], taps, dilations, more, strict=True)]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *whole))
    for place in np.ndindex(taps):
        own = w[(slice(None), slice(None), *place)].reshape(groups, -1, w.shape[1]).astype(np.float64)
        parts = x.astype(np.float64).reshape(x.shape[0], groups, -1, *x.shape[2:])
        sums = np.einsum("ngc...,gco->ngo...", parts, own).reshape(x.shape[0], -1, *x.shape[2:])
        where = tuple(slice(tap * spread, tap * spread + step * (extent - 1) + 1, step) for tap, spread, step, extent in
                      zip(place, dilations, strides, x.shape[2:], strict=True))
        y[(slice(None), slice(None), *where)] += sums
    inner = tuple(slice(pads[axis], extent - pads[axis + rank]) for axis, extent in enumerate(whole))
    y = y[(slice(None), slice(None), *inner)]
    return (y if bias is None else y + bias.reshape(-1, *(1,) * rank)).astype(x.dtype)


def attended(case: Case) -> np.ndarray:
    """Attention: softmax(scale * Q Kᵀ + attn_mask) V, "query i attends key j iff j <= i + past_sequence_length", and
    "a fully-masked query row produces a zero output row"."""
    q, k, v, mask, past_key, past_value = (*operands(case), *(None,) * 6)[:6]
    flat, (own, heads) = q.ndim == 3, (case.attributes.get(name, 0) for name in ("kv_num_heads", "q_num_heads"))
    if flat:
        q, k, v = (x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2) for x, count in ((q, heads), (k, own), (v, own)))
    past = 0 if past_key is None else past_key.shape[2]
    if past:
        k, v = (np.concatenate(pair, 2) for pair in ((past_key, k), (past_value, v)))
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, q.shape[1] // k.shape[1], 1),
                                             np.repeat(v, q.shape[1] // v.shape[1], 1)))
    scores = q @ k.swapaxes(2, 3) * (case.attributes.get("scale") or q.shape[3] ** -0.5)
    if cap := case.attributes.get("softcap", 0.0):
        scores = cap * np.tanh(scores / cap)
    if mask is not None:
        scores = scores + (np.where(mask, 0, -np.inf) if mask.dtype == bool else mask)
    if case.attributes.get("is_causal"):
        reach = np.arange(q.shape[2])[:, None] + past
        scores = np.where(np.arange(k.shape[2]) <= reach, scores, -np.inf)
    top = np.maximum(scores.max(3, keepdims=True), -1e30)
    shares = np.exp(scores - top)
    y = shares / np.maximum(shares.sum(3, keepdims=True), 1e-300) @ v
    return (y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y).astype(operands(case)[0].dtype)


def mean_variance(case: Case) -> np.ndarray:
    """"(X - EX) / sqrt(E(X - EX)^2)", with the 1e-9 of the body of the function."""
    (x,), axes = operands(case), tuple(attribute(case, "axes"))
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axes, keepdims=True)
    return (centred / (np.sqrt((centred**2).mean(axes, keepdims=True)) + 1e-9)).astype(x.dtype)


def group_normalized(case: Case) -> np.ndarray:
    """GroupNormalization: "y = scale * (x - mean) / sqrt(variance + epsilon) + bias", of each group of channels."""
    x, scale, bias = operands(case)
    groups = attribute(case, "num_groups")
    lines = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    centred = lines - lines.mean(2, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(2, keepdims=True) + attribute(case, "epsilon"))
    scale, bias = (np.repeat(each, x.shape[1] // len(each)).reshape(-1, *[1] * (x.ndim - 2)) for each in (scale, bias))
    return (y.reshape(x.shape) * scale + bias).astype(x.dtype)


def affine_grid(case: Case) -> np.ndarray:
    """AffineGrid: with align_corners "-1 and 1 refer to the centers of the corner pixels", else to outer edges."""
    theta, size = operands(case)
    align, spatial = attribute(case, "align_corners"), [int(extent) for extent in size[2:]]
    lines = [2 * np.arange(extent) / max(extent - 1, 1) - 1 if align else (2 * np.arange(extent) + 1) / extent - 1
             for extent in spatial]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(spatial)], -1)
    return np.einsum("...k,nik->n...i", places, theta.astype(np.float64)).astype(theta.dtype)


def sliced(case: Case) -> np.ndarray:
    """Slice: "start is clamped into [0, dims[axes[i]]] for positive stepping and [0, dims[axes[i]] - 1] for negative
    stepping, end into [0, dims[axes[i]]] and [-1, dims[axes[i]] - 1]".

    Raises:
        ValueError: version 1, which has attributes.
    """
    if case.opset < 10:
        raise ValueError("has attributes")
    x, starts, ends, axes, steps = (*operands(case), None, None)[:5]
    axes, steps = (range(len(starts)) if axes is None else axes), ([1] * len(starts) if steps is None else steps)
    for axis, *ends_and_step in zip(axes, starts, ends, steps, strict=True):
        start, end, step = map(int, ends_and_step)
        extent, last = x.shape[axis], x.shape[axis] - (step < 0)
        start = min(max(start + extent * (start < 0), 0), last)
        end = min(max(end + extent * (end < 0), -(step < 0)), last)
        x = np.take(x, np.arange(start, end, step), axis)
    return x


def determinant(case: Case) -> np.ndarray:
    """Det: "calculates determinant of a square matrix or batches of square matrices", in float64."""
    (x,) = operands(case)
    return np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)


def unsorted(case: Case) -> np.ndarray:
    """Unique: with sorted = 0 "the unique elements are in the same order as their first occurrence in X".

    Raises:
        ValueError: they are sorted.
    """
    if attribute(case, "sorted"):
        raise ValueError("has them sorted")
    (x,), axis = operands(case), case.attributes.get("axis")
    first = np.sort(np.unique(x, return_index=True, axis=axis)[1])
    return np.take(x.ravel() if axis is None else x, first, axis or 0)


def padded(case: Case) -> np.ndarray:
    """Pad: "constant_value (by default it is 0, empty string or False)".

    Raises:
        ValueError: it pads with something else, or crops.
    """
    x, pads, value, axes = (*operands(case), None, None, None)[:4]
    if pads is None or attribute(case, "mode") not in ("constant", b"constant") or pads.min(initial=0) < 0:
        raise ValueError("pads with something else")
    axes = np.arange(x.ndim) if axes is None else axes % x.ndim
    widths = np.zeros((x.ndim, 2), int)
    widths[axes] = pads.reshape(2, -1).T
    fill = "" if x.dtype == object else 0
    return np.pad(x, widths, constant_values=fill if value is None else value.item())


def with_pads(case: Case) -> onnx.ModelProto:
    """The case with explicit pads in place of SAME_UPPER and SAME_LOWER: "output_spatial_shape[i] =
    ceil(input_spatial_shape[i] / strides[i])", and as many elements around as that needs.

    Raises:
        ValueError: it has explicit pads.
    """
    auto = case.attributes.get("auto_pad", "NOTSET")
    if auto not in ("SAME_UPPER", "SAME_LOWER") or case.kind == "ConvTranspose":
        raise ValueError("has explicit pads")
    x = operands(case)[0]
    kernel = case.attributes.get("kernel_shape") or operands(case)[3 if case.kind == "QLinearConv" else 1].shape[2:]
    before, behind = [], []
    for axis, taps in enumerate(kernel):
        step, spread = (case.attributes.get(name, [1] * len(kernel))[axis] for name in ("strides", "dilations"))
        extent = x.shape[2 + axis]
        more = max((-(-extent // step) - 1) * step + (taps - 1) * spread + 1 - extent, 0)
        before.append(more // 2 if auto == "SAME_UPPER" else more - more // 2)
        behind.append(more - before[-1])
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    (node,) = model.graph.node
    kept = [row for row in node.attribute if row.name not in ("auto_pad", "pads", "ceil_mode")]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("pads", before + behind)])
    return model


SPECIFIED: Mapping[str, Callable[[Case], np.ndarray]] = {
    "AffineGrid": affine_grid, "Attention": attended, "ConvTranspose": transposed, "Det": determinant, "Erf": erf,
    "GlobalLpPool": global_lp_pool, "GroupNormalization": group_normalized, "Hardmax": rows_before_13,
    "LRN": local_response, "MeanVarianceNormalization": mean_variance, "Pad": padded,
    "QLinearConv": convolved_in_two_axes, "Resize": resized, "Slice": sliced, "Unique": unsorted}


def of_specification(case: Case) -> dict[str, np.ndarray]:
    """The first output.

    Raises:
        KeyError: for an operator whose text is not written here.
    """
    return {case.model.graph.output[0].name: SPECIFIED[case.kind](case)}
