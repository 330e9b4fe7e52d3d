# SPDX-License-Identifier: Apache-2.0
"""The kernels of elementwise operators: vectors of float32, and scalars of every type."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir import expr as expressions
from ...ir import lanes
from ...ir.dims import Dim, Symbol, ceildiv, product
from ...ir.expr import Arg, Call, Const, Expr
from ...ir.graph import Op
from ...ir.narrow import SMALL_FLOATS, SMALL_INTEGERS
from ...ir.types import DTYPES, PLAIN, TensorType
from ...ops.base import operator
from ...ops.memory import memory_axes
from ..base import FLOAT32, Kernel, Lowered, Operand, possible_layouts
from ..parameters import Parameters
from ..site import Site

CHUNK = 2048
"""The number of elements that a task computes, roughly."""
ANY_ROWS = 16
"""The number of rows of a task if their length is known at run time only."""


@dataclass(frozen=True)
class LoopParameters(Parameters):
    """Parameters of `loops.c.j2` and `vector.c.j2`.

    names: names of the operands in C, such as ("x0", "x1"); operand i is `names[i]`.
    varies: varies[axis][i] says whether operand i varies along an axis of the result, the outermost first; else it is
        broadcast. varies[-1] is for a row, the innermost axis.
    chunk: elements of a task, if there is one axis only.
    formula: C expression of the result over a0, a1, …, an element of each operand or a vector of elements.
    """

    names: tuple[str, ...]
    varies: tuple[tuple[bool, ...], ...]
    chunk: int
    formula: str = field(repr=False)


@dataclass(frozen=True)
class TypedParameters(LoopParameters):
    """types, result: the C types of an element of each operand, and of the result."""

    types: tuple[str, ...]
    result: str


@dataclass(frozen=True)
class ScalarParameters(TypedParameters):
    """Parameters of `scalar.c.j2`.

    unsigned: the C type in which integers of the last operand's type are added, so that they wrap.
    bits: the number of bits of that type.
    """

    unsigned: str
    bits: int


@dataclass(frozen=True)
class LaneParameters(TypedParameters):
    """Parameters of `lanes.c.j2`.

    shorts, result_short: the suffixes of mgc functions for the dtypes of operands and result, such as "i8".
    before_store: the formula without the operations that the ISA's stores perform (`lanes.StoreTail`); "" if they
        perform none.
    shift, zero, lower, upper: what these stores do: shift right by 16 + shift bits if shift is not 0, add `zero`, and
        clip to [lower, upper]; all 0 if there are none.
    stores_four: the ISA narrows four vectors at a time to 8 bits, in fewer instructions than one (mgc_istore_row4).
    """

    shorts: tuple[str, ...]
    result_short: str
    before_store: str = field(repr=False)
    shift: int
    zero: int
    lower: int
    upper: int
    stores_four: bool


def broadcast_axes(output: TensorType, inputs: Sequence[TensorType]) -> list[tuple[Dim, tuple[bool, ...]]]:
    """Returns (extent, which inputs vary along it) of the output's axes in memory, with neighbouring axes merged."""
    merged: list[tuple[Dim, tuple[bool, ...]]] = []
    aligned = [_aligned(type_, output) for type_ in inputs]
    for position, (_, _, extent) in enumerate(memory_axes(output)):
        varies = tuple(axes is not None and axes[position] != 1 for axes in aligned)
        if extent == 1:
            continue
        if merged and merged[-1][1] == varies:
            merged[-1] = (merged[-1][0] * extent, varies)
        else:
            merged.append((extent, varies))
    return merged or [(1, (True,) * len(inputs))]


def _aligned(type_: TensorType, output: TensorType) -> list[Dim] | None:
    """Returns the extents of an operand along the output's axes in memory; None for a single value."""
    if type_.size == 1:
        return None
    if type_.layout == PLAIN:
        return [1] * (output.rank - type_.rank) + list(type_.shape)
    return [extent for _, _, extent in memory_axes(type_)]


def _elements(axes: Sequence[tuple[Dim, tuple[bool, ...]]], operand: int) -> Dim:
    """Returns the number of elements of an operand, over the extents of the kernel. axes: of `broadcast_axes`."""
    return product(Symbol(f"D{index}") for index, (_, varies) in enumerate(axes) if varies[operand])


class Broadcast(Kernel):
    """The base class of elementwise kernels: operands of one layout, broadcast together."""

    def layouts(self, site: Site):
        for layout in possible_layouts(site.y, site.target):
            if layout != PLAIN and any(t.size != 1 and t.rank != 4 for t in site.inputs):
                continue
            # In a blocked layout, a single channel occupies one lane only, so vectors cannot broadcast it.
            if layout.kind == "nchwc" and any(t.size != 1 and t.shape[1] != site.y.shape[1] for t in site.inputs):
                continue
            yield tuple(PLAIN if t.size == 1 else layout for t in site.inputs), (layout,)

    def lower(self, site: Site) -> Lowered:
        axes = broadcast_axes(site.y, site.inputs)
        extents: dict[str, Dim] = {f"D{index}": extent for index, (extent, _) in enumerate(axes)}
        symbols = [Symbol(name) for name in extents]
        if len(axes) == 1:
            tasks = ceildiv(symbols[0], CHUNK)
        else:
            columns = axes[-1][0]
            extents["ROWS"] = max(1, CHUNK // columns) if isinstance(columns, int) else ANY_ROWS
            tasks = product(symbols[:-2]) * ceildiv(symbols[-2], Symbol("ROWS"))
        names = [f"x{index}" for index in range(len(site.inputs))]
        varies = tuple(flags for _, flags in axes)
        # For the name: a hexadecimal number for each axis, whose bit n says whether operand n varies along it.
        pattern = "".join(f"{sum(flag << n for n, flag in enumerate(flags)):x}" for flags in varies)
        formula = self.formula(site)
        params = self.parameters(site, LoopParameters(names=tuple(names), varies=varies, chunk=CHUNK,
                                                       formula=formula))
        varying = [index for index in range(len(site.inputs)) if all(flags[index] for flags in varies)]
        same_size = [index for index in varying if site.inputs[index].itemsize == site.y.itemsize]
        return Lowered(
            f"elementwise/{self.name}", params, extents,
            tuple(Operand(name, index, _elements(axes, index)) for index, name in enumerate(names)),
            (Operand("y", 0, product(symbols)),), tasks, f"{_name(site.op, formula)}_{pattern}", self.name,
            in_place=tuple((0, index) for index in same_size))

    def formula(self, site: Site) -> str:
        raise NotImplementedError

    def parameters(self, site: Site, loop: LoopParameters) -> LoopParameters:
        return loop


def _name(op: Op, formula: str) -> str:
    """Returns the operation's part of the symbol; the digest distinguishes formulas."""
    if op.kind != "elementwise" and not op.attrs:
        return op.kind
    words = sorted(expressions.functions_of(op.attrs.expr))[:3] if op.kind == "elementwise" else []
    words = words or [op.kind]  # an expression that only changes the type has no function
    return "_".join([*words, hashlib.sha256(formula.encode()).hexdigest()[:6]])


class VectorKernel(Broadcast):
    """Any expression over float32 operands."""

    name = "vector"
    dtypes, uniform, float16 = (FLOAT32,), True, True

    def refuse(self, site: Site):
        # Only expressions over integers say their element type: they are for `LaneKernel`.
        if "dtype" in site.attrs and site.kind == "elementwise":
            return "works on floats only"
        return None if operator(site.kind).expression(site.attrs) is not None else "has no expression"

    def formula(self, site: Site) -> str:
        return expressions.to_c(operator(site.kind).expression(site.attrs), [f"a{n}" for n in range(len(site.inputs))])

    def cost(self, site: Site) -> float:
        # For each vector: 1 for the store and for each load, and the cycles of the formula's functions.
        calls = expressions.cost(operator(site.kind).expression(site.attrs))
        return site.y.size / site.isa.lanes * (1 + len(site.inputs) + calls)


class LaneKernel(Broadcast):
    """Expressions over integers and floats, saturated to the operator's element type."""

    name = "lanes"
    lane_kind = "i"  # its formulas work on int32, with the functions of megcc_integer.h

    def refuse(self, site: Site):
        if "dtype" not in site.attrs or site.kind != "elementwise":
            return "works on expressions that say their result's element type"
        unknown = next((t.dtype for t in (*site.inputs, *site.outputs) if t.dtype not in lanes.KINDS), None)
        return f"not on {unknown}" if unknown else None

    def formula(self, site: Site) -> str:
        # Stores saturate to `floor`, so values below it need not be exact.
        return lanes.to_c(site.attrs.expr, [f"a{n}" for n in range(len(site.inputs))], _kinds(site),
                          floor=lanes.lower_limit(site.y.dtype))

    def parameters(self, site: Site, loop: LoopParameters) -> LaneParameters:
        return LaneParameters(**vars(loop), types=tuple(t.c_type for t in site.inputs), result=site.y.c_type,
                              shorts=tuple(DTYPES[t.dtype].short for t in site.inputs),
                              result_short=DTYPES[site.y.dtype].short, **self._requantization(site),
                              stores_four=site.isa.name.startswith("avx") and site.y.dtype in ("int8", "uint8"))

    @staticmethod
    def _requantization(site: Site) -> dict:
        """Returns the fields of `LaneParameters` for requantizing stores."""
        found = lanes.store_tail(site.attrs.expr, _kinds(site), site.y.dtype) if site.isa.requantizing_stores else None
        if found is None:
            return {"before_store": "", "shift": 0, "zero": 0, "lower": 0, "upper": 0}
        names = [f"a{n}" for n in range(len(site.inputs))]
        before_store = lanes.to_c(found.inner, names, _kinds(site), floor=found.floor)
        return {"before_store": before_store, "shift": found.down, "zero": found.zero, "lower": found.lower,
                "upper": found.upper}

    def cost(self, site: Site) -> float:
        # For each vector: 2 for the store and for each load, which convert elements, and the cycles of the formula.
        return site.y.size / site.isa.lanes * (2 + 2 * len(site.inputs) + expressions.cost(site.attrs.expr))


def _kinds(site: Site) -> list[str]:
    return [lanes.KINDS[t.dtype] for t in site.inputs]


#: C expressions of operators over scalars a0, a1, a2, with names of scalar.c.j2. T: the operands' type; U: the unsigned
#: type in which they wrap; BITS: the number of its bits; POWER, MIN, MAX: functions.
SCALARS = {
    "equal": "a0 == a1", "less": "a0 < a1", "less_equal": "a0 <= a1", "greater": "a0 > a1",
    "greater_equal": "a0 >= a1",
    "logical_and": "a0 && a1", "logical_or": "a0 || a1", "logical_xor": "!a0 != !a1", "logical_not": "!a0",
    "bitwise_and": "a0 & a1", "bitwise_or": "a0 | a1", "bitwise_xor": "a0 ^ a1", "bitwise_not": "~a0",
    "shift_left": "(U)a1 < BITS ? (U)a0 << (U)a1 : 0",
    "where": "a0 ? a1 : a2", "is_nan": "a0 != a0", "is_inf": "a0 == MGC_INF || a0 == -MGC_INF",
}

#: C expressions that differ between signed and unsigned integers and floats. A division by 0 gives 0. One by -1 is a
#: negation that wraps, because C does not define the quotient of the least number. The remainder has the sign of a1 in
#: `mod`, that of a0 in `fmod`. A shift by a negative number, or by BITS and more, shifts all bits out.
SIGNED = {
    "div": "a1 == 0 ? 0 : a1 == -1 ? (T)(0u - (U)a0) : (T)(a0 / a1)",
    "mod": "a1 == 0 || a1 == -1 ? 0 : (T)(a0 % a1 + ((a0 % a1 != 0 && (a0 % a1 < 0) != (a1 < 0)) ? a1 : 0))",
    "fmod": "a1 == 0 || a1 == -1 ? 0 : (T)(a0 % a1)",
    "sign": "(a0 > 0) - (a0 < 0)",
    "shift_right": "(U)a1 < BITS ? (a0 < 0 ? ~(~a0 >> a1) : a0 >> a1) : a0 < 0 ? -1 : 0",
    "neg": "0u - (U)a0", "abs": "a0 < 0 ? 0u - (U)a0 : (U)a0",
    "pow": "a1 < 0 ? (a0 == 1 ? 1 : a0 == -1 ? 1 - 2 * (a1 & 1) : 0) : (T)POWER((U)a0, (U)a1)",
}
UNSIGNED = {
    "div": "a1 == 0 ? 0 : a0 / a1", "mod": "a1 == 0 ? 0 : a0 % a1", "fmod": "a1 == 0 ? 0 : a0 % a1",
    "shift_right": "(U)a1 < BITS ? (U)a0 >> (U)a1 : 0", "sign": "a0 > 0", "neg": "0u - (U)a0", "abs": "a0",
}
FLOATS = {
    "sign": "a0 != a0 ? a0 : (T)((a0 > 0) - (a0 < 0))", "mod": "mgd_mod((double)a0, (double)a1)",
    "fmod": "mgd_fmod((double)a0, (double)a1)",
}

#: Functions of integers: arithmetic that wraps, and others that cannot overflow.
INTEGER_FUNCTIONS = {
    "add": "(T)((U){} + (U){})", "sub": "(T)((U){} - (U){})", "mul": "(T)((U){} * (U){})",
    "min": "MIN({}, {})", "max": "MAX({}, {})", "if_lt": "({} < {} ? {} : {})",
}

FLOAT_TYPES = ("float32", "float64")

#: Operators that exist for some types only: prefix of the kind -> prefixes of the types.
ONLY_ON = {"bitwise": ("int", "uint"), "shift": ("int", "uint"), "logical": ("bool",), "is_": ("float",)}


def _is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


class ScalarKernel(Broadcast):
    """Integers, booleans, comparisons and conversions, one element at a time. Every result is defined."""

    name = "scalar"

    def refuse(self, site: Site):
        if site.kind in ("cast", "where"):
            return None
        if "dtype" in site.attrs and site.kind == "elementwise":
            return "works on operands of one type"
        # A dtype with a carrier, such as float16, is computed in another one (ir/types.py).
        storage_only = next((t.dtype for t in (*site.inputs, *site.outputs) if DTYPES[t.dtype].carrier), None)
        if storage_only is not None:
            return f"not {storage_only}"
        if self._formula(site.op, site.inputs[-1].dtype) is None:
            return f"not on {site.inputs[-1].dtype}"
        return None

    @staticmethod
    def _formula(op: Op, dtype: str) -> str | None:
        if not all(dtype.startswith(types) for kinds, types in ONLY_ON.items() if op.kind.startswith(kinds)):
            return None
        if op.kind in SCALARS:
            return SCALARS[op.kind]
        expression = operator(op.kind).expression(op.attrs)
        if dtype in FLOAT_TYPES:
            if dtype == "float64" and expression is not None:
                return expressions.to_c_double(expression, ("a0", "a1", "a2", "a3"))
            return FLOATS.get(op.kind)
        if dtype == "bool":
            return None
        table = SIGNED if _is_signed(dtype) else UNSIGNED
        if op.kind in table:
            return table[op.kind]
        return None if expression is None else integer_expression(expression)

    def formula(self, site: Site) -> str:
        if site.kind == "cast":
            return conversion(site.x.dtype, site.y.dtype, saturate=site.attrs.get("saturate", True),
                              rounding=site.attrs.get("rounding", "up"))
        return self._formula(site.op, site.inputs[-1].dtype)

    def parameters(self, site: Site, loop: LoopParameters) -> ScalarParameters:
        last = site.inputs[-1]
        return ScalarParameters(**vars(loop), types=tuple(type_.c_type for type_ in site.inputs), result=site.y.c_type,
                                unsigned=last.c_unsigned, bits=8 * last.itemsize)

    def cost(self, site: Site) -> float:
        # 2: an element is loaded, computed and stored.
        return 2.0 * site.y.size


def integer_expression(expr: Expr) -> str | None:
    """Returns a C expression over integers; None if a function or a constant of `expr` is not for integers."""
    if isinstance(expr, Arg):
        return f"a{expr.index}"
    if isinstance(expr, Const):
        return f"(T){int(expr.value)}" if abs(expr.value) < 2**31 and expr.value == int(expr.value) else None
    assert isinstance(expr, Call)
    strings = [integer_expression(argument) for argument in expr.args]
    if expr.fn not in INTEGER_FUNCTIONS or None in strings:
        return None
    return INTEGER_FUNCTIONS[expr.fn].format(*strings)


#: C expressions for the value of a stored element a0: functions of megcc_small.h and megcc_double.h, small integers.
FROM_STORED = {"float16": "mgc_from_float16(a0)", "int4": "((a0 & 15) ^ 8) - 8", "uint4": "(a0 & 15)",
               "int2": "((a0 & 3) ^ 2) - 2", "uint2": "(a0 & 3)"}
TO_STORED = {"float16": "mgc_to_float16((double)a0)", "bfloat16": "mgc_to_bf16((float)a0)"}
_ROUNDED = {"up": 1, "down": 0, "nearest": -1}


def conversion(source: str, result: str, saturate: bool = True, rounding: str = "up") -> str:
    """Returns a C expression that converts a0. Floats to integers saturate and NaN becomes 0; integers wrap. 8-bit
    floats are rounded as by `narrowed` in ir/narrow.py."""
    if DTYPES[source].carrier:
        if DTYPES[source].carrier == "float32":
            number = FROM_STORED.get(source, f"mgc_from_{DTYPES[source].short}(a0)")
        else:
            number = f"({FROM_STORED[source]})"
        return re.sub(r"\ba0\b", number, conversion(DTYPES[source].carrier, result, saturate, rounding))
    if result in TO_STORED:
        return TO_STORED[result]
    if result in SMALL_INTEGERS:
        number = f"({conversion(source, 'int32')})" if source in FLOAT_TYPES else "a0"
        return f"{number} & {(1 << SMALL_INTEGERS[result]) - 1}"
    if result == "float8_e8m0fnu":
        return f"mgc_to_f8e8m0fnu((float)a0, {_ROUNDED[rounding]}, {int(saturate)})"
    if result in SMALL_FLOATS:
        small = SMALL_FLOATS[result]
        # The bits of the largest number, of the result beyond it, and of NaN.
        codes = small.top, small.top if saturate else small.over, small.nan
        return (f"mgc_to_small((double)a0, {small.bits}, {small.fraction}, {small.least}, "
                f"{', '.join(f'{code:#x}u' for code in codes)})")
    if result == "bool":
        return "a0 != 0"
    if source not in FLOAT_TYPES or result in FLOAT_TYPES:
        return "a0"
    bits, signed = 8 * DTYPES[result].bytes, _is_signed(result)
    suffix = "f" if source == "float32" else ""
    high, low = float(2 ** (bits - signed)), float(-(2 ** (bits - 1))) if signed else 0.0
    name = f"INT{bits}" if signed else f"UINT{bits}"
    least = f"{name}_MIN" if signed else "0"
    return (f"a0 != a0 ? 0 : a0 <= {low!r}{suffix} ? {least} : a0 >= {high!r}{suffix} ? {name}_MAX : "
            f"({DTYPES[result].c_type})a0")


LANES = LaneKernel()
VECTOR = VectorKernel()
SCALAR = ScalarKernel()
