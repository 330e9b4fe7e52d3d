# SPDX-License-Identifier: Apache-2.0
"""Splits functions that TVM's passes for code generators fail on or ignore: functions with closures, loops, lets,
matches of data types or references. Passes are applied to their blocks of plain data flow; the rest stays unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relay

from .expressions import children, everything, is_operator, kind_of, type_of

#: The kinds of expressions besides calls that TVM's passes support, on tensors and tuples of tensors.
_PLAIN = ("Var", "Constant", "Tuple", "TupleGetItem", "If")


def is_data(type_) -> bool:
    """Whether a type is a tensor, or a tuple of such types."""
    return kind_of(type_) == "TensorType" or (kind_of(type_) == "TupleType" and all(map(is_data, type_.fields)))


def reached(function: relay.Function, mod: tvm.IRModule) -> list[relay.GlobalVar]:
    """Returns the global functions that a function refers to, directly or through others."""
    found, pending = {}, [function]
    while pending:
        for part in everything(pending.pop().body):
            if kind_of(part) == "GlobalVar" and part not in found:
                found[part] = mod[part]
                pending.append(mod[part])
    return list(found)


def is_plain(function: relay.Function) -> bool:
    """Whether a typed function has only data flow and branches. The functions that it calls are not checked."""
    return all(is_data(type_of(parameter)) for parameter in function.params) and \
        all(map(_is_plain, everything(function.body)))


def _is_plain(expr) -> bool:
    kind = kind_of(expr)
    if kind == "Call":
        return kind_of(expr.op) in ("Op", "GlobalVar") and is_data(type_of(expr))
    return kind == "GlobalVar" or (kind in _PLAIN and is_data(type_of(expr)))


def in_normal_form(function: relay.Function) -> relay.Function:
    """Returns the function with every value let-bound, in the order of evaluation: TVM's A-normal form."""
    result = relay.transform.ToANormalFormExpr(
        relay.Function(function.params, function.body, function.ret_type, function.type_params))
    return relay.Function(result.params, result.body, result.ret_type, result.type_params, function.attrs)


def by_block(function: relay.Function, transform: Callable[[relay.Function], relay.Function]) -> relay.Function:
    """Transforms the blocks of data flow in a typed function in A-normal form. A block is a sequence of bindings
    between two control-flow constructs.

    transform: takes a block as a function of the values that it reads, and returns its replacement.
    """
    return relay.Function(function.params, _BlockSplitter(transform).body(function.body, {}), function.ret_type,
                          function.type_params, function.attrs)


class _BlockSplitter:
    """Splits function bodies into blocks. In all methods `known` maps each variable to the expression that replaces it
    where it is used."""

    def __init__(self, transform: Callable[[relay.Function], relay.Function]):
        self.transform = transform
        self._new_variables = 0

    def body(self, expr, known: Mapping):
        """Returns a function body, a chain of Lets, with its blocks transformed."""
        known, bindings = dict(known), []
        while kind_of(expr) == "Let":
            bindings.append((expr.var, expr.value))
            expr = expr.body
        original_of = _originals(bindings)
        last_use = _last_uses(bindings, expr, original_of)
        lets: list[tuple] = []
        # The variables of the block so far, each with its copies, which have the same replacement.
        block: dict[relay.Var, list] = {}
        for index, (var, value) in enumerate(bindings):
            if kind_of(value) in ("Var", "Constant", "GlobalVar", "Constructor"):  # a copy, which needs no binding
                known[var] = known.get(value, value)
                original = original_of.get(value)
                if original in block:
                    block[original].append(var)
            elif _is_data_flow(var, value):
                known[var] = _with_new_operands(value, known)
                block[var] = []
            else:
                lets += self._end_block(block, index, last_use, known)
                block, name = {}, self._variable(var)
                known[var] = name
                lets.append((name, self._split_control_flow(value, known)))
        lets += self._end_block(block, len(bindings), last_use, known)
        result = known.get(expr, expr)
        if lets and lets[-1][0] == result:  # "let x = value in x" is just the value
            result = lets.pop()[1]
        for var, value in reversed(lets):
            result = relay.Let(var, value, result)
        return result

    def _variable(self, like) -> relay.Var:
        """Returns a new variable with a number of our own, since TVM's numbers would differ between processes."""
        self._new_variables += 1
        return relay.Var(f"value{self._new_variables}", type_of(like) if is_data(type_of(like)) else None)

    def _end_block(self, block: Mapping, end: int, last_use: Mapping, known: dict) -> list[tuple]:
        """Returns the bindings that replace a block: one for each of its values that binding `end` or a later one uses.

        block: variable -> the variables that are copies of it. last_use: variable -> the index of the last binding that
        uses it.
        """
        results = [var for var in block if last_use.get(var, -1) >= end]
        values = [known[var] for var in results]
        if not results:
            return []
        body = values[0] if len(values) == 1 else relay.Tuple(values)
        if any(is_operator(part) for part in everything(body)):
            body = self._transform_block(body)
        for var in results:
            known.update(dict.fromkeys((var, *block[var]), self._variable(var)))
        if len(results) == 1:
            return [(known[results[0]], body)]
        value = self._variable(body)
        return [(value, body), *((known[var], relay.TupleGetItem(value, index)) for index, var in enumerate(results))]

    def _transform_block(self, body):
        """Returns a block's results with the block transformed."""
        given = list(relay.analysis.free_vars(body))
        parameters = [relay.Var(var.name_hint, type_of(var)) for var in given]
        block = relay.Function(parameters, relay.bind(body, dict(zip(given, parameters, strict=True))))
        changed = self.transform(block)
        return relay.bind(changed.body, dict(zip(changed.params, given, strict=True)))

    def _split_control_flow(self, value, known: Mapping):
        """Returns a control-flow construct, or a call of a function, with the bodies inside it split."""
        kind = kind_of(value)
        if kind == "If":
            return relay.If(known.get(value.cond, value.cond), self.body(value.true_branch, known),
                            self.body(value.false_branch, known), value.span)
        if kind == "Match":
            clauses = [relay.Clause(clause.lhs, self.body(clause.rhs, known)) for clause in value.clauses]
            return relay.Match(known.get(value.data, value.data), clauses, value.complete)
        if kind == "Function" and not _is_from_pass(value):
            return relay.Function(value.params, self.body(value.body, known), value.ret_type, value.type_params,
                                  value.attrs)
        return _with_new_operands(value, known)


def _is_from_pass(function: relay.Function) -> bool:
    """Whether a function is a region or composite that a pass has created."""
    attrs = function.attrs
    return attrs is not None and any(name in attrs.keys() for name in ("Primitive", "Composite", "Compiler"))


def _is_data_flow(var, value) -> bool:
    """Whether a binding is plain data flow: an operator or a tuple whose operands and result are tensors or tuples of
    tensors."""
    operands = value.args if is_operator(value) else children(value)
    return (is_operator(value) or kind_of(value) in ("Tuple", "TupleGetItem")) and is_data(type_of(var)) \
        and all(is_data(type_of(operand)) for operand in operands)


def _with_new_operands(value, known: Mapping):
    """Replaces the variables in a value's operands by their `known` expressions."""
    def new(expr):
        return known.get(expr, expr)

    kind = kind_of(value)
    if kind == "Call":
        return relay.Call(new(value.op), [new(arg) for arg in value.args], value.attrs, value.type_args, value.span)
    if kind == "Tuple":
        return relay.Tuple([new(field) for field in value.fields], value.span)
    if kind == "TupleGetItem":
        tuple_ = new(value.tuple_value)
        return tuple_.fields[value.index] if kind_of(tuple_) == "Tuple" else relay.TupleGetItem(tuple_, value.index)
    if kind == "RefCreate":
        return relay.RefCreate(new(value.value))
    if kind == "RefRead":
        return relay.RefRead(new(value.ref))
    if kind == "RefWrite":
        return relay.RefWrite(new(value.ref), new(value.value))
    return value


def _originals(bindings: list[tuple]) -> dict:
    """Maps each bound variable to the variable that it is a copy of, or to itself."""
    original_of: dict = {}
    for var, value in bindings:
        original_of[var] = original_of.get(value, var) if kind_of(value) == "Var" else var
    return original_of


def _last_uses(bindings: list[tuple], result, original_of: Mapping) -> dict:
    """Maps each variable to the index of the last binding that uses it. The result counts as a last binding."""
    last_use = {}
    for index, value in enumerate((*(value for _, value in bindings), result)):
        if kind_of(value) != "Var" or index == len(bindings):
            last_use.update({original_of.get(var, var): index for var in relay.analysis.free_vars(value)})
    return last_use
