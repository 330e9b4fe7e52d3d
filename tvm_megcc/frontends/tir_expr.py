# SPDX-License-Identifier: Apache-2.0
"""Expressions of TIR as C.

TIR counts in int64. Here loop variables and extents are int32_t, and so is every integer that provably fits; others
are int64_t. What may overflow, divide by zero or leave a tensor goes through a function (tir_helpers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from tvm import ir, tirx
from tvm.sym import Analyzer

from ..errors import MegccError
from ..ir.expr import c_double, c_float
from ..ir.types import DTYPES
from . import tir_helpers
from .tir_common import Parts

#: How tightly operators of C bind.
COMMA, CHOICE, OR, AND, EQUAL, LESS, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(11)
#: Bit operations always get parentheses: nobody remembers where they stand.
BITS = CHOICE

_INT32 = (-2**31, 2**31 - 1)
#: What Analyzer says of an integer that it knows nothing of lies outside.
_INT64 = (-2**62, 2**62)

_INFIX = {"Add": ("+", SUM, "add"), "Sub": ("-", SUM, "sub"), "Mul": ("*", PRODUCT, "mul")}
_QUOTIENTS = {"Div": ("/", "div"), "FloorDiv": ("/", "floordiv"), "Mod": ("%", "mod"), "FloorMod": ("%", "floormod")}
_COMPARISONS = {"EQ": ("==", EQUAL), "NE": ("!=", EQUAL), "LT": ("<", LESS), "LE": ("<=", LESS), "GT": (">", LESS),
                "GE": (">=", LESS)}
_BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "bitwise_and": "&", "bitwise_or": "|",
            "bitwise_xor": "^"}
_SHIFTS = {"LShift": "shl", "RShift": "shr", "shift_left": "shl", "shift_right": "shr"}
#: TIR's functions whose helpers have other names.
_RENAMED = {"fabs": "abs", "nearbyint": "round", "round": "round_away", "power": "pow"}
_FUNCTIONS = ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin",
              "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil",
              "trunc", "abs", "fabs", "nearbyint", "round", "pow", "power", "fmod", "atan2", "hypot", "copysign")
_TESTS = {"isnan": "{0} != {0}", "isinf": "{0} == MGC_INF || {0} == -MGC_INF"}


@dataclass(frozen=True)
class Value:
    """An expression in C. dtype: "int32" or "int64" for integers of TIR's types of that name (a narrow one may stand
    for a wide one), "bool" for a truth value, else TIR's type; float16 is a float whose value is one."""

    text: str
    level: int
    dtype: str

    def at(self, level: int) -> str:
        """The text as an operand of something that binds this tightly."""
        return self.text if self.level >= level else f"({self.text})"


@dataclass(frozen=True)
class Memory:
    """A buffer in C.

    name: of the pointer, the array, or the variable if `single`. shape: extents as TIR has them. dropped: axes that
    are not in memory.
    """

    name: str
    dtype: str
    shape: tuple
    single: bool = False
    dropped: frozenset[int] = frozenset()

    def stored(self, values) -> list:
        """Those of values an axis that are of axes in memory."""
        return [value for axis, value in enumerate(values) if axis not in self.dropped]


class Expressions:
    """Prints expressions of one function.

    analyzer: knows the ranges of variables. variables: what variables are in C. buffers: by their variables.
    helpers: names of helpers that were used, in order. reads: told of every buffer that is read.
    """

    def __init__(self, analyzer: Analyzer):
        self.analyzer = analyzer
        self.variables: dict[ir.Var, Value] = {}
        self.buffers: dict[ir.Var, Memory] = {}
        self.helpers: dict[str, None] = {}
        #: (buffer, offset) → the variable that has the element for now.
        self.held: list[tuple[ir.Var, str, Value]] = []
        #: Of the statement that is being printed.
        self.parts: Parts | None = None

    # --- parts ---------------------------------------------------------------------------------------------------

    def use(self, name: str) -> str:
        """The name of a helper, which is then printed."""
        tir_helpers.helper(name)
        self.helpers[name] = None
        return name

    def call(self, operation: str, dtype: str, *arguments: Value) -> Value:
        name = self.use(f"{operation}_{tir_helpers.SHORT[dtype]}")
        return Value(f"{name}({', '.join(argument.text for argument in arguments)})", ATOM, dtype)

    def bounds(self, expr) -> tuple[int, int]:
        """Least and largest value of an integer expression."""
        bound = self.analyzer.const_int_bound(expr)
        return int(bound.min_value), int(bound.max_value)

    def fits(self, expr, least: int, most: int) -> bool:
        low, high = self.bounds(expr)
        return least <= low and high <= most

    def simplified(self, expr):
        """The expression with variables of blocks replaced by what they stand for; shorter where the analyzer finds
        something shorter."""
        return self.analyzer.simplify(expr) if is_integer(expr) and not any_part(expr, _is_real) else expr

    def text(self, expr, level: int = COMMA) -> str:
        return self.value(expr).at(level)

    # --- values --------------------------------------------------------------------------------------------------

    def value(self, expr) -> Value:
        """An expression in C.

        Raises:
            MegccError: naming what of it we cannot print.
        """
        return self._value(self.simplified(expr))

    def _value(self, expr) -> Value:
        value = self._printed(expr)
        if self.parts is None or value.text.isidentifier():
            return value
        is_call = value.level == ATOM and value.text.endswith(")")
        if value.level == ATOM and not is_call:
            return value
        return Value(self.parts.part(value.text, value.dtype, is_call), value.level, value.dtype)

    def _printed(self, expr) -> Value:
        kind = type(expr).__name__
        if kind == "Call":
            return self._call(expr)
        printer = getattr(self, f"_{kind}", None)
        if kind in _INFIX:
            return self._infix(expr, *_INFIX[kind])
        if kind in _QUOTIENTS:
            return self._quotient(expr, *_QUOTIENTS[kind])
        if kind in _COMPARISONS:
            return self._comparison(expr, *_COMPARISONS[kind])
        if kind in _BITWISE:
            return self._bitwise(_BITWISE[kind], dtype_of(expr), expr.a, expr.b)
        if kind in _SHIFTS:
            return self._shift(_SHIFTS[kind], dtype_of(expr), expr.a, expr.b)
        if printer is None:
            raise MegccError(f"TIR's {kind} has no C of ours")
        return printer(expr)

    def _IntImm(self, expr) -> Value:
        value, dtype = int(expr.value), dtype_of(expr)
        if dtype == "bool":
            return Value(str(value), ATOM, "bool")
        if dtype in ("int32", "int64") and _INT32[0] < value <= _INT32[1]:
            return Value(str(value), ATOM if value >= 0 else UNARY, "int32")
        if dtype.startswith("int"):
            wide = value == -2**63
            text = "INT64_MIN" if wide else "INT32_MIN" if value == _INT32[0] else f"INT64_C({value})"
            return Value(text if dtype in ("int32", "int64") else str(value), UNARY if value < 0 else ATOM, dtype)
        return Value(f"{value}u" if value <= 2**32 - 1 else f"UINT64_C({value})", ATOM, dtype)

    def _FloatImm(self, expr) -> Value:
        dtype, value = dtype_of(expr), float(expr.value)
        value = float(np.float16(value)) if dtype == "float16" else value
        text = c_double(value) if dtype == "float64" else c_float(value)
        text = text.strip("()")
        return Value(text, UNARY if text.startswith("-") else ATOM, dtype)

    def _Var(self, expr) -> Value:
        if expr in self.variables:
            return self.variables[expr]
        known = self.analyzer.simplify(expr)
        if known.same_as(expr):
            raise MegccError(f"the variable {expr.name} has no value")
        return self._value(known)

    def _TensorLoad(self, expr) -> Value:
        memory = self.memory(expr.source)
        offset = self.offset(expr.source, expr.indices)
        for source, other, value in self.held:
            if source.same_as(expr.source) and other == (self.parts.plain(offset) if self.parts else offset):
                return value
        text = memory.name if memory.single else f"{memory.name}[{offset}]"
        if memory.dtype == "bool":
            return Value(f"{text} != 0", EQUAL, "bool")
        if memory.dtype == "float16":
            return Value(f"mgc_from_half({text})", ATOM, "float16")
        return Value(text, ATOM, memory.dtype)

    def _infix(self, expr, symbol: str, level: int, helper: str) -> Value:
        dtype = dtype_of(expr)
        a, b = self._value(expr.a), self._value(expr.b)
        if dtype in ("int32", "int64"):
            return self._counted(expr, a, b, symbol, level, helper)
        text = f"{a.at(level)} {symbol} {b.at(level + 1)}"
        if dtype.startswith("uint") and DTYPES[dtype][1] >= 4:
            return Value(text, level, dtype)
        if dtype.startswith(("int", "uint")):
            return self.call(helper, dtype, a, b)
        return self._real(Value(text, level, dtype))

    def _real(self, value: Value) -> Value:
        """A result of floats; one of float16 is rounded."""
        if value.dtype != "float16":
            return value
        return Value(f"{self.use(tir_helpers.HALF)}({value.text})", ATOM, "float16")

    def _counted(self, expr, a: Value, b: Value, symbol: str, level: int, helper: str) -> Value:
        """Arithmetic of signed integers, as narrow as is certain to be right."""
        dtype = dtype_of(expr)
        right = b.at(level + 1)
        if self.fits(expr, *_INT32) and a.dtype == b.dtype == "int32":
            return Value(f"{a.at(level)} {symbol} {right}", level, "int32")
        if dtype == "int64" and self.fits(expr, *_INT64):
            left = a.at(level) if "int64" in (a.dtype, b.dtype) else f"(int64_t){a.at(UNARY)}"
            return Value(f"{left} {symbol} {right}", level, "int64")
        return self.call(helper, dtype, a, b)

    def _quotient(self, expr, symbol: str, helper: str) -> Value:
        dtype = dtype_of(expr)
        a, b = self._value(expr.a), self._value(expr.b)
        if dtype.startswith("float"):
            if helper != "div":
                raise MegccError(f"TIR's {type(expr).__name__} of {dtype} has no C of ours")
            return self._real(Value(f"{a.at(PRODUCT)} / {b.at(PRODUCT + 1)}", PRODUCT, dtype))
        signed = dtype in ("int32", "int64")
        if signed and self.bounds(expr.a)[0] >= 0 and self.bounds(expr.b)[0] > 0:
            wide = "int64" if "int64" in (a.dtype, b.dtype) else "int32"
            return Value(f"{a.at(PRODUCT)} {symbol} {b.at(PRODUCT + 1)}", PRODUCT, wide)
        return self.call(helper, dtype, a, b)

    def _comparison(self, expr, symbol: str, level: int) -> Value:
        texts = [value.at(UNARY if value.dtype == "bool" else level + 1)
                 for value in (self.value(expr.a), self.value(expr.b))]
        return Value(f"{texts[0]} {symbol} {texts[1]}", level, "bool")

    def _And(self, expr) -> Value:
        left = self.value(expr.a)
        with self.assuming(expr.a):
            right = self.value(expr.b)
        return Value(f"{left.at(AND)} && {right.at(AND)}", AND, "bool")

    def _Or(self, expr) -> Value:
        left = self.value(expr.a)
        with self.assuming(tirx.Not(expr.a)):
            right = self.value(expr.b)
        # Compilers want parentheses around && in ||.
        texts = [value.at(UNARY if value.level == AND else OR) for value in (left, right)]
        return Value(f"{texts[0]} || {texts[1]}", OR, "bool")

    def _Not(self, expr) -> Value:
        return Value(f"!{self.value(expr.a).at(UNARY)}", UNARY, "bool")

    def _Min(self, expr) -> Value:
        return self._extreme("min", expr)

    def _Max(self, expr) -> Value:
        return self._extreme("max", expr)

    def _extreme(self, name: str, expr) -> Value:
        dtype = dtype_of(expr)
        a, b = self._value(expr.a), self._value(expr.b)
        if dtype == "float16":
            return Value(self.call(name, "float32", a, b).text, ATOM, dtype)
        if dtype == "int64" and a.dtype == b.dtype == "int32":
            dtype = "int32"
        return self.call(name, dtype, a, b)

    def _Select(self, expr) -> Value:
        return self._choice(expr.condition, expr.true_value, expr.false_value, dtype_of(expr))

    def _choice(self, condition, yes, no, dtype: str) -> Value:
        """Lazy in both branches, as TVM's is, or may be: only what is chosen is read."""
        chosen = self.value(condition)
        if chosen.text in ("0", "1"):
            return self.value(yes if chosen.text == "1" else no)
        with self.assuming(condition):
            first = self.value(yes)
        with self.assuming(tirx.Not(condition)):
            second = self.value(no)
        if first.dtype != second.dtype:
            dtype = "int64"
        elif dtype in ("int32", "int64"):
            dtype = first.dtype
        return Value(f"{chosen.at(OR)} ? {first.at(OR)} : {second.at(CHOICE)}", CHOICE, dtype)

    def _Let(self, expr) -> Value:
        self.variables[expr.var] = self._value(expr.value)
        return self._value(expr.body)

    def _Cast(self, expr) -> Value:
        return self.converted(self.value(expr.value), dtype_of(expr.value), dtype_of(expr))

    def converted(self, value: Value, source: str, result: str) -> Value:
        """A value as another element type."""
        if source == result:
            return value
        real = result.startswith("float")
        if source == "float16":
            value, source = Value(value.text, value.level, "float32"), "float32"
        if source.startswith("float"):
            if result == "bool":
                return Value(f"{value.at(EQUAL + 1)} != 0", EQUAL, "bool")
            if result == "float16":
                narrow = value.text if source == "float32" else f"(float){value.at(UNARY)}"
                return Value(f"{self.use(tir_helpers.HALF)}({narrow})", ATOM, result)
            if real:
                if source == result:
                    return Value(value.text, value.level, result)
                return Value(f"({DTYPES[result][0]}){value.at(UNARY)}", UNARY, result)
            name = self.use(f"{tir_helpers.SHORT[result]}_of_{tir_helpers.SHORT[source]}")
            return Value(f"{name}({value.text})", ATOM, result)
        if result == "float16":
            return Value(f"{self.use(tir_helpers.HALF)}((float){value.at(UNARY)})", ATOM, result)
        if result == "bool":
            return Value(f"{value.at(EQUAL + 1)} != 0", EQUAL, "bool")
        if real:
            return Value(f"({DTYPES[result][0]}){value.at(UNARY)}", UNARY, result)
        if source == "bool":
            return Value(value.text, value.level, "int32" if result in ("int32", "int64") else result)
        if result in ("int32", "int64"):
            narrow = value.dtype in ("int32", "int8", "int16", "uint8", "uint16")
            if narrow:  # promoted to int
                return Value(value.text, value.level, "int32")
            if result == "int64" and value.dtype in ("int64", "uint32"):
                return Value(value.text if value.dtype == "int64" else f"(int64_t){value.at(UNARY)}",
                             value.level if value.dtype == "int64" else UNARY, "int64")
        return Value(f"({DTYPES[result][0]}){value.at(UNARY)}", UNARY, result)

    # --- calls ---------------------------------------------------------------------------------------------------

    def _call(self, call) -> Value:
        name = getattr(call.op, "name", str(call.op))
        short, dtype = name.rpartition(".")[2], dtype_of(call)
        if short == "if_then_else":
            return self._choice(*call.args, dtype)
        if short == "likely":
            return self._value(call.args[0])
        if short in _BITWISE:
            return self._bitwise(_BITWISE[short], dtype, *call.args)
        if short in _SHIFTS:
            return self._shift(_SHIFTS[short], dtype, *call.args)
        if short == "bitwise_not":
            return self._BitwiseNot(call)
        if short in _TESTS:
            value = self._value(call.args[0])
            if value.level == ATOM:
                return Value(_TESTS[short].format(value.text), OR if "||" in _TESTS[short] else EQUAL, "bool")
        if short == "isfinite":
            return Value(f"{self._value(call.args[0]).at(SUM)} - {self._value(call.args[0]).at(SUM + 1)} == 0", EQUAL,
                         "bool")
        if short in _FUNCTIONS and name.startswith(("tirx.", "prim.")):
            return self._function(_RENAMED.get(short, short), dtype, call.args)
        what = ""
        if "call_" in short and call.args and hasattr(call.args[0], "value"):
            what = f" of {call.args[0].value}"
        raise MegccError(f"TIR's {name}{what} has no C of ours")

    def _function(self, name: str, dtype: str, arguments: Iterable) -> Value:
        values = [self._value(argument) for argument in arguments]
        if dtype == "float16":
            result = self.call(name, "float32", *values)
            return self._real(Value(result.text, ATOM, "float16"))
        if name in ("floor", "ceil", "round", "trunc", "round_away") and not dtype.startswith("float"):
            return values[0]
        return self.call(name, dtype, *values)

    def _bitwise(self, symbol: str, dtype: str, a, b) -> Value:
        left, right = self._value(a), self._value(b)
        text = f"{left.at(UNARY)} {symbol} {right.at(UNARY)}"
        if dtype == "bool":
            return Value(text, BITS, "bool")
        if dtype in ("int32", "int64"):
            return Value(text, BITS, "int64" if "int64" in (left.dtype, right.dtype) else "int32")
        if DTYPES[dtype][1] < 4:
            return Value(f"({DTYPES[dtype][0]})({text})", UNARY, dtype)
        return Value(text, BITS, dtype)

    def _BitwiseNot(self, expr) -> Value:
        value, dtype = self._value(expr.args[0] if hasattr(expr, "args") else expr.a), dtype_of(expr)
        if dtype == "bool":
            return Value(f"!{value.at(UNARY)}", UNARY, "bool")
        if DTYPES[dtype][1] < 4:
            return Value(f"({DTYPES[dtype][0]})~{value.at(UNARY)}", UNARY, dtype)
        return Value(f"~{value.at(UNARY)}", UNARY, value.dtype)

    def _shift(self, helper: str, dtype: str, a, b) -> Value:
        left, right = self._value(a), self._value(b)
        if helper == "shr" and dtype in ("int32", "int64") and self.bounds(a)[0] >= 0 and self.fits(b, 0, 31):
            return Value(f"{left.at(SUM + 1)} >> {right.at(SUM + 1)}", SHIFT, left.dtype)
        return self.call(helper, dtype, left, right)

    # --- memory --------------------------------------------------------------------------------------------------

    def memory(self, source) -> Memory:
        if source not in self.buffers:
            raise MegccError(f"the buffer {getattr(source, 'name', source)} is not the function's own")
        return self.buffers[source]

    def offset(self, source, indices) -> str:
        """The place of an element in C; indices that may be outside are checked."""
        memory = self.memory(source)
        if memory.single or not memory.shape:
            return "0"
        if any(dtype_of(index) not in ("int32", "int64") for index in indices):
            raise MegccError(f"an index of {memory.name} is no int32 or int64")
        shape = memory.stored(memory.shape)
        indices = [self.simplified(index) for index in memory.stored(indices)]
        inside = [self.inside(index, extent) for index, extent in zip(indices, shape, strict=True)]
        flat = _flattened(indices, shape)
        merged = self.simplified(flat)
        if len(indices) > 1 and _nodes(merged) < sum(map(_nodes, indices)):
            size = self.simplified(_product(shape))
            return self.element(merged, size, all(inside) or self.inside(merged, size)).text
        place: Value | None = None
        for index, extent, known in zip(indices, shape, inside, strict=True):
            value = None if int_value(index) == 0 else self.element(index, extent, known)
            place = value if place is None else self._row(place, extent, value)
        return "0" if place is None else place.text

    def _row(self, place: Value, extent, value: Value | None) -> Value:
        size = self.value(extent)
        if place.text.isdigit() and size.text.isdigit():
            place, size = Value(str(int(place.text) * int(size.text)), ATOM, "int32"), Value("1", ATOM, "int32")
        row = place if size.text == "1" else Value(f"{place.at(PRODUCT)} * {size.at(PRODUCT + 1)}", PRODUCT, "int32")
        return row if value is None else Value(f"{row.at(SUM)} + {value.at(SUM)}", SUM, "int32")

    def element(self, index, extent, known: bool) -> Value:
        """An index into an axis, as int32; `known` to be inside."""
        value = self.value(index)
        if not known:
            name = self.use(tir_helpers.INDEX)
            return Value(f"{name}({value.text}, {self.text(extent)}, &outside)", ATOM, "int32")
        if value.dtype == "int64":
            return Value(f"(int32_t){value.at(UNARY)}", UNARY, "int32")
        return value

    def inside(self, index, extent) -> bool:
        """Whether an index certainly is in [0, extent)."""
        return self.analyzer.can_prove(index >= 0) and self.analyzer.can_prove(index < extent)

    def assuming(self, condition):
        """A scope in which a condition holds; none for one of data, which may change within."""
        return nullcontext() if _reads(condition) else self.analyzer.constraint_scope(condition)


def dtype_of(expr) -> str:
    """The element type of an expression.

    Raises:
        MegccError: for vectors and types that we do not have.
    """
    dtype = str(expr.ty.dtype) if hasattr(expr.ty, "dtype") else str(expr.ty)
    if dtype not in DTYPES:
        raise MegccError(f"TIR's values of type {dtype} have no C of ours")
    return dtype


def is_integer(expr) -> bool:
    """Whether the analyzer may rewrite an expression."""
    return hasattr(expr.ty, "dtype") and str(expr.ty.dtype) in ("int32", "int64", "bool")


def int_value(expr) -> int | None:
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def _flattened(indices, shape):
    flat = indices[0]
    for index, extent in zip(indices[1:], list(shape)[1:], strict=True):
        flat = flat * extent + index
    return flat


def _product(shape):
    total = shape[0]
    for extent in list(shape)[1:]:
        total = total * extent
    return total


def children(expr) -> list:
    """Operands of an expression."""
    found = [getattr(expr, name) for name in ("a", "b", "value", "condition", "true_value", "false_value", "body")
             if isinstance(getattr(expr, name, None), ir.Expr)]
    for name in ("args", "indices"):
        found += list(getattr(expr, name, None) or ())
    return found


def any_part(expr, wanted: Callable) -> bool:
    return wanted(expr) or any(any_part(part, wanted) for part in children(expr))


def _nodes(expr) -> int:
    return 1 + sum(map(_nodes, children(expr)))


def _is_real(expr) -> bool:
    return "float" in str(getattr(expr.ty, "dtype", ""))


def _reads(expr) -> bool:
    return any_part(expr, lambda part: type(part).__name__ == "TensorLoad")
