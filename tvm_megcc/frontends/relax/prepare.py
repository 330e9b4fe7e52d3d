# SPDX-License-Identifier: Apache-2.0
"""Prepares a module for pattern matching: binds parameters as constants, folds constants, and converts TIR functions
back to the Relax operators that they implement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx

from ...errors import MegccError
from ..tvm_versions import (
    Call,
    Constant,
    RelaxTensor,
    RelaxTuple,
    Tuple,
    TupleGetItem,
    Var,
    add_function,
    is_number,
    key_of,
    name_of,
    result_type_of,
    type_of,
    with_arguments,
)
from .extents import OUTSIDE
from .from_tir import as_operator
from .importer import CALL_TIR, REFUSALS, Importer, is_operator, tensor_type
from .layouts import channels_first

#: An operator on constants is not folded if its result is this many bytes larger than its operands.
FOLD_GROWTH = 64 << 10
#: The operator that is not folded as loops if we can import it: our passes compute with its integers.
DEQUANTIZE = "relax.dequantize"
#: Reduction of two stacked operands -> the binary operator that computes the same.
_BINARY_OF_REDUCTION = {"relax.sum": relax.op.add, "relax.max": relax.op.maximum, "relax.min": relax.op.minimum}
#: Operators whose epilogue a sum can become.
_OPERATORS_WITH_EPILOGUE = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul")


def prepare(mod: tvm.IRModule, params: Mapping | None = None, loops: bool = False) -> tvm.IRModule:
    """Binds parameters, converts the module to dataflow form, simplifies the operators of importers and folds
    constants.

    params: as in `bind_params`. loops: whether to fold also operators that TVM lowers to loops.
    """
    mod = bind_params(mod, params or {})
    mod = relax.transform.ConvertToDataflow(min_size=1)(mod)  # patterns are matched in dataflow blocks only
    mod = relax.transform.CanonicalizeBindings()(mod)  # puts constants where they are read, for `channels_first`
    mod = channels_first(mod)
    mod = rewrite(rewrite(mod, LiftTir), SimplifyOnnx)  # TIR functions first: the others know operators only
    # Folding gives constants bindings of their own; `OrderSums` expects them where they are read too.
    mod = relax.transform.CanonicalizeBindings()(rewrite(mod, partial(FoldConstants, loops=loops)))
    return without_dead_code(rewrite(mod, OrderSums))


def outlined(mod: tvm.IRModule) -> tvm.IRModule:
    """Moves the dataflow blocks of functions with an If into functions of their own, so that TVM's passes for patterns
    and composites, which do not support an If, can take them."""
    mod = rewrite(mod, OutlineBlocks, lambda function: has_branches(function) and OUTSIDE not in (function.attrs or {}))
    return without_dead_code(relax.transform.CanonicalizeBindings()(mod))


def without_dead_code(mod: tvm.IRModule) -> tvm.IRModule:
    functions = [var.name_hint for var, function in mod.functions.items() if isinstance(function, relax.Function)]
    return relax.transform.DeadCodeElimination(functions)(mod)


def bind_params(mod: tvm.IRModule, params: Mapping) -> tvm.IRModule:
    """Replaces parameters by constants.

    Args:
        params: {name: array} for the function "main", or {function: [array, …]} as
            `relax.frontend.detach_params` gives it: the arrays of the last parameters.

    Raises:
        MegccError: for a name that the function does not have, and for a value that the parameter cannot have.
    """
    if not isinstance(params, Mapping):
        raise MegccError(f"params is {{name: array}}, not {type(params).__name__}")
    mod = remove_duplicate_params(mod)
    functions = {var.name_hint for var, function in mod.functions.items() if isinstance(function, relax.Function)}
    main_params = {}
    for name, value in params.items():
        if name not in functions or not isinstance(value, (Sequence, tvm.ir.Array)):
            main_params[name] = value
            continue
        parameters = mod[name].params
        if len(value) > len(parameters):
            raise MegccError(f"params has {len(value)} arrays for {name}, which has {len(parameters)} parameters")
        last = parameters[len(parameters) - len(value):]
        mod = _bind_function_params(mod, name, {name_of(var): array for var, array in zip(last, value, strict=True)})
    if main_params and "main" not in functions:
        raise MegccError(f"params is for the function main; the module has {', '.join(sorted(functions))}")
    return _bind_function_params(mod, "main", main_params) if main_params else mod


def _bind_function_params(mod: tvm.IRModule, function: str, params: Mapping) -> tvm.IRModule:
    """Replaces parameters of one function by constants."""
    known = {name_of(var): type_of(var) for var in mod[function].params}
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise MegccError(f"{function} has no parameter {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    tensors = {name: _tensor(value) for name, value in params.items()}
    for name, value in tensors.items():
        _require_fits(name, known[name], value)
    return relax.transform.BindParams(function, tensors)(mod)


def remove_duplicate_params(mod: tvm.IRModule) -> tvm.IRModule:
    """Removes duplicate parameters of functions, keeping the last occurrence of each variable.

    TVM's `from_onnx(model, keep_params_in_input=True)` lists an initialiser that is also a graph input twice, which no
    other part of TVM accepts. The last occurrences are those that `detach_params` gives values for.
    """
    builder = None
    for var, function in mod.functions.items():
        if isinstance(function, relax.Function):
            params = list(function.params)
            unique = [param for position, param in enumerate(params)
                    if not any(param.same_as(other) for other in params[position + 1:])]
            if len(unique) < len(params):
                builder = builder or relax.BlockBuilder(mod)
                builder.update_func(var, relax.Function(unique, function.body, result_type_of(function),
                                                        function.is_pure, function.attrs))
    return mod if builder is None else builder.get()


def _tensor(value):
    """Returns a numpy array as a tensor of TVM; other values unchanged."""
    return tvm.runtime.tensor(np.asarray(value, order="C")) if isinstance(value, np.ndarray) else value


def _require_fits(name: str, type_, value) -> None:
    """Raises MegccError if an array cannot be the value of a parameter of this type."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise MegccError(f"params['{name}'] is no array: {type(value).__name__}")
    shape, dims = tuple(value.shape), list(getattr(getattr(type_, "shape", None), "values", ()))
    has_shape = not dims or (len(dims) == len(shape) and all(
        not isinstance(dim, tirx.IntImm) or int(dim) == int(extent) for dim, extent in zip(dims, shape, strict=True)))
    if isinstance(type_, RelaxTensor) and not (has_shape and str(value.dtype) == str(type_.dtype)):
        raise MegccError(f"params['{name}'] is {value.dtype} of shape {shape}; the parameter is {type_}")


def rewrite(mod: tvm.IRModule, mutator: Callable, selects=lambda function: True) -> tvm.IRModule:
    """Applies an expression mutator to every Relax function except regions and composites. selects: returns whether a
    function is mutated."""
    changed = mutator(mod)
    for var, function in mod.functions.items():
        if isinstance(function, relax.Function) and not is_partitioned(function) and selects(function):
            changed.builder_.update_func(var, changed.visit_expr(function))
    return changed.builder_.get()


def is_partitioned(function) -> bool:
    """Whether a function is a region of ours or of another code generator, or a composite."""
    attrs = function.attrs
    return attrs is not None and ("Codegen" in attrs or "Composite" in attrs)


def has_branches(function: relax.Function) -> bool:
    """Whether a function contains an If. TVM's pass that merges composites does not support such functions."""
    found = []
    relax.analysis.post_order_visit(function, lambda e: found.append(e) if isinstance(e, relax.If) else None)
    return bool(found)


@relax.expr_functor.mutator
class OutlineBlocks(relax.PyExprMutator):
    """Moves dataflow blocks into private functions, so that code inside and around an If can be partitioned."""

    def visit_dataflow_block_(self, block):
        if not any(is_operator(binding.value) for binding in block.bindings):
            return super().visit_dataflow_block_(block)
        outputs = [binding.var for binding in block.bindings if not isinstance(binding.var, relax.DataflowVar)]
        body = relax.SeqExpr([block], Tuple(outputs))
        inputs = relax.analysis.free_vars(body)
        function = relax.Function(inputs, body, RelaxTuple([type_of(var) for var in outputs]))
        function = relax.utils.copy_with_new_vars(function)
        outlined = add_function(self.builder_, function, "megcc_block")
        self.builder_._begin_binding_block()
        results = self.builder_.emit(Call(outlined, [self.visit_expr(var) for var in inputs]))
        for index, var in enumerate(outputs):
            self.set_var_remap(key_of(var), self.builder_.emit(TupleGetItem(results, index)))
        return self.builder_._end_block()


@relax.expr_functor.mutator
class LiftTir(relax.PyExprMutator):
    """Replaces `call_tir` of a function by the Relax operator that it computes, if `as_operator` recognises one."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if is_operator(call) and call.op.name == CALL_TIR:
            function = self.builder_.get()[call.args[0]]
            replaced = as_operator(function, list(call.args[1].fields))
            if replaced is not None:
                replaced = self.builder_.normalize(replaced)
                # The types differ where the function broadcasts scalars to its result.
                return replaced if tvm_ffi.structural_equal(type_of(replaced), type_of(call)) else call
        return call


@relax.expr_functor.mutator
class SimplifyOnnx(relax.PyExprMutator):
    """Simplifies the code of TVM's ONNX importer. It broadcasts, stacks and reduces the operands of Sum, Max and Min;
    these become binary operators. `shape_of` becomes the shape."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if not is_operator(call):
            return call
        if call.op.name == "relax.shape_of" and type_of(call).values is not None:
            return relax.ShapeExpr(type_of(call).values)
        if call.op.name == "relax.shape_to_tensor" and type_of(call.args[0]).values is not None \
                and all(isinstance(extent, tirx.IntImm) for extent in type_of(call.args[0]).values):
            return relax.const(np.array([int(extent) for extent in type_of(call.args[0]).values]), "int64")
        if call.op.name == "relax.broadcast_to" and tvm_ffi.structural_equal(type_of(call.args[0]), type_of(call)):
            return call.args[0]
        stacked = self._stacked_operands(call)
        if not stacked:
            return call
        narrow = self._combined(call.op.name, [self._before_broadcast(operand) for operand in stacked])
        has_same_type = tvm_ffi.structural_equal(type_of(narrow), type_of(call))
        return narrow if has_same_type else self._combined(call.op.name, stacked)

    def _combined(self, reduction: str, operands: Sequence):
        """Returns the result of the binary operator of a reduction on all operands."""
        return reduce(lambda one, other: self.builder_.normalize(_BINARY_OF_REDUCTION[reduction](one, other)), operands)

    def _before_broadcast(self, operand):
        """Returns what an operand is a broadcast of; else the operand."""
        value = self.lookup_binding(operand) if isinstance(operand, Var) else operand
        return value.args[0] if is_operator(value) and value.op.name == "relax.broadcast_to" else operand

    def _stacked_operands(self, call) -> list:
        """Returns the operands of a stack whose new axis a reduction removes; an empty list for other calls."""
        if call.op.name not in _BINARY_OF_REDUCTION or not isinstance(call.args[0], Var):
            return []
        stack = self.lookup_binding(call.args[0])
        if not is_operator(stack) or stack.op.name != "relax.stack" or not isinstance(stack.args[0], Tuple) \
                or call.attrs.keepdims or call.attrs.axis is None:
            return []
        axes = [int(axis) for axis in call.attrs.axis]
        return list(stack.args[0].fields) if axes == [int(stack.attrs.axis)] else []


@relax.expr_functor.mutator
class OrderSums(relax.PyExprMutator):
    """Orders bindings and operands so that a sum of two convolutions or products becomes the epilogue of the later one.

    TVM's ONNX importer adds the bias of a convolution where the convolution's result is first read. For the convolution
    in the shortcut of a residual block, that is after the block's other convolutions. So an operator moves directly
    after its operand if the operand is its only variable, has the type of its result, and has no other reader.
    Patterns make a sum the epilogue of its first operand, so the later operand becomes the first.
    """

    def visit_dataflow_block_(self, block):
        if any(isinstance(binding, relax.MatchCast) for binding in block.bindings):
            return block  # it defines symbols for the bindings after it
        bindings = self._in_chains(block.bindings)
        position_of = {binding.var: index for index, binding in enumerate(bindings)}
        for index, binding in enumerate(bindings):
            call = binding.value
            if is_operator(call) and call.op.name == "relax.add":
                first, second = (self._product_index(operand, bindings, position_of) for operand in call.args)
                if first is not None and second is not None and first < second:
                    swapped = self.builder_.normalize(with_arguments(call, [call.args[1], call.args[0]]))
                    bindings[index] = relax.VarBinding(binding.var, swapped)
        return relax.DataflowBlock(bindings)

    @staticmethod
    def _in_chains(bindings: Sequence) -> list:
        """Returns the bindings with each operator that follows its only operand moved directly after it."""
        reads = [relax.analysis.free_vars(binding.value) for binding in bindings]
        readers = Counter(var for read in reads for var in read)
        chains: list[list] = []
        chain_of: dict[Var, list] = {}
        for binding, read in zip(bindings, reads, strict=True):
            follows = len(read) == 1 and is_operator(binding.value) and readers[read[0]] == 1 \
                and isinstance(read[0], relax.DataflowVar) \
                and tvm_ffi.structural_equal(type_of(read[0]), type_of(binding.var))
            if not follows:
                chains.append([])
            chain_of[binding.var] = chain = chain_of[read[0]] if follows else chains[-1]
            chain.append(binding)
        return [binding for chain in chains for binding in chain]

    @staticmethod
    def _product_index(operand, bindings: Sequence, position_of: Mapping) -> int | None:
        """Returns the index of the convolution or product that gives an operand, with or without a bias; None for other
        operands."""
        while isinstance(operand, Var) and operand in position_of:
            call = bindings[position_of[operand]].value
            if not is_operator(call):
                return None
            if call.op.name in _OPERATORS_WITH_EPILOGUE:
                return position_of[operand]
            if call.op.name != "relax.add" or not isinstance(call.args[1], Constant):
                return None
            operand = call.args[0]
        return None


@relax.expr_functor.mutator
class FoldConstants(relax.PyExprMutator):
    """Computes operators on constants. loops: whether to compute also those that TVM lowers to loops."""

    def __init__(self, mod: tvm.IRModule, loops: bool = False):
        super().__init__(mod)
        self.loops = loops

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if not is_operator(call) or not all(self._is_known(argument) for argument in call.args):
            return call
        result = self._fold(call, Importer())
        if self.loops and (result is None or (result is call and call.op.name != DEQUANTIZE)):
            importer = Importer()
            importer.loops = True
            result = self._fold(call, importer)
        return call if result is None else result

    def _fold(self, call, importer: Importer):
        """Returns the result of a call as a constant; the call itself if it is not computed at compile time, or if the
        result is much larger than its operands; None if it cannot be imported."""
        try:
            type_ = tensor_type(type_of(call), importer.extents)
            value = importer.value(self._with_constants(call))
        except REFUSALS:
            return None
        size = type_.static_bytes
        if value not in importer.builder.constants or size is None:
            return call
        operands = sum(array.nbytes for name, array in importer.builder.constants.items() if name != value)
        if size > operands + FOLD_GROWTH:
            return call
        return relax.const(_tensor(importer.builder.constants[value]))

    def _is_known(self, expr) -> bool:
        """Whether an argument is a constant, a shape or a number, or a tuple of such."""
        if isinstance(expr, Tuple):
            return all(self._is_known(field) for field in expr.fields)
        if isinstance(expr, Var):
            return isinstance(self.lookup_binding(expr), Constant)
        return isinstance(expr, (Constant, relax.ShapeExpr)) or is_number(expr)

    def _with_constants(self, expr):
        """Returns a call with its variables replaced by the constants that they are bound to."""
        def constant(argument):
            if isinstance(argument, Tuple):
                return Tuple([constant(field) for field in argument.fields])
            return self.lookup_binding(argument) if isinstance(argument, Var) else argument
        arguments = [constant(argument) for argument in expr.args]
        return self.builder_.normalize(with_arguments(expr, arguments))
