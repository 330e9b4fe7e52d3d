# SPDX-License-Identifier: Apache-2.0
"""Graph dispatch of Relay modules, after TVM's RFC #4118. A function is cloned for each bucket of input shapes. A tree
of Ifs selects the clone for a shape."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relay, tir

from ...dispatch import Dispatcher, Intervals, buckets_of
from ...errors import MegccError
from ...ir.shapes import Bucket
from ..tvm_common.dispatch import (
    buckets_message,
    clone_suffix,
    covered_ranges,
    decision_tree,
    identifier_part,
    intersect,
    no_bucket_error,
    segments,
)
from .expressions import kind_of
from .regions import BOUNDS, DISPATCH, OUTSIDE, attr

logger = logging.getLogger(__name__)


def Dispatch(func_name: str, input_shape: Mapping[str, Sequence], dispatch_func: Dispatcher | Intervals) \
        -> tvm.transform.Pass:
    """Returns a pass that specialises a function for ranges of input shapes.

    Args:
        func_name: the name of a Relay function, such as "main".
        input_shape: shapes of inputs. An int fixes an axis; anything else leaves it open (None, `relay.Any()`, typing's
            Any, a text). Inputs that are not named here are left as they are.
        dispatch_func: `uniform_dispatcher` or `log_dispatcher` of `tvm_megcc.dispatch`; any function from {input:
            shape}, with None for open axes, to `{input: {axis: [(lo, hi), …]}}`, half-open intervals with hi None for
            no limit; or such a dictionary.

    A call with a shape in no bucket fails with an error that names function, input and axis.

    Raises:
        MegccError: when the pass runs, for functions or inputs that do not exist and for axes that are not open.
    """
    @tvm.transform.module_pass(opt_level=0, name="megcc.Dispatch")
    def run(mod: tvm.IRModule, _context) -> tvm.IRModule:
        return dispatched(mod, func_name, input_shape, dispatch_func)

    return run


def dispatched(mod: tvm.IRModule, func_name: str, input_shape: Mapping[str, Sequence],
               dispatch_func: Dispatcher | Intervals) -> tvm.IRModule:
    """Returns the module with clones of a function for ranges of input shapes; parameters as for `Dispatch`."""
    if not isinstance(input_shape, Mapping):
        raise MegccError(f"Dispatch: input_shape is {{input: shape}}, not {type(input_shape).__name__}")
    functions = {var.name_hint: function for var, function in mod.functions.items()}
    if not isinstance(functions.get(func_name), relay.Function):
        raise MegccError(f"Dispatch: there is no function '{func_name}'; the module has {', '.join(sorted(functions))}")
    mod = relay.transform.InferType()(mod)
    function = _with_known_extents(mod[func_name], func_name, input_shape)
    inputs = {name: extents_of(_parameter(function, func_name, name)) for name in input_shape}
    limits = json.loads(str(attr(function, BOUNDS, "{}")))
    _, buckets_of_inputs = buckets_of(inputs, dispatch=dispatch_func, constants=False)
    buckets = intersect(buckets_of_inputs, limits)
    if not buckets:
        raise MegccError(f"Dispatch: no bucket of {func_name} is within the function's bounds {limits}")
    mod[func_name] = function
    logger.info("dispatch: %s", buckets_message(func_name, buckets))
    if buckets[0].bounds:
        _DispatchBuilder(mod, func_name, function, inputs, buckets).write()
    return relay.transform.InferType()(mod)


# --- inputs ----------------------------------------------------------------------------------------------------

def _parameter(function: relay.Function, func_name: str, name: str) -> relay.Var:
    """Returns the parameter of a function that is the input `name`.

    Raises:
        MegccError: if there is none, or if it has no shape.
    """
    parameter = next((p for p in function.params if p.name_hint == name), None)
    if parameter is None:
        raise MegccError(f"Dispatch: {func_name} has no input '{name}'; it has "
                         f"{', '.join(p.name_hint for p in function.params)}")
    if kind_of(parameter.type_annotation) != "TensorType":
        raise MegccError(f"Dispatch: input '{name}' of {func_name} is {parameter.type_annotation}; it needs a shape "
                         "with Any on every axis that is open")
    return parameter


def extents_of(parameter: relay.Var) -> tuple[int | None, ...]:
    """Returns the shape of an input, with None for Any."""
    return tuple(int(dim) if isinstance(dim, tir.IntImm) else None for dim in parameter.type_annotation.shape)


def _with_known_extents(function: relay.Function, func_name: str, input_shape: Mapping[str, Sequence]):
    """Replaces Any by the ints in `input_shape`."""
    shapes = {}
    for name, shape in input_shape.items():
        dims = extents_of(_parameter(function, func_name, name))
        if len(shape) != len(dims):
            raise MegccError(f"Dispatch: input_shape has {len(shape)} axes for input '{name}' of {func_name}, which "
                             f"has {len(dims)}")
        for axis, (dim, given) in enumerate(zip(dims, shape, strict=True)):
            where = f"axis {axis} of input '{name}' of {func_name}"
            is_number = isinstance(given, (int, np.integer, tir.IntImm))
            if dim is not None and not is_number:
                raise MegccError(f"Dispatch: {where} is {dim}, so it cannot be open; import the model with Any there")
            if dim is not None and int(given) != dim:
                raise MegccError(f"Dispatch: {where} is {dim}, input_shape says {given}")
        shapes[name] = {axis: int(given) for axis, given in enumerate(shape)
                        if isinstance(given, (int, np.integer, tir.IntImm))}
    return with_extents(function, shapes)


def with_extents(function: relay.Function, shapes: Mapping[str, Mapping[int, int]], result=None) -> relay.Function:
    """Returns a copy with new variables, in which input extents are replaced. shapes: {input: {axis: extent}}. result:
    the return type, None to infer it."""
    parameters = _parameters(function, shapes)
    body = relay.bind(function.body, dict(zip(function.params, parameters, strict=True)))
    return relay.Function(parameters, body, result, function.type_params, function.attrs)


def _parameters(function: relay.Function, shapes: Mapping[str, Mapping[int, int]]) -> list[relay.Var]:
    """Returns new variables for the parameters of a function, in which extents are replaced. shapes: {input: {axis:
    extent}}."""
    parameters = []
    for parameter in function.params:
        type_ = parameter.type_annotation
        known = shapes.get(parameter.name_hint)
        if known:
            shape = [known.get(axis, dim) for axis, dim in enumerate(type_.shape)]
            type_ = relay.TensorType(shape, type_.dtype)
        parameters.append(relay.Var(parameter.name_hint, type_))
    return parameters


# --- the module ------------------------------------------------------------------------------------------------

@dataclass
class _DispatchBuilder:
    """Adds the clones and the decision tree to a module.

    name: the function's name. inputs: shapes of the dispatched inputs, with None for Any. buckets: each gets a
    clone; all are ranges of the same symbols."""

    mod: tvm.IRModule
    name: str
    function: relay.Function
    inputs: Mapping[str, Sequence]
    buckets: Sequence[Bucket]

    def write(self) -> None:
        """Adds the clones, and replaces the function by one that selects a clone and calls it."""
        self.axes = {f"{name}_{axis}": (name, axis) for name, shape in self.inputs.items()
                     for axis, dim in enumerate(shape) if dim is None}
        self.symbols = [symbol for symbol, _, _ in self.buckets[0].bounds]
        for symbol in self.symbols:
            if symbol not in self.axes:
                raise MegccError(f"Dispatch: the axis {symbol} of {self.name} is known, so it has no ranges; they are "
                                 "for axes that are Any")
        #: A bucket -> its clone; a symbol -> the function that fails because its value is in no bucket.
        self.targets: dict[Bucket | str, relay.GlobalVar] = {}
        for bucket in self.buckets:
            self.targets[bucket] = self._add(self.name + clone_suffix(bucket), self._clone(bucket))
        for symbol in self.symbols:
            if not all(inside for _, inside in segments(self.buckets, symbol)):
                name = f"{self.name}_outside_{identifier_part(symbol)}"
                self.targets[symbol] = self._add(name, self._outside(symbol, name))
        parameters = _parameters(self.function, {})
        tree = relay.Function(parameters, self._tree(self.buckets, 0, parameters), self._result())
        attrs = self.function.attrs
        given = {key: attrs[key] for key in attrs.keys()} if attrs is not None else {}
        self.mod[self.name] = tree.with_attr({**given, DISPATCH: 1})

    def _result(self):
        return relay.transform.InferType()(self.mod)[self.name].ret_type

    def _add(self, name: str, function: relay.Function) -> relay.GlobalVar:
        var = relay.GlobalVar(name)
        self.mod[var] = function
        return var

    def _clone(self, bucket: Bucket) -> relay.Function:
        """Returns the clone for a bucket. A symbol with only one value in the bucket is replaced by it."""
        shapes: dict[str, dict[int, int]] = {}
        for symbol, lower, upper in bucket.bounds:
            if lower == upper:
                name, axis = self.axes[symbol]
                shapes.setdefault(name, {})[axis] = lower
        clone = with_extents(self.function, shapes, self._result())
        bounds = {**json.loads(str(attr(self.function, BOUNDS, "{}"))),
                  **{symbol: [lower, upper] for symbol, lower, upper in bucket.bounds}}
        return clone.with_attr(BOUNDS, json.dumps(bounds))

    def _tree(self, buckets: Sequence[Bucket], depth: int, parameters):
        """Returns the expression that selects among these buckets by the symbols from index `depth` on, and calls the
        clone."""
        if depth == len(self.symbols):
            return relay.Call(self.targets[buckets[0]], parameters)
        symbol = self.symbols[depth]
        extent = self._extent(symbol, parameters)
        leaves = []
        for last, inside in segments(buckets, symbol):
            leaf = self._tree(inside, depth + 1, parameters) if inside else self._failing(symbol, extent, parameters)
            leaves.append((last, leaf))
        return decision_tree(leaves, lambda last, at_most, otherwise: relay.If(
            relay.less_equal(extent, relay.const(last, "int64")), at_most, otherwise))

    def _extent(self, symbol: str, parameters):
        """Returns the extent of the input axis that a symbol stands for, as an int64 expression."""
        name, axis = self.axes[symbol]
        tensor = next(parameter for parameter in parameters if parameter.name_hint == name)
        return relay.take(relay.shape_of(tensor, "int64"), relay.const(axis, "int64"), axis=0)

    def _failing(self, symbol: str, extent, parameters):
        """Returns an If whose condition calls the failing function, so that it fails before either branch."""
        leaf = relay.Call(self.targets[self.buckets[0]], parameters)
        return relay.If(relay.Call(self.targets[symbol], [extent]), leaf, relay.Call(leaf.op, parameters))

    def _outside(self, symbol: str, name: str) -> relay.Function:
        """Returns a function for our code generator that fails, since Relay has no assertions. The code generator
        ignores its body, which only has the type of the condition that `_failing` needs."""
        ranges = covered_ranges(self.buckets, symbol)
        extent = relay.Var("extent", relay.TensorType((), "int64"))
        body = relay.less_equal(extent, relay.const(0, "int64"))
        input_, axis = self.axes[symbol]
        return relay.Function([extent], body, relay.TensorType((), "bool")).with_attr({
            "Compiler": "megcc", "Primitive": tir.IntImm("int32", 1), "Inline": tir.IntImm("int32", 1),
            "global_symbol": name, OUTSIDE: no_bucket_error(self.name, input_, axis, symbol="", ranges=ranges)})
