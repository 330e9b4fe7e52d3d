# SPDX-License-Identifier: Apache-2.0
"""Names of TVM with Relax that differ from release to release, each looked up once. Nothing else in the package says
which release has what; `_tvm.py` says which ones are supported.

An expression of Relax and one of TIR are relatives since 0.26. Before that, each had classes of its own, types were
called "struct info", and numbers among the arguments of an operator were wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import ir, relax, tirx

from ._tvm import OLDER, SUPPORTED, known

if known(tvm.__version__) < 0:
    raise ImportError(f"tvm_megcc does not work with TVM {tvm.__version__} (it wants {SUPPORTED}): {OLDER}")


def _first(*candidates: tuple[object, str]):
    """Returns the first of these attributes that there is.

    Raises:
        ImportError: for a TVM that has none.
    """
    for holder, name in candidates:
        if hasattr(holder, name):
            return getattr(holder, name)
    names = " or ".join(f"{getattr(holder, '__name__', 'tvm')}.{name}" for holder, name in candidates)
    raise ImportError(f"tvm_megcc does not work with TVM {tvm.__version__}: it has no {names}")


#: Whether expressions of Relax have a type of their own kind, and numbers among them are wrapped.
_APART = hasattr(relax, "TensorStructInfo")

Analyzer = _first((getattr(tvm, "sym", None), "Analyzer"), (getattr(tvm, "arith", None), "Analyzer"))
Call = _first((ir, "Call"), (relax, "Call"))
Constant = _first((ir, "GenericConst"), (relax, "Constant"))
Expr = tirx.PrimExpr if _APART else ir.Expr
StringImm = _first((ir, "StringImm"), (tirx, "StringImm"))
Tuple = _first((ir, "Tuple"), (relax, "Tuple"))
TupleGetItem = _first((ir, "TupleGetItem"), (relax, "TupleGetItem"))
#: Variables of Relax, and those of TIR: symbolic extents, loops.
Var = relax.Var | tirx.Var if _APART else ir.Var
RelaxShape = _first((relax, "ShapeStructInfo"), (relax, "ShapeType"))
RelaxTensor = _first((relax, "TensorStructInfo"), (relax, "TensorType"))
RelaxTuple = _first((relax, "TupleStructInfo"), (ir, "TupleType"))
#: Whether TVM merges composites across the choice of one of a composite's results.
MERGES_SELECTIONS = not _APART
#: The class of TIR's reads of a tensor, by name.
LOAD = type(tirx.BufferLoad(tirx.decl_buffer((1,), "float32"), [0])).__name__


# --- Relax ---------------------------------------------------------------------------------------------------------

def type_of(expr):
    """Returns the type of an expression of Relax, of a parameter for example."""
    return expr.struct_info if _APART else expr.ty


def result_type_of(function: relax.Function):
    return function.ret_struct_info if _APART else function.ret_ty


def name_of(var) -> str:
    """Returns the name of a variable of Relax or TIR."""
    return var.name_hint if isinstance(var, relax.Var) and _APART else var.name


def value_of(constant):
    """Returns the tensor of a constant."""
    return constant.data if hasattr(constant, "data") else constant.value


def with_arguments(call, arguments: Sequence):
    """Returns the call of the same operator with other arguments."""
    return Call(call.op, arguments, call.attrs, call.sinfo_args if _APART else call.ty_args)


def key_of(var):
    """Returns the key under which mutators remember a replaced variable."""
    return var.vid if _APART else var


def number_of(expr):
    """Returns the value of a numeric argument, an expression of TIR; None for all others."""
    if _APART:
        expr = expr.value if isinstance(expr, relax.PrimValue) else expr
        return expr if isinstance(expr, tirx.PrimExpr) else None
    return expr if ir.is_prim_expr(expr) else None


def is_number(expr) -> bool:
    return number_of(expr) is not None


def as_argument(number):
    """Returns an expression of TIR as an argument of an operator."""
    return relax.PrimValue(number) if _APART else number


# --- TIR -----------------------------------------------------------------------------------------------------------

def element_type(expr) -> str:
    """Returns the element type of an expression of TIR; what it is where it has none."""
    if _APART:
        return str(expr.dtype)
    return str(expr.ty.dtype) if hasattr(expr.ty, "dtype") else str(expr.ty)


def parameters_of(function: tirx.PrimFunc) -> list:
    """Returns parameters of a function; those that are tensors as buffers, which have shape, strides, dtype and
    name."""
    buffers = getattr(function, "buffer_map", {})
    return [buffers[parameter] if parameter in buffers else parameter for parameter in function.params]


def is_buffer(parameter) -> bool:
    return hasattr(parameter, "shape")


def source_of(load):
    """Returns the buffer that an expression reads."""
    return load.buffer if hasattr(load, "buffer") else load.source


def assertion(condition, kind: str, message: str):
    """Returns the statement that raises an exception unless the condition holds. TVM's wrapper calls its first two
    parameters by each other's names."""
    return tirx.AssertStmt(condition, StringImm(kind), [StringImm(message)])
