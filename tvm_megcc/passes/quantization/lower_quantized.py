# SPDX-License-Identifier: Apache-2.0
"""Lowers operators between dequantize_linear and quantize_linear to integers.

    before                                             after
    clip(quantize(x))                                  quantize(clip(x))
    f(transpose(conv2d(dequantize(x), …)))             transpose(f(conv2d(dequantize(x), …)))
    data movement(dequantize(x))                       dequantize(data movement(x))
    quantize(data movement(x))                         data movement(quantize(x))
    product(dequantize(a), dequantize(b))              elementwise(integer product(a, b)), with int32 sums
    mean, sum, average pool(dequantize(x))             elementwise(integer sums(x)), with int32 sums
    quantize(softmax, norm or recurrent(dequantize(x)))    the layer on integers
    other dequantize, quantize                         elementwise

f is elementwise, dequantize or quantize (channels_first.py). Elementwise operators are then expressions over integers
and floats (ir/lanes.py). `fuse_elementwise` joins them, and `fuse_epilogues` moves them into the kernel of the product.
"""

from __future__ import annotations

import numpy as np

from ...context import Context
from ...ir.expr import Arg, Const, Expr, X, call, clip
from ...ir.graph import Attrs, Graph, Op
from ...ir.lanes import KINDS
from ...ir.types import TensorType
from ...ops.base import operator
from ...ops.cast import rounding
from ...ops.quantized.conv_matmul import INT8_TYPES, requantize_expr
from ..edit import Editor
from .channels_first import clip_first, move_transposes
from .constants import fold
from .data_movement import rise, sink
from .norms import lower_norms
from .recurrent import lower_recurrent
from .reductions import lower_sums
from .requantize import DEQUANTIZE, QUANTIZE, Parameters, Readers, finish_sums
from .softmax import lower_softmax

#: Kind of a product -> (kind of the integer product, its attributes for the zero points of the two operands).
PRODUCTS = {"conv2d": ("conv2d_integer", "x_zero", "w_zero"), "matmul": ("matmul_integer", "a_zero", "b_zero")}


def lower_quantised(graph: Graph, context: Context) -> Graph:
    """Lowers dequantize_linear and quantize_linear with constant parameters, and the operators between them, to
    integers."""
    if not any(op.kind in (DEQUANTIZE, QUANTIZE, "matmul_integer", "conv2d_integer") for op in graph.ops):
        return graph
    # First quantize and dequantize come next to the products and layers. Their operands are then constants or values of
    # dequantize, as the steps from _biases on match them. _expressions takes what these leave.
    for step in (clip_first, sink, move_transposes, rise, fold, _biases, _products, lower_sums, lower_softmax,
                 lower_norms, lower_recurrent, _divisions, _expressions):
        graph = step(graph, context)
    return graph


def _biases(graph: Graph, context: Context) -> Graph:
    """Turns the addition of a quantised per-channel constant to a product into the product's bias, with which the sums
    begin. TVM's ONNX importer writes a bias as an operator of its own."""
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind != "add":
            continue
        for name, added in (op.inputs, op.inputs[::-1]):
            product, bias = edit.producer(name), _integer_bias(edit, added)
            if product is None or product.kind not in PRODUCTS or any(product.inputs[2:]) or bias is None \
                    or not edit.is_read_once(name) or edit.types[name] != edit.types[op.outputs[0]]:
                continue
            axis = 1 if product.kind == "conv2d" else edit.types[name].rank - 1
            by_channel = [extent if index == axis else 1 for index, extent in enumerate(edit.types[name].shape)]
            shape = edit.types[added].shape
            if [1] * (len(by_channel) - len(shape)) + list(shape) == by_channel:
                vector = edit.constant(f"{added}.vector", edit.constants[bias.inputs[0]].reshape(-1))
                floats = edit.value(f"{added}.bias", TensorType("float32", edit.types[vector].shape))
                edit.replace(product)
                edit.replace(op, bias.with_(inputs=(vector, *bias.inputs[1:]), outputs=(floats,),
                                            attrs=Attrs(bias.attrs, axis=0)),
                             product.with_(inputs=(*product.inputs[:2], floats), outputs=op.outputs))
                break
    return edit.finish()


def _integer_bias(edit: Editor, name: str) -> Op | None:
    """Returns the operator that dequantises a constant int32 bias, of any shape; None if there is none."""
    source = edit.producer(name)
    if source is not None and source.kind == "reshape":
        source = edit.producer(source.inputs[0])
    parameters = Parameters.of(edit, source, DEQUANTIZE)
    is_constant = source is not None and parameters is not None and source.inputs[0] in edit.constants
    return source if is_constant and parameters.dtype == "int32" else None


def _products(graph: Graph, context: Context) -> Graph:
    """Lowers products of dequantised values: convolutions with constant weights, and matrix products."""
    edit = Editor(graph)
    readers = graph.consumers()
    for op in graph.ops:
        if op.kind not in PRODUCTS:
            continue
        x, w = (edit.producer(name) for name in op.inputs[:2])
        of_x, of_w = Parameters.of(edit, x, DEQUANTIZE), Parameters.of(edit, w, DEQUANTIZE)
        is_quantised = of_x and of_w and of_x.is_single and (
            w.inputs[0] in edit.constants or (op.kind == "matmul" and of_w.is_single))
        if is_quantised and {of_x.dtype, of_w.dtype} <= set(INT8_TYPES):
            _lower_product(edit, op, x, w, of_x, of_w, readers)
    return edit.finish()


def _lower_product(edit: Editor, op: Op, x: Op, w: Op, of_x: Parameters, of_w: Parameters,
                   readers: Readers) -> None:
    """Replaces a product by an integer product and an elementwise operator, if the scales and zero points allow it.

    Args:
        x, w: the operators that dequantise its operands.
        of_x, of_w: their parameters.
    """
    kind, zero_of_x, zero_of_w = PRODUCTS[op.kind]
    weights = edit.types[w.inputs[0]]
    axis = 0 if op.kind == "conv2d" else weights.rank - (2 if op.attrs.trans_b else 1)  # of output channels
    scale = (of_x.scale * of_w.scale).astype(np.float32)
    by_channel = scale.size > 1
    if (by_channel and of_w.axis % weights.rank != axis) or len(set(of_w.zero.tolist())) > 1:
        return
    if by_channel and op.kind == "matmul" and weights.rank != 2:
        return
    biased = _bias(edit, op, scale)
    if biased is None:
        return
    bias, real_bias = biased
    attrs = Attrs(op.attrs, **{zero_of_x: int(of_x.zero[0]), zero_of_w: int(of_w.zero[0])})
    inputs = (x.inputs[0], w.inputs[0], *filter(None, (bias,)))
    (sums_type,) = operator(kind).infer(attrs, *(edit.types[name] for name in inputs))
    sums = edit.value(f"{op.outputs[0]}.sums", sums_type)
    product = op.with_(kind=kind, attrs=attrs, inputs=inputs, outputs=(sums,))
    shape = (1, -1, 1, 1) if op.kind == "conv2d" else (-1,)
    finish_sums(edit, op, product, sums, scale, shape, readers, real_bias)


def _bias(edit: Editor, op: Op, scale: np.ndarray) -> tuple[str, np.ndarray | None] | None:
    """Returns the bias of a product as (name of an int32 constant in the scale of the sums, floats to add to the
    result); "" and None stand for none. Returns None for a bias that is computed at run time."""
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    source = edit.producer(name) if name else None
    parameters = Parameters.of(edit, source, DEQUANTIZE)
    if parameters is not None and source.inputs[0] in edit.constants:
        integers = edit.constants[source.inputs[0]]
        # The scales are equal except for a rounding of float32.
        is_in_scale_of_sums = not parameters.zero.any() and np.allclose(parameters.scale, scale, rtol=1e-6, atol=0)
        if parameters.dtype == "int32" and is_in_scale_of_sums:
            return source.inputs[0], None
        return "", ((integers.astype(np.int64) - parameters.zero) * parameters.scale).astype(np.float32)
    if not name:
        return "", None
    return ("", edit.constants[name]) if name in edit.constants else None


def _divisions(graph: Graph, context: Context) -> Graph:
    """Divides in a 16-bit float type if a quantize_linear has the attribute `precision` (ONNX opset 23), and quantises
    the quotient with a scale of 1.

    The quotient is computed in float32 and rounded to 16 bits. That equals a division in 16 bits, because double
    rounding of a quotient of two 16-bit floats changes nothing.
    """
    edit = Editor(graph)
    for op in graph.ops:
        if op.kind != QUANTIZE or "precision" not in op.attrs:
            continue
        x, scale, *zero = op.inputs
        axes = [-1 if axis == op.attrs.axis else 1 for axis in range(edit.types[x].rank)]
        if edit.types[scale].size != 1:
            scale = _before(edit, op, "reshape", Attrs(shape=tuple(axes)), scale)
        quotient = _before(edit, op, "div", Attrs(), *(_rounded(edit, op, name) for name in (x, scale)))
        one = edit.constant(f"{op.outputs[0]}.one", np.ones((), np.float32))
        attrs = Attrs({name: value for name, value in op.attrs.items() if name != "precision"})
        edit.replace(op, op.with_(attrs=attrs, inputs=(_rounded(edit, op, quotient), one, *zero)))
    return edit.finish()


def _rounded(edit: Editor, op: Op, name: str) -> str:
    """Adds casts that round a value to the operator's precision; returns the result as float32."""
    for attrs in rounding(op.attrs.precision):
        name = _before(edit, op, "cast", attrs, name)
    return name


def _before(edit: Editor, op: Op, kind: str, attrs: Attrs, *inputs: str) -> str:
    """Adds an operator before another and returns its result."""
    result = edit.result(f"{op.outputs[0]}.{kind}", kind, attrs, inputs)
    edit.add_before(op, Op(kind, attrs, inputs, (result,), origin=op.origin))
    return result


def _expressions(graph: Graph, context: Context) -> Graph:
    """Converts the remaining dequantize_linear and quantize_linear with constant parameters, and casts from integers to
    float32, to expressions. If their operands are constants, they are folded."""
    edit = Editor(graph)
    for op in graph.ops:
        parameters = Parameters.of(edit, op, op.kind) if op.kind in (DEQUANTIZE, QUANTIZE) else None
        is_constant = op.inputs and all(name in edit.constants for name in op.inputs if name)
        if is_constant and (parameters is not None if op.kind == DEQUANTIZE else op.kind in ("reshape", "transpose")):
            arrays = (edit.constants[name] if name else None for name in op.inputs)
            edit.settle(op, operator(op.kind).compute(op.attrs, *arrays)[0])
        elif parameters is not None and edit.types[_float_value(op)].dtype == "float32":
            expr, operands = _expression(edit, op, parameters)
            dtype = edit.types[op.outputs[0]].dtype
            edit.replace(op, op.with_(kind="elementwise", attrs=Attrs(expr=expr, dtype=dtype),
                                      inputs=(op.inputs[0], *operands)))
        elif op.kind == "cast" and op.attrs.dtype == "float32" and KINDS.get(edit.types[op.inputs[0]].dtype) == "i":
            edit.replace(op, op.with_(kind="elementwise", attrs=Attrs(expr=call("real", X), dtype="float32")))
    return edit.finish()


def _float_value(op: Op) -> str:
    """Returns the float value of a dequantize_linear (its result) or quantize_linear (its operand)."""
    return op.inputs[0] if op.kind == QUANTIZE else op.outputs[0]


def _expression(edit: Editor, op: Op, parameters: Parameters) -> tuple[Expr, tuple[str, ...]]:
    """Returns the operator as an expression, and its operands, which include the parameters if there are several."""
    operands: list[str] = []

    def value(array: np.ndarray, name: str) -> Expr:
        if array.size == 1:
            return Const(float(array[0]))
        rank = edit.types[op.inputs[0]].rank
        shape = [-1 if axis == parameters.axis % rank else 1 for axis in range(rank)]
        operands.append(edit.constant(f"{op.outputs[0]}.{name}", array.reshape(shape)))
        return Arg(len(operands))

    scale, zero = value(parameters.scale, "scale"), value(parameters.zero.astype(np.int32), "zero")
    if op.kind == DEQUANTIZE:
        centred = X if zero == Const(0.0) else X - zero
        return call("real", centred) * scale, tuple(operands)
    lower, upper = parameters.limits
    if isinstance(zero, Const):
        return requantize_expr(X / scale, int(parameters.zero[0]), lower, upper), tuple(operands)
    # Clipped to 18 bits, so that adding a zero point of up to 16 bits cannot overflow.
    return clip(clip(call("nearest", X / scale), -2**17, 2**17) + zero, lower, upper), tuple(operands)


def dequantises(op: Op, types) -> bool:
    """Returns whether an elementwise operator converts one 8-bit operand to floats: repeating it costs no more than
    storing its result."""
    return (op.kind == "elementwise" and op.attrs.get("dtype") == "float32"
            and [types[name].itemsize for name in op.inputs] == [1])
