# SPDX-License-Identifier: Apache-2.0
"""Random TFLite files of one operator, over everything that the format's schema allows: plain and quantised types,
ranks 0 to 5, extents of 0 and 1, broadcasting, negative axes, options, constants and repeated operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tflite

from tests.tflite_draws import Draw
from tests.tflite_files import Quantized, Tensor, written

#: Element types. A quantised one has a q before its name.
REALS, INTEGERS, PLAIN = ("float32",), ("int32", "int64"), ("int8", "uint8", "int16")
BYTES, QUANTIZED = ("qint8", "quint8"), ("qint8", "quint8", "qint16")
ANY = (*REALS, *INTEGERS, "bool", *PLAIN, *QUANTIZED)


@dataclass(frozen=True)
class Spec:
    """A TFLite file of one operator before it is written.

    kind: the operator. label: for messages. tensors, operators: as `written` takes them. feeds: the inputs.
    """

    kind: str
    label: str
    tensors: dict
    operators: list[tuple]
    inputs: list[str]
    outputs: list[str]
    feeds: dict[str, np.ndarray]

    @property
    def data(self) -> bytes:
        return written(self.tensors, self.operators, self.inputs, self.outputs)

    def with_shapes(self, results: dict[str, np.ndarray]) -> Spec:
        """Returns the file with the shapes of these results, which LiteRT computed."""
        tensors = {name: value if name not in results else replace(value, shape=results[name].shape)
                   for name, value in self.tensors.items()}
        return replace(self, tensors=tensors)


def merged(specs: Sequence[Spec]) -> Spec:
    """Merges files into one. Names of tensors get the index of their file as a prefix."""
    tensors, operators, feeds = {}, [], {}
    for place, spec in enumerate(specs):
        def own(names: Sequence[str], place: int = place) -> list[str]:
            return [f"{place}.{name}" if name else "" for name in names]

        tensors.update(zip(own(list(spec.tensors)), spec.tensors.values(), strict=True))
        feeds.update(zip(own(list(spec.feeds)), spec.feeds.values(), strict=True))
        for kind, options, fields, read, made, *rest in spec.operators:
            rest = [{**more, "intermediates": own(more.get("intermediates", ()))} for more in rest]
            operators.append((kind, options, fields, own(read), own(made), *rest))
    outputs = [f"{place}.{name}" for place, spec in enumerate(specs) for name in spec.outputs]
    return Spec("", "", tensors, operators, list(feeds), outputs, feeds)


class Case(Draw):
    """Random choices for a file of one operator.

    dtype: the element type, with a q before it if it is quantised. least, most: the range of float inputs. limits: the
    ranges of integer inputs by name. values: inputs that are not random, by name.
    """

    def __init__(self, kind: str, dtype: str, seed: int):
        super().__init__(kind, seed)
        self.random = np.random.default_rng([seed, *kind.encode(), *dtype.encode()])
        self.quantised, self.dtype = dtype[0] == "q", dtype.removeprefix("q")
        self.label = f"{kind} {dtype} {seed}"
        self.least, self.most, self.limits = -9.0, 9.0, dict[str, tuple[int, int]]()
        self.values: dict[str, np.ndarray] = {}

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def shape(self, low: int = 0, high: int = 5, extents: Sequence[int] = (1, 1, 2, 3, 4, 5, 9)) -> tuple[int, ...]:
        """Returns a random shape of `low` to `high` axes. One shape of a hundred has an extent of 0."""
        shape = [self.one_of(*extents) for _ in range(self.number(low, high))]
        if shape and self.often(0.01):
            shape[self.number(0, len(shape) - 1)] = 0
        return tuple(shape)

    def x(self, name: str, shape, dtype: str = "", scale: float = 0.0, zero: int | None = None, like: str = "") -> str:
        """Adds an operand or result and returns its name. dtype: by default the case's. like: an operand with the same
        scale and zero point."""
        if dtype or not self.quantised:
            self.tensors[name] = Tensor(tuple(shape), dtype or self.dtype)
        elif like:
            other = self.tensors[like]
            self.tensors[name] = replace(other, shape=tuple(shape))
        else:
            self.add(name, shape, scale, zero)
        return name

    y = x

    def axis(self, rank: int) -> int:
        return self.number(-rank, rank - 1) if rank else 0

    def axes(self, rank: int) -> tuple[int, ...]:
        """Returns some axes in random order, some of them negative."""
        chosen = [axis for axis in range(rank) if self.often(0.5)]
        return tuple(axis - rank if self.often(0.3) else axis for axis in self.random.permutation(chosen).tolist())

    def ints(self, name: str, values, dtype: str = "int32") -> str:
        self.tensors[name] = np.array(values, dtype)
        return name

    def fed(self, name: str) -> np.ndarray:
        """Returns the values of an operand."""
        value = self.tensors[name]
        if name in self.values:
            return self.values[name]
        dtype = np.dtype(value.dtype)
        if dtype == np.bool_:
            return self.random.random(value.shape) < 0.5
        if dtype.kind == "f":
            drawn = self.random.uniform(self.least, self.most, value.shape)
            return (np.rint(drawn * 2) / 2 if self.even else drawn).astype(dtype)
        low, high = self.limits.get(name, ((-99, 99) if dtype.itemsize > 2 and not self.often(0.1) else
                                           (np.iinfo(dtype).min, np.iinfo(dtype).max)))
        low, high = max(low, np.iinfo(dtype).min), min(high, np.iinfo(dtype).max)
        drawn = self.random.integers(low, high, value.shape, dtype=dtype, endpoint=True)
        if drawn.size > 1:
            drawn.flat[:2] = low, high
        return drawn

    def spec(self, options: str, fields: dict, read: Sequence[str], made: Sequence[str], constants: float = 0.2,
             again: bool = False, **more) -> Spec:
        """Returns the file. options, fields: the options table. read, made: names of operands and results. constants:
        the share of operands after the first that become constants. again: whether both operands may be the same
        tensor."""
        read, feeds = list(read), {}
        if again and self.often(0.1):
            read[1] = read[0]
        operands = [name for name in dict.fromkeys(read) if name and not isinstance(self.tensors[name], np.ndarray)
                    and getattr(self.tensors[name], "array", None) is None
                    and not getattr(self.tensors[name], "variable", False)]
        for index, name in enumerate(operands):
            array = self.fed(name)
            if index and self.often(constants):
                value = self.tensors[name]
                self.tensors[name] = replace(value, array=array) if isinstance(value, Quantized) else array
            else:
                feeds[name] = array
        kind = self.kind.replace("CUSTOM ", ":")
        tensors = {name: value for name, value in self.tensors.items()
                   if name in {*read, *made, *more.get("intermediates", ())}}
        call = (kind, options, fields, read, list(made), *([more] if more else []))
        return Spec(self.kind, self.label, tensors, [call], list(feeds), list(made), feeds)

    def file(self, options, fields, read, made, **more) -> Spec:
        """Overrides `Draw.file`, so that the functions of `tflite_draws` return a `Spec`."""
        feeds = Draw.feeds(self)
        self.values.update(feeds)
        for name, value in self.tensors.items():
            if isinstance(value, tuple):
                self.tensors[name] = Tensor(value)
        return self.spec(options, fields, read, made, constants=0, **more)


@dataclass(frozen=True)
class Rule:
    draw: Callable[[Case], Spec]
    dtypes: tuple[str, ...]


RULES: dict[str, Rule] = {}


def rule(*kinds: str, of: Sequence[str] = ANY):
    def add(function: Callable[[Case], Spec]) -> Callable[[Case], Spec]:
        RULES.update(dict.fromkeys(kinds, Rule(function, tuple(of))))
        return function
    return add


# --- elements ---------------------------------------------------------------------------------------------------------

#: Ranges of inputs of functions that are not defined, or not precise, for all numbers.
_WITHIN = {"LOG": (1e-3, 9), "SQRT": (0, 9), "RSQRT": (1e-3, 9), "EXP": (-9, 5), "SIN": (-30, 30), "COS": (-30, 30)}


@rule("ABS", "NEG", "SIGN", "EXP", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "LOGISTIC", "TANH", "RELU", "RELU6",
      "RELU_N1_TO_1", "RELU_0_TO_1", "HARD_SWISH", "ELU", "SQUARE", "ZEROS_LIKE", "LOG", "SQRT", "RSQRT", "LEAKY_RELU",
      "GELU", of=(*REALS, *INTEGERS, *QUANTIZED))
def unary(case: Case) -> Spec:
    case.least, case.most = _WITHIN.get(case.kind, (-9, 9))
    shape = case.shape() if not case.quantised or case.often(0.3) else (256,)
    scale, zero = 0.0, None
    if case.quantised:
        case.x("x", shape, scale=case.scale(1e-3, 0.2), zero=0 if case.dtype == "int16" else None)
        if case.kind in ("RSQRT", "SQRT", "LOG") and case.often(0.8):  # LiteRT ends where a number is negative
            case.x("x", shape, scale=case.scale(1e-3, 0.2), zero=int(np.iinfo(case.dtype).min))
            if case.dtype == "int16":
                case.tensors["x"] = replace(case.tensors["x"], zero_point=0)
                case.limits["x"] = (1, 2**15 - 1)
        scale = case.tensors["x"].scale * case.scale(0.1, 10)
        least = int(np.iinfo(case.dtype).min)
        ends = {"LOGISTIC": (2**-15, 0), "TANH": (2**-15, 0)} if case.dtype == "int16" else \
            {"LOGISTIC": (1 / 256, least), "TANH": (1 / 128, least + 128)}
        scale, zero = ends.get(case.kind, (scale, None))
    else:
        case.x("x", shape)
    case.y("y", shape, scale=scale, zero=zero)
    options, fields = {"LEAKY_RELU": ("LeakyReluOptions", {"Alpha": case.scale(1e-2, 2)}),
                       "GELU": ("GeluOptions", {"Approximate": case.often(0.5)})}.get(case.kind, ("", {}))
    return case.spec(options, fields, ["x"], ["y"])


def broadcast(case: Case, high: int = 5) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = list(case.shape(0, high))
    other = [1 if case.often(0.2) else extent for extent in shape]
    other = other[case.number(0, len(shape)) if case.often(0.4) else 0:]
    one = [1 if case.often(0.1) else extent for extent in shape]
    pair = (tuple(one), tuple(other))
    return pair if case.often(0.7) else pair[::-1]


_ARITHMETIC = ("ADD", "SUB", "MUL", "DIV")
_COMPARED = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


@rule(*_ARITHMETIC, "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "POW", "BITWISE_XOR",
      "RIGHT_SHIFT", *_COMPARED, "LOGICAL_AND", "LOGICAL_OR", of=(*REALS, *INTEGERS, "bool", *QUANTIZED))
def binary(case: Case) -> Spec:
    a, b = broadcast(case)
    kind, shape = case.kind, np.broadcast_shapes(a, b)
    case.x("x0", a), case.x("x1", b, like="x0" if kind in ("MAXIMUM", "MINIMUM") or case.often(0.2) else "")
    scale, like, fields = 0.0, "", {}
    if kind in ("DIV", "FLOOR_DIV", "FLOOR_MOD", "RIGHT_SHIFT") and not case.quantised:
        case.limits["x1"] = (1, 9) if case.often(0.5) or kind == "RIGHT_SHIFT" or case.dtype[0] == "u" else (-9, -1)
    if kind == "POW":
        case.limits.update(x0=(-3, 3), x1=(0, 5))
        case.least, case.most = 0.1, 4
    if kind == "MUL" and case.dtype == "int64":
        case.limits.update(x0=(-2**31, 2**31), x1=(-2**31, 2**31))
    if case.quantised and kind not in _COMPARED:
        x0, x1 = case.tensors["x0"], case.tensors["x1"]
        if kind == "DIV":
            for name, value in (("x0", x0), ("x1", x1)):
                # LiteRT shifts by more bits than there are where results are far below a step.
                least, most = int(np.iinfo(case.dtype).min), int(np.iinfo(case.dtype).max)
                near = (most - least) // 8 if name == "x0" else 1
                case.limits[name] = (value.zero_point + near, most) if value.zero_point < 2 * near else \
                    (least, value.zero_point - near)
        size = {"MUL": 100 * x0.scale * x1.scale, "DIV": x0.scale / x1.scale / 1500,
                "SQUARED_DIFFERENCE": 100 * max(x0.scale, x1.scale)**2}.get(kind, max(x0.scale, x1.scale))
        scale = size * case.scale(0.3, 20)
        like = "x0" if kind in ("MAXIMUM", "MINIMUM") else ""
    if kind in _ARITHMETIC:
        fields = {"FusedActivationFunction": case.number(0, 3) if case.often(0.5) else 0}
    if kind in _COMPARED:
        case.y("y", shape, "bool")
    else:
        case.y("y", shape, scale=scale, like=like)
    return case.spec(f"{kind.title()}Options" if kind in _ARITHMETIC else "", fields, ["x0", "x1"], ["y"], again=True)


@rule("LOGICAL_NOT", of=("bool",))
def logical_not(case: Case) -> Spec:
    shape = case.shape()
    case.x("x", shape), case.y("y", shape)
    return case.spec("", {}, ["x"], ["y"])


@rule("ADD_N", of=(*REALS, "int32"))
def add_n(case: Case) -> Spec:
    shape, names = case.shape(), [f"x{index}" for index in range(case.number(2, 4))]
    for name in names:
        case.x(name, shape)
    case.y("y", shape)
    return case.spec("", {}, names, ["y"], again=True)


@rule("SELECT", "SELECT_V2")
def select(case: Case) -> Spec:
    if case.kind == "SELECT":
        shape = case.shape(1)
        condition, a, b = case.one_of(shape, shape, shape[:1], ()), shape, shape
    else:
        (condition, a), b = broadcast(case, 4), case.shape(0, 0)
        b = a if case.often(0.5) else b
    case.x("x", condition, "bool"), case.x("x0", a), case.x("x1", b, like="x0")
    case.y("y", (), like="x0")
    return case.spec("", {}, ["x", "x0", "x1"], ["y"])


_TYPES = ("float32", "int32", "int64", "bool", "uint8", "int8", "int16", "float64", "float16", "uint32", "uint16")


@rule("CAST", of=_TYPES)
def cast(case: Case) -> Spec:
    shape, to = case.shape(), case.one_of(*_TYPES)
    if to[0] == "u" or case.dtype[0] == "u":
        case.least, case.limits["x"] = 0, (0, 100)
    case.x("x", shape), case.y("y", shape, to)
    types = {name: getattr(tflite.TensorType, each.upper())
             for name, each in (("InDataType", case.dtype), ("OutDataType", to))}
    return case.spec("CastOptions", types, ["x"], ["y"])


@rule("QUANTIZE", of=(*REALS, *QUANTIZED))
def quantize(case: Case) -> Spec:
    shape = case.shape()
    case.x("x", shape)
    scale = getattr(case.tensors["x"], "scale", 0.2) * case.scale(0.02, 50)
    dtype = case.one_of("int8", "uint8", "int16")
    case.add("y", shape, scale, dtype=dtype)
    return case.spec("", {}, ["x"], ["y"])


@rule("DEQUANTIZE", of=(*QUANTIZED, "float16"))
def dequantize(case: Case) -> Spec:
    shape = case.shape()
    case.x("x", shape), case.y("y", shape, "float32")
    return case.spec("", {}, ["x"], ["y"])


@rule("PRELU", of=(*REALS, *BYTES))
def prelu(case: Case) -> Spec:
    shape = case.shape(1, 4)
    case.x("x0", shape), case.x("x1", [1 if case.often(0.5) else extent for extent in shape[1:]])
    case.y("y", shape, scale=getattr(case.tensors["x0"], "scale", 0.1) * case.scale(0.3, 3))
    return case.spec("", {}, ["x0", "x1"], ["y"])


# --- along axes -------------------------------------------------------------------------------------------------------


@rule("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL",
      of=(*REALS, *INTEGERS, "bool", *QUANTIZED))
def reduced(case: Case) -> Spec:
    shape, keep = case.shape(), case.often(0.5)
    axes = case.axes(len(shape))
    case.x("x", shape)
    if case.kind == "REDUCE_PROD":
        case.least, case.most, case.limits["x"] = -2, 2, (-3, 3)
    if case.quantised and case.kind == "REDUCE_PROD":
        case.limits.pop("x")
    like = "x" if case.kind in ("REDUCE_MAX", "REDUCE_MIN") else ""
    case.y("y", (), scale=getattr(case.tensors["x"], "scale", 1) * case.scale(0.1, 20), like=like)
    case.ints("axes", axes[0] if len(axes) == 1 and case.often(0.3) else axes)
    return case.spec("ReducerOptions", {"KeepDims": keep}, ["x", "axes"], ["y"])


@rule("ARG_MAX", "ARG_MIN", of=(*REALS, "int32", "bool", "int8", "uint8", *BYTES))
def arg(case: Case) -> Spec:
    shape, dtype = case.shape(1), case.one_of("int32", "int64")
    case.x("x", shape), case.ints("axis", case.axis(len(shape))), case.y("y", (), dtype)
    return case.spec(f"{case.kind.title().replace('_', '')}Options",
                     {"OutputType": getattr(tflite.TensorType, dtype.upper())}, ["x", "axis"], ["y"])


@rule("CUMSUM", of=(*REALS, *INTEGERS))
def cumsum(case: Case) -> Spec:
    shape = case.shape(1)
    case.x("x", shape), case.ints("axis", case.axis(len(shape))), case.y("y", shape)
    return case.spec("CumsumOptions", {"Exclusive": case.often(0.5), "Reverse": case.often(0.5)}, ["x", "axis"], ["y"])


@rule("TOPK_V2", of=(*REALS, *INTEGERS, *PLAIN, *QUANTIZED))
def top(case: Case) -> Spec:
    shape = case.shape(1)
    case.x("x", shape), case.ints("k", case.number(1, max(shape[-1], 1)))
    case.y("y", (), like="x"), case.y("z", (), "int32")
    return case.spec("TopKV2Options", {}, ["x", "k"], ["y", "z"])


@rule("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION", of=(*REALS, *QUANTIZED))
def normalised(case: Case) -> Spec:
    shape = case.shape(1, 4, (1, 2, 3, 10, 33))
    case.x("x", shape, scale=case.scale(1e-5, 1e-2) if case.dtype == "int16" else case.scale(1e-3, 2))
    least = int(np.iinfo(case.dtype).min) if case.quantised else 0
    ends = {"SOFTMAX": (2**-15, 0) if case.dtype == "int16" else (1 / 256, least), "LOG_SOFTMAX": (1 / 16, least + 255),
            "L2_NORMALIZATION": (1 / 128, least + 128)}
    case.y("y", shape, scale=ends[case.kind][0], zero=ends[case.kind][1])
    if case.kind == "SOFTMAX" and case.dtype == "int8" and case.often(0.2):
        case.add("y", shape, 2**-15, 0, "int16"), case.tensors.update(y=replace(case.tensors["y"], scale=1 / 65536))
        case.tensors["y"] = replace(case.tensors["y"], zero_point=-2**15)
    options = {"SOFTMAX": ("SoftmaxOptions", {"Beta": case.one_of(1.0, 0.5, 2.0)}),
               "L2_NORMALIZATION": ("L2NormOptions", {"FusedActivationFunction": 0})}
    return case.spec(*options.get(case.kind, ("", {})), ["x"], ["y"])


@rule("LOCAL_RESPONSE_NORMALIZATION", of=REALS)
def lrn(case: Case) -> Spec:
    shape = case.shape(4, 4)
    case.x("x", shape), case.y("y", shape)
    return case.spec("LocalResponseNormalizationOptions", {"Radius": case.number(0, 4), "Bias": case.scale(0.5, 2),
                                                           "Alpha": case.scale(0.1, 1), "Beta": case.scale(0.3, 1)},
                     ["x"], ["y"])
