# SPDX-License-Identifier: Apache-2.0
"""Finishes the regions that TVM's PartitionGraph creates: names inputs as in the caller, merges equal regions, and adds
the attributes that the code generator needs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

import tvm
from tvm import relay

from ...errors import MegccError
from ...ir.shapes import EVERYTHING, Bucket
from .expressions import everything, kind_of, type_of
from .importer import import_region
from .patterns import COMPILER

#: Attribute of a region: the CPU it is for.
TARGET = "megcc_target"
#: Attribute of a function: the bounds of its symbolic extents, {"input_axis": [low, high]} as JSON.
BOUNDS = "megcc_bounds"
#: Attribute of a region: the list of the bounds of all functions that call it, as JSON.
BUCKETS = "megcc_buckets"
#: Attribute of a function that only selects a clone and calls it.
DISPATCH = "megcc_dispatch"
#: Attribute of the function that fails for shapes in no bucket: its message.
OUTSIDE = "megcc_outside"


def require_module(mod, function: str) -> None:
    """Raises MegccError unless `mod` is a module of TVM with a Relay function. function: the caller, for messages."""
    if not isinstance(mod, tvm.IRModule):
        raise MegccError(f"{function} takes a module of TVM (tvm.IRModule), not {type(mod).__name__}. TVM's importers "
                         "make one of a model: tvm.relay.frontend.from_onnx(model) returns it and the weights, "
                         "tvm.relay.frontend.from_pytorch(traced, inputs) as well; of one function "
                         "tvm.IRModule.from_expr(function) does")
    if not any(isinstance(body, relay.Function) for body in mod.functions.values()):
        names = ", ".join(var.name_hint for var in mod.functions) or "none"
        raise MegccError(f"{function} takes a module with Relay functions; the functions of this one are: {names}")


def is_ours(function) -> bool:
    """Whether a function is a region of ours."""
    return isinstance(function, relay.Function) and attr(function, "Compiler") == COMPILER \
        and attr(function, OUTSIDE) is None


def names_ours(mod: tvm.IRModule) -> list[str]:
    """Returns the functions of a module that our code generator compiles."""
    return sorted(var.name_hint for var, function in mod.functions.items() if attr(function, "Compiler") == COMPILER)


def attr(function, name: str, default=None):
    """Returns an attribute of a function. A missing one is represented differently by versions of TVM."""
    attrs = getattr(function, "attrs", None)
    return attrs[name] if attrs is not None and name in attrs.keys() else default


def finished(mod: tvm.IRModule, attrs: Mapping[str, str]) -> tvm.IRModule:
    """Returns the module with its new regions named and merged. attrs: the attributes that they get."""
    # Our code generator also compiles the functions that fail, and needs their target.
    functions = {var: function.with_attr(TARGET, attrs[TARGET]) if attr(function, OUTSIDE) is not None else function
                 for var, function in mod.functions.items()}
    new = {var for var, function in functions.items() if is_ours(function) and attr(function, TARGET) is None}
    callers: dict[relay.GlobalVar, relay.GlobalVar] = {}
    for caller, function in mod.functions.items():
        for call in _calls_of(function, new):
            functions[call.op] = _with_input_names(functions[call.op], call)
            callers[call.op] = caller
    # Calls get the arguments that `_with_input_names` gave the regions, the fields of tuples.
    functions = {var: _ReplaceCallees({}, flattened_callees=new).visit(function)
                 if var in callers.values() else function for var, function in functions.items()}
    functions = dict(typed(functions, mod).functions.items())
    # One region of each group stays, with the bounds of all callers as its buckets.
    replacements = {}
    for equal_regions in _equal_regions({var: functions[var] for var in new}, callers):
        bounds = dict.fromkeys(str(attr(functions[callers[var]], BOUNDS, "{}")) for var in equal_regions)
        first, *others = equal_regions
        functions[first] = functions[first].with_attr({**attrs, BUCKETS: f"[{', '.join(bounds)}]"})
        replacements.update(dict.fromkeys(others, first))
    functions = {var: _ReplaceCallees(replacements).visit(function)
                 if var in callers.values() and replacements else function
                 for var, function in functions.items() if var not in replacements}
    return typed(functions, mod)


def _equal_regions(regions: Mapping, callers: Mapping) -> list[list]:
    """Groups regions that compute the same and have different callers. The regions of one caller stay apart: TVM's pass
    InlineGlobals does not support several calls of one function in a caller."""
    groups: dict[str, list[list]] = {}
    for var in sorted(regions, key=lambda var: _natural(var.name_hint)):
        known_groups = groups.setdefault(digest_of(regions[var]), [])
        matching = next((group for group in known_groups
                         if callers[var] not in [callers[other] for other in group]), None)
        if matching is None:
            known_groups.append([var])
        else:
            matching.append(var)
    return [group for known_groups in groups.values() for group in known_groups]


def typed(functions: Mapping, like: tvm.IRModule) -> tvm.IRModule:
    """Returns a typed module of these functions, with the data types and attributes of another module."""
    mod = tvm.IRModule(functions, like.type_definitions)
    attrs = getattr(like, "attrs", None)
    for name in attrs.keys() if attrs is not None else ():
        mod = mod.with_attr(name, attrs[name])
    return relay.transform.InferType()(mod)


def _natural(name: str) -> list:
    """Returns a key that sorts region 10 after region 9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _calls_of(function, regions) -> list:
    """Returns the calls of these regions in a function."""
    if not isinstance(function, relay.Function):
        return []
    return [part for part in everything(function.body)
            if kind_of(part) == "Call" and kind_of(part.op) == "GlobalVar" and part.op in regions]


def _with_input_names(function: relay.Function, call) -> relay.Function:
    """Renames a region's parameters after its arguments, where these are inputs of the caller. A tuple parameter
    becomes several."""
    names: set[str] = set()

    def parameter(type_, argument, name: str) -> relay.Var:
        name = argument.name_hint if kind_of(argument) == "Var" else name
        while name in names:
            name += "_"
        names.add(name)
        return relay.Var(name, type_)

    parameters, bound = [], {}
    for old, argument in zip(function.params, call.args, strict=True):
        fields = _fields(argument, type_of(old))
        types = type_of(old).fields if kind_of(type_of(old)) == "TupleType" else [type_of(old)]
        new = [parameter(type_, field, f"input{len(parameters) + index}")
               for index, (type_, field) in enumerate(zip(types, fields, strict=True))]
        bound[old] = relay.Tuple(new) if kind_of(type_of(old)) == "TupleType" else new[0]
        parameters += new
    body = relay.bind(function.body, bound)
    return relay.Function(parameters, body, function.ret_type, function.type_params, function.attrs)


def _fields(argument, type_) -> list:
    """Returns the fields of an argument of a tuple type, as expressions; the argument itself if it is a tensor."""
    if kind_of(type_) != "TupleType":
        return [argument]
    if kind_of(argument) == "Tuple":
        return list(argument.fields)
    return [relay.TupleGetItem(argument, index) for index in range(len(type_.fields))]


class _ReplaceCallees(relay.ExprMutator):
    """Replaces global functions in calls by others.

    replacements: function -> the function that replaces it. flattened_callees: functions whose calls pass the fields of
    tuples as separate arguments.
    """

    def __init__(self, replacements: Mapping, flattened_callees=()):
        super().__init__()
        self.replacements, self.flattened_callees = replacements, flattened_callees

    def visit_global_var(self, var):
        return self.replacements.get(var, var)

    def visit_call(self, call):
        types = [type_of(argument) for argument in call.args]
        call = super().visit_call(call)
        if call.op not in self.flattened_callees or not any(kind_of(type_) == "TupleType" for type_ in types):
            return call
        arguments = [field for argument, type_ in zip(call.args, types, strict=True)
                     for field in _fields(argument, type_)]
        return relay.Call(call.op, arguments, span=call.span)


def digest_of(function: relay.Function) -> str:
    """Returns a digest of 12 digits of a region's operators and constants."""
    graph = import_region(function, "region")
    facts = (graph.inputs, graph.outputs, graph.ops, sorted(graph.types.items()))
    digest = hashlib.sha256(repr(facts).encode())
    for name, array in sorted(graph.constants.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()[:12]


def buckets_of(function: relay.Function) -> tuple[Bucket, ...]:
    """Returns the buckets that a region is compiled for, from its attributes. Extents without bounds are unlimited; if
    some caller has no bounds, all extents are."""
    symbols = [f"{parameter.name_hint}_{axis}" for parameter in function.params
               for axis, dim in enumerate(type_of(parameter).shape) if kind_of(dim) == "Any"]
    if not symbols:
        return (EVERYTHING,)
    buckets = []
    for bounds in json.loads(str(attr(function, BUCKETS, "[{}]"))):
        limits = {name: tuple(bounds.get(name, (0, None))) for name in symbols}
        buckets.append(Bucket(tuple((name, low, high) for name, (low, high) in limits.items())))
    return tuple(dict.fromkeys(buckets))
