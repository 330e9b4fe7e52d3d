# SPDX-License-Identifier: Apache-2.0
"""Random quantised TFLite files of one to five operators in sequence."""

from __future__ import annotations

import numpy as np

from tests.tflite_files import Quantized, Tensor, written

#: Methods of `Network` that add an operator on 8-bit or on 16-bit values. Names that occur twice are chosen more often.
BYTES = ("conv", "conv", "depthwise", "depthwise", "sum", "sum", "product", "pool", "pool", "relu", "curve", "table",
         "pad", "mirror", "mean", "reshape", "transpose", "concat", "slice", "strided", "nearest", "bilinear",
         "transposed_conv", "quantize", "dense", "softmax", "extreme", "prelu", "depth", "gather", "difference",
         "pack", "tile", "split", "divided")
WORDS = ("conv", "conv", "depthwise", "sum", "product", "pool", "relu", "curve", "pad", "mirror", "mean", "reshape",
         "transpose", "concat", "slice", "strided", "quantize", "dense", "extreme", "gather", "leaky", "split",
         "softmax")
#: Methods that add a last operator, whose result is not quantised.
ENDS = ("dequantize", "arg", "compare")


class Network:
    """A random network. x: the last tensor. size: the magnitude of the values that it represents. file: the TFLite
    file. feeds: random inputs. even: whether scales are powers of two."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng([seed, 77])
        self.dtype = ("int8", "int8", "uint8", "int16")[seed % 4]
        self.even = self.random.random() < 0.2
        self.tensors: dict[str, object] = {}
        self.operators: list[tuple] = []
        shape = (self.number(1, 2), self.number(3, 9), self.number(3, 8), self.number(1, 9))
        self.x = self.made("x", shape, self.scale(1e-3, 0.2))
        self.size = self.x.scale * self.half
        self.name = "x"
        count = self.number(1, 5)
        for index in range(count):
            last = index == count - 1 and self.random.random() < 0.2
            kind = self.one_of(*(ENDS if last else WORDS if self.dtype == "int16" else BYTES))
            getattr(self, kind)()
        if not self.operators:
            self.relu()
        self.file = written(self.tensors, self.operators, ["x"], [self.name])
        limits = np.iinfo(self.tensors["x"].dtype)
        numbers = self.random.integers(limits.min, limits.max + 1, shape)
        numbers.flat[:2] = limits.min, limits.max
        self.feeds = {"x": numbers.astype(self.tensors["x"].dtype)}

    # --- numbers -----------------------------------------------------------------------------------------------------

    @property
    def half(self) -> float:
        """Half of the largest integer, roughly."""
        return 2.0**14 if self.dtype == "int16" else 64.0

    def one_of(self, *choices):
        return choices[self.random.integers(len(choices))]

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def scale(self, low: float, high: float) -> float:
        drawn = np.exp(self.random.uniform(np.log(low), np.log(high)))
        return float(np.float32(2.0**np.rint(np.log2(drawn)) if self.even else drawn))

    def fitting(self, size: float) -> float:
        """Returns a scale for values of a magnitude; sometimes one that saturates most values, or rounds most to 0."""
        wide = 0.02 if self.random.random() < 0.1 else 0.5
        return self.scale(wide * size / self.half, 3 * size / self.half)

    def zero(self) -> int:
        if self.dtype == "int16":
            return 0
        limits = np.iinfo(self.dtype)
        middle = self.number(limits.min // 2, limits.max // 2) if self.dtype == "int8" else self.number(64, 192)
        return int(self.one_of(limits.min, limits.max, middle, middle, middle, middle))

    def made(self, name: str, shape, scale: float, zero: int | None = None, array=None) -> Quantized:
        self.tensors[name] = Quantized(tuple(shape), scale, self.zero() if zero is None else zero, self.dtype,
                                       array=array)
        return self.tensors[name]

    def constant(self, shape, scale: float, zero: int | None = None) -> str:
        limits = np.iinfo(self.dtype)
        array = self.random.integers(limits.min, limits.max + 1, shape).astype(self.dtype)
        name = f"c{len(self.tensors)}"
        self.made(name, shape, scale, zero, array)
        return name

    def plain(self, values) -> str:
        name = f"n{len(self.tensors)}"
        self.tensors[name] = np.array(values, np.int32)
        return name

    def add(self, kind: str, more, shape, scale: float = 0.0, zero: int | None = None, options: str = "",
            fields: dict | None = None, first: bool = True) -> None:
        """Adds an operator on the last tensor. Without a scale the result has that of its operand."""
        read = [self.name, *more] if first else [*more, self.name]
        name = f"y{len(self.tensors)}"
        y = self.made(name, shape, scale or self.x.scale, self.x.zero_point if not scale else zero)
        self.operators.append((kind, options, fields or {}, read, [name]))
        self.x, self.name = y, name
        self.size = y.scale * self.half

    # --- operators ---------------------------------------------------------------------------------------------------

    def image(self) -> tuple[int, ...]:
        """Returns the last tensor's shape, after a reshape to four axes if it has fewer."""
        if len(self.x.shape) != 4:
            shape = (1, 1, 1, *self.x.shape)[-4:] if len(self.x.shape) < 4 else (
                self.x.shape[0], self.x.shape[1], int(np.prod(self.x.shape[2:-1])), self.x.shape[-1])
            self.add("RESHAPE", [self.plain(shape)], shape)
        return self.x.shape

    def window(self, kernel, dilations=(1, 1)) -> tuple[dict, list[int]]:
        strides, padding = (self.number(1, 3), self.number(1, 2)), self.one_of(0, 1)
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
        shape = self.x.shape[1:3]
        if any(extent < size for extent, size in zip(shape, reach, strict=True)):
            padding = 0
        sizes = [-(-extent // stride) if padding == 0 else (extent - size) // stride + 1
                 for extent, size, stride in zip(shape, reach, strides, strict=True)]
        return {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1],
                "FusedActivationFunction": self.one_of(0, 0, 0, 1, 2, 3)}, sizes

    def weights(self, shape, axis: int, terms: int) -> tuple[list[str], float]:
        """Adds weights and a bias. Returns their names, and the magnitude of the sums of products."""
        own = "uint8" if self.dtype == "uint8" else "int8"
        limits, channels = np.iinfo(own), shape[axis]
        least = -127 if own == "int8" else limits.min
        several = own == "int8" and self.random.random() < 0.7
        scales = [self.scale(2e-3, 2e-2) for _ in range(channels if several else 1)]
        zero = 0 if own == "int8" else int(self.one_of(0, 255, 128, self.number(0, 255)))
        name, mark = f"w{len(self.tensors)}", f"b{len(self.tensors)}"
        array = self.random.integers(least, limits.max + 1, shape).astype(own)
        self.tensors[name] = Quantized(shape, scales, zero, own, axis, array)
        bias = self.random.integers(-4000, 4000, channels).astype("int64" if self.dtype == "int16" else "int32")
        if self.dtype == "int16":
            bias *= 100
        self.tensors[mark] = Quantized((channels,), [self.x.scale * each for each in scales], 0, bias.dtype.name, 0,
                                       bias)
        return [name, mark], self.size * max(scales) * 70 * np.sqrt(terms)

    def conv(self) -> None:
        n, _, _, channels = self.image()
        kernel, dilations = (self.number(1, 4), self.number(1, 3)), self.one_of((1, 1), (1, 1), (2, 1), (2, 2))
        outputs = self.number(1, 9)
        read, size = self.weights((outputs, *kernel, channels), 0, kernel[0] * kernel[1] * channels)
        fields, sizes = self.window(kernel, dilations)
        fields.update(DilationHFactor=dilations[0], DilationWFactor=dilations[1])
        self.add("CONV_2D", read, (n, *sizes, outputs), self.fitting(size), None, "Conv2DOptions", fields)

    def depthwise(self) -> None:
        n, _, _, channels = self.image()
        kernel, times = (self.number(1, 4), self.number(1, 3)), self.one_of(1, 1, 2, 3)
        read, size = self.weights((1, *kernel, channels * times), 3, kernel[0] * kernel[1])
        fields, sizes = self.window(kernel)
        self.add("DEPTHWISE_CONV_2D", read, (n, *sizes, channels * times), self.fitting(size), None,
                 "DepthwiseConv2DOptions", {**fields, "DepthMultiplier": times})

    def transposed_conv(self) -> None:
        n, height, width, channels = self.image()
        kernel, outputs = (self.number(1, 3), self.number(1, 3)), self.number(1, 5)
        strides, padding = (self.number(1, 2), self.number(1, 2)), self.one_of(0, 1)
        read, size = self.weights((outputs, *kernel, channels), 0, channels)
        sizes = [extent * stride if padding == 0 else (extent - 1) * stride + reach
                 for extent, stride, reach in zip((height, width), strides, kernel, strict=True)]
        shape, scale = (n, *sizes, outputs), self.fitting(size)
        name = f"y{len(self.tensors)}"
        y = self.made(name, shape, scale)
        fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1], "FusedActivationFunction": 0}
        self.operators.append(("TRANSPOSE_CONV", "TransposeConvOptions", fields,
                               [self.plain(shape), read[0], self.name, read[1]], [name]))
        self.x, self.name, self.size = y, name, y.scale * self.half

    def dense(self) -> None:
        inputs, outputs = self.x.shape[-1], self.number(1, 12)
        rows = int(np.prod(self.x.shape[:-1]))
        read, size = self.weights((outputs, inputs), 0, inputs)
        self.add("FULLY_CONNECTED", read, (rows, outputs), self.fitting(size), None, "FullyConnectedOptions",
                 {"FusedActivationFunction": self.one_of(0, 0, 0, 1, 2, 3)})

    def other(self, shapes=None, scale: float = 0.0) -> str:
        """Returns a second operand: a constant, or an earlier tensor of the same shape."""
        earlier = [name for name, tensor in self.tensors.items() if name[0] in "xy" and name != self.name
                   and isinstance(tensor, Quantized) and tensor.shape == self.x.shape and tensor.dtype == self.dtype]
        if earlier and self.random.random() < 0.7 and not scale:
            return self.one_of(*earlier)
        shape = self.one_of(self.x.shape, self.x.shape[-1:], (), (1,) * (len(self.x.shape) - 1) + self.x.shape[-1:])
        return self.constant(shape, scale or self.fitting(self.size))

    def sum(self) -> None:
        even, self.even = self.even, self.even and self.dtype != "int16"  # LiteRT refuses some powers of two
        kind, other = self.one_of("ADD", "SUB"), self.other()
        size = self.size + self.tensors[other].scale * self.half
        scale = self.fitting(size) * (1.0 if self.dtype != "int16" else 1.01)
        self.add(kind, [other], self.x.shape, scale, None, f"{kind.title()}Options",
                 {"FusedActivationFunction": self.one_of(0, 0, 0, 1, 2, 3), "PotScaleInt16": False})
        self.even = even

    def product(self) -> None:
        other = self.other()
        size = self.size * self.tensors[other].scale * self.half
        self.add("MUL", [other], self.x.shape, self.fitting(size), None, "MulOptions",
                 {"FusedActivationFunction": self.one_of(0, 0, 0, 1, 2, 3)})

    def divided(self) -> None:
        """Adds a division by numbers that are not 0, with a result scale for which LiteRT's shifts stay below 32
        bits."""
        limits = np.iinfo(self.dtype)
        zero, scale = int(limits.min), self.scale(0.01, 0.2)
        name = f"c{len(self.tensors)}"
        array = self.random.integers(zero + 100, limits.max + 1, self.x.shape[-1:]).astype(self.dtype)
        self.made(name, array.shape, scale, zero, array)
        # LiteRT shifts a dividend of 0 by more bits than an int32 has.
        self.made_apart()
        self.add("DIV", [name], self.x.shape, self.x.scale / scale / 1500, None, "DivOptions", {})

    def made_apart(self) -> None:
        """Makes all values of the last tensor positive."""
        limits = np.iinfo(self.dtype)
        one = f"c{len(self.tensors)}"
        self.made(one, (), self.x.scale, int(limits.min), np.array(limits.min + 9, self.dtype))
        self.add("QUANTIZE", [], self.x.shape, self.x.scale, int(limits.min))
        self.add("MAXIMUM", [one], self.x.shape)

    def extreme(self) -> None:
        other = self.constant(self.one_of(self.x.shape, self.x.shape[-1:]), self.x.scale, self.x.zero_point)
        self.add(self.one_of("MAXIMUM", "MINIMUM"), [other], self.x.shape)

    def difference(self) -> None:
        if self.dtype != "int8":
            return self.extreme()
        other = self.other(scale=self.x.scale * self.one_of(0.7, 1.0, 1.6))
        return self.add("SQUARED_DIFFERENCE", [other], self.x.shape, self.fitting((2 * self.size)**2), None)

    def prelu(self) -> None:
        alpha = self.constant((1,) * (len(self.x.shape) - 2) + self.x.shape[-1:], self.scale(1e-3, 1e-2))
        if len(self.x.shape) < 2:
            return self.relu()
        return self.add("PRELU", [alpha], self.x.shape, self.fitting(self.size))

    def pool(self) -> None:
        n, _, _, channels = self.image()
        kernel = self.number(1, 4), self.number(1, 4)
        fields, sizes = self.window(kernel)
        self.add(self.one_of("MAX_POOL_2D", "AVERAGE_POOL_2D"), [], (n, *sizes, channels), options="Pool2DOptions",
                 fields={**fields, "FilterHeight": kernel[0], "FilterWidth": kernel[1]})

    def relu(self) -> None:
        self.add(self.one_of("RELU", "RELU6"), [], self.x.shape, self.fitting(self.size))

    def leaky(self) -> None:
        self.add("LEAKY_RELU", [], self.x.shape, self.fitting(self.size), None, "LeakyReluOptions",
                 {"Alpha": self.scale(0.01, 0.9)})

    def curve(self) -> None:
        kind = self.one_of("LOGISTIC", "TANH")
        if self.dtype == "int16" and self.x.scale > 4:  # products of 32 bits do not hold what LiteRT multiplies
            return self.pad()
        least = int(np.iinfo(self.dtype).min)
        scale, zero = (2.0**-15, 0) if self.dtype == "int16" else \
            (1 / 256, least) if kind == "LOGISTIC" else (1 / 128, least + 128)
        return self.add(kind, [], self.x.shape, scale, zero)

    def table(self) -> None:
        kind = self.one_of("HARD_SWISH", "LEAKY_RELU", *(() if self.dtype == "uint8" else ("ABS", "GELU")))
        options = {"LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.3}), "GELU": ("GeluOptions", {})}.get(kind, ("", {}))
        scale = self.x.scale * self.scale(0.3, 3)
        self.add(kind, [], self.x.shape, scale, None, *options)

    def softmax(self) -> None:
        words = self.dtype == "int16"
        if self.x.shape[-1] > 100 or not (1e-6 if words else 1e-3) < self.x.scale < (0.1 if words else 3):
            return self.pad()
        ends = (2.0**-15, 0) if words else (1 / 256, int(np.iinfo(self.dtype).min))
        return self.add("SOFTMAX", [], self.x.shape, *ends, "SoftmaxOptions", {"Beta": self.one_of(1.0, 0.5)})

    def pad(self) -> None:
        pads = self.random.integers(0, 3, (len(self.x.shape), 2))
        self.add("PAD", [self.plain(pads)], pads.sum(1) + self.x.shape)

    def mirror(self) -> None:
        mode = self.one_of(0, 1)
        pads = np.minimum(self.random.integers(0, 3, (len(self.x.shape), 2)),
                          np.array(self.x.shape)[:, None] - (1 - mode))
        self.add("MIRROR_PAD", [self.plain(pads)], pads.sum(1) + self.x.shape, options="MirrorPadOptions",
                 fields={"Mode": mode})

    def mean(self) -> None:
        axes = self.one_of((1, 2), (1,), (3,))
        shape = [1 if axis in axes else extent for axis, extent in enumerate(self.image())]
        self.add("MEAN", [self.plain(axes)], shape, self.fitting(self.size / 3), None, "ReducerOptions",
                 {"KeepDims": True})

    def reshape(self) -> None:
        shape = self.one_of((self.x.shape[0], int(np.prod(self.x.shape[1:]))),
                            (int(np.prod(self.x.shape[:-1])), self.x.shape[-1]), (1, *self.x.shape[::-1])[-4:])
        if np.prod(shape) == np.prod(self.x.shape):
            self.add("RESHAPE", [self.plain(shape)], shape)

    def transpose(self) -> None:
        perm = self.random.permutation(len(self.x.shape))
        self.add("TRANSPOSE", [self.plain(perm)], [self.x.shape[axis] for axis in perm])

    def concat(self) -> None:
        axis, shape = self.number(0, len(self.x.shape) - 1), list(self.x.shape)
        shape[axis] = self.number(1, 3)
        own = self.dtype == "uint8" and self.random.random() < 0.5  # a scale of its own
        other = self.constant(shape, self.fitting(self.size) if own else self.x.scale,
                              None if own else self.x.zero_point)
        shape[axis] += self.x.shape[axis]
        self.add("CONCATENATION", [other], shape, options="ConcatenationOptions", fields={"Axis": axis})

    def slice(self) -> None:
        begins = [self.number(0, extent - 1) for extent in self.x.shape]
        sizes = [self.number(1, extent - begin) for extent, begin in zip(self.x.shape, begins, strict=True)]
        self.add("SLICE", [self.plain(begins), self.plain(sizes)], sizes)

    def strided(self) -> None:
        steps = [self.one_of(1, 2, -1) for _ in self.x.shape]
        begins = [0 if step > 0 else -1 for step in steps]
        shape = [-(-extent // abs(step)) for extent, step in zip(self.x.shape, steps, strict=True)]
        bits = 2**len(steps) - 1
        self.add("STRIDED_SLICE", [self.plain(begins), self.plain(self.x.shape), self.plain(steps)], shape,
                 options="StridedSliceOptions", fields={"EndMask": bits, "BeginMask": self.one_of(0, bits)})

    def split(self) -> None:
        axis = self.number(0, len(self.x.shape) - 1)
        count = self.one_of(*(each for each in (1, 2, 3, 5, 7) if self.x.shape[axis] % each == 0))
        shape = list(self.x.shape)
        shape[axis] //= count
        names = [f"y{len(self.tensors)}_{index}" for index in range(count)]
        parts = [self.made(name, shape, self.x.scale, self.x.zero_point) for name in names]
        self.operators.append(("SPLIT", "SplitOptions", {"NumSplits": count}, [self.plain(axis), self.name], names))
        self.x, self.name = parts[-1], names[-1]

    def pack(self) -> None:
        if len(self.x.shape) > 3:
            return self.slice()
        other = self.constant(self.x.shape, self.x.scale, self.x.zero_point)
        return self.add("PACK", [other], (2, *self.x.shape), options="PackOptions",
                        fields={"Axis": 0, "ValuesCount": 2})

    def tile(self) -> None:
        times = [self.one_of(1, 1, 2) for _ in self.x.shape]
        self.add("TILE", [self.plain(times)], np.multiply(times, self.x.shape))

    def gather(self) -> None:
        axis, count, shape = self.number(0, len(self.x.shape) - 1), self.number(1, 4), list(self.x.shape)
        indices = self.plain(self.random.integers(0, shape[axis], count))
        shape[axis] = count
        self.add("GATHER", [indices], shape, options="GatherOptions", fields={"Axis": axis})

    def depth(self) -> None:
        n, height, width, channels = self.image()
        if height % 2 == 0 and width % 2 == 0:
            self.add("SPACE_TO_DEPTH", [], (n, height // 2, width // 2, 4 * channels), options="SpaceToDepthOptions",
                     fields={"BlockSize": 2})
        elif channels % 4 == 0:
            self.add("DEPTH_TO_SPACE", [], (n, height * 2, width * 2, channels // 4), options="DepthToSpaceOptions",
                     fields={"BlockSize": 2})

    def nearest(self, kind: str = "NearestNeighbor") -> None:
        (n, _, _, channels), size = self.image(), (self.number(1, 9), self.number(1, 9))
        corners, half = self.one_of((0, 0), (1, 0), (0, 1))
        name = {"NearestNeighbor": "RESIZE_NEAREST_NEIGHBOR", "Bilinear": "RESIZE_BILINEAR"}[kind]
        self.add(name, [self.plain(size)], (n, *size, channels), options=f"Resize{kind}Options",
                 fields={"AlignCorners": corners, "HalfPixelCenters": half})

    def bilinear(self) -> None:
        self.nearest("Bilinear")

    def quantize(self) -> None:
        before = self.dtype
        self.dtype = "int16" if before == "int16" else self.one_of("int8", "uint8")
        self.add("QUANTIZE", [], self.x.shape, self.fitting(self.size))

    # --- ends --------------------------------------------------------------------------------------------------------

    def finish(self, kind: str, more, shape, dtype: str, options: str = "", fields: dict | None = None) -> None:
        self.tensors["end"] = Tensor(tuple(shape), dtype)
        self.operators.append((kind, options, fields or {}, [self.name, *more], ["end"]))
        self.name = "end"

    def dequantize(self) -> None:
        self.finish("DEQUANTIZE", [], self.x.shape, "float32")

    def arg(self) -> None:
        if self.dtype == "int16":
            return self.dequantize()
        axis = self.number(0, len(self.x.shape) - 1)
        shape = [extent for index, extent in enumerate(self.x.shape) if index != axis]
        kind, options = self.one_of(("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions"))
        return self.finish(kind, [self.plain(axis)], shape, "int32", options, {"OutputType": 2})

    def compare(self) -> None:
        if self.dtype == "int16" or self.x.scale >= 1:  # LiteRT shifts numbers of such scales by less than 0 bits
            return self.dequantize()
        other = self.constant(self.x.shape[-1:], self.x.scale)
        return self.finish(self.one_of("GREATER", "LESS_EQUAL", "EQUAL"), [other], self.x.shape, "bool")
