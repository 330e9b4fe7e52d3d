# SPDX-License-Identifier: Apache-2.0
"""Drawn cases of operators with windows. Pads go up to 4 on each side of inputs that are often smaller, so that many
windows lie in part, or wholly, in the padding: above, below, on the left, on the right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tvm_megcc.errors import MegccError
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.base import Case, operator

#: Input channels of a group, output channels of a group, groups.
DENSE = ((3, 5, 1), (16, 16, 1), (20, 33, 1), (1, 9, 1), (35, 18, 1), (4, 3, 2), (16, 16, 2), (1, 2, 5))
DEPTHWISE = tuple((1, 1, channels) for channels in (4, 16, 23, 70))
#: Types of x and of the weights, and their zero points.
QUANTISED = ((("int8", "int8"), -128, 0), (("uint8", "uint8"), 255, 77), (("int8", "int8"), 5, 0),
             (("uint8", "int8"), 128, 0), (("int8", "uint8"), -3, 200), (("int16", "int8"), 0, 0))
#: Operator -> spatial axes; some pools have three.
AXES = {"conv2d": 2, "conv2d_integer": 2, "conv2d_transpose": 2, "conv3d": 3, "deform_conv": 2, "max_pool": 2,
        "max_pool_indices": 2, "avg_pool": 2, "sum_pool": 2, "sum_pool_integer": 2, "col2im": 2}
POOLED = {"max_pool": ("float32", "int8", "uint8", "float64", "int32"), "max_pool_indices": ("float32", "int8"),
          "avg_pool": ("float32",), "sum_pool": ("float32",), "sum_pool_integer": ("int8", "uint8")}
#: More elements than these, in a result, add nothing but time.
MOST = 20_000
#: Magnitudes of x, weights and bias whose sums are exact in float16, in whatever order they are added up: they stay
#: below 2,048 for the 35 channels and 3x3 taps that a case has at most.
EXACT = (3, 2, 8)


def drawn(kind: str, windows: int, each: int, seed: int = 0, is_half: bool = False) -> Iterator[tuple[int, Case]]:
    """`each` cases of so many windows, with the number of the window: at -O size, those of one window share kernels.

    is_half: operands of convolutions are whole numbers within `EXACT`.
    """
    for number in range(windows):
        generator = np.random.default_rng((seed, sorted(AXES).index(kind), number))
        axes = AXES[kind] + (number % 4 == 3 and kind in ("max_pool", "avg_pool", "sum_pool", "max_pool_indices"))
        window = {"kernel": _some(generator, 1, 3, axes), "strides": _some(generator, 1, 3, axes),
                  "dilations": _some(generator, 1, 2, axes)}
        if number % 3 == 0:  # as most networks have it
            window |= {"strides": (1,) * axes, "dilations": (1,) * axes}
        if number % 6 == 0:
            window["kernel"] = (3,) * axes
        found = 0
        while found < each:
            case = _case(kind, window, number, axes, generator)
            if case is not None:
                found += 1
                yield number, _exact(case, generator) if is_half and kind == "conv2d" else case


def _exact(case: Case, generator) -> Case:
    return replace(case, values={place: generator.integers(-most, most + 1, spec[0])
                                 for place, (spec, most) in enumerate(zip(case.inputs, EXACT, strict=True)) if spec})


def _some(generator, least: int, most: int, count: int) -> tuple[int, ...]:
    return tuple(int(value) for value in generator.integers(least, most + 1, count))


def _case(kind: str, window: dict, number: int, axes: int, generator) -> Case | None:
    """A case, unless what was drawn has no result or too large a one."""
    extents = _some(generator, 1, 6, axes)
    if generator.random() < 0.25:  # tiles of pixels that lie inside, beside those that do not
        extents = (*extents[:-1], int(generator.integers(7, 41)))
    # Half of the pads are none: windows lie in the padding of one side only.
    pads = tuple(int(pad) for pad in generator.integers(0, 5, 2 * axes) * (generator.random(2 * axes) < 0.6))
    attrs = {**window, "pads": pads}
    made = _CASES[kind](attrs, extents, number, axes, generator)
    if made is None:
        return None
    types = [spec and TensorType(spec[1], tuple(spec[0])) for spec in made.inputs]
    try:
        results = operator(kind).infer(Attrs(made.attrs), *types)
    except MegccError:
        return None
    return made if all(1 <= result.size <= MOST for result in results) else None


def _convolution(attrs: dict, extents, number: int, axes: int, generator) -> Case:
    attrs = dict(attrs)
    kernel = attrs.pop("kernel")
    table = DEPTHWISE if number % 2 else DENSE
    inputs, outputs, groups = table[number // 2 % len(table)]
    images = int(generator.integers(1, 3))
    bias = ((outputs * groups,), "float32") if number % 5 else None
    return Case((((images, inputs * groups, *extents), "float32"),
                 ((outputs * groups, inputs, *kernel), "float32"), bias), {**attrs, "groups": groups}, (1, 2))


def _transposed(attrs: dict, extents, number: int, axes: int, generator) -> Case:
    case = _convolution(attrs, extents, number, axes, generator)
    x, (weights, _), bias = case.inputs
    groups = case.attrs["groups"]
    weights = (x[0][1], weights[0] // groups, *weights[2:])
    extra = tuple(int(generator.integers(0, max(stride, dilation))) for stride, dilation
                  in zip(attrs["strides"], attrs["dilations"], strict=True))
    return replace(case, inputs=(x, (weights, "float32"), bias), attrs={**case.attrs, "output_padding": extra})


def _integer(attrs: dict, extents, number: int, axes: int, generator) -> Case:
    case = _convolution(attrs, extents, number, axes, generator)
    (x, _), (weights, _), bias = case.inputs
    dtypes, x_zero, w_zero = QUANTISED[number // 3 % len(QUANTISED)]
    values = {index: generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape)
              for index, (shape, dtype) in enumerate(zip((x, weights), dtypes, strict=True))}
    if bias is not None:
        values[2] = generator.integers(-2**18, 2**18, bias[0])
    return Case(((x, dtypes[0]), (weights, dtypes[1]), bias and (bias[0], "int32")),
                {**case.attrs, "x_zero": x_zero, "w_zero": w_zero}, (1, 2), values)


def _deformable(attrs: dict, extents, number: int, axes: int, generator) -> Case | None:
    attrs = dict(attrs)
    kernel = attrs.pop("kernel")
    groups, parts = ((1, 1), (2, 1), (1, 2))[number % 3]
    x, weights = (1, 4, *extents), (6, 4 // groups, *kernel)
    try:
        (y,) = operator("conv2d").infer(Attrs({**attrs, "groups": groups}), TensorType("float32", x),
                                        TensorType("float32", weights))
    except MegccError:
        return None
    taps = parts * kernel[0] * kernel[1]
    offset = (1, 2 * taps, *y.shape[2:])
    mask = ((1, taps, *y.shape[2:]), "float32") if number % 2 else None
    return Case(((x, "float32"), (weights, "float32"), (offset, "float32"), ((6,), "float32"), mask),
                {**attrs, "groups": groups, "offset_groups": parts}, (1, 3))


def _pool(kind: str):
    def case(attrs: dict, extents, number: int, axes: int, generator) -> Case:
        dtype = POOLED[kind][number // 4 % len(POOLED[kind])]
        x = (int(generator.integers(1, 3)), (3, 16, 37, 70)[number % 4], *extents)
        more = {"avg_pool": {"count_pads": number % 2}, "max_pool_indices": {"order": ("row", "column")[number % 2]},
                "sum_pool_integer": {"x_zero": (0, 7, 127)[number % 3]}}.get(kind, {})
        limits = (-100, 100) if np.dtype(dtype).kind == "i" else (0, 250)
        values = {} if np.dtype(dtype).kind == "f" else {0: generator.integers(*limits, x)}
        return Case(((x, dtype),), {**attrs, "ceil": bool(generator.integers(0, 2)), **more}, values=values)
    return case


def _columns(attrs: dict, extents, number: int, axes: int, generator) -> Case | None:
    blocks = [(extent + before + after - (kernel - 1) * dilation - 1) // stride + 1
              for extent, before, after, kernel, dilation, stride
              in zip(extents, attrs["pads"][:axes], attrs["pads"][axes:], attrs["kernel"], attrs["dilations"],
                     attrs["strides"], strict=True)]
    if min(blocks) < 1:
        return None
    return Case((((1, 3 * int(np.prod(attrs["kernel"])), int(np.prod(blocks))), "float32"),),
                {**attrs, "channels": 3, "image": extents, "blocks": tuple(blocks), "pads": attrs["pads"][:axes]})


_CASES = {"conv2d": _convolution, "conv2d_integer": _integer, "conv2d_transpose": _transposed, "conv3d": _convolution,
          "deform_conv": _deformable, "col2im": _columns, **{kind: _pool(kind) for kind in POOLED}}
