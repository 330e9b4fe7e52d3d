# SPDX-License-Identifier: Apache-2.0
"""The numpy interpreter for graphs at any stage of compilation, which is the reference for tests and tuning."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from .. import ops  # noqa: F401  (registers the operators)
from ..errors import ShapeError
from ..ir import lanes
from ..ir.dims import Symbol, SymbolicDim, number, substitute
from ..ir.expr import evaluate
from ..ir.graph import EXTENT, Attrs, Graph, Op
from ..ir.types import DTYPES, TensorType
from ..ops.base import operator
from ..ops.rules import compute_stored


def run(graph: Graph, inputs: Mapping[str, np.ndarray], keep: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Computes a graph with the numpy functions of its operators.

    Args:
        inputs: arrays by name, with axes in ONNX's order.
        keep: values to return in addition to the outputs.

    Returns:
        The outputs and the values in `keep`, by name.

    Raises:
        ShapeError: for an input that is missing, unknown, or has another dtype or shape, and for shapes that violate a
            condition of the graph.
    """
    symbols = _bind(graph, inputs)
    for condition in graph.conditions:
        if condition.symbols <= symbols.keys() and not condition.with_symbols(symbols).holds({}):
            raise ShapeError(f"{', '.join(f'{name} = {symbols[name]}' for name in sorted(condition.symbols))} "
                             f"does not fit: {condition}")
    return _run(graph, inputs, symbols, keep)


def _run(graph: Graph, inputs: Mapping[str, np.ndarray], symbols: dict[str, int],
         keep: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Computes a graph whose input symbols have values; unbacked symbols are added to `symbols`."""
    last_use = {name: index for index, op in enumerate(graph.ops) for name in op.inputs}
    kept = {*graph.outputs, *keep}
    values: dict[str, np.ndarray] = {name: np.asarray(inputs[name]) for name in graph.inputs}
    for index, op in enumerate(graph.ops):
        if op.kind == EXTENT:
            symbols[op.attrs.symbol.name] = _symbol_value(op, values[op.inputs[0]], symbols)
        operands = [values.get(name, graph.constants.get(name)) if name else None for name in op.inputs]
        results = _CONTROL[op.kind](op, operands, symbols) if op.kind in _CONTROL else \
            _results(graph, op, operands, symbols)
        values.update(zip(op.outputs, results, strict=True))
        for name in op.inputs:
            if last_use.get(name) == index and name not in kept:
                values.pop(name, None)
    values.update((name, graph.constants[name]) for name in kept if name in graph.constants)
    return {graph.label(name): values[name] for name in dict.fromkeys((*graph.outputs, *keep))}


def _subgraph(graph: Graph, operands: list, symbols: dict[str, int]) -> list[np.ndarray]:
    """Returns the outputs of a subgraph."""
    results = _run(graph, dict(zip(graph.inputs, operands, strict=True)), symbols)
    return [results[graph.label(name)] for name in graph.outputs]


def _loop(op: Op, operands: list, symbols: dict[str, int]) -> list[np.ndarray]:
    """Runs a loop: ONNX's Loop, with operands, results and attributes as `ops.control.loops.Loop` describes them."""
    trip_count, condition, *values = operands
    count = op.attrs.carried
    carried, captured = values[:count], values[count:]
    stack_types = op.attrs.types[2 + count:]    # the types before them are of trip count, condition and carried values
    stacks = [np.zeros([substitute(dim, symbols) for dim in type_.shape], np.dtype(type_.dtype))
              for type_ in stack_types]
    iteration = 0
    while iteration < trip_count and condition:
        results = _subgraph(op.attrs.body.graph, [np.array(iteration), np.asarray(condition), *carried, *captured],
                            symbols)
        if not op.attrs.counted:
            condition, *results = results
        carried = results[:count]
        for stack, row in zip(stacks, results[count:], strict=True):
            if iteration >= len(stack):
                raise ShapeError(f"{op.origin} has more than {len(stack)} iterations")
            stack[iteration] = row
        iteration += 1
    return [np.array(iteration), np.asarray(condition), *carried, *stacks]


def _branch(op: Op, operands: list, symbols: dict[str, int]) -> list[np.ndarray]:
    """Runs the subgraph that the condition chooses (ONNX's If)."""
    condition, *captured = operands     # values that `yes` reads, then those that `no` reads
    count = op.attrs.reads
    if condition:
        return _subgraph(op.attrs.yes.graph, captured[:count], symbols)
    return _subgraph(op.attrs.no.graph, captured[count:], symbols)


#: Operators with subgraphs -> their interpreters.
_CONTROL = {"loop": _loop, "branch": _branch}


def _symbol_value(op: Op, values: np.ndarray, symbols: Mapping[str, int]) -> int:
    """Returns the value that an operator `extent` gives its unbacked symbol. Raises ShapeError if it is out of
    bounds."""
    value = int(values.reshape(-1)[op.attrs.element])
    bound = 2**31 - 1 if op.attrs.bound is None else number(substitute(op.attrs.bound, symbols))
    # A "required" value is no extent: it is 0, unless a condition chooses a branch that the compiler removed.
    if value and op.attrs.get("required"):
        raise ShapeError(f"the {op.attrs.symbol} chooses the branch that was removed at compilation, because it is "
                         "impossible for the shapes of the inputs")
    if not 0 <= value <= bound:
        raise ShapeError(f"'{op.attrs.symbol}' is {value}; it has to be between 0 and {bound}")
    return value


def _results(graph: Graph, op: Op, operands: list, symbols: Mapping[str, int]) -> list[np.ndarray]:
    """Returns the results of an operator with its epilogue. Raises ShapeError if they do not have the inferred
    shapes."""
    declaration = operator(op.kind)
    # The operands of the epilogue come after the operator's own.
    inputs = operands if op.epilogue is None else operands[:op.epilogue_start]
    dtypes = [graph.types[name].dtype for name in op.outputs]
    # float16, bfloat16 and other storage types are computed in their carrier dtype, and then rounded.
    if any(DTYPES[dtype].carrier for dtype in (*dtypes, *(graph.types[name].dtype for name in op.inputs if name))):
        results = compute_stored(declaration, _attrs(op.attrs, symbols), inputs, dtypes)
    else:
        try:
            results = [np.asarray(array) for array in declaration.compute(_attrs(op.attrs, symbols), *inputs)]
        except IndexError as error:
            if not declaration.indexed(op.attrs, [graph.types.get(name) for name in op.inputs]):
                raise
            raise ShapeError(f"{op.kind} '{op.origin}' refused the values of its operands: {error}") from error
    if op.epilogue is not None:
        extra = [_aligned(array, results[0], declaration.channel_axis) for array in operands[op.epilogue_start:]]
        results[0] = _fused(op, [results[0], *extra], graph.types[op.outputs[0]].dtype)
    for array, name in zip(results, op.outputs, strict=True):
        expected = tuple(substitute(dim, symbols) for dim in graph.types[name].shape)
        if array.shape != expected:
            raise ShapeError(f"{op.kind} '{op.origin}' gave {array.shape} where {expected} was inferred")
    return results


def _fused(op: Op, operands: list[np.ndarray], dtype: str) -> np.ndarray:
    """Evaluates the epilogue on the operator's own result and the epilogue's operands: integers in the arithmetic of
    their dtype, as kernels do; floats as numpy does, where overflow is no error."""
    if operands[0].dtype.kind != "f":
        return lanes.evaluate(op.epilogue, operands, dtype)
    with np.errstate(all="ignore"):
        return np.asarray(evaluate(op.epilogue, operands), operands[0].dtype)


def _aligned(operand: np.ndarray, result: np.ndarray, channel_axis: int | None) -> np.ndarray:
    """Returns an epilogue's operand in a shape that broadcasts to the result: a vector of several elements has one for
    each channel."""
    if operand.ndim == 1 and operand.size > 1 and channel_axis is not None and result.ndim > 1:
        axis = channel_axis % result.ndim
        return operand.reshape([-1 if index == axis else 1 for index in range(result.ndim)])
    return operand


def _bind(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Returns the value of each shape symbol. Raises ShapeError for inputs that do not fit the graph."""
    if set(inputs) != set(graph.inputs):
        raise ShapeError(f"inputs are {', '.join(inputs) or 'none'}; the graph has "
                         + ", ".join(f"{name}: {graph.types[name]}" for name in graph.inputs))
    symbols: dict[str, int] = {}
    for name in graph.inputs:
        type_, array = graph.types[name], np.asarray(inputs[name])
        if array.dtype != np.dtype(type_.dtype) or not _matches(type_, array.shape, symbols):
            raise ShapeError(f"input '{name}' is {array.dtype}{list(array.shape)}; the graph has {type_}")
    return symbols


def _matches(type_: TensorType, shape: tuple[int, ...], symbols: dict[str, int]) -> bool:
    """Returns whether a shape fits a type; symbols that have no value yet get one."""
    if len(shape) != type_.rank:
        return False
    for dim, extent in zip(type_.shape, shape, strict=True):
        if isinstance(dim, Symbol):
            dim = symbols.setdefault(dim.name, extent)
        if dim != extent:
            return False
    return True


def _attrs(attrs: Attrs, symbols: Mapping[str, int]) -> Attrs:
    """Returns attributes with numbers in place of symbols."""
    if not symbols:
        return attrs

    def value(item):
        if isinstance(item, tuple):
            return tuple(map(value, item))
        return substitute(item, symbols) if isinstance(item, SymbolicDim) else item

    return Attrs({name: value(item) for name, item in attrs.items()})
