# SPDX-License-Identifier: Apache-2.0
"""Imports Relay expressions into our graph: a whole region to compile, a single call to ask whether we have a kernel
for it, or a module for the stand-alone compiler.

Does not import TVM: the kind of an expression is the name of its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Union

from ...errors import MegccError, ModelError
from ...ir.dims import Dim, Symbol
from ...ir.graph import Graph
from ...ir.limits import MAX_RANK
from ...ir.types import TensorType
from ..onnx.builder import Builder
from ..tvm_common.node import UNKNOWN, TvmNode, check_types, dtype_name, require_known
from .expressions import children, everything, is_operator, kind_of, operator_calls, type_of
from .ops import importer, refusal_reason

#: The value of an expression in the graph: a value's name, or a tuple of such.
Value = Union[str, tuple["Value", ...]]

#: Exceptions that an importer raises if a call contradicts its expectations.
REFUSALS = (MegccError, ValueError, IndexError, TypeError, KeyError, AttributeError, OverflowError, ZeroDivisionError)


def tensor_type(type_, unknown) -> TensorType:
    """Converts a Relay tensor type.

    unknown: returns the extent for an axis that is Any.

    Raises:
        MegccError: if it is no tensor, or has no elements.
    """
    if kind_of(type_) != "TensorType":
        raise MegccError(f"{type_} is no tensor")
    shape = tuple(_extent(dim, axis, unknown) for axis, dim in enumerate(type_.shape))
    if 0 in shape:
        raise MegccError(f"a tensor of shape {shape} has no elements")
    if len(shape) > MAX_RANK:
        raise MegccError(f"a tensor of {len(shape)} axes; at most {MAX_RANK} are supported")
    return TensorType(dtype_name(type_.dtype), shape)


def _extent(dim, axis: int, unknown) -> Dim:
    """Converts an extent of a Relay type. unknown: returns the extent for an axis that is Any."""
    if isinstance(dim, int) or kind_of(dim) == "IntImm":
        return int(dim)
    if kind_of(dim) == "Any":
        return unknown(axis)
    raise MegccError(f"the extent {dim} is neither a number nor Any")


def origin(call) -> str:
    """Returns the name of a call in the source model or, without one, the operator's name."""
    span = getattr(call, "span", None)
    # A pass of TVM that merges operators gives the result a SequentialSpan, with the spans of all of them.
    span = span.spans[0] if hasattr(span, "spans") and len(span.spans) else span
    return str(span.source_name.name) if getattr(span, "source_name", None) is not None else str(call.op.name)


def flattened(values: Sequence[Value]) -> list[str]:
    """Returns the tensors of values, with tuples flattened."""
    names: list[str] = []
    for value in values:
        names += [value] if isinstance(value, str) else flattened(value)
    return names


class Importer:
    """Imports expressions into a builder. values: expression -> its value in the graph.

    functions: global functions by name; if None, calls of them are refused.
    """

    def __init__(self, functions: Mapping[str, object] | None = None):
        self.builder = Builder()
        self.values: dict[object, Value] = {}
        self._functions, self._unknown = functions or {}, 0

    def add_input(self, var, name: str) -> Value:
        """Adds an input of the graph, and returns its name. An extent Any becomes a symbol ≥ 0, named after input and
        axis.

        Raises:
            MegccError: for a tuple.
        """
        type_ = type_of(var)
        if kind_of(type_) == "TupleType":
            raise MegccError(f"operand {name} is a tuple")
        name = self.builder.unique(name)
        self.builder.add_input(name, tensor_type(type_, lambda axis: Symbol(f"{name}_{axis}", least=0)))
        self.values[var] = name
        return name

    def value(self, root) -> Value:
        """Returns the value of an expression. It is iterative, since networks are deeper than Python's stack."""
        stack = [root]
        while stack:
            expr = stack[-1]
            missing = [child for child in self._missing_operands(expr) if child not in self.values]
            if expr in self.values or not missing:
                stack.pop()
                if expr not in self.values:
                    self.values[expr] = self._import_expression(expr)
            else:
                stack.extend(reversed(missing))
        return self.values[root]

    def _missing_operands(self, expr) -> Sequence:
        """Returns the expressions that have to be imported before this one. Gives a Let's variable its value before the
        body is imported."""
        if kind_of(expr) != "Let":
            return children(expr)
        if expr.value not in self.values:
            return [expr.value]
        self.values[expr.var] = self.values[expr.value]
        return [expr.body]

    def _import_expression(self, expr) -> Value:
        """Imports an expression whose operands have been imported."""
        kind = kind_of(expr)
        if kind == "Constant":
            array = expr.data.numpy()
            dtype_name("bool" if array.dtype == bool else array.dtype.name)  # raises MegccError for dtypes we lack
            return self.builder.weight(array)
        if kind == "Tuple":
            return tuple(self.values[field] for field in expr.fields)
        if kind == "TupleGetItem":
            return self.values[expr.tuple_value][expr.index]
        if kind == "Let":
            return self.values[expr.body]
        if kind == "Call":
            return self._import_call(expr)
        raise MegccError(f"{kind} cannot be imported")

    def _import_call(self, call) -> Value:
        arguments = [self.values[argument] for argument in call.args]
        if kind_of(call.op) == "GlobalVar" and call.op.name_hint in self._functions:
            return self._inline(self._functions[call.op.name_hint], arguments)
        if kind_of(call.op) == "Function":
            return self._inline(call.op, arguments)
        if not is_operator(call):
            raise MegccError(f"a call of {call.op} cannot be imported")
        import_ = importer(call.op.name)
        if import_ is None:
            raise MegccError(refusal_reason(call.op.name))
        result = type_of(call)
        is_tuple = kind_of(result) == "TupleType"
        types = [tensor_type(field, self._unknown_extent) for field in (result.fields if is_tuple else [result])]
        node = TvmNode(self.builder, call, origin(call), flattened(arguments), types)
        with self.builder.importing(node.name):
            values = tuple(import_(node))
        check_types(node, values, _may_be_same)
        require_known(dim for value in values for dim in self.builder.types[value].shape)
        return values if is_tuple else values[0]

    def _inline(self, function, arguments: Sequence[Value]) -> Value:
        """Imports the body of a function in place of a call of it. Its expressions have values of their own, since two
        calls of a function have different operands."""
        outer, self.values = self.values, dict(zip(function.params, arguments, strict=True))
        try:
            return self.value(function.body)
        finally:
            self.values = outer

    def _unknown_extent(self, _axis: int) -> Dim:
        """Returns a new symbol for an extent that is Any in the type of a result."""
        self._unknown += 1
        return Symbol(f"{UNKNOWN}{self._unknown}")


def _may_be_same(actual: Dim, expected: Dim) -> bool:
    """Whether our extent may equal TVM's. If TVM's is Any or ours is symbolic, it is only known at run time."""
    return actual == expected or not (isinstance(actual, int) and isinstance(expected, int))


def import_region(function, name: str) -> Graph:
    """Returns a partitioned function as a graph; tuples of results are flattened.

    Raises:
        MegccError: naming what cannot be imported. The patterns' checks should have prevented it.
    """
    return _import_function(function, name, Importer())


def import_main(functions: Mapping[str, object], name: str) -> Graph:
    """Returns the function "main" of a module as a graph, with the functions that it calls inlined.

    functions: all functions of the module by name.

    Raises:
        ModelError: naming every operator that has no kernel.
    """
    main = functions["main"]
    findings = [": ".join(dict.fromkeys((origin(call), call.op.name, reason))) for call in _reached(main, functions)
                for reason in [_unimportable(call)] if reason]
    if findings:
        raise ModelError(name, list(dict.fromkeys(findings)), "partition_for_megcc leaves such operators to TVM.")
    return _import_function(main, name, Importer(functions))


def _reached(function, functions: Mapping) -> list:
    """Returns the calls of operators in a function and in the global functions it calls."""
    calls, pending, seen = [], [function], set()
    while pending:
        body = pending.pop().body
        calls += operator_calls(body)
        for part in everything(body):
            if kind_of(part) == "GlobalVar" and part.name_hint not in seen:
                seen.add(part.name_hint)
                pending += [functions[part.name_hint]] if part.name_hint in functions else []
    return calls


def _unimportable(call) -> str | None:
    """Returns why a call cannot be imported, None if it can."""
    try:
        import_call(call)
    except MegccError as error:
        return str(error)
    return None


def _import_function(function, name: str, importer_: Importer) -> Graph:
    """Returns a function as a graph. importer_: a new importer."""
    builder = importer_.builder
    inputs = [importer_.add_input(parameter, parameter.name_hint) for parameter in function.params]
    try:
        results = flattened([importer_.value(function.body)])
    except REFUSALS as error:
        raise MegccError(f"{name}: {type(error).__name__}: {error}") from error
    return builder.graph(name, inputs, builder.outputs(results, inputs))


def import_call(call) -> Graph:
    """Returns the call of an operator as a graph of its own, whose inputs are its operands.

    Raises:
        MegccError: saying why it cannot be imported.
    """
    importer_ = Importer()
    inputs: list[str] = []
    try:
        for operand in _operands(call):
            if kind_of(operand) != "Constant" and operand not in importer_.values:
                inputs.append(importer_.add_input(operand, f"x{len(inputs)}"))
        results = flattened([importer_.value(call)])
    except MegccError:
        raise
    except REFUSALS as error:
        raise MegccError(f"{type(error).__name__}: {error}") from None
    computed = [value for value in dict.fromkeys(results) if value not in importer_.builder.constants]
    return importer_.builder.graph("call", inputs, computed)


def _operands(call) -> Iterator:
    """Yields the tensors among the operands, with tuples flattened."""
    pending = list(reversed(call.args))
    while pending:
        operand = pending.pop()
        if kind_of(operand) == "Tuple":
            pending += reversed(operand.fields)
        else:
            yield operand
