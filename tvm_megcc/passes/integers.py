# SPDX-License-Identifier: Apache-2.0
"""What stands between dequantize_linear and quantize_linear is brought onto integers.

    dequantize → data movement            → data movement of the integers → dequantize
    data movement → quantize              → quantize → data movement of the integers
    dequantize, dequantize → product      → product of integers, with sums in int32, → elementwise
    what is left of both                  → elementwise

All that is elementwise is then one expression between integers and reals (ir/lanes.py), which `fuse_elementwise` joins
and `fuse_epilogues` puts into the kernel of the product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..context import Context
from ..ir.expr import Arg, Call, Const, Expr, X, arg, call, clip
from ..ir.graph import Attrs, Graph, Op
from ..ir.lanes import KINDS
from ..ir.types import TensorType
from ..kernels.site import Site
from ..kernels.support import realisable
from ..ops.base import operator
from ..ops.integer import BYTES, quantised
from .edit import Editor

DEQUANTIZE, QUANTIZE = "dequantize_linear", "quantize_linear"
#: Operators whose result has the numbers of their first operand, or, of a concat, of all.
MOVES = frozenset(("reshape", "transpose", "concat", "slice", "max_pool", "gather", "expand", "tile", "reverse"))
#: Products -> the kind over integers, and what it calls the zero points of its operands.
PRODUCTS = {"conv2d": ("conv2d_integer", "x_zero", "w_zero"), "matmul": ("matmul_integer", "a_zero", "b_zero")}


def lower_quantised(graph: Graph, context: Context) -> Graph:
    """The graph with integer products, without dequantize_linear and quantize_linear where their parameters are known.
    """
    if not any(op.kind in (DEQUANTIZE, QUANTIZE, "matmul_integer", "conv2d_integer") for op in graph.ops):
        return graph
    for step in (_sink, _rise, _products, _expressions):
        graph = step(graph, context)
    return graph


@dataclass(frozen=True)
class Parameters:
    """Those of a quantisation: real = scale * (integer - zero). scale, zero: arrays of one element, or of one for each
    index of the axis."""

    dtype: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @staticmethod
    def of(edit: Editor, op: Op | None, kind: str) -> Parameters | None:
        """The parameters of a dequantize_linear or quantize_linear; None of another operator, and where they are not
        known, not float32, or by blocks."""
        if op is None or op.kind != kind or op.attrs.block:
            return None
        scale = edit.constants.get(op.inputs[1])
        zero = edit.constants.get(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else np.zeros((), np.int32)
        dtype = edit.types[op.inputs[0] if kind == DEQUANTIZE else op.outputs[0]].dtype
        if scale is None or zero is None or scale.dtype != np.float32 or dtype not in KINDS or dtype == "float32":
            return None
        limits = np.iinfo(dtype)
        if not (np.isfinite(scale).all() and (scale > 0).all() and (zero >= limits.min).all()
                and (zero <= limits.max).all()):
            return None
        return Parameters(dtype, scale.reshape(-1), zero.astype(np.int64).reshape(-1), op.attrs.axis)

    @property
    def is_single(self) -> bool:
        """Whether one scale and zero point are those of all elements."""
        return self.scale.size == self.zero.size == 1

    def equals(self, other: Parameters | None) -> bool:
        return (other is not None and self.dtype == other.dtype and self.is_single and other.is_single
                and self.scale[0] == other.scale[0] and self.zero[0] == other.zero[0])

    @property
    def limits(self) -> tuple[int, int]:
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)


def _sink(graph: Graph, context: Context) -> Graph:
    """Data movement of what was just dequantised moves the integers; what is quantised again as it was, is not."""
    edit = Editor(graph)
    for op in graph.ops:
        data = _data(edit, op)
        sources = [edit.producer(name) for name in data]
        found = [Parameters.of(edit, source, DEQUANTIZE) for source in sources]
        if not found or not found[0] or not all(found[0].equals(other) for other in found):
            continue
        if op.kind == QUANTIZE:
            if found[0].equals(Parameters.of(edit, op, QUANTIZE)) and op.outputs[0] not in graph.outputs:
                edit.redirect({op.outputs[0]: sources[0].inputs[0]})
            continue
        integers = tuple(source.inputs[0] for source in sources)
        moved = _moved(edit, op, integers, context)
        if moved is not None:
            edit.replace(op, moved, sources[0].with_(inputs=(moved.outputs[0], *sources[0].inputs[1:]),
                                                     outputs=op.outputs))
    return edit.finish()


def _rise(graph: Graph, context: Context) -> Graph:
    """What is quantised after data movement is quantised before."""
    edit = Editor(graph)
    for op in reversed(graph.ops):
        parameters = Parameters.of(edit, op, QUANTIZE)
        move = edit.producer(op.inputs[0]) if parameters and parameters.is_single else None
        data = _data(edit, move) if move is not None and move.kind in MOVES else ()
        if not data or not edit.is_read_once(move.outputs[0]) or any(edit.types[n].dtype != "float32" for n in data):
            continue
        integers = tuple(edit.value(f"{name}.{parameters.dtype}", TensorType(parameters.dtype, edit.types[name].shape))
                         for name in data)
        moved = _moved(edit, move, integers, context)
        if moved is not None:
            edit.replace(move, *(op.with_(inputs=(name, *op.inputs[1:]), outputs=(integer,))
                                 for name, integer in zip(data, integers, strict=True)))
            edit.replace(op, moved.with_(outputs=op.outputs))
    return edit.finish()


def _data(edit: Editor, op: Op) -> tuple[str, ...]:
    """The operands whose numbers the result has."""
    if op.kind == QUANTIZE:
        return op.inputs[:1]
    if op.kind not in MOVES or len(op.outputs) != 1:
        return ()
    return op.inputs if op.kind == "concat" else op.inputs[:1]


def _moved(edit: Editor, op: Op, integers: tuple[str, ...], context: Context) -> Op | None:
    """The data movement of integers instead of its operands; None where there is no kernel for it."""
    inputs = (*integers, *op.inputs[len(integers):])
    result = TensorType(edit.types[integers[0]].dtype, edit.types[op.outputs[0]].shape)
    types = tuple(edit.types[name] if name else None for name in inputs)
    known = frozenset(i for i, name in enumerate(inputs) if name in edit.constants)
    moved = op.with_(inputs=inputs, outputs=(edit.value(f"{op.outputs[0]}.{result.dtype}", result),))
    return moved if realisable(Site(moved, types, (result,), context, known)) else None


def _products(graph: Graph, context: Context) -> Graph:
    """Products of what was just dequantised, the second operand being known."""
    edit = Editor(graph)
    readers = graph.consumers()
    for op in graph.ops:
        if op.kind not in PRODUCTS:
            continue
        x, w = (edit.producer(name) for name in op.inputs[:2])
        of_x, of_w = Parameters.of(edit, x, DEQUANTIZE), Parameters.of(edit, w, DEQUANTIZE)
        known = of_x and of_w and of_x.is_single and w.inputs[0] in edit.constants
        if known and {of_x.dtype, of_w.dtype} <= set(BYTES):
            _lower_product(edit, op, x, w, of_x, of_w, readers)
    return edit.finish()


def _lower_product(edit: Editor, op: Op, x: Op, w: Op, of_x: Parameters, of_w: Parameters, readers) -> None:
    kind, first, second = PRODUCTS[op.kind]
    weights = edit.types[w.inputs[0]]
    axis = 0 if op.kind == "conv2d" else weights.rank - (2 if op.attrs.trans_b else 1)
    scale = (of_x.scale * of_w.scale).astype(np.float32)
    by_channel = scale.size > 1
    if (by_channel and of_w.axis % weights.rank != axis) or len(set(of_w.zero.tolist())) > 1:
        return
    if op.kind == "matmul" and weights.rank != 2:
        return
    attrs = Attrs(op.attrs, **{first: int(of_x.zero[0]), second: int(of_w.zero[0])})
    bias, real_bias = _bias(edit, op, scale)
    inputs = (x.inputs[0], w.inputs[0], *filter(None, (bias,)))
    (sums_type,) = operator(kind).infer(attrs, *(edit.types[name] for name in inputs))
    sums = edit.value(f"{op.outputs[0]}.sums", sums_type)
    product = op.with_(kind=kind, attrs=attrs, inputs=inputs, outputs=(sums,))
    shape = (1, -1, 1, 1) if op.kind == "conv2d" else (-1,)

    def operand(array: np.ndarray, name: str) -> str:
        return edit.constant(f"{op.outputs[0]}.{name}", np.ascontiguousarray(array.reshape(shape)))

    chain = [] if real_bias is not None else _clipped_chain(edit, op, readers)
    to = Parameters.of(edit, chain[-1], QUANTIZE) if chain else None
    # As ONNX Runtime's QLinearConv: one factor, and the activation as limits of the result.
    factor = scale if to is None else (scale / to.scale[0]).astype(np.float32)
    operands = [operand(factor, "factor")] if by_channel else []
    expr = call("real", X) * (arg(1) if by_channel else Const(float(factor[0])))
    if to is not None:
        expr = quantised(expr, int(to.zero[0]), *_limits_of(edit, chain[:-1], to))
    if real_bias is not None:
        operands.append(operand(real_bias, "bias"))
        expr = expr + arg(len(operands))
    last = chain[-1] if chain else op
    for dropped in (op, *chain[:-1]):
        edit.replace(dropped)
    edit.replace(last, product, Op("elementwise", Attrs(expr=expr, dtype=edit.types[last.outputs[0]].dtype),
                                   (sums, *operands), last.outputs, origin=last.origin))


def _bias(edit: Editor, op: Op, scale: np.ndarray) -> tuple[str, np.ndarray | None]:
    """The name of a bias that can be added to the sums, or the values of one that cannot."""
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    source = edit.producer(name) if name else None
    parameters = Parameters.of(edit, source, DEQUANTIZE)
    if parameters is not None and source.inputs[0] in edit.constants:
        integers = edit.constants[source.inputs[0]]
        if parameters.dtype == "int32" and not parameters.zero.any() and np.allclose(parameters.scale, scale, 1e-6, 0):
            return source.inputs[0], None
        return "", ((integers.astype(np.int64) - parameters.zero) * parameters.scale).astype(np.float32)
    if not name:
        return "", None
    return "", edit.constants.get(name)


def _clipped_chain(edit: Editor, op: Op, readers) -> list[Op]:
    """Clips and the quantize_linear after them, each the only reader of the one before; empty where there is none."""
    chain, value = [], op.outputs[0]
    while edit.is_read_once(value):
        reader = readers[value][0]
        parameters = Parameters.of(edit, reader, QUANTIZE)
        if parameters is not None:
            return [*chain, reader] if parameters.is_single and parameters.dtype in BYTES else []
        if _clip_of(reader) is None:
            return []
        chain.append(reader)
        value = reader.outputs[0]
    return []


def _clip_of(op: Op) -> tuple[float, float] | None:
    """The limits of an operator that clips to constants, such as relu; None of others."""
    expr = operator(op.kind).expression(op.attrs) if len(op.inputs) == 1 and "dtype" not in op.attrs else None
    low, high = -np.inf, np.inf
    while isinstance(expr, Call) and expr.fn in ("min", "max") and isinstance(expr.args[1], Const):
        limit = expr.args[1].value
        low, high = (low, min(high, limit)) if expr.fn == "min" else (max(low, limit), high)
        expr = expr.args[0]
    return (low, high) if expr == X and low <= high and (low, high) != (-np.inf, np.inf) else None


def _limits_of(edit: Editor, clips: list[Op], to: Parameters) -> tuple[int, int]:
    """What clips of reals leave of the range of the quantised result; rounding is monotonous, so clips commute with it.
    """
    low, high = to.limits
    for op in clips:
        least, most = (_round(limit / to.scale[0]) + int(to.zero[0]) for limit in _clip_of(op))
        low, high = min(max(low, least), high), max(min(high, most), low)
    return low, high


def _round(value: float) -> int:
    return int(np.clip(np.rint(np.float32(value)), -2**31, 2**31 - 1))


def _expressions(graph: Graph, context: Context) -> Graph:
    """What is left of dequantize_linear and quantize_linear with known parameters, and casts to reals; of constants,
    constants."""
    edit = Editor(graph)
    for op in graph.ops:
        parameters = Parameters.of(edit, op, op.kind) if op.kind in (DEQUANTIZE, QUANTIZE) else None
        if op.kind == DEQUANTIZE and op.inputs[0] in edit.constants and parameters is not None:
            arrays = (edit.constants[name] if name else None for name in op.inputs)
            edit.constants[op.outputs[0]] = operator(op.kind).compute(op.attrs, *arrays)[0]
            edit.replace(op)
        elif parameters is not None and edit.types[_real(op)].dtype == "float32":
            expr, operands = _expression(edit, op, parameters)
            dtype = edit.types[op.outputs[0]].dtype
            edit.replace(op, op.with_(kind="elementwise", attrs=Attrs(expr=expr, dtype=dtype),
                                      inputs=(op.inputs[0], *operands)))
        elif op.kind == "cast" and op.attrs.dtype == "float32" and KINDS.get(edit.types[op.inputs[0]].dtype) == "i":
            edit.replace(op, op.with_(kind="elementwise", attrs=Attrs(expr=call("real", X), dtype="float32")))
    return edit.finish()


def _real(op: Op) -> str:
    """The value of a dequantize_linear or quantize_linear that is no integer."""
    return op.inputs[0] if op.kind == QUANTIZE else op.outputs[0]


def _expression(edit: Editor, op: Op, parameters: Parameters) -> tuple[Expr, tuple[str, ...]]:
    """The operator as an expression, and the operands with its parameters where they are several."""
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
    low, high = parameters.limits
    if isinstance(zero, Const):
        return quantised(X / scale, int(parameters.zero[0]), low, high), tuple(operands)
    # 16-bit numbers and less: no sum of these wraps.
    return clip(clip(call("nearest", X / scale), -2**17, 2**17) + zero, low, high), tuple(operands)


def dequantises(op: Op, types) -> bool:
    """Whether an elementwise operator makes reals of one 8-bit operand: as cheap to do again as to keep."""
    return (op.kind == "elementwise" and op.attrs.get("dtype") == "float32"
            and [types[name].itemsize for name in op.inputs] == [1])
