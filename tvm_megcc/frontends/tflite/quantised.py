# SPDX-License-Identifier: Apache-2.0
"""Quantised operators of 8 bits, in integers: the bits of LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import ShapeError
from ...ir.dims import floordiv, product
from ...ir.expr import Expr, X, arg, call, clip
from ...ops import softmax_fixed
from ...ops.elementwise import emit_broadcast
from ...ops.windows import output_extent, window_attrs
from . import fixed
from .file import Quantization, Tensor
from .fixed import Multiplier, Range
from .moves import joined, padded
from .node import IMPORTERS, Importer, Node, Results, Unsupported
from .value import IMAGES, Order, Value
from .windows import channels, windows

BYTES = ("int8", "uint8")
#: Importers of operators with quantised operands or results.
QUANTISED: dict[str, Importer] = {}

#: Operators that move numbers or choose among them, and do not mind what they stand for.
MOVES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SPLIT", "SPLIT_V", "UNPACK", "PACK", "SLICE", "TILE",
         "STRIDED_SLICE", "GATHER", "GATHER_ND", "BROADCAST_TO", "REVERSE_V2", "MIRROR_PAD", "SPACE_TO_DEPTH",
         "DEPTH_TO_SPACE", "EMBEDDING_LOOKUP", "RESIZE_NEAREST_NEIGHBOR", "ARG_MAX", "ARG_MIN", "SHAPE", "RANK")


def quantised(*kinds: str):
    """A decorator that registers an importer of quantised operators."""
    def add(function: Importer) -> Importer:
        QUANTISED.update(dict.fromkeys(kinds, function))
        return function
    return add


def of_tensor(tensor: Tensor | None, dtypes: Sequence[str] = BYTES) -> Quantization:
    """The one scale of a tensor of 8 bits."""
    if tensor is None or tensor.dtype not in dtypes or tensor.quantization is None:
        raise Unsupported(f"an operand or result of {'nothing' if tensor is None else tensor.dtype} beside quantised "
                          "ones is not supported")
    if len(tensor.quantization.scale) != 1 or not tensor.quantization.scale[0] > 0:
        raise Unsupported(f"{tensor.dtype} with {len(tensor.quantization.scale)} scales is not supported here")
    low, high = fixed.limits(tensor.dtype)
    if not low <= tensor.quantization.zero_point[0] <= high:
        raise ShapeError(f"its zero point {tensor.quantization.zero_point[0]} is no {tensor.dtype}")
    return tensor.quantization


def operand(node: Node, index: int) -> Quantization:
    return of_tensor(node.tensors[index] if index < len(node.tensors) else None)


def result(node: Node) -> Quantization:
    return of_tensor(node.results[0])


def zero(quantization: Quantization) -> int:
    return int(quantization.zero_point[0])


def activation(node: Node) -> Range:
    """Range of the results behind the fused activation."""
    found = fixed.activation_range(node.option("FusedActivationFunction", 0), node.results[0].dtype, result(node))
    if found is None:
        raise Unsupported(f"its fused activation {node.option('FusedActivationFunction')} is not supported")
    return found


def typed(node: Node, expr: Expr, *names: str) -> str:
    """An expression over integers, of the result's element type."""
    return emit_broadcast(node.spelled(), "elementwise", names, expr=expr, dtype=node.results[0].dtype)[0]


def rescaled(expr: Expr, factor: Multiplier) -> Expr:
    if factor.shift > 30:
        raise Unsupported(f"its scales differ by a factor of 2^{factor.shift}")
    return call("rescale_fixed", expr, factor.significand, factor.shift)


# --- products --------------------------------------------------------------------------------------------------------

def requantised(node: Node, sums: str, factors: Sequence[Multiplier], axes_behind: int, how: str) -> str:
    """Sums of products as results; with several factors they are those of channels. how: the function."""
    within, end = activation(node), zero(result(node))
    if max(factor.shift for factor in factors) > 30:
        raise Unsupported("its scales differ too much")
    if len(set(factors)) == 1:
        return typed(node, clip(call(how, X, *factors[0]) + end, *within), sums)
    parts = (np.array(part, np.int32).reshape(-1, *(1,) * axes_behind) for part in zip(*factors, strict=True))
    expr = clip(call(how, X, arg(1), arg(2)) + end, *within)
    return typed(node, expr, sums, *map(node.spelled().constant, parts))


def weights(node: Node, axis: int) -> Quantization:
    """Those of operand 1: one scale, or one for each element of an axis, and one zero point."""
    tensor = node.tensors[1]
    quantization = None if tensor is None else tensor.quantization
    if tensor is None or tensor.dtype not in BYTES or quantization is None:
        raise Unsupported("its weights are not quantised to 8 bits")
    several = len(quantization.scale) != 1
    if (several and (quantization.axis != axis or quantization.zero_point.any())) or not (quantization.scale > 0).all():
        raise Unsupported("its weights have scales or zero points that are not supported")
    if not several:
        of_tensor(tensor)
    return quantization


def bias(node: Node, index: int) -> str:
    if not node.has(index):
        return ""
    if node.type(index).dtype != "int32":
        raise Unsupported(f"a bias of {node.type(index).dtype} is not supported")
    return node.plain(index)


@quantised("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(node: Node) -> Results:
    depthwise = node.kind == "DEPTHWISE_CONV_2D"
    x, own = operand(node, 0), weights(node, 3 if depthwise else 0)
    image = channels(node)
    w = node.images(node.value(1), (3, 0, 1, 2) if depthwise else IMAGES[4])
    inputs, (outputs, each) = node.type_of(image).shape[1], node.type_of(w).shape[:2]
    if not isinstance(inputs, int) or not inputs or not each or (outputs % inputs or each != 1 if depthwise
                                                                 else inputs % each):
        raise ShapeError(f"weights {node.type(1)} for {node.type(0)}")
    attrs = window_attrs(node.spelled("Conv", (image, w), windows(node)), node.type_of(w).shape[2:])
    attrs.pop("kernel"), attrs.pop("ceil")
    operands = [image, w, *filter(None, (bias(node, 2),))]
    sums = node.emit("conv2d_integer", *operands, **attrs, groups=inputs // each, x_zero=zero(x), w_zero=zero(own))
    factors = fixed.products(x, own, result(node), node.type(0).dtype == "int8")
    return [node.made(requantised(node, sums, factors, 2, "rescale_fixed"), IMAGES[4])]


@quantised("FULLY_CONNECTED")
def fully_connected(node: Node) -> Results:
    """Its kernel in LiteRT rounds once, where all others round the high half of the product and then the shift."""
    if node.option("WeightsFormat", 0):
        raise Unsupported("its weights are shuffled, which is not supported")
    x, own, shape = operand(node, 0), weights(node, 0), node.type(0).shape
    if node.type(1).rank != 2:
        raise ShapeError(f"weights {node.type(1)} are no matrix")
    outputs, inputs = node.type(1).shape
    keeps = bool(node.option("KeepNumDims", False)) and bool(shape) and shape[-1] == inputs
    rows = product(shape[:-1]) if keeps else floordiv(product(shape), inputs) if inputs else 0
    matrix = node.in_order(node.reshaped(node.value(0), (rows, inputs)))
    sums = node.emit("matmul_integer", matrix, node.plain(1), *filter(None, (bias(node, 2),)), trans_a=0, trans_b=1,
                     a_zero=zero(x), b_zero=zero(own))
    factors = fixed.products(x, own, result(node), len(own.scale) > 1)
    value = node.made(requantised(node, sums, factors, 0, "rescale_once"))
    return [node.reshaped(value, (*shape[:-1], outputs))] if keeps else [value]


# --- elementwise -----------------------------------------------------------------------------------------------------

#: Bits by which operands of sums are scaled up.
_UP = 20


def _same_types(node: Node) -> str:
    dtypes = {tensor.dtype for tensor in (*node.tensors, *node.results) if tensor is not None}
    if len(dtypes) != 1 or not dtypes <= {*BYTES}:
        raise Unsupported(f"{node.kind} of {', '.join(sorted(dtypes))} is not supported")
    return dtypes.pop()


@quantised("ADD", "SUB")
def sum_(node: Node) -> Results:
    """Both operands in a common scale of 2^20 steps for each of the coarser one's, then in the result's."""
    _same_types(node)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    twice = 2 * max(fixed.scale(a), fixed.scale(b))
    terms = [rescaled((arg(index) - zero(each)) * 2**_UP, fixed.multiplier(fixed.scale(each) / twice))
             for index, each in enumerate((a, b))]
    total = terms[0] + terms[1] if node.kind == "ADD" else terms[0] - terms[1]
    down = fixed.multiplier(twice / (2**_UP * fixed.scale(y)))
    expr = clip(rescaled(total, down) + zero(y), *activation(node))
    return [_elementwise(node, expr)]


@quantised("MUL")
def mul(node: Node) -> Results:
    _same_types(node)
    a, b, y = operand(node, 0), operand(node, 1), result(node)
    factor = fixed.multiplier(float(a.scale[0] * b.scale[0] / y.scale[0]))
    expr = rescaled((X - zero(a)) * (arg(1) - zero(b)), factor)
    return [_elementwise(node, clip(expr + zero(y), *activation(node)))]


def _elementwise(node: Node, expr: Expr) -> Value:
    def make(names: list[str], order: Order) -> str:
        return typed(node, expr, *names)

    return node.alike(node.values, make)


@quantised("MAXIMUM", "MINIMUM")
def extreme(node: Node) -> Results:
    require_same_scales(node)
    return [_elementwise(node, call({"MAXIMUM": "max", "MINIMUM": "min"}[node.kind], X, arg(1)))]


def require_same_scales(node: Node) -> None:
    """Raises Unsupported where quantised operands and results do not all stand for the same reals."""
    found = [tensor for tensor in (*node.tensors, *node.results) if tensor is not None and tensor.quantization]
    pairs = {(tensor.dtype, of_tensor(tensor).scale[0].item(), zero(of_tensor(tensor))) for tensor in found}
    if len(pairs) > 1:
        raise Unsupported("its operands and results have different scales")


def looked_up(node: Node, table: np.ndarray, value: Value) -> Value:
    """A table at the numbers of 8 bits of a value."""
    low = fixed.limits(value.type.dtype).low
    index = node.emit("elementwise", value.name, expr=X - low, dtype="int32")
    return node.made(node.emit("gather", node.spelled().constant(table), index, axis=0), value.order)


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "LOGISTIC": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)), "TANH": np.tanh, "EXP": np.exp}


@quantised(*_FUNCTIONS)
def function(node: Node) -> Results:
    table = fixed.table(_FUNCTIONS[node.kind], operand(node, 0), _same_types(node), result(node), node.results[0].dtype)
    return [looked_up(node, table, node.value(0))]


@quantised("LEAKY_RELU")
def leaky_relu(node: Node) -> Results:
    table = fixed.leaky_table(operand(node, 0), _same_types(node), result(node), float(node.option("Alpha")))
    return [looked_up(node, table, node.value(0))]


#: Activations that are operators, as fused ones.
_CLAMPS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}


@quantised(*_CLAMPS)
def relu(node: Node) -> Results:
    dtype, x, y = _same_types(node), operand(node, 0), result(node)
    within = fixed.activation_range(_CLAMPS[node.kind], dtype, y)
    assert within is not None
    factor = fixed.multiplier(float(x.scale[0] / y.scale[0]))
    return [_elementwise(node, clip(rescaled(X - zero(x), factor) + zero(y), *within))]


@quantised("QUANTIZE")
def quantize(node: Node) -> Results:
    """Reals, or numbers of another scale."""
    y, within = result(node), fixed.limits(node.results[0].dtype)
    if node.type(0).dtype == "float32":
        # The largest float below a half: added to a half it makes one, to what is less it does not.
        real = clip(X / float(y.scale[0]), within.low - zero(y), within.high - zero(y))
        size = call("floor", call("abs", real) + 0.49999997)
        return [_elementwise(node, call("nearest", call("if_lt", real, 0, -size, size)) + zero(y))]
    x = operand(node, 0)
    factor = fixed.multiplier(fixed.scale(x) / fixed.scale(y))
    return [_elementwise(node, clip(rescaled(X - zero(x), factor) + zero(y), *within))]


@quantised("DEQUANTIZE")
def dequantize(node: Node) -> Results:
    tensor = node.tensors[0]
    if tensor is None or tensor.quantization is None or node.results[0].dtype != "float32":
        raise Unsupported("it has no scale, or does not give float32")
    value, given = node.value(0), tensor.quantization
    several = len(given.scale) > 1
    scales = node.spelled().constant(given.scale if several else given.scale.reshape(()))
    points = given.zero_point.astype(value.type.dtype)
    name = node.emit("dequantize_linear", value.name, scales,
                     node.spelled().constant(points if several else points.reshape(())),
                     axis=value.order.index(given.axis) if several else 0, block=0, dtype="float32")
    return [node.made(name, value.order)]


# --- windows, sums, other moves --------------------------------------------------------------------------------------

@quantised("MAX_POOL_2D")
def max_pool(node: Node) -> Results:
    require_same_scales(node)
    attrs = {**windows(node), "kernel_shape": [node.option("FilterHeight"), node.option("FilterWidth")]}
    (y,) = node.onnx("MaxPool", channels(node), **attrs)
    within = activation(node)
    if within != fixed.limits(node.results[0].dtype):
        y = typed(node, clip(X, *within), y)
    return [node.made(y, IMAGES[4])]


#: Sums of so many numbers of 8 bits, and halves between them, are exact in float32.
_MOST_COUNTED = 2**15


@quantised("AVERAGE_POOL_2D")
def average_pool(node: Node) -> Results:
    """Sums in float32, which are exact, over how many there are, halves away from zero."""
    require_same_scales(node)
    image, kernel = channels(node), (node.option("FilterHeight"), node.option("FilterWidth"))
    attrs = window_attrs(node.spelled("AveragePool", (image,), windows(node)), kernel)
    if kernel[0] * kernel[1] >= _MOST_COUNTED:
        raise Unsupported(f"windows of {kernel[0]} x {kernel[1]} are not supported")
    real = node.emit("elementwise", image, expr=call("real", X), dtype="float32")
    sums = node.emit("sum_pool", real, **attrs)
    counts = [_counts(node, extent, *(attrs[name][axis] for name in ("kernel", "strides")), attrs["pads"][axis::2])
              for axis, extent in enumerate(node.type_of(image).shape[2:])]
    count = np.outer(*counts)
    # (|sum| + count // 2) // count: half a unit more keeps the quotient off whole numbers.
    half = (count // 2 + 0.5).astype(np.float32)
    within = activation(node)
    if (count == count[0, 0]).all():
        size = call("floor", (call("abs", X) + float(half[0, 0])) / float(count[0, 0]))
        operands: list[str] = []
    else:
        size = call("floor", (call("abs", X) + arg(1)) / arg(2))
        operands = [node.spelled().constant(table[None, None]) for table in (half, count.astype(np.float32))]
    expr = clip(call("nearest", call("if_lt", X, 0, -size, size)), *within)
    return [node.made(typed(node, expr, sums, *operands), IMAGES[4])]


def _counts(node: Node, extent, kernel: int, stride: int, pads: tuple[int, int]) -> np.ndarray:
    """How many elements of an axis each window has."""
    if not isinstance(extent, int):
        if any(pads):
            raise Unsupported(f"average pools with pads over a symbolic extent {extent} are not supported")
        return np.array([kernel])
    positions = output_extent(extent, kernel, stride, 1, *pads)
    node.require_room(positions)
    begins = np.arange(positions) * stride - pads[0]
    return np.minimum(begins + kernel, extent) - np.maximum(begins, 0)


@quantised("MEAN")
def mean(node: Node) -> Results:
    value, x, y = node.value(0), operand(node, 0), result(node)
    axes = node.axes(1, len(value.order))
    count = product(value.type.shape[axis] for axis in axes)
    if not isinstance(count, int) or not 0 < count < 2**22:
        raise Unsupported(f"the mean of {count} numbers is not supported")
    wide = node.emit("elementwise", value.name, expr=X - zero(x), dtype="int32")
    total = node.emit("reduce_sum", wide, axes=tuple(sorted(value.order.index(axis) for axis in axes)), keepdims=True)
    expr = rescaled(X, fixed.mean_multiplier(x, y, count)) + zero(y)
    made = node.made(typed(node, expr, total), value.order)
    return [made if node.option("KeepDims") else node.without(made, axes)]


@quantised("SOFTMAX")
def softmax(node: Node) -> Results:
    """Along the last axis; the result is in steps of 1 / 256."""
    dtype, y, value = _same_types(node), result(node), node.value(0)
    if y.scale[0] != np.float32(1 / 256) or zero(y) != fixed.limits(dtype).low:
        raise Unsupported("its result is not in steps of 1 / 256 from the least number on")
    axis = value.order.index(len(value.order) - 1)
    powers = softmax_fixed.table(float(np.float32(node.option("Beta"))), fixed.scale(operand(node, 0)))
    return [node.made(node.emit("softmax_fixed", value.name, node.spelled().constant(powers), axis=axis), value.order)]


@quantised("CONCATENATION")
def concatenation(node: Node) -> Results:
    """Operands of uint8 may have scales of their own."""
    y, dtype = result(node), _same_types(node)
    values = []
    for index, value in enumerate(node.values):
        x = operand(node, index)
        if (x.scale[0], zero(x)) != (y.scale[0], zero(y)):
            if dtype != "uint8":
                raise Unsupported("its operands have different scales")
            value = looked_up(node, fixed.rescaled_table(x, dtype, y, dtype), value)
        values.append(value)
    axis = node.option("Axis")
    rank = len(values[0].order)
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of {values[0].type}")
    return [joined(node, values, axis % rank)]


@quantised("PAD", "PADV2")
def pad(node: Node) -> Results:
    """PAD adds what stands for 0."""
    y = result(node)
    fill = node.const(2, "constant_values").reshape(-1)[0].item() if node.has(2) else zero(y)
    return [padded(node, fill)]


def importer_of(kind: str, tensors: Sequence[Tensor]) -> Importer:
    """What imports an operator on some tensors.

    Raises:
        Unsupported: where nothing does.
    """
    if kind not in IMPORTERS and kind not in QUANTISED:
        raise Unsupported("this operator is not supported")
    if all(tensor.quantization is None for tensor in tensors):
        if kind not in IMPORTERS:
            raise Unsupported("is supported for quantised numbers only")
        return IMPORTERS[kind]
    if kind in MOVES:
        return _moved
    if kind not in QUANTISED:
        raise Unsupported("is not supported for quantised numbers")
    return QUANTISED[kind]


def _moved(node: Node) -> Results:
    require_same_scales(node)
    return IMPORTERS[node.kind](node)
