# SPDX-License-Identifier: Apache-2.0
"""Classes and attributes of TVM with Relax whose names differ between releases. The front end takes them from here, so
only this module depends on the release; `_tvm.py` has the supported releases.

Since 0.26 expressions of Relax and TIR share base classes. Before, each had its own classes, types were called "struct
info", and numeric arguments of operators were wrapped in PrimValue.

TVM 0.25 takes two functions for one if they differ only in constants. There functions get an attribute that differs
too (`add_function`, `match_attributes`).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tvm
from tvm import ir, relax, tirx

from ._tvm import SUPPORTED, TOO_OLD, compare_release

if compare_release(tvm.__version__) < 0:
    raise ImportError(f"tvm_megcc does not work with TVM {tvm.__version__} (supported: {SUPPORTED}): {TOO_OLD}")


def _first(*candidates: tuple[object, str]):
    """Returns the first of these attributes that exists. candidates: pairs of an object and an attribute's name.

    Raises:
        ImportError: if TVM has none of them.
    """
    for holder, name in candidates:
        if hasattr(holder, name):
            return getattr(holder, name)
    names = " or ".join(f"{getattr(holder, '__name__', 'tvm')}.{name}" for holder, name in candidates)
    raise ImportError(f"tvm_megcc does not work with TVM {tvm.__version__}: it has no {names}")


#: Whether Relax has classes of its own for types and numbers (before 0.26).
_SEPARATE_CLASSES = hasattr(relax, "TensorStructInfo")

Analyzer = _first((getattr(tvm, "sym", None), "Analyzer"), (getattr(tvm, "arith", None), "Analyzer"))
Call = _first((ir, "Call"), (relax, "Call"))
Constant = _first((ir, "GenericConst"), (relax, "Constant"))
Expr = tirx.PrimExpr if _SEPARATE_CLASSES else ir.Expr
StringImm = _first((ir, "StringImm"), (tirx, "StringImm"))
Tuple = _first((ir, "Tuple"), (relax, "Tuple"))
TupleGetItem = _first((ir, "TupleGetItem"), (relax, "TupleGetItem"))
#: The class of variables of Relax and of TIR (symbolic extents, loop variables).
Var = relax.Var | tirx.Var if _SEPARATE_CLASSES else ir.Var
RelaxShape = _first((relax, "ShapeStructInfo"), (relax, "ShapeType"))
RelaxTensor = _first((relax, "TensorStructInfo"), (relax, "TensorType"))
RelaxTuple = _first((relax, "TupleStructInfo"), (ir, "TupleType"))
#: Whether TVM's pass merges composites across a TupleGetItem of a composite's results (from 0.26).
MERGES_SELECTIONS = not _SEPARATE_CLASSES
#: The class name of TIR's tensor reads.
TENSOR_READ = type(tirx.BufferLoad(tirx.decl_buffer((1,), "float32"), [0])).__name__


# --- Relax ---------------------------------------------------------------------------------------------------------

def type_of(expr):
    """Returns the type of an expression of Relax, of a parameter for example."""
    return expr.struct_info if _SEPARATE_CLASSES else expr.ty


def has_extents(type_) -> bool:
    """Whether a type is that of a tensor whose extents are stated, as numbers or expressions. Otherwise its shape is
    None, or a variable that stands for the whole shape."""
    return isinstance(type_, RelaxTensor) and hasattr(type_.shape, "values")


def set_type(expr, type_) -> None:
    """Gives an expression of Relax its type."""
    (relax.expr._update_struct_info if _SEPARATE_CLASSES else relax.expr._update_type)(expr, type_)


def result_type_of(function: relax.Function):
    """Returns the type of a function's result."""
    return function.ret_struct_info if _SEPARATE_CLASSES else function.ret_ty


def name_of(var) -> str:
    """Returns the name of a variable of Relax or TIR."""
    return var.name_hint if isinstance(var, relax.Var) and _SEPARATE_CLASSES else var.name


def value_of(constant):
    """Returns the tensor of a constant."""
    return constant.data if hasattr(constant, "data") else constant.value


def with_arguments(call, arguments: Sequence):
    """Returns the call of the same operator with other arguments."""
    return Call(call.op, arguments, call.attrs, call.sinfo_args if _SEPARATE_CLASSES else call.ty_args)


def cast_type_of(binding):
    """Returns the type that a MatchCast gives its value."""
    return binding.struct_info if _SEPARATE_CLASSES else binding.ty


def key_of(var):
    """Returns the key of a variable in the mutators' table of replaced variables."""
    return var.vid if _SEPARATE_CLASSES else var


def number_of(expr):
    """Returns the value of a numeric argument as a TIR expression; None for other arguments."""
    if _SEPARATE_CLASSES:
        expr = expr.value if isinstance(expr, relax.PrimValue) else expr
        return expr if isinstance(expr, tirx.PrimExpr) else None
    return expr if ir.is_prim_expr(expr) else None


def is_number(expr) -> bool:
    """Whether an argument of an operator is numeric."""
    return number_of(expr) is not None


def as_argument(number):
    """Returns an expression of TIR as an argument of an operator."""
    return relax.PrimValue(number) if _SEPARATE_CLASSES else number


def _confuses_constants() -> bool:
    """Whether TVM's builder takes functions that differ only in constants for one."""
    builder, numbers = relax.BlockBuilder(), [relax.const(np.full(1, value, np.int32)) for value in range(2)]
    first, second = (builder.add_func(relax.Function([], number, type_of(number)), "f") for number in numbers)
    return first == second


_CONFUSES_CONSTANTS = _confuses_constants()
#: Attributes that differ where functions do: a digest of a function's constants, and the number of a match.
_DIGEST, _MATCH = "megcc_constants", "megcc_match"


def add_function(builder: relax.BlockBuilder, function: relax.Function, name: str) -> ir.GlobalVar:
    """Adds a function to a builder, as `builder.add_func`; returns the existing one only if constants agree too."""
    if _CONFUSES_CONSTANTS:
        digest = hashlib.sha256()
        relax.analysis.post_order_visit(function, lambda expr: digest.update(
            value_of(expr).numpy().tobytes()) if isinstance(expr, Constant) else None)
        function = function.with_attr(_DIGEST, digest.hexdigest())
    return builder.add_func(function, name)


def match_attributes() -> Callable[[Mapping], dict[str, str]] | None:
    """Returns what FusionPattern takes as `attrs_getter`, so that FuseOpsByPattern makes a function of each match."""
    count = itertools.count()
    return (lambda _matched: {_MATCH: str(next(count))}) if _CONFUSES_CONSTANTS else None


def without_match_attributes(function: relax.Function) -> relax.Function:
    """Returns a composite as other releases have it."""
    return function.without_attr(_MATCH) if _CONFUSES_CONSTANTS else function


# --- TIR -----------------------------------------------------------------------------------------------------------

def element_type(expr) -> str:
    """Returns the dtype of a TIR expression; for one without a dtype, the name of its kind."""
    if _SEPARATE_CLASSES:
        return str(expr.dtype)
    return str(expr.ty.dtype) if hasattr(expr.ty, "dtype") else str(expr.ty)


def parameters_of(function: tirx.PrimFunc) -> list:
    """Returns the parameters of a function; tensors as buffers, which have shape, strides, dtype and name."""
    buffers = getattr(function, "buffer_map", {})
    return [buffers[parameter] if parameter in buffers else parameter for parameter in function.params]


def is_buffer(parameter) -> bool:
    """Whether a parameter of a function is a tensor; else it is a scalar."""
    return hasattr(parameter, "shape")


def buffer_of(load):
    """Returns the buffer that an expression reads."""
    return load.buffer if hasattr(load, "buffer") else load.source


def assertion(condition, kind: str, message: str):
    """Returns the statement that raises an exception unless the condition holds. It hides that TVM's Python wrapper has
    swapped the names of the first two parameters."""
    return tirx.AssertStmt(condition, StringImm(kind), [StringImm(message)])
