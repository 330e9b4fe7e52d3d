# SPDX-License-Identifier: Apache-2.0
"""Declares the elementwise operators: ARITHMETIC is the table of those that are expressions (ir/expr.py), SCALAR_ONLY
that of the others. Activations are in nn/activation.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import MegccError, ShapeError
from ..ir import lanes
from ..ir.expr import Expr, X, arg, call, clip, evaluate, maximum, minimum
from ..ir.graph import Attrs
from ..ir.narrow import is_float
from ..ir.types import DTYPES, TensorType
from .base import Case, OnnxNode, Operator, decomposes, f32, register
from .rules import arange_along, axis_of, broadcast, same_dtype

Y = arg(1)


class Elementwise(Operator):
    """The base of elementwise operators: y[i] = f(a[i], b[i], …). The operands have one dtype and broadcast as in
    numpy; the result has their dtype, or `result`.

    formula: f as an expression, or a function from the attributes to it; None for an operator without an expression.
    numpy: f in numpy, for operators without an expression, and for integers if they differ.
    result: dtype of the result, "" for that of the operands.
    defaults: attributes -> ONNX's default values.

    The C code of operators without an expression is in SCALARS and the tables after it in kernels/elementwise/loops.py.
    """

    formula: Expr | Callable[[Attrs], Expr] | None = None
    numpy: Callable | None = None
    result: str = ""
    defaults: Mapping[str, float] = {}

    @classmethod
    def expression(cls, attrs: Attrs) -> Expr | None:
        return cls.formula(attrs) if callable(cls.formula) else cls.formula

    @classmethod
    def infer(cls, attrs: Attrs, *inputs: Any, **named: Any) -> tuple[TensorType, ...]:
        dtype = same_dtype(*inputs)
        return (TensorType(cls.result or dtype, broadcast(*(type_.shape for type_ in inputs))),)

    @classmethod
    def compute(cls, attrs: Attrs, *inputs: Any, **named: Any) -> tuple[np.ndarray, ...]:
        with np.errstate(all="ignore"):
            if cls.numpy is not None and (cls.formula is None or inputs[0].dtype.kind != "f"):
                result = cls.numpy(*inputs)
            else:
                result = evaluate(cls.expression(attrs), inputs)
        return (np.asarray(result, np.dtype(cls.result) if cls.result else inputs[0].dtype),)

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict:
        return {name: float(node.attr(name, default)) for name, default in cls.defaults.items()}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        return emit_broadcast(node, cls.kind, broadcast_operands(node), **cls.onnx_attrs(node))


def broadcast_operands(node: OnnxNode) -> Sequence[str]:
    """Returns the node's operands, reshaped so that they broadcast as in numpy.

    Before operator set 7, attribute `axis` tells which axis of the first operand matches the first axis of the second.
    """
    if node.opset >= 7 or not node.attr("broadcast", 0) or node.attr("axis") is None:
        return node.inputs
    a, b = node.type(0), node.type(1)
    trailing = a.rank - axis_of(node.attr("axis"), a.rank) - b.rank
    if trailing < 0:
        raise ShapeError(f"axes of {b} from axis {node.attr('axis')} of {a} on")
    return node.inputs[0], *node.emit("reshape", node.inputs[1:2], shape=(*b.shape, *(1,) * trailing))


def emit_broadcast(node: OnnxNode, kind: str, inputs, **attrs) -> tuple[str, ...]:
    """Emits the elementwise operator `kind`. Constants are reshaped to the rank of the result, so that they can have
    its layout."""
    rank = max(node.type_of(name).rank for name in inputs)
    aligned = []
    for name in inputs:
        type_ = node.type_of(name)
        if 0 < type_.rank < rank and (type_.static_size or 0) > 1 and node.is_constant(name):
            (name,) = node.emit("reshape", (name,), shape=(1,) * (rank - type_.rank) + type_.shape)
        aligned.append(name)
    return node.emit(kind, aligned, **attrs)


def _lane_case(expr: Expr, dtype: str, operands: tuple, values: Mapping[int, list]) -> Case:
    """Returns a case of `Fused` with attribute `dtype`; the values are repeated to the operands' sizes."""
    return Case(operands, {"expr": expr, "dtype": dtype},
                values={i: np.resize(np.array(v), operands[i][0]) for i, v in values.items()})


#: Fixed-point products of x with a significand (operand 1) and a power of two (operand 2): `_rescale_fixed` of
#: ir/expr.py; `_RESCALED_DOWN` is for negative shifts only.
_RESCALED = call("rescale_fixed", X, Y, arg(2))
_RESCALED_DOWN = call("rescale_down", X, Y, arg(2))
#: Numbers at and next to ties of right shifts.
_NEAR_TIES = [sign * (2**power + more) for power in (0, 1, 2, 3, 5, 7, 8, 15, 16, 23, 29, 30) for more in (-1, 0, 1)
                for sign in (-1, 1)]
#: Fixed-point multipliers to scale them by: significands in Q0.31, and shifts.
_FACTORS = ([2**30, 2**31 - 1, 1518500250, 2**30 + 2**14] * 15,
            [shift for shift in (-31, -30, -29, -17, -16, -9, -8, -7, -2, -1, 0, 1, 2, 7, 30) for _ in range(4)])
#: A divisor, and numbers whose quotients are at and next to k + 0.5 and at the ends.
_DIVISOR = 0.0235
_HALVES = [np.float32((k + 0.5) * np.float32(_DIVISOR)) for k in range(256)]
_NEAR_HALVES = [float(np.nextafter(half, np.float32(toward))) for half in _HALVES for toward in (-9e9, half, 9e9)
                ] + [np.inf, -np.inf, -1.0, 1e30]


#: Two operands of 37 elements, with NaN in neither, in one of them, and in both.
_SOME_NANS = (np.resize(np.array([1, np.nan, -np.inf, 2, np.nan, -3], np.float32), 37),
              np.resize(np.array([np.nan, 2, -1, np.inf, np.nan, -2, 0.5], np.float32), 37))


@register
class Fused(Elementwise):
    """Any expression over any number of operands: passes/fusion/elementwise.py fuses chains of elementwise operators
    into one of these, and quantization passes emit it.

    Attributes: `expr`: the expression; `dtype`, optional. With `dtype`, operands may have several dtypes: integers of 8
    to 32 bits are computed in int32, floats in float32 (ir/lanes.py), and the result is saturated to `dtype`. Without
    it, all operands and the result have one dtype.
    """

    kind = "elementwise"
    operands = ("x*",)
    cases = (Case((f32(3, 37), f32(3, 37)), {"expr": clip(X + Y, 0, 6) / 6}),
             Case((f32(2, 18, 3, 5), f32(1, 18, 1, 1), f32(2, 18, 3, 5)), {"expr": X * Y + arg(2)}),
             Case((f32(2, 16, 3, 5), f32(2, 16, 1, 1)), {"expr": X * Y}),
             Case((f32(1, 5, 3, 1), f32(4, 1, 3, 7), f32()), {"expr": (X - Y) * arg(2)}),
             Case((f32(7, 1), f32(1, 9)), {"expr": X - Y}),
             Case((f32(5000),), {"expr": X * call("sigmoid", X)}),
             Case((f32(2, 3, 4, 2, 3, 2), f32(3, 1, 2, 1, 2)), {"expr": X + Y}),
             *(Case((f32(3, 37), f32(37)), {"expr": expr},
                    values={0: np.resize(_SOME_NANS[0], (3, 37)), 1: _SOME_NANS[1]})
               for expr in (maximum(X, Y), minimum(X, Y), minimum(1.5, maximum(-1, Y)) - X, clip(X, -Y, Y * Y))),
             Case((((4, 9), "int32"), ((9,), "int32")), {"expr": X * Y + 3}),
             _lane_case(X, "int32", (((3, 5, 7), "uint8"),), {0: [0, 1, 255, 128]}),
             _lane_case(_RESCALED + 7, "int8",
                        (((2, 5, 3, 7), "int32"), ((1, 5, 1, 1), "int32"), ((1, 5, 1, 1), "int32")),
                        {0: [-2**31, 2**31 - 1, 0, 12345, -54321], 1: [2**30, 2**31 - 1, 0, 1518500250, 1073741825],
                         2: [-31, 0, -7, 3, -1]}),
             _lane_case(call("rescale_once", X, Y, arg(2)) + 7, "int16",
                        (((2, 5, 3, 7), "int32"), ((1, 5, 1, 1), "int32"), ((1, 5, 1, 1), "int32")),
                        {0: [-2**31, 2**31 - 1, 0, 12345, -54321, 583, -1, 1, 674],
                         1: [2**30, 2**31 - 1, 0, 1518500250, 1073741825], 2: [-31, 0, -7, -2, -1]}),
             *(_lane_case(call(rescale, X, Y, arg(2)), "int32",
                          (((40,), "int32"), ((40,), "int32"), ((40,), "int32")),
                          {0: [-2**31, 2**31 - 1, 77, -3, 5, -1, 1], 1: [2**30, 2**31 - 1, 0],
                           2: [2**31 - 1, -2**31, 31, -32, 30, 32, -31, -30]})
               for rescale in ("rescale_fixed", "rescale_once")),
             *(_lane_case(expr, dtype, (((72, 1), "int32"), ((60,), "int32"), ((60,), "int32")),
                          {0: _NEAR_TIES, 1: _FACTORS[0], 2: _FACTORS[1]})
               for dtype, expr in (
                   ("int32", _RESCALED), ("int8", _RESCALED - 128), ("uint8", maximum(_RESCALED - 3, -3) + 3))),
             *(_lane_case(expr, dtype, (((72, 1), "int32"), ((40,), "int32"), ((40,), "int32")),
                          {0: _NEAR_TIES, 1: _FACTORS[0][:40], 2: _FACTORS[1][:40]})
               for dtype, expr in (("int32", _RESCALED_DOWN), ("int8", _RESCALED_DOWN - 128))),
             _lane_case(call("nearest", call("real", X) * Y), "uint8", (((3, 37), "int8"), f32()), {1: [0.5]}),
             _lane_case(call("nearest_away", X), "int32", (f32(19),),
                        {0: [0.0, -0.0, 0.5, -0.5, 0.49999997, -0.49999997, 1.5, -1.5, 2.5, -2.5, 2.4999998, 127.5,
                             -128.5, 8388607.5, -8388607.5, 16777216.0, -16777216.0, 1e9, -1e9]}),
             _lane_case(call("nearest_away", clip(X / _DIVISOR, 0, 255)) - 128, "int8", (f32(772),), {0: _NEAR_HALVES}),
             _lane_case(call("nearest", X * 3.7), "int32", (f32(9),),
                        {0: [np.nan, np.inf, -np.inf, 1e9, -1e9, 0.5, 1.5, -2.5, 8388609.0]}),
             _lane_case(clip(X - Y, -5, 300), "int16", (((2, 18, 3, 5), "uint8"), ((2, 18, 3, 5), "int8")), {}),
             _lane_case(call("real", X + 3) * call("real", Y), "float32", (((5000,), "int16"), ((), "uint16")), {}))

    @classmethod
    def expression(cls, attrs: Attrs) -> Expr:
        return attrs.expr

    @classmethod
    def infer(cls, attrs: Attrs, *inputs: TensorType) -> tuple[TensorType, ...]:
        if "dtype" not in attrs:
            return super().infer(attrs, *inputs)
        unknown = [t for t in (*inputs, TensorType(attrs.dtype, ())) if t.dtype not in lanes.KINDS]
        reason = f"elements are {unknown[0].dtype}" if unknown else \
            lanes.refusal(attrs.expr, [lanes.KINDS[t.dtype] for t in inputs])
        if reason:
            raise ShapeError(reason)
        return (TensorType(attrs.dtype, broadcast(*(type_.shape for type_ in inputs))),)

    @classmethod
    def compute(cls, attrs: Attrs, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        if "dtype" not in attrs:
            return super().compute(attrs, *inputs)
        return (lanes.evaluate(attrs.expr, inputs, attrs.dtype),)


@dataclass(frozen=True)
class Row:
    """A row of the tables below, which declares an elementwise operator.

    kind: the name in our graphs.
    onnx: the ONNX names; those of other domains have the domain before them, as in "com.microsoft::Inverse".
    formula, numpy, result, defaults: as in `Elementwise`.
    arity: the number of operands.
    case_dtypes: the dtypes of the test cases, besides float64 if there is a formula.
    relax, relay: the names in TVM, by default the kind.
    in_tvm: whether TVM has the operator with these operands.
    commutative: whether the operands may be swapped.
    """

    kind: str
    onnx: tuple[str, ...] = ()
    formula: Expr | Callable[[Attrs], Expr] | None = None
    arity: int = 1
    numpy: Callable | None = None
    result: str = ""
    defaults: Mapping[str, float] = field(default_factory=dict)
    case_dtypes: tuple[str, ...] = ("float32",)
    relax: str = ""
    relay: str = ""
    in_tvm: bool = True
    commutative: bool = False


def declare(row: Row) -> type[Elementwise]:
    """Makes a subclass of `Elementwise` from a row, and registers it."""
    operands = ("a", "b", "c")[:row.arity]
    shapes = ((3, 1, 7), (2, 1), (3, 2, 7))[:row.arity] if row.arity > 1 else ((3, 37),)
    dtypes = dict.fromkeys((*row.case_dtypes, *(("float64",) if row.formula is not None else ())))
    cases = tuple(Case(tuple((shape, dtype) for shape in shapes), dict(row.defaults)) for dtype in dtypes)
    body = {
        "__doc__": f"Elementwise {row.kind.replace('_', ' ')}.", "kind": row.kind, "operands": operands,
        "onnx": row.onnx, "relax": (row.relax or f"relax.{row.kind}",) * row.in_tvm,
        "relay": (row.relay or row.kind,) * row.in_tvm,
        "formula": staticmethod(row.formula) if callable(row.formula) else row.formula,
        "numpy": staticmethod(row.numpy) if row.numpy else None, "result": row.result, "defaults": row.defaults,
        "commutative": row.commutative, "cases": cases,
    }
    return register(type(row.kind.title().replace("_", ""), (Elementwise,), body))


def _divide_integers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divides; integers are divided towards zero, and by 0 give 0."""
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def _modulo(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the remainder with the sign of the divisor; 0 for integers modulo 0."""
    if a.dtype.kind == "f":
        return np.mod(a, b)
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, np.ones_like(b), b))).astype(a.dtype)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the remainder with the sign of the dividend; 0 for integers modulo 0."""
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, np.ones_like(b), b))).astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns powers of integers, which wrap. Powers with a negative exponent are truncated towards zero; those of 0
    are 0."""
    with np.errstate(over="ignore"):
        sign = 1 - 2 * (b % 2)  # (-1)^b
        truncated_inverse = np.where(a == 1, 1, np.where(a == -1, sign, 0))
        return np.where(b < 0, truncated_inverse, np.power(a, np.maximum(b, 0))).astype(a.dtype)


INTEGERS = ("int32", "int64", "uint8", "int8")

#: Operators with an expression, which fuse into epilogues and with each other. Columns: kind, ONNX names, formula,
#: number of operands.
ARITHMETIC = (
    Row("add", ("Add",), X + Y, 2, case_dtypes=("float32", *INTEGERS), commutative=True),
    Row("sub", ("Sub",), X - Y, 2, case_dtypes=("float32", *INTEGERS), relax="relax.subtract", relay="subtract"),
    Row("mul", ("Mul",), X * Y, 2, case_dtypes=("float32", *INTEGERS), commutative=True, relax="relax.multiply",
        relay="multiply"),
    Row("div", ("Div",), X / Y, 2, numpy=_divide_integers, case_dtypes=("float32", *INTEGERS), relax="relax.divide",
        relay="divide"),
    Row("min", (), minimum(X, Y), 2, case_dtypes=("float32", "int64"), commutative=True, relax="relax.minimum",
        relay="minimum"),
    Row("max", (), maximum(X, Y), 2, case_dtypes=("float32", "int64"), commutative=True, relax="relax.maximum",
        relay="maximum"),
    Row("neg", ("Neg",), -X, case_dtypes=("float32", "int32", "int8"), relax="relax.negative", relay="negative"),
    Row("abs", ("Abs",), call("abs", X), case_dtypes=("float32", "int32", "uint8")),
    Row("reciprocal", ("Reciprocal",), 1 / X, in_tvm=False),
    Row("sqrt", ("Sqrt",), call("sqrt", X)),
    Row("rsqrt", (), 1 / call("sqrt", X)),
    Row("exp", ("Exp",), call("exp", X)),
    Row("log", ("Log",), call("log", X)),
    Row("pow", (), call("pow", X, Y), 2, numpy=_power, case_dtypes=("float32", "int64"), relax="relax.power",
        relay="power"),
    Row("erf", ("Erf",), call("erf", X)),
    Row("floor", ("Floor",), call("floor", X)),
    Row("ceil", ("Ceil",), call("ceil", X)),
    Row("round", ("Round",), call("round", X)),
    *(Row(fn, (fn.title(),), call(fn, X)) for fn in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
                                                     "asinh", "acosh", "atanh")),
)

#: Operators without an expression: comparisons, logic, bit operations, and functions that branch on a value. Columns:
#: kind, ONNX names, no formula, number of operands, function of numpy, dtype of the result.
SCALAR_ONLY = (
    Row("equal", ("Equal",), None, 2, np.equal, "bool", case_dtypes=("float32", "int64", "bool"), commutative=True),
    Row("less", ("Less",), None, 2, np.less, "bool", case_dtypes=("float32", "int32")),
    Row("less_equal", ("LessOrEqual",), None, 2, np.less_equal, "bool", case_dtypes=("float32", "int32")),
    Row("greater", ("Greater",), None, 2, np.greater, "bool", case_dtypes=("float32", "int64")),
    Row("greater_equal", ("GreaterOrEqual",), None, 2, np.greater_equal, "bool", case_dtypes=("float32", "uint8")),
    Row("logical_and", ("And",), None, 2, np.logical_and, "bool", case_dtypes=("bool",), commutative=True),
    Row("logical_or", ("Or",), None, 2, np.logical_or, "bool", case_dtypes=("bool",), commutative=True),
    Row("logical_xor", ("Xor",), None, 2, np.logical_xor, "bool", case_dtypes=("bool",), commutative=True),
    Row("logical_not", ("Not",), None, 1, np.logical_not, "bool", case_dtypes=("bool",)),
    Row("bitwise_and", ("BitwiseAnd",), None, 2, np.bitwise_and, case_dtypes=("int32", "uint8"), commutative=True),
    Row("bitwise_or", ("BitwiseOr",), None, 2, np.bitwise_or, case_dtypes=("int32", "uint8"), commutative=True),
    Row("bitwise_xor", ("BitwiseXor",), None, 2, np.bitwise_xor, case_dtypes=("int32", "uint8"), commutative=True),
    Row("bitwise_not", ("BitwiseNot",), None, 1, np.bitwise_not, case_dtypes=("int32", "uint8")),
    Row("shift_left", (), None, 2, np.left_shift, case_dtypes=("uint32", "uint8"), relax="relax.left_shift"),
    Row("shift_right", (), None, 2, np.right_shift, case_dtypes=("uint32", "uint8", "int8"), relax="relax.right_shift"),
    Row("mod", (), None, 2, _modulo, case_dtypes=("int32", "int64", "uint8", "float32", "float64"),
        relax="relax.floor_mod", relay="floor_mod"),
    Row("fmod", (), None, 2, _remainder, case_dtypes=("int32", "int8", "float32", "float64"), relax="relax.mod",
        relay="mod"),
    Row("sign", ("Sign",), None, 1, np.sign, case_dtypes=("float32", "int32")),
    Row("is_nan", ("IsNaN",), None, 1, np.isnan, "bool", case_dtypes=("float32", "float64"), relax="relax.isnan",
        relay="isnan"),
    Row("is_inf", (), None, 1, np.isinf, "bool", case_dtypes=("float32", "float64"), relax="relax.isinf",
        relay="isinf"),
)

for _row in (*ARITHMETIC, *SCALAR_ONLY):
    declare(_row)


@register
class Where(Elementwise):
    """y = b where the condition is true, else c, elementwise, as ONNX's Where and relax.where.

    Operands, which broadcast: condition bool; b and c of one dtype, which is the result's.
    """

    kind = "where"
    operands = ("condition", "b", "c")
    onnx = ("Where",)
    relax = ("relax.where",)
    relay = ("where",)
    numpy = staticmethod(np.where)
    cases = (Case((((3, 1, 7), "bool"), f32(2, 1), f32(3, 2, 7))),
             Case((((5,), "bool"), ((), "int64"), ((5,), "int64"))))

    @classmethod
    def infer(cls, attrs: Attrs, condition: TensorType, b: TensorType, c: TensorType) -> tuple[TensorType, ...]:
        if condition.dtype != "bool":
            raise ShapeError(f"the condition is {condition.dtype}, not bool")
        return (TensorType(same_dtype(b, c), broadcast(condition.shape, b.shape, c.shape)),)

    @classmethod
    def compute(cls, attrs: Attrs, condition, b, c) -> tuple[np.ndarray, ...]:
        return (np.where(condition, b, c),)


def cast_to(node: OnnxNode, value: str, dtype: str) -> tuple[str, ...]:
    """Emits a cast to a dtype, unless the value has it. Returns one value, as `emit` does.

    Raises:
        MegccError: if the dtype is not supported.
    """
    if dtype not in DTYPES:
        raise MegccError(f"converts to {dtype}, which is not supported")
    return (value,) if node.type_of(value).dtype == dtype else node.emit("cast", (value,), dtype=dtype)


@decomposes("Sum", "Min", "Max", "Mean")
def variadic(node: OnnxNode) -> tuple[str, ...]:
    """Imports Sum, Min, Max and Mean of any number of operands as a chain of binary operators."""
    kind = {"Sum": "add", "Mean": "add", "Min": "min", "Max": "max"}[node.op_type]
    value = node.inputs[0]
    for operand in node.inputs[1:]:
        (value,) = emit_broadcast(node, kind, (value, operand))
    if node.op_type == "Mean" and len(node.inputs) > 1:
        factor = node.constant(np.array(1 / len(node.inputs), np.dtype(node.type(0).dtype)))
        (value,) = node.emit("mul", (value, factor))
    return (value,)


@decomposes("Pow")
def import_pow(node: OnnxNode) -> tuple[str, ...]:
    """Imports Pow, whose exponent may have another dtype than its base. The constant exponents -1, 0.5, 1, 2 and 3
    become simpler operators."""
    x, exponent = broadcast_operands(node)
    dtype = node.type(0).dtype
    if node.is_const(1) and node.type(1).size == 1 and node.type(1).rank <= node.type(0).rank:
        value = float(node.const(1).reshape(()))
        if value == 1:
            return (x,)
        if value == 2:
            return node.emit("mul", (x, x))
        if value == 3:
            return node.emit("mul", (node.emit("mul", (x, x))[0], x))
        if value == 0.5 and is_float(dtype):
            return node.emit("sqrt", (x,))
        if value == -1 and is_float(dtype):
            return node.emit("reciprocal", (x,))
    # Powers of integers are computed in int64, which wraps; with a float exponent in float64, then truncated.
    wide = dtype if is_float(dtype) else "float64" if is_float(node.type(1).dtype) else "int64"
    (result,) = emit_broadcast(node, "pow", (*cast_to(node, x, wide), *cast_to(node, exponent, wide)))
    return cast_to(node, result, dtype)


@decomposes("Mod")
def import_mod(node: OnnxNode) -> tuple[str, ...]:
    """Imports Mod. The remainder has the sign of the dividend with attribute `fmod`, else that of the divisor."""
    return emit_broadcast(node, "fmod" if node.attr("fmod", 0) else "mod", node.inputs)


@decomposes("BitShift")
def import_bit_shift(node: OnnxNode) -> tuple[str, ...]:
    """Imports BitShift, to the left or right as attribute `direction` tells."""
    return emit_broadcast(node, "shift_left" if node.attr("direction") == "LEFT" else "shift_right", node.inputs)


@decomposes("IsInf")
def import_is_inf(node: OnnxNode) -> tuple[str, ...]:
    """Imports IsInf, with attributes `detect_positive` and `detect_negative`."""
    positive, negative = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    if positive and negative:
        return node.emit("is_inf", node.inputs)
    sought = np.inf if positive else -np.inf if negative else np.nan  # nothing is equal to NaN
    limit = node.constant(np.array(sought, np.dtype(node.type(0).dtype)))
    return node.emit("equal", (node.inputs[0], limit))


@decomposes("Trilu")
def triangle(node: OnnxNode) -> tuple[str, ...]:
    """Imports Trilu: sets elements below (`upper`) or above the k-th diagonal to zero, strings to the empty one."""
    x = node.type(0)
    if x.rank < 2:
        raise ShapeError(f"needs a matrix, not {x}")
    rows, columns = x.shape[-2:]
    k = node.emit("reshape", node.inputs[1:2], shape=())[0] if node.has(1) else node.constant(np.array(0))
    (diagonal,) = node.emit("add", (arange_along(node, rows, axis=0, rank=2), k))
    kind = "greater_equal" if node.attr("upper", 1) else "less_equal"
    (mask,) = node.emit(kind, (arange_along(node, columns, axis=1, rank=2), diagonal))
    zero = np.array(node.string_index("")) if node.is_string(0) else np.zeros((), np.dtype(x.dtype))
    return node.emit("where", (mask, node.inputs[0], node.constant(zero)))
