# SPDX-License-Identifier: Apache-2.0
"""Lowers a call of a Relax operator to TIR's loops, through TVM's legalisation of a module with only this call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import tvm
import tvm_ffi
from tvm import ir, relax, tirx

from ...errors import MegccError
from ...ops.control.tir import Program
from ..tvm_versions import Call, Tuple, Var, type_of, with_arguments
from .printer import program_of

#: Calls of external functions, for which there are no loops.
_OPAQUE = ("relax.call_pure_packed", "relax.call_dps_packed", "relax.call_inplace_packed",
           "relax.call_builtin_with_ctx")
#: Operators that TVM's pass DispatchSortScan lowers.
_SCANS = ("relax.cumsum", "relax.cumprod", "relax.sort", "relax.argsort", "relax.topk")


def has_loops(name: str) -> bool:
    """Whether TVM may have loops for a Relax operator."""
    if name in _SCANS:
        return True
    try:
        return ir.Op.get(name).get_attr("FLegalize") is not None
    except (AttributeError, KeyError, RuntimeError):
        return False


class StructuralKey:
    """A TVM object as a dictionary key. Equal keys have the same structure and the same names: names are printed into
    the C."""

    def __init__(self, node):
        self.node, self._text = node, node.script()

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other) -> bool:
        return self._text == other._text and tvm_ffi.structural_equal(self.node, other.node, map_free_vars=True)


def legalized(call: Call, is_tensor: Callable) -> tuple[relax.Function, dict[str, tirx.PrimFunc]]:
    """Returns a call of an operator as calls of TIR functions.

    Args:
        is_tensor: whether an argument is a tensor or a tuple of them.

    Returns:
        A function of the call's tensor arguments, and the functions that it calls, by name.

    Raises:
        MegccError: if TVM does not lower the operator to loops.
    """
    parameters: list[Var] = []

    def parameter(argument):
        if not is_tensor(argument):
            return argument
        if isinstance(argument, Tuple):
            return Tuple([parameter(field) for field in argument.fields])
        parameters.append(relax.Var(f"x{len(parameters)}", type_of(argument)))
        return parameters[-1]

    arguments = [parameter(argument) for argument in call.args]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(with_arguments(call, arguments))
        builder.emit_func_output(result)
    return _lowered(StructuralKey(builder.get()), call.op.name)


@lru_cache(maxsize=512)
def _lowered(module: StructuralKey, name: str) -> tuple[relax.Function, dict[str, tirx.PrimFunc]]:
    try:
        with tvm.target.Target("llvm"):
            found = relax.transform.LegalizeOps()(relax.backend.DispatchSortScan()(module.node))
    except Exception as error:  # legalisation rules raise many kinds for unsupported operands
        reason = str(error).strip().splitlines()
        raise MegccError(f"TVM cannot lower it to loops: {reason[-1] if reason else 'it gives no reason'}") from None
    called = {var.name_hint: function for var, function in found.functions.items()
              if isinstance(function, tirx.PrimFunc)}
    main = found["main"]
    for block in main.body.blocks:
        for binding in block.bindings:
            _require_loops(binding.value, name)
    return main, called


def _require_loops(value, name: str) -> None:
    """Raises MegccError if a value of the lowered function of operator `name` is not computed by a TIR function."""
    if not isinstance(value, Call) or not isinstance(value.op, ir.Op):
        return
    if value.op.name in _OPAQUE:
        called = getattr(value.args[0], "global_symbol", value.args[0])
        raise MegccError(f"TVM computes it with {called}, which is no loops")
    if value.op.name == name:
        raise MegccError("TVM has no loops for it")


@lru_cache(maxsize=512)
def _program(function: StructuralKey, inputs: int, name: str) -> Program | MegccError:
    """Returns the program or the error, since the cache keeps no exceptions."""
    try:
        return program_of(function.node, inputs, name)
    except MegccError as error:
        return error


def loops_of(function: tirx.PrimFunc, inputs: int, name: str) -> Program:
    """Returns `program_of` these arguments, cached.

    Raises:
        MegccError: naming what in the function cannot be printed.
    """
    found = _program(StructuralKey(function), inputs, name)
    if isinstance(found, MegccError):
        raise MegccError(str(found))
    return found
