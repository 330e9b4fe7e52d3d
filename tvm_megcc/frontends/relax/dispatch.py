# SPDX-License-Identifier: Apache-2.0
"""Graph dispatch of Relax modules, after TVM's RFC #4118. A function is cloned for each bucket of input shapes. A tree
of comparisons selects the clone for a shape."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, tirx

from ...dispatch import Dispatcher, Intervals, axis_name, buckets_of
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
from ..tvm_versions import (
    Call,
    RelaxTensor,
    Tuple,
    Var,
    add_function,
    as_argument,
    assertion,
    has_extents,
    name_of,
    result_type_of,
    type_of,
)
from .extents import LOWER, OUTSIDE, UPPER, bounds_of, declared_shape

logger = logging.getLogger(__name__)

#: Attribute of modules: the functions that the pass was applied to, and their buckets.
DISPATCHED = "megcc_dispatch"


def Dispatch(func_name: str, input_shape: Mapping[str, Sequence], dispatch_func: Dispatcher | Intervals) \
        -> tvm.transform.Pass:
    """Returns a pass that specialises a function for ranges of input shapes.

    Args:
        func_name: the name of a Relax function, such as "main".
        input_shape: shapes of inputs. An int fixes an axis; anything else leaves it open (None, tvm's or typing's Any,
            a text, a symbolic variable). Inputs that are not named here are left as they are.
        dispatch_func: `uniform_dispatcher` or `log_dispatcher` of `tvm_megcc.dispatch`; any function from {input:
            shape}, with strings for open axes, to `{input: {axis: [(lo, hi), …]}}`, half-open intervals with hi None
            for no limit; or such a dictionary.

    The function's attributes tir_var_lower_bound and tir_var_upper_bound limit the ranges. A call with a shape in no
    range raises a ValueError that names function, input and axis. The pass logs its buckets, and `report` lists them.

    Raises:
        MegccError: when the pass runs, for functions or inputs that do not exist and for axes that are not open.
    """
    @tvm.transform.module_pass(opt_level=0, name="megcc.Dispatch")
    def run(mod: tvm.IRModule, _context) -> tvm.IRModule:
        return apply_dispatch(mod, func_name, input_shape, dispatch_func)

    return run


def apply_dispatch(mod: tvm.IRModule, func_name: str, input_shape: Mapping[str, Sequence],
               dispatch_func: Dispatcher | Intervals) -> tvm.IRModule:
    """Returns the module with clones of a function for ranges of input shapes; parameters as for `Dispatch`."""
    if not isinstance(input_shape, Mapping):
        raise MegccError(f"Dispatch: input_shape is {{input: shape}}, not {type(input_shape).__name__}")
    var = next((var for var in mod.functions if var.name_hint == func_name), None)
    if var is None or not isinstance(mod[var], relax.Function):
        names = sorted(v.name_hint for v, function in mod.functions.items() if isinstance(function, relax.Function))
        raise MegccError(f"Dispatch: there is no function '{func_name}'; the module has {', '.join(names)}")
    function = _bind_known_extents(mod[var], func_name, input_shape)
    inputs = {name: declared_shape(type_of(_parameter(function, func_name, name))) for name in input_shape}
    buckets = intersect(buckets_of(inputs, [], dispatch_func, constants=False)[1], bounds_of(function))
    if not buckets:
        raise MegccError(f"Dispatch: no bucket of {func_name} is within {LOWER} and {UPPER} of the function")
    functions = dict(mod.functions.items())
    functions[var] = function
    mod = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    text = buckets_message(func_name, buckets)
    logger.info("dispatch: %s", text)
    if buckets[0].bounds:  # some axis is open
        mod = _DispatchBuilder(mod, var, inputs, buckets).build()
    return mod.with_attr(DISPATCHED, [*(mod.attrs or {}).get(DISPATCHED, ()), text])


# --- inputs ----------------------------------------------------------------------------------------------------

def _parameter(function: relax.Function, func_name: str, name: str) -> Var:
    """Returns the parameter of a function that is the input `name`.

    Raises:
        MegccError: if there is none, or if it has no shape.
    """
    parameter = next((p for p in function.params if name_of(p) == name), None)
    if parameter is None:
        raise MegccError(f"Dispatch: {func_name} has no input '{name}'; it has "
                         f"{', '.join(map(name_of, function.params))}")
    if not has_extents(type_of(parameter)):
        raise MegccError(f"Dispatch: input '{name}' of {func_name} is {type_of(parameter)}; it needs a shape with a "
                         "symbolic extent on every axis that is open")
    return parameter


def _is_number(dim) -> bool:
    return isinstance(dim, (int, np.integer, tirx.IntImm))


def _bind_known_extents(function: relax.Function, func_name: str, input_shape: Mapping[str, Sequence]):
    """Replaces symbolic extents of the function by the ints in `input_shape`."""
    values: dict[Var, int] = {}
    for name, shape in input_shape.items():
        dims = type_of(_parameter(function, func_name, name)).shape.values
        if len(shape) != len(dims):
            raise MegccError(f"Dispatch: input_shape has {len(shape)} axes for input '{name}' of {func_name}, which "
                             f"has {len(dims)}")
        for axis, (dim, given) in enumerate(zip(dims, shape, strict=True)):
            where = f"axis {axis} of input '{name}' of {func_name}"
            if not _is_number(given):
                if isinstance(dim, tirx.IntImm):
                    raise MegccError(f"Dispatch: {where} is {int(dim)}, so it cannot be open; import the model with a "
                                     "symbolic extent there")
            elif not isinstance(dim, Var):
                if not isinstance(dim, tirx.IntImm) or int(dim) != int(given):
                    raise MegccError(f"Dispatch: {where} is {_dim_text(dim)}, input_shape says {given}")
            elif values.setdefault(dim, int(given)) != int(given):
                raise MegccError(f"Dispatch: {where} is '{name_of(dim)}', which input_shape gives as {values[dim]} "
                                 f"and as {given}")
    return function.bind_symbolic_vars(values) if values else function


# --- the module ------------------------------------------------------------------------------------------------

@dataclass
class _DispatchBuilder:
    """Adds the clones and the decision tree to a module.

    var: the function. inputs: shapes of the dispatched inputs, as numbers, names of symbols or None. buckets: their
    bounds, all for the same symbols.
    """

    mod: tvm.IRModule
    var: ir.GlobalVar
    inputs: Mapping[str, Sequence]
    buckets: Sequence[Bucket]

    def __post_init__(self):
        self.name, self.function = self.var.name_hint, self.mod[self.var]
        self.symbols = [symbol for symbol, _, _ in self.buckets[0].bounds]
        self.builder = relax.BlockBuilder(self.mod)
        #: A bucket -> its clone; a symbol -> the function that fails because its value is in no bucket.
        self.targets: dict[Bucket | str, ir.GlobalVar] = {}
        for symbol in self.symbols:
            self._require_unique(symbol)

    def build(self) -> tvm.IRModule:
        """Returns the module, in which the function selects a clone and calls it."""
        for bucket in self.buckets:
            self.targets[bucket] = add_function(self.builder, self._clone(bucket),
                                                f"{self.name}{clone_suffix(bucket)}")
        for symbol in self.symbols:
            # `inside`: the buckets that contain a segment of the symbol's values.
            if not all(inside for _, inside in segments(self.buckets, symbol)):
                self.targets[symbol] = self._add_failing_function(symbol)
        tree = self._add_function(
            self.name, lambda parameters, extents: self._tree(self.buckets, 0, parameters, extents))
        attrs = {key: value for key, value in (self.function.attrs or {}).items()}
        functions = {var: function for var, function in self.builder.get().functions.items() if var != tree}
        functions[self.var] = self.builder.get()[tree].without_attr("global_symbol").with_attrs(attrs)
        return tvm.IRModule(functions, attrs=self.mod.attrs, global_infos=self.mod.global_infos)

    def _require_unique(self, symbol: str) -> None:
        """Raises MegccError unless exactly one variable has this name, and some input axis is that variable. Attributes
        and messages refer to symbols by name. An axis that is no variable, for which `buckets_of` makes the name
        <input>_<axis>, cannot have ranges."""
        name, axis = next((name, axis) for name, shape in self.inputs.items() for axis in range(len(shape))
                          if axis_name(self.inputs, name, axis) == symbol)
        if not isinstance(self.inputs[name][axis], str):
            dim = type_of(_parameter(self.function, self.name, name)).shape.values[axis]
            raise MegccError(f"Dispatch: axis {axis} of input '{name}' of {self.name} is {_dim_text(dim)}, so it has "
                             "no ranges; they are for axes with a symbol of their own")
        if sum(name_of(var) == symbol for var in relax.analysis.defined_symbolic_vars(self.function)) != 1:
            raise MegccError(f"Dispatch: {self.name} has two symbolic extents called '{symbol}'; rename one")

    def _clone(self, bucket: Bucket) -> relax.Function:
        """Returns the clone for a bucket. A symbol with only one value in the bucket is replaced by it."""
        clone = relax.utils.copy_with_new_vars(self.function).without_attr("global_symbol")
        known = {name: lower for name, lower, upper in bucket.bounds if lower == upper}
        if known:
            clone = clone.bind_symbolic_vars(known)
        limits = {**bounds_of(self.function), **bucket.limits}
        lower_bounds = {name: lower for name, (lower, _) in limits.items() if name not in known and lower}
        upper_bounds = {name: upper for name, (_, upper) in limits.items() if name not in known and upper is not None}
        for key, values in ((LOWER, lower_bounds), (UPPER, upper_bounds)):
            clone = clone.with_attr(key, values) if values else clone.without_attr(key)
        return clone

    def _add_function(self, name: str, body: Callable, private: bool = False, **attrs) -> ir.GlobalVar:
        """Adds a function with the signature of the original.

        body: takes the parameters, and the symbolic extents by name; returns the result as an expression.
        """
        before = set(self.builder.get().functions)  # TVM changes a name that exists
        skeleton = relax.utils.copy_with_new_vars(self.function)
        parameters = list(skeleton.params)
        extents = {name_of(var): var for var in relax.analysis.defined_symbolic_vars(skeleton)}
        with self.builder.function(name, parameters, attrs or None, bool(self.function.is_pure), private):
            result = self.builder.emit(body(parameters, extents))
            if not tvm_ffi.structural_equal(type_of(result), result_type_of(skeleton)):
                result = self.builder.match_cast(result, result_type_of(skeleton))
            self.builder.emit_func_output(result)
        return next(var for var in self.builder.get().functions if var not in before)

    def _tree(self, buckets: Sequence[Bucket], depth: int, parameters, extents):
        """Returns the expression that selects among these buckets by the symbols from index `depth` on, and calls the
        clone."""
        if depth == len(self.symbols):
            return Call(self.targets[buckets[0]], parameters)
        symbol = self.symbols[depth]
        leaves = []
        for last, matching in segments(buckets, symbol):
            leaf = self._tree(matching, depth + 1, parameters, extents) if matching \
                else Call(self.targets[symbol], parameters)
            leaves.append((last, leaf))
        return decision_tree(leaves, lambda last, at_most, otherwise: relax.If(
            as_argument(extents[symbol] <= last), at_most, otherwise))

    def _add_failing_function(self, symbol: str) -> ir.GlobalVar:
        """Adds the function that fails because the value of `symbol` is in no bucket."""
        checked = self.builder.add_func(self._range_check(symbol), f"{self.name}_check_{identifier_part(symbol)}")
        any_clone = self.targets[self.buckets[0]]

        def body(parameters, extents):
            # The check raises an error, so neither branch is reached. The If uses its result: TVM removes calls whose
            # result is unused. The calls give the function its result type.
            inside = self.builder.emit(relax.op.call_tir(checked, Tuple([as_argument(extents[symbol])]),
                                                         RelaxTensor((), "bool")))
            return relax.If(inside, Call(any_clone, parameters), Call(any_clone, parameters))

        name = f"{self.name}_outside_{identifier_part(symbol)}"
        return self._add_function(name, body, private=True, **{OUTSIDE: symbol})

    def _range_check(self, symbol: str) -> tirx.PrimFunc:
        """Returns a TIR function that takes an extent and returns true if it is in the ranges of the buckets. Otherwise
        it raises an error that lists the ranges, by a TIR assertion, which works in every runtime of TVM."""
        ranges = covered_ranges(self.buckets, symbol)
        extent = tirx.Var(symbol, "int64")
        is_allowed = tirx.const(False, "bool")
        for lower, upper in ranges:
            within_range = extent >= lower if upper is None else tirx.all(extent >= lower, extent <= upper)
            is_allowed = tirx.any(is_allowed, within_range)
        name, axis = next((name, axis) for name, shape in self.inputs.items() for axis, dim in enumerate(shape)
                          if dim == symbol)
        message = no_bucket_error(self.name, name, axis, symbol, ranges)
        result = tirx.decl_buffer((), "bool", "inside")
        check = assertion(is_allowed, "ValueError", message)
        store = tirx.BufferStore(result, tirx.const(True, "bool"), [])
        return tirx.PrimFunc([extent, result], tirx.SeqStmt([check, store])).with_attr("tirx.noalias", True)


def _dim_text(dim) -> str:
    return str(int(dim)) if isinstance(dim, tirx.IntImm) else str(dim)
