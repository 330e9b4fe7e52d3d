# SPDX-License-Identifier: Apache-2.0
"""Random TFLite files of one quantised operator. `FILES` has a function for each operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from flatbuffers import flexbuffers

from tests.tflite_files import Quantized, Tensor, written


class Draw:
    """Random choices for a file of one operator.

    kind: the operator. dtype: its element type. tensors: those of the file so far, by name; names of inputs begin with
    x, those of results are y. avoided: name of an input -> a value that it must not have. even: whether scales are
    powers of two, with which many results lie halfway between two integers."""

    def __init__(self, kind: str, seed: int):
        self.random = np.random.default_rng([seed, *kind.encode()])
        self.kind, self.dtype = kind, "int8" if seed % 3 else "uint8"
        self.tensors: dict[str, object] = {}
        self.rows, self.avoided = 1, dict[str, int]()
        self.even = seed % 4 == 1

    def one_of(self, *choices):
        return choices[self.random.integers(len(choices))]

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def scale(self, low: float = 1e-3, high: float = 1.0) -> float:
        """Returns a random scale, distributed evenly over orders of magnitude."""
        drawn = np.exp(self.random.uniform(np.log(low), np.log(high)))
        return float(2.0**np.rint(np.log2(drawn)) if self.even else drawn)

    def zero(self, dtype: str = "") -> int:
        """Returns a random zero point, often an end of the range or 0."""
        if (dtype or self.dtype) == "int16":
            return 0
        limits = np.iinfo(dtype or self.dtype)
        return self.one_of(int(limits.min), int(limits.max), self.number(limits.min, limits.max), 0)

    def add(self, name: str, shape, scale: float = 0.0, zero: int | None = None, dtype: str = "") -> Quantized:
        """Adds a quantised tensor; scale and zero point are random unless given."""
        self.tensors[name] = Quantized(tuple(shape), scale or self.scale(), self.zero(dtype) if zero is None else zero,
                                       dtype or self.dtype)
        return self.tensors[name]

    def numbers(self, shape, dtype: str) -> np.ndarray:
        """Returns random integers over the whole range of a type, both ends among them."""
        limits = np.iinfo(dtype)
        array = self.random.integers(limits.min, limits.max + 1, shape)
        array.flat[:2] = (limits.min, limits.max)[:array.size]
        return array.astype(dtype)

    def weights(self, shape, axis: int, x: Quantized) -> list[float]:
        """Adds weights w and a bias b, and returns the scales of w. int8 weights often have a scale for each channel,
        uint8 weights have one. axis: that of the channels. x: the operand."""
        channels, own = shape[axis], "uint8" if self.dtype == "uint8" else "int8"
        several = own == "int8" and self.random.random() < 0.7
        scales = [self.scale(1e-3, 0.1) for _ in range(channels if several else 1)]
        zero = 0 if own == "int8" else self.zero()
        self.tensors["w"] = Quantized(shape, scales, zero, own, axis, self.numbers(shape, own))
        bias = self.random.integers(-20000, 20000, channels).astype("int64" if self.dtype == "int16" else "int32")
        self.tensors["b"] = Quantized((channels,), [x.scale * each for each in scales], 0, bias.dtype.name, 0, bias)
        return scales

    def file(self, options: str, fields: Mapping, read: list[str], made: list[str], **more) -> bytes:
        """Returns the file of one operator. options: the name of its options table, with these fields. read, made:
        names of its operands and results."""
        inputs = [name for name in read if name and getattr(self.tensors[name], "array", None) is None
                  and not isinstance(self.tensors[name], np.ndarray)]
        inputs = [name for name in inputs if not getattr(self.tensors[name], "variable", False)]
        kind = self.kind.replace("CUSTOM ", ":")
        return written(self.tensors, [(kind, options, fields, read, made, more)], inputs, made)

    def feeds(self) -> dict[str, np.ndarray]:
        """Returns random inputs."""
        found = {}
        for name, value in self.tensors.items():
            if name[0] != "x" or isinstance(value, np.ndarray):
                continue
            if isinstance(value, Quantized):
                found[name] = array = self.numbers(value.shape, value.dtype)
                if name in self.avoided:
                    other = self.avoided[name] + (1 if self.avoided[name] < 100 else -1)
                    found[name] = np.where(array == self.avoided[name], other, array).astype(value.dtype)
            else:
                found[name] = (self.random.standard_normal(value) * 20).astype(np.float32)
        return found


def windowed(draw: Draw, kernel, activations=(0, 1, 2, 3)) -> tuple[dict, tuple[int, int]]:
    """Returns random options of a window, and the height and width of the result for an image of 7 x 6."""
    padding, strides = draw.one_of(0, 1), (draw.number(1, 3), draw.number(1, 2))
    sizes = tuple(-(-extent // stride) if padding == 0 else (extent - size) // stride + 1
                  for extent, size, stride in zip((7, 6), kernel, strides, strict=True))
    return {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1],
            "FusedActivationFunction": draw.one_of(*activations)}, sizes


def conv(draw: Draw) -> bytes:
    depthwise, channels = draw.kind == "DEPTHWISE_CONV_2D", draw.number(1, 5)
    kernel, outputs = (draw.number(1, 4), draw.number(1, 3)), channels * draw.number(1, 3)
    x = draw.add("x", (2, 7, 6, channels))
    shape, axis = ((1, *kernel, outputs), 3) if depthwise else ((outputs, *kernel, channels), 0)
    scales = draw.weights(shape, axis, x)
    fields, sizes = windowed(draw, kernel)
    draw.add("y", (2, *sizes, outputs), x.scale * max(scales) * draw.scale(20, 2000))
    options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    more = {"DepthMultiplier": outputs // channels} if depthwise else {}
    return draw.file(options, {**fields, **more}, ["x", "w", "b"], ["y"])


def fully_connected(draw: Draw) -> bytes:
    rows, inputs, outputs = draw.number(1, 3), draw.number(1, 40), draw.number(1, 9)
    x = draw.add("x", (rows, inputs))
    scales = draw.weights((outputs, inputs), 0, x)
    draw.add("y", (rows, outputs), x.scale * max(scales) * draw.scale(5, 2000))
    return draw.file("FullyConnectedOptions", {"FusedActivationFunction": draw.number(0, 3)},
                     ["x", "w", draw.one_of("b", "b", "")], ["y"])


def other_binary(draw: Draw) -> bytes:
    """Returns a file of a binary operator, with scales as in real networks."""
    if draw.kind in ("SQUARED_DIFFERENCE", "PRELU"):
        draw.dtype = "int8" if draw.kind == "SQUARED_DIFFERENCE" else draw.dtype
    a = draw.add("x0", (2, 3, 4), draw.scale(1e-3, 0.9))
    b = draw.add("x1", draw.one_of((1, 3, 1), (1, 1, 4)) if draw.kind == "PRELU"
                 else draw.one_of((2, 3, 4), (4,), (1, 3, 1), ()), draw.scale(1e-3, 0.9))
    if draw.kind in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
        if draw.one_of(True, False):
            draw.tensors["x1"] = b = replace(b, scale=a.scale)
        draw.tensors["y"] = Tensor((2, 3, 4), "bool")
        return draw.file("", {}, ["x0", "x1"], ["y"])
    size = {"PRELU": a.scale, "DIV": a.scale / b.scale / 1500}.get(draw.kind, 100 * max(a.scale, b.scale)**2)
    if draw.kind == "DIV":  # LiteRT refuses divisors of 0, and shifts by more than 31 bits where results are near 0
        draw.avoided = {"x0": a.zero_point, "x1": b.zero_point}
    draw.add("y", (2, 3, 4), size * draw.scale(0.5, 20))
    options = ("DivOptions", {"FusedActivationFunction": draw.number(0, 3)}) if draw.kind == "DIV" else ("", {})
    return draw.file(*options, ["x0", "x1"], ["y"])


def binary(draw: Draw) -> bytes:
    draw.even &= draw.dtype != "int16"  # sums of shifted numbers: test_shifted_sums
    a, b = draw.add("x0", (2, 3, 4)), draw.add("x1", draw.one_of((2, 3, 4), (4,), (1, 3, 1), ()))
    largest = a.scale * b.scale * 100 if draw.kind == "MUL" else max(a.scale, b.scale)
    draw.add("y", (2, 3, 4), largest * draw.scale(0.3, 20))
    name = draw.kind.title()
    return draw.file(f"{name}Options", {"FusedActivationFunction": draw.number(0, 3)}, ["x0", "x1"], ["y"])


def extreme(draw: Draw) -> bytes:
    x = draw.add("x0", (2, 3, 4))
    draw.add("x1", (3, 1), x.scale, x.zero_point), draw.add("y", (2, 3, 4), x.scale, x.zero_point)
    return draw.file("", {}, ["x0", "x1"], ["y"])


def unary(draw: Draw) -> bytes:
    x = draw.add("x", (256,), draw.scale(1e-3, 0.2))
    least = int(np.iinfo(draw.dtype).min)
    ends = {"LOGISTIC": (2**-15, 0), "TANH": (2**-15, 0)} if draw.dtype == "int16" else \
        {"LOGISTIC": (1 / 256, least), "TANH": (1 / 128, least + 128)}
    scale, zero = ends.get(
        draw.kind, (x.scale * draw.scale(0.3, 3), None))
    if draw.kind == "EXP":
        draw.dtype = "int8"
        x = draw.add("x", (256,), draw.scale(1e-3, 0.03))
        scale = draw.scale(1e-2, 1)
    if draw.kind in ("ABS", "RSQRT", "ELU", "LOG", "GELU", "HARD_SWISH"):
        draw.dtype = draw.dtype if draw.kind == "HARD_SWISH" else "int8"
        x = draw.add("x", (256,), draw.scale(1e-2, 0.2))
        if draw.kind == "RSQRT":
            draw.tensors["x"] = x = replace(x, zero_point=-128)
            scale = draw.scale(1e-3, 0.1)
    draw.add("y", (256,), scale, zero)
    options, fields = {"LEAKY_RELU": ("LeakyReluOptions", {"Alpha": draw.scale(1e-2, 0.9)}),
                       "GELU": ("GeluOptions", {"Approximate": draw.one_of(True, False)})}.get(draw.kind, ("", {}))
    return draw.file(options, fields, ["x"], ["y"])


def quantize(draw: Draw) -> bytes:
    if draw.random.random() < 0.5:
        draw.tensors["x"] = (300,)
    else:
        draw.add("x", (300,), dtype=draw.one_of("int8", "uint8"))
    draw.add("y", (300,), getattr(draw.tensors["x"], "scale", 0.2) * draw.scale(0.2, 5))
    return draw.file("", {}, ["x"], ["y"])


def dequantize(draw: Draw) -> bytes:
    draw.add("x", (300,))
    draw.tensors["y"] = (300,)
    return draw.file("", {}, ["x"], ["y"])


def pool(draw: Draw) -> bytes:
    kernel = draw.number(1, 4), draw.number(1, 4)
    x = draw.add("x", (2, 7, 6, 3))
    fields, sizes = windowed(draw, kernel)
    draw.add("y", (2, *sizes, 3), x.scale, x.zero_point)
    return draw.file("Pool2DOptions", {**fields, "FilterHeight": kernel[0], "FilterWidth": kernel[1]}, ["x"], ["y"])


def resize(draw: Draw) -> bytes:
    size, (corners, half) = (draw.number(1, 12), draw.number(1, 9)), draw.one_of((0, 0), (1, 0), (0, 1))
    x = draw.add("x", (2, 7, 6, 3))
    draw.tensors["size"] = np.array(size, np.int32)
    draw.add("y", (2, *size, 3), x.scale, x.zero_point)
    return draw.file("ResizeBilinearOptions", {"AlignCorners": corners, "HalfPixelCenters": half}, ["x", "size"], ["y"])


def product(draw: Draw) -> bytes:
    """Returns a product of two matrices that are both inputs."""
    wide, (left, right) = draw.dtype == "int16", (draw.one_of(False, True), draw.one_of(False, True))
    draw.dtype = "int16" if wide else "int8"
    rows, depth, columns = draw.number(1, 5), draw.number(1, draw.one_of(30, 300) if wide else 30), draw.number(1, 6)
    a = draw.add("x0", (2, *((depth, rows) if left else (rows, depth))), draw.scale(1e-3, 0.1))
    b = draw.add("x1", (draw.one_of(1, 2), *((columns, depth) if right else (depth, columns))), draw.scale(1e-3, 0.1),
                 dtype=draw.one_of("int16", "int8") if wide else "", zero=0 if wide else None)
    draw.add("y", (2, rows, columns), a.scale * b.scale * draw.scale(20, 2000) * (200 if wide else 1))
    return draw.file("BatchMatMulOptions", {"AdjX": left, "AdjY": right}, ["x0", "x1"], ["y"])


def transposed_conv(draw: Draw) -> bytes:
    channels, outputs, kernel = draw.number(1, 4), draw.number(1, 5), (draw.number(1, 4), draw.number(1, 3))
    x = draw.add("x", (2, 5, 4, channels))
    scales = draw.weights((outputs, *kernel, channels), 0, x)
    padding, strides = draw.one_of(0, 1), (draw.number(1, 3), draw.number(1, 3))
    size = [extent * stride if padding == 0 else (extent - 1) * stride + max(reach, stride if draw.one_of(0, 1) else 1)
            for extent, stride, reach in zip((5, 4), strides, kernel, strict=True)]
    draw.tensors["shape"] = np.array((2, *size, outputs), np.int32)
    draw.add("y", (2, *size, outputs), x.scale * max(scales) * draw.scale(20, 2000))
    fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1],
              "FusedActivationFunction": draw.number(0, 3)}
    return draw.file("TransposeConvOptions", fields, ["shape", "w", "x", *draw.one_of((), ("b",))], ["y"])


def extreme_along(draw: Draw) -> bytes:
    axes, x = draw.one_of((1, 2), (3,), (0, 1, 2, 3)), draw.add("x", (2, 5, 6, 3))
    draw.tensors["axes"] = np.array(axes, np.int32)
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    draw.add("y", shape, x.scale, x.zero_point)
    return draw.file("ReducerOptions", {"KeepDims": True}, ["x", "axes"], ["y"])


def product_along(draw: Draw) -> bytes:
    axes, draw.dtype = draw.one_of((1,), (2, 3), (1, 3), (0, 1, 2, 3)), draw.dtype if draw.dtype == "int16" else "int8"
    x, keep = draw.add("x", (2, 3, 2, 4), draw.scale(0.01, 0.1)), draw.one_of(True, False)
    draw.tensors["axes"] = np.array(axes, np.int32)
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape) if keep or axis not in axes]
    count = int(np.prod([x.shape[axis] for axis in axes]))
    size = x.scale * (2.0**13 if draw.dtype == "int16" else 40.0)
    draw.add("y", shape, size**count / (2.0**14 if draw.dtype == "int16" else 60.0) if count < 9 else x.scale)
    return draw.file("ReducerOptions", {"KeepDims": keep}, ["x", "axes"], ["y"])


def blocks(draw: Draw) -> bytes:
    x = draw.add("x", (2, 3, 4, 3))
    draw.tensors.update(block=np.array([2, 2], np.int32), pads=np.array([[0, 1], [2, 0]], np.int32))
    draw.add("y", (8, 2, 3, 3), x.scale, x.zero_point)
    return draw.file("", {}, ["x", "block", "pads"], ["y"])


def mean(draw: Draw) -> bytes:
    axes = draw.one_of((1, 2), (1,), (3,), (1, 2, 3), (0, 1, 2, 3))
    keep = draw.one_of(True, False)
    x = draw.add("x", (2, 5, 6, 3))
    draw.tensors["axes"] = np.array(axes, np.int32)
    shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape) if keep or axis not in axes]
    draw.add("y", shape, x.scale * draw.scale(0.4, 2) * (draw.scale(1e-2, 1e2) if draw.kind == "SUM" else 1))
    return draw.file("ReducerOptions", {"KeepDims": keep}, ["x", "axes"], ["y"])


def softmax(draw: Draw) -> bytes:
    shape = draw.one_of((3, 10), (2, 3, 1000), (4, 2), (1, 1))
    draw.add("x", shape, draw.scale(1e-3 if shape[-1] < 100 else 0.1, 3))  # LiteRT ends where sums reach 512
    least = int(np.iinfo(draw.dtype).min)
    if draw.dtype == "int16":
        draw.add("x", shape, draw.scale(1e-5, 1e-2))
    draw.add("y", shape, *((2**-15, 0) if draw.dtype == "int16" else (1 / 256, least)))
    return draw.file("SoftmaxOptions", {"Beta": draw.one_of(1.0, 1.0, 0.3, 2.0)}, ["x"], ["y"])


def log_softmax(draw: Draw) -> bytes:
    shape, most = draw.one_of((3, 10), (2, 3, 400), (4, 2), (1, 1)), int(np.iinfo(draw.dtype).max)
    draw.add("x", shape, draw.scale(1e-3 if shape[-1] < 100 else 0.1, 3)), draw.add("y", shape, 1 / 16, most)
    return draw.file("", {}, ["x"], ["y"])


def normalised(draw: Draw) -> bytes:
    shape = draw.one_of((3, 10), (2, 3, 40), (4, 2), (1, 1), (2, 3, 2, 5))
    draw.add("x", shape), draw.add("y", shape, 1 / 128, 0 if draw.dtype == "int8" else 128)
    return draw.file("L2NormOptions", {}, ["x"], ["y"])


def concatenation(draw: Draw) -> bytes:
    parts = draw.number(2, 3)
    y = Quantized((2, 3 * parts), draw.scale(), draw.zero(), draw.dtype)
    for index in range(parts):
        same = draw.dtype != "uint8" or index == 0
        draw.add(f"x{index}", (2, 3), y.scale if same else y.scale * draw.scale(0.3, 2), y.zero_point if same else None)
    draw.tensors["y"] = y
    return draw.file("ConcatenationOptions", {"Axis": 1}, [f"x{index}" for index in range(parts)], ["y"])


def pad(draw: Draw) -> bytes:
    x = draw.add("x", (3, 4))
    draw.tensors["pads"] = np.array([[1, 0], [2, 1]], np.int32)
    draw.add("y", (4, 7), x.scale, x.zero_point)
    value = ["v"] if draw.kind == "PADV2" else []
    if value:
        draw.tensors["v"] = Quantized((), x.scale, x.zero_point, draw.dtype, array=np.array(7, draw.dtype))
    return draw.file("", {}, ["x", "pads", *value], ["y"])


def lstm(draw: Draw) -> bytes:
    """With or without an input gate, peepholes, normalised gates and a projection; cells of several scales."""
    draw.dtype = "int8"
    steps, batch, inputs, units = draw.number(1, 5), draw.number(1, 2), draw.number(1, 9), draw.number(1, 7)
    major, coupled, peeps = draw.one_of(True, False), draw.one_of(True, False), draw.one_of(True, False)
    normalised, projects = draw.one_of(True, False), draw.one_of(True, False)
    made = draw.number(1, units if peeps else 9) if projects else units
    x = draw.add("x", (steps, batch, inputs) if major else (batch, steps, inputs), draw.scale(1e-3, 3e-2))
    y = draw.add("y", (*x.shape[:2], made), draw.scale(2e-3, 1e-2))
    cell, gates = 2.0**draw.number(-15, -9), range(1 if coupled else 0, 4)

    def constant(name: str, shape: tuple[int, ...], scale: float, dtype: str = "int8") -> None:
        numbers = draw.random.integers(-20000, 20000, shape).astype(np.int32) if dtype == "int32" \
            else draw.numbers(shape, dtype)
        draw.tensors[name] = Quantized(shape, scale, 0, dtype, array=numbers)

    for gate in gates:
        for name, columns in (("w", inputs), ("r", made)):
            constant(f"{name}{gate}", (units, columns), draw.scale(*draw.one_of((1e-3, 2e-2), (1e-6, 10))))
        constant(f"b{gate}", (units,), 1e-5, "int32")
        if peeps and gate != 2:
            constant(f"p{gate}", (units,), draw.scale(1e-5, 1e-4), "int16")
        if normalised:
            constant(f"n{gate}", (units,), draw.scale(1e-5, 3e-4), "int16")
    if projects:
        constant("p", (made, units), draw.scale(1e-3, 2e-2))
    if projects and draw.one_of(True, False):
        constant("q", (made,), 1e-5, "int32")
    draw.tensors["h"] = Quantized((batch, made), y.scale, y.zero_point, "int8", variable=True)
    draw.tensors["c"] = Quantized((batch, units), cell, 0, "int16", variable=True)
    for index in range(4):
        draw.tensors[f"between{index}"] = Quantized((), draw.scale(1e-4, 1e-3), 0, "int16")
    own = draw.one_of(True, False) and not projects
    draw.tensors["between4"] = Quantized((), y.scale, y.zero_point, "int8") if own \
        else Quantized((), draw.scale(4e-3, 9e-3), draw.number(-128, 127), "int8")

    def named(name: str, wanted=range(4)) -> list[str]:
        return [f"{name}{gate}" if f"{name}{gate}" in draw.tensors else "" for gate in wanted]

    read = ["x", *named("w"), *named("r"), *named("p", (0, 1, 3)), *named("b"), *named("p", [""]), *named("q", [""]),
            "h", "c", *named("n")]
    fields = {"FusedActivationFunction": 4, "CellClip": draw.one_of(0.0, cell * 20000), "TimeMajor": major,
              "ProjClip": draw.one_of(0.0, 0.3)}
    return draw.file("UnidirectionalSequenceLSTMOptions", fields, read, ["y"],
                     intermediates=[f"between{index}" for index in range(5)])


def detections(draw: Draw) -> bytes:
    """Floats, or numbers of uint8."""
    boxes, classes, background = draw.number(2, 40), draw.number(1, 5), draw.one_of(0, 1)
    draw.dtype, real = "uint8", draw.one_of(True, False)
    each = draw.number(1, min(classes, 3)) if real else 1  # of equal scores LiteRT gives any
    options = flexbuffers.Builder()
    with options.Map():
        for name, value in (("max_detections", draw.number(1, 12)), ("max_classes_per_detection", each),
                            ("detections_per_class", draw.number(1, 9)), ("num_classes", classes)):
            options.Int(name, value)
        for name, least, most in (("nms_score_threshold", 1e-2, 0.3), ("nms_iou_threshold", 0.2, 1),
                                  *((f"{side}_scale", 1, 12) for side in "yxhw")):
            options.Float(name, draw.scale(least, most))
        regular = draw.one_of(True, False)
        draw.rows = 1 if regular else each
        options.Bool("use_regular_nms", regular)
    anchors = draw.random.uniform(0.1, 1, (boxes, 4))
    if not real:
        draw.add("x0", (1, boxes, 4), 0.08, 128), draw.add("x1", (1, boxes, classes + background), 1 / 256, 0)
        draw.tensors["anchors"] = Quantized((boxes, 4), 1 / 200, 0, "uint8",
                                            array=np.rint(anchors * 200).astype(np.uint8))
    else:
        draw.tensors.update(x0=(1, boxes, 4), x1=(1, boxes, classes + background), anchors=anchors.astype(np.float32))
    made = ["where", "which", "how", "many"]
    draw.tensors.update(dict.fromkeys(made, draw.one_of((), (10,))))  # shapes that LiteRT does not look at
    return draw.file("", {}, ["x0", "x1", "anchors"], made, custom=bytes(options.Finish()))


#: Operator -> seeds of files that once showed an error, here of a result halfway between two integers.
FOUND = {"FULLY_CONNECTED": (677,)}
#: Operators that test_tflite_states.py and test_tflite_sparse.py test instead.
KEPT = {"CUSTOM CIRCULAR_BUFFER", "SVDF", "DENSIFY"}
#: Operators for which LiteRT has no reference kernel of int8 and int16, or one that reads elements as uint8.
OTHERS = ("ELU", "SUM")

#: Operator -> the function that returns a random file of it.
FILES: dict[str, Callable[[Draw], bytes]] = {
    "CONV_2D": conv, "DEPTHWISE_CONV_2D": conv, "FULLY_CONNECTED": fully_connected, "ADD": binary, "SUB": binary,
    "MUL": binary, "MAXIMUM": extreme, "MINIMUM": extreme, "LOGISTIC": unary, "TANH": unary, "EXP": unary,
    "LEAKY_RELU": unary, "RELU": unary, "RELU6": unary, "RELU_N1_TO_1": unary, "QUANTIZE": quantize,
    "DEQUANTIZE": dequantize, "MAX_POOL_2D": pool, "AVERAGE_POOL_2D": pool, "MEAN": mean, "SOFTMAX": softmax,
    "CONCATENATION": concatenation, "PAD": pad, "PADV2": pad, "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "CUSTOM TFLite_Detection_PostProcess": detections,
    "L2_NORMALIZATION": normalised, "LOG_SOFTMAX": log_softmax,
    "RESIZE_BILINEAR": resize, "BATCH_MATMUL": product, "TRANSPOSE_CONV": transposed_conv, "SUM": mean,
    "REDUCE_PROD": product_along, "REDUCE_MAX": extreme_along, "REDUCE_MIN": extreme_along, "SPACE_TO_BATCH_ND": blocks,
    **dict.fromkeys(("ABS", "RSQRT", "ELU", "LOG", "GELU", "HARD_SWISH"), unary),
    **dict.fromkeys(("PRELU", "SQUARED_DIFFERENCE", "DIV", "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER",
                     "GREATER_EQUAL"), other_binary),
}
