# SPDX-License-Identifier: Apache-2.0
"""C functions that printed loops call: arithmetic without undefined behaviour, and our own elementary functions.

The name of a helper, such as `floordiv_i64`, is an operation and the type of its operands.
"""

from __future__ import annotations

from ...errors import MegccError
from ...ir.types import DTYPES
from ...kernels.elementwise.loops import conversion

#: Suffix of helpers -> dtype. bool and storage-only types have none, since they are computed in other types.
_DTYPES = {type_.short: dtype for dtype, type_ in DTYPES.items() if not type_.carrier and dtype != "bool"}

#: C types that arithmetic promotes to int.
_NARROW = ("int8_t", "uint8_t", "int16_t", "uint16_t")

#: The check of an index that depends on data. If it fails, the kernel returns an error at its end.
INDEX = "index_in"
_INDEX = """\
/* The index i if it is in [0, extent); else 0, and *outside becomes 1. */
static MGC_INLINE int32_t index_in(int64_t i, int64_t extent, int *outside)
{
    if (i >= 0 && i < extent) {
        return (int32_t)i;
    }
    *outside = 1;
    return 0;
}"""
#: The rounding of a C float to the numbers of float16.
ROUND_FLOAT16 = "half"
_ROUND_FLOAT16 = """\
/* Rounded to float16. */
static MGC_INLINE float half(float x)
{
    return mgc_from_float16(mgc_to_float16((double)x));
}"""

#: Operation -> its C for operands a and b of one type T. U is uint64_t for types of 64 bits and uint32_t for others;
#: its arithmetic wraps, and results are converted to T. BITS is the width of T. Division by zero gives 0, and shifts by
#: BITS or more shift everything out.
_INTEGER_BINARY = {
    "add": "(T)((U)a + (U)b)", "sub": "(T)((U)a - (U)b)", "mul": "(T)((U)a * (U)b)",
    "min": "a < b ? a : b", "max": "a > b ? a : b",
    "shl": "(U)b < BITSu ? (T)((U)a << (U)b) : 0",
}
_SIGNED_BINARY = {
    "div": "b == 0 ? 0 : b == -1 ? (T)(0u - (U)a) : (T)(a / b)",
    "mod": "b == 0 || b == -1 ? 0 : (T)(a % b)",
    "floordiv": "b == 0 ? 0 : b == -1 ? (T)(0u - (U)a) : (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)))",
    "floormod": "b == 0 || b == -1 ? 0 : (T)(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0))",
    "shr": "(U)b < BITSu ? (T)(a < 0 ? ~(~a >> b) : a >> b) : a < 0 ? -1 : 0",
}
_UNSIGNED_BINARY = {
    "div": "b == 0 ? 0 : (T)(a / b)", "mod": "b == 0 ? 0 : (T)(a % b)",
    "shr": "b < BITSu ? (T)(a >> b) : 0",
}
_UNSIGNED_BINARY.update(floordiv=_UNSIGNED_BINARY["div"], floormod=_UNSIGNED_BINARY["mod"])
_SIGNED_UNARY = {"abs": "a < 0 ? (T)(0u - (U)a) : a"}

#: Functions of float32 that call the vector functions of megcc_math.h, so that scalars and vectors give the same bits.
_VECTOR_UNARY = ("exp", "log", "tanh", "sigmoid", "erf")
#: Functions of one operand that `mgd_<name>` of megcc_double.h computes in float64, for float32 as well.
_FLOAT64_UNARY = (*_VECTOR_UNARY, "sqrt", "floor", "ceil", "round", "abs", "trunc", "log1p", "sin", "cos", "tan",
                  "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
#: Functions of x that are computed in float64 -> their C.
_FLOAT_UNARY = {
    "rsqrt": "1 / mgd_sqrt(x)", "exp2": "mgd_pow(2.0, x)", "exp10": "mgd_pow(10.0, x)",
    "log2": "mgd_log(x) * 1.4426950408889634", "log10": "mgd_log(x) * 0.4342944819032518",
}
#: Rounding functions of float32 x -> their C, in which `whole` is x truncated. Numbers from 2^23 (8388608) on are
#: integers already; smaller ones fit int32_t. Adding 2^23 to a positive number rounds it, because the sum has no
#: fraction. Here zeros may lack the sign of x, which `_float_helpers` restores.
_ROUNDING = {
    "floor": "whole > x ? whole - 1.0f : whole", "ceil": "whole < x ? whole + 1.0f : whole", "trunc": "whole",
    "round": "x < 0 ? 8388608.0f - (8388608.0f - x) : (x + 8388608.0f) - 8388608.0f"}
#: Functions of x and y that are computed in float64 -> their C.
_FLOAT_BINARY = {"fmod": "mgd_fmod(x, y)", "pow": "mgd_pow(x, y)", "copysign": "mgd_with_sign(x, y)",
                 "hypot": "mgd_sqrt(x * x + y * y)", "atan2": "angle(x, y)"}
_ANGLE = """\
/* atan2(rise, run), the angle of the point (run, rise), in radians. */
static MGC_INLINE double angle(double rise, double run)
{
    const double pi = 3.141592653589793;
    if (run != run || rise != rise) {
        return run + rise;
    }
    if (run == 0 && rise == 0) {
        return mgd_with_sign(mgd_bits(run) >> 63 ? pi : 0.0, rise);
    }
    if (mgd_abs(run) == MGD_INF && mgd_abs(rise) == MGD_INF) {
        return mgd_with_sign(run > 0 ? pi / 4 : 3 * pi / 4, rise);
    }
    const double part = mgd_atan(mgd_abs(rise) / mgd_abs(run));
    return mgd_with_sign(run < 0 || mgd_bits(run) >> 63 ? pi - part : part, rise);
}"""


def helper(name: str) -> tuple[str, ...]:
    """Returns the C definitions of a helper, after those that it needs.

    Raises:
        MegccError: for a function that is not supported on the type.
    """
    if name == INDEX:
        return (_INDEX,)
    if name == ROUND_FLOAT16:
        return (_ROUND_FLOAT16,)
    operation, _, short = name.rpartition("_")
    if short == DTYPES["bool"].short:
        raise MegccError(f"there is no {operation} of bool")
    dtype = _DTYPES[short]
    if "_of_" in name:
        return (_conversion(name, *(_DTYPES[part] for part in name.split("_of_"))),)
    if dtype.startswith("float"):
        return _float_helpers(name, operation, dtype)
    return (_integer_helper(name, operation, dtype),)


def _function(name: str, result: str, parameters: str, value: str) -> str:
    """Returns a C function. result: its type; value: the expression that it returns."""
    if result in _NARROW:
        value = f"({result})({value})"
    return f"static MGC_INLINE {result} {name}({parameters})\n{{\n    return {value};\n}}"


def _conversion(name: str, result: str, source: str) -> str:
    """Returns the function that converts a float to an integer, saturating as the operator Cast does."""
    text = conversion(source, result).replace("a0", "x")
    return _function(name, DTYPES[result].c_type, f"{DTYPES[source].c_type} x", text)


def _integer_helper(name: str, operation: str, dtype: str) -> str:
    signed = dtype.startswith("int")
    table = {**_INTEGER_BINARY, **(_SIGNED_BINARY if signed else _UNSIGNED_BINARY), **(_SIGNED_UNARY if signed else {})}
    if operation not in table:
        raise MegccError(f"there is no {operation} of {dtype}")
    c_type, size = DTYPES[dtype].c_type, DTYPES[dtype].bytes
    unsigned = "uint64_t" if size == 8 else "uint32_t"
    text = table[operation].replace("(T)", f"({c_type})").replace("(U)", f"({unsigned})").replace("BITS", str(8 * size))
    return _function(name, c_type, f"{c_type} a" if operation in _SIGNED_UNARY else f"{c_type} a, {c_type} b", text)


def _float_helpers(name: str, operation: str, dtype: str) -> tuple[str, ...]:
    c_type = DTYPES[dtype].c_type
    if operation in ("min", "max"):  # as TVM's own: a comparison, so that with a NaN the result is b
        return (_function(name, c_type, f"{c_type} a, {c_type} b", _INTEGER_BINARY[operation]),)
    if dtype == "float32" and operation in _VECTOR_UNARY:
        return (f"static MGC_INLINE float {name}(float x)\n{{\n    float y[MGC_LANES];\n"
                f"    mgc_store(y, mgc_{operation}(mgc_set1(x)));\n    return y[0];\n}}",)
    if dtype == "float32" and operation in _ROUNDING:
        whole = "" if operation == "round" else "    const float whole = (float)(int32_t)x;\n"
        return (f"static MGC_INLINE float {name}(float x)\n{{\n    if (!(x > -8388608.0f && x < 8388608.0f)) {{\n"
                f"        return x;\n    }}\n{whole}    const float rounded = {_ROUNDING[operation]};\n"
                "    return rounded == 0.0f ? 0.0f * x : rounded;\n}",)
    if operation in _FLOAT64_UNARY:
        value, parameters = f"mgd_{operation}(x)", "x"
    elif operation in _FLOAT_UNARY:
        value, parameters = _FLOAT_UNARY[operation], "x"
    elif operation in _FLOAT_BINARY:
        value, parameters = _FLOAT_BINARY[operation], "xy"
    else:
        raise MegccError(f"there is no {operation} of {dtype}")
    before = (_ANGLE,) if operation == "atan2" else ()
    if dtype == "float64":
        return (*before, _function(name, c_type, ", ".join(f"double {p}" for p in parameters), value))
    inner = f"static MGC_INLINE float {name}({', '.join(f'float {p}32' for p in parameters)})\n{{\n"
    inner += "".join(f"    const double {p} = (double){p}32;\n" for p in parameters)
    return (*before, f"{inner}    return (float)({value});\n}}")
