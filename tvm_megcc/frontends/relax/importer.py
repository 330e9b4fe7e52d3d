# SPDX-License-Identifier: Apache-2.0
"""Imports Relax expressions into our graph: a whole region in order to compile it, or a match of a pattern in order to
check whether we have kernels for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Union

import numpy as np
from tvm import ir, relax, tirx

from ...errors import MegccError, ModelError
from ...foreign import identifier
from ...ir.dims import Dim
from ...ir.graph import Graph
from ...ir.limits import MAX_RANK
from ...ir.shapes import Bucket
from ...ir.types import ORDINARY, TensorType
from ..onnx.builder import Builder
from ..onnx.synthetic_node import SyntheticNode
from ..tir.legalize import legalized, loops_of
from ..tvm_common.node import TvmNode, check_types, dtype_name, require_known
from ..tvm_versions import (
    Call,
    Constant,
    Expr,
    RelaxShape,
    RelaxTensor,
    RelaxTuple,
    Tuple,
    TupleGetItem,
    Var,
    has_extents,
    is_number,
    name_of,
    type_of,
    value_of,
)
from .extents import Extents, bounds_of
from .ops import importer
from .restore_onnx import restore_onnx_operators

#: The value of an expression in the graph: a value's name, or a tuple of such.
Value = Union[str, tuple["Value", ...]]

#: Exceptions that an importer raises if a call contradicts its expectations.
REFUSALS = (MegccError, ValueError, IndexError, TypeError, KeyError, OverflowError, ZeroDivisionError)

#: Operators whose shape operand may be symbolic, since their importers read the shape from the result type. When TVM
#: moves an operator to a function, its shape operand becomes a parameter, which does not tell the extents.
OPERATORS_THAT_KEEP_SHAPES = ("relax.reshape",)

#: Element types of the tensors that TVM passes.
ELEMENT_TYPES = (*ORDINARY, "bfloat16")
CALL_TIR = "relax.call_tir"
#: The prefix of composites whose operators are imported as TIR loops.
TIR_PREFIX = "megcc.tir."
#: Attribute of regions: the TIR functions that they call, by name.
TIR_FUNCTIONS = "megcc_tir"


def tensor_type(type_, extents: Extents) -> TensorType:
    """Converts a Relax tensor type. extents: those of the function that the type is in.

    Raises:
        MegccError: if its shape is not known.
    """
    if not isinstance(type_, RelaxTensor):
        raise MegccError(f"{type_} is no tensor")
    if not has_extents(type_):
        raise MegccError(f"the shape of {type_} is not known")
    shape = extents.shape(type_)
    if len(shape) > MAX_RANK:
        raise MegccError(f"a tensor of {len(shape)} axes; at most {MAX_RANK} are supported")
    return TensorType(dtype_name(type_.dtype, ELEMENT_TYPES), shape)


def result_types(type_, extents: Extents) -> tuple[TensorType, ...]:
    """Converts the type of a call, a tensor or a tuple of tensors."""
    fields = type_.fields if isinstance(type_, RelaxTuple) else (type_,)
    return tuple(tensor_type(field, extents) for field in fields)


def is_operator(expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, ir.Op)


class Importer:
    """Imports expressions into a builder. Calls of operators are imported by our tables (`ops`), or as the loops that
    TVM lowers them to.

    unbound: returns the value of a variable that no binding defines.
    values: the values of variables. functions: local functions (composites) by variable.
    extents: those of the function that is being imported.
    tir: TIR functions by name.
    loops: whether all calls are imported as loops.
    refuses: returns why no kernel realises the operators of a graph, or None if one does. With it, a call that our
        tables or kernels do not support is imported as loops; if that fails too, the call is a finding, and the import
        goes on. Without it (None), a call that our tables do not support is an error.
    allows_loops: whether calls that are not supported may be imported as loops.
    """

    def __init__(self, unbound: Callable[[Var], Value] | None = None):
        self.builder = Builder()
        self.values: dict[Var, Value] = {}
        self.functions: dict[Var, relax.Function] = {}
        self.extents = Extents()
        self.tir: Mapping[str, tirx.PrimFunc] = {}
        self.loops = False
        self.refuses: Callable[[Graph], str | None] | None = None
        self.allows_loops = True
        self.findings: list[str] = []
        self._unbound = unbound

    def add_input(self, var: Var, name: str) -> str:
        """Adds an input of the graph for a variable, and returns its name."""
        name = self.builder.unique(name)
        if has_extents(type_of(var)):
            self.extents.input_shape(type_of(var))
        self.builder.add_input(name, tensor_type(type_of(var), self.extents))
        self.values[var] = name
        return name

    def value(self, expr, name: str = "") -> Value:
        """Returns the value of an expression. name: the origin of its operators."""
        if isinstance(expr, Var):
            if expr not in self.values and self._unbound is not None:
                self.values[expr] = self._unbound(expr)
            return self.values[expr]
        if isinstance(expr, Constant):
            return self.builder.weight(array_of(expr), f"{name or 'constant'}.constant")
        if isinstance(expr, Tuple):
            return tuple(self.value(field, name) for field in expr.fields)
        if isinstance(expr, TupleGetItem):
            return self.value(expr.tuple_value, name)[expr.index]
        if isinstance(expr, relax.SeqExpr):
            return self._import_sequence(expr)
        if isinstance(expr, relax.If):
            return self._import_if(expr, name or "if")
        if isinstance(expr, Call):
            return self._import_call(expr, name)
        raise MegccError(f"{type(expr).__name__} cannot be imported")

    def _import_sequence(self, body: relax.SeqExpr) -> Value:
        """Imports the bindings of a sequence in order, and returns its result."""
        for block in body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, relax.Function):
                    self.functions[binding.var] = binding.value
                else:
                    self.values[binding.var] = self.value(binding.value, name_of(binding.var))
        return self.value(body.body)

    def _import_if(self, expr: relax.If, name: str) -> Value:
        """Imports an If: as the branch that is taken if its condition is known, else as an operator with a body for
        each branch.

        Raises:
            MegccError: if the branches give values of different types.
        """
        condition = self.value(expr.cond, name)
        if condition in self.builder.constants:
            taken = expr.true_branch if self.builder.constants[condition].reshape(-1)[0] else expr.false_branch
            return self.value(taken, name)
        node = SyntheticNode(self.builder, "If", name, (condition,), {})
        with self.builder.importing(name):
            (condition,) = node.emit("reshape", (condition,), shape=())
        bodies, reads, types, results = [], [], [], ()
        for branch in (expr.true_branch, expr.false_branch):
            first_op = len(self.builder.ops)
            results = self.value(branch, name)
            values = flattened([results])
            types.append(tuple(self.builder.types[value] for value in values))
            body, captured = self.builder.body(first_op, (), values)
            bodies.append(body)
            reads.append(captured)
        if types[0] != types[1]:
            raise MegccError(f"the branches give {types[0]} and {types[1]}")
        node = SyntheticNode(self.builder, "If", name, (), {}, len(types[0]))
        outputs = node.emit("branch", (condition, *reads[0], *reads[1]), yes=bodies[0], no=bodies[1],
                            reads=len(reads[0]), types=types[0])
        return _nested(results, iter(outputs))

    def _import_call(self, call: Call, name: str) -> Value:
        """Imports the call of an operator or of a local function."""
        if isinstance(call.op, Var) and call.op in self.functions:
            return self._import_local_call(self.functions[call.op], call.args, name)
        if not is_operator(call):
            raise MegccError(f"a call of {call.op} cannot be imported")
        if self.refuses is not None and not self.loops:
            return self._import_or_lower(call, name)
        if call.op.name not in OPERATORS_THAT_KEEP_SHAPES and any(map(_is_symbolic_shape, call.args)):
            raise MegccError("its shape is a symbolic operand, which TVM loses where the operator moves to a function")
        if self.loops and call.op.name != CALL_TIR:
            return self._import_loops(call, name)
        return self._import_operator(call, name)

    def _import_operator(self, call: Call, name: str) -> Value:
        """Imports an operator by our operator tables.

        Raises:
            MegccError: if there is no importer, or if a result's extent does not follow from the inputs.
            ShapeError: if our types differ from TVM's.
        """
        import_ = self._import_call_tir if call.op.name == CALL_TIR else importer(call.op.name)
        if import_ is None:
            raise MegccError("there is no kernel for it")
        types = result_types(type_of(call), self.extents)
        operands = [self.value(argument, name) for argument in tensors_of(call.args)]
        node = TvmNode(self.builder, call, name or call.op.name, flattened(operands), types)
        with self.builder.importing(node.name):
            values = tuple(import_(node))
        check_types(node, values, self.extents.may_be_equal)
        require_known(dim for value in values for dim in self.builder.types[value].shape)
        return values if isinstance(type_of(call), RelaxTuple) else values[0]

    def _import_or_lower(self, call: Call, name: str) -> Value:
        """Imports an operator by our operator tables if a kernel realises it, else as the loops that TVM lowers it to.
        If neither is possible, records a finding and returns placeholders."""
        if call.op.name == "relax.assert_op":
            return ()  # our operators check indices themselves
        if call.op.name == CALL_TIR and not self.allows_loops:
            self.findings.append(f"{call.args[0].name_hint}: its loops stay with TVM (tir=True would take them)")
            return self._placeholder(call)
        for argument in tensors_of(call.args):
            self.value(argument, name)  # operands first: a refusal drops only the operators from `first_op` on
        first_op, first_condition = len(self.builder.ops), len(self.builder.conditions)
        try:
            value = self._import_operator(call, name)
            reason = self.refuses(self.builder.subgraph(first_op))
            if reason is None:
                return value
        except REFUSALS as error:
            reason = str(error)
        del self.builder.ops[first_op:], self.builder.conditions[first_condition:]
        refuses, self.refuses = self.refuses, None  # errors in its loops are reasons to refuse this call
        try:
            if call.op.name != CALL_TIR and self.allows_loops:
                return self._import_loops(call, name)
        except MegccError as error:
            reason = f"{reason}; its loops: {error}"
        finally:
            self.refuses = refuses
        self.findings.append(f"{call.op.name.removeprefix('relax.')} '{name}': {reason}")
        return self._placeholder(call)

    def _placeholder(self, call: Call) -> Value:
        """Returns placeholder values of the call's types, so that the import can go on and find more errors."""
        names = []
        for type_ in result_types(type_of(call), self.extents):
            names.append(self.builder.unique("unknown"))
            self.builder.add_input(names[-1], type_)
        return tuple(names) if isinstance(type_of(call), RelaxTuple) else names[0]

    def _import_call_tir(self, node: TvmNode) -> Sequence[str]:
        """Imports a call of a TIR function as an operator `tir`, which carries the function's loops."""
        called = node.args[0].name_hint
        if called not in self.tir:
            raise MegccError(f"the loops of {called} are not known. Where a pass such as LegalizeOps, or the pipeline "
                             "'zero', lowered a region: compile regions first, tvm_megcc.build_megcc_kernels(mod)")
        integers = [value for value in node.args[1].fields if not is_tensor(value)]
        integers += list(node.args[2].values) if len(node.args) > 2 else []
        # Arguments of the loops that are no tensors are integer expressions of TVM over its symbolic extents.
        given = tuple(self.extents.ours(self.extents.raw(value)) for value in integers)
        require_known(given)
        program = loops_of(self.tir[called], len(node.inputs), identifier(called))
        return node.onnx_node().emit("tir", node.inputs, program=program, given=given)

    def _import_loops(self, call: Call, name: str) -> Value:
        """Imports an operator by the loops that TVM lowers it to."""
        if any(isinstance(type_of(argument), RelaxShape) and not isinstance(argument, relax.ShapeExpr)
               for argument in call.args):
            raise MegccError("its operand is a shape")
        main, functions = legalized(call, is_tensor)
        arguments = tensors_of(call.args)
        for argument in arguments:
            self.value(argument, name)  # before `self.tir` is replaced by the functions of the lowered module
        outer, self.tir = self.tir, functions
        try:
            return self._import_local_call(main, arguments, name or call.op.name)
        finally:
            self.tir = outer

    def _import_local_call(self, function: relax.Function, arguments: Sequence, name: str) -> Value:
        """Imports a call of a function inside a region. The symbolic extents of its types are variables of its own."""
        inner = Extents()
        for parameter, argument in zip(function.params, arguments, strict=True):
            if isinstance(type_of(parameter), RelaxShape):
                for expr, given in zip(type_of(parameter).values or (), type_of(argument).values or (), strict=True):
                    self._bind(inner, expr, self.extents.ours(self.extents.raw(given)))
                continue
            self.values[parameter] = self.value(argument, name)
            types = type_of(parameter).fields if isinstance(type_of(parameter), RelaxTuple) else (type_of(parameter),)
            for type_, value in zip(types, flattened([self.values[parameter]]), strict=True):
                for expr, extent in zip(type_.shape.values, self.builder.types[value].shape, strict=True):
                    self._bind(inner, expr, extent)
        outer = self.extents, self.loops
        self.extents, self.loops = inner, self.loops or is_loops(function)
        try:
            return self.value(function.body)
        finally:
            self.extents, self.loops = outer

    @staticmethod
    def _bind(inner: Extents, expr, extent: Dim) -> None:
        """Records in `inner` that TVM's expression is this extent, unless the extent is not known."""
        try:
            require_known([extent])
        except MegccError:
            return
        inner.bind(inner.raw(expr), extent)


def is_loops(function: relax.Function) -> bool:
    """Whether a function is a composite whose operators are to be imported as loops."""
    return function.attrs is not None and str(function.attrs.get("Composite", "")).startswith(TIR_PREFIX)


def _is_symbolic_shape(expr) -> bool:
    """Whether an argument is a shape with a symbolic extent, or of unknown rank."""
    return isinstance(type_of(expr), RelaxShape) \
        and not all(isinstance(dim, tirx.IntImm) for dim in type_of(expr).values or [None])


def is_tensor(expr) -> bool:
    """Whether an argument is a tensor or a tuple of tensors, not a number or a shape."""
    if isinstance(expr, Tuple):
        return any(is_tensor(field) for field in expr.fields)
    return not is_number(expr) and isinstance(type_of(expr), (RelaxTensor, RelaxTuple))


def tensors_of(arguments: Sequence) -> list:
    """Returns the tensors among arguments, with tuples flattened."""
    found: list = []
    for argument in filter(is_tensor, arguments):
        found += tensors_of(argument.fields) if isinstance(argument, Tuple) else [argument]
    return found


def array_of(constant: Constant) -> np.ndarray:
    """Returns the array of a constant. Raises MegccError if its dtype is not supported."""
    dtype_name(type_of(constant).dtype, ELEMENT_TYPES)
    return value_of(constant).numpy()


def _nested(like: Value, values: Iterator[str]) -> Value:
    """Returns values in the tuples that `like` has: the inverse of `flattened`."""
    return next(values) if isinstance(like, str) else tuple(_nested(field, values) for field in like)


def flattened(values: Sequence[Value]) -> list[str]:
    """Returns the tensors of values, with tuples flattened."""
    names: list[str] = []
    for value in values:
        names += [value] if isinstance(value, str) else flattened(value)
    return names


def import_region(function: relax.Function, name: str) -> Graph:
    """Returns a partitioned function as a graph; tuples of results are flattened.

    Raises:
        MegccError: naming what cannot be imported. The patterns' checks should have prevented it.
    """
    importer_ = Importer()
    importer_.tir = (function.attrs or {}).get(TIR_FUNCTIONS, {})
    return import_function(function, name, importer_)


def import_function(function: relax.Function, name: str, importer_: Importer, outputs: Sequence[str] = ()) -> Graph:
    """Returns a function as a graph.

    Args:
        importer_: a new importer.
        outputs: names of the results; output0, … by default.

    Raises:
        MegccError: naming what cannot be imported.
        ModelError: listing the importer's findings.
    """
    builder = importer_.builder
    parameters = [parameter for parameter in function.params if not isinstance(type_of(parameter), RelaxShape)]
    importer_.extents.declare(type_of(parameter) for parameter in parameters)
    inputs = [importer_.add_input(parameter, name_of(parameter)) for parameter in parameters]
    try:
        results = flattened([importer_.value(function.body)])
    except REFUSALS as error:
        raise MegccError(f"{name}: {type(error).__name__}: {error}") from error
    if importer_.findings:
        raise ModelError(name, importer_.findings, "Such operators stay with TVM in tvm_megcc.build(mod).")
    return restore_onnx_operators(builder.graph(name, inputs, builder.outputs(results, inputs, outputs)))


def region_bucket(function: relax.Function) -> Bucket:
    """Returns the bounds of the symbols of a region's graph, from the region's attributes."""
    extents = Extents()
    extents.declare(type_of(parameter) for parameter in function.params)
    for parameter in function.params:
        if isinstance(type_of(parameter), RelaxTensor):
            extents.input_shape(type_of(parameter))
    return extents.bucket(bounds_of(function))


def import_match(expr, bindings: Mapping[Var, Expr] | None = None, loops: bool = False,
                 functions: Mapping[str, tirx.PrimFunc] | None = None) -> Graph:
    """Returns an expression as a graph of its own; variables that `bindings` does not define are its inputs.

    Args:
        loops: whether operators are imported as loops.
        functions: TIR functions by name.

    Raises:
        MegccError: saying why it cannot be imported.
    """
    bindings = dict(bindings or {})
    inputs: list[str] = []

    def free_variable(var: Var) -> Value:
        if var in bindings:
            return importer_.value(bindings[var], name_of(var))
        if isinstance(type_of(var), RelaxTuple):
            raise MegccError(f"operand {name_of(var)} is a tuple")
        inputs.append(importer_.add_input(var, name_of(var)))
        return inputs[-1]

    importer_ = Importer(free_variable)
    importer_.loops, importer_.tir = loops, functions or {}
    free = [var for value in (expr, *bindings.values()) for var in relax.analysis.free_vars(value)]
    importer_.extents.declare(type_of(var) for var in free if var not in bindings)
    try:
        results = flattened([importer_.value(expr, "value")])
    except MegccError:
        raise
    except REFUSALS as error:
        raise MegccError(f"{type(error).__name__}: {error}") from None
    builder = importer_.builder
    computed = [value for value in dict.fromkeys(results) if value not in builder.constants]
    return builder.graph("match", inputs, computed)
