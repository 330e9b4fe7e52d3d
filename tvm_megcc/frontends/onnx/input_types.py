# SPDX-License-Identifier: Apache-2.0
"""Types of a model's inputs: as the file declares them, with the extents that the user gives."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from ...errors import ShapeError, quoted
from ...ir.dim_text import parse_dim
from ...ir.dims import Dim, Symbol, SymbolicDim, substitute
from ...ir.limits import MAX_BYTES
from ...ir.types import TensorType
from .load import DTYPES, LoadedModel, load, type_name


def input_dims(model: str | Path | bytes | onnx.ModelProto | LoadedModel
               ) -> dict[str, tuple[int | str | SymbolicDim | None, ...]]:
    """Returns the declared shapes of the model's inputs. An entry is an extent, the name of a symbol, an expression
    over symbols, or None if nothing is known."""
    graph = load(model).proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    names = _dim_names(graph)
    return {value.name: tuple(_named(dim, names) for dim in value.type.tensor_type.shape.dim)
            for value in graph.input if value.name not in weights}


def _dim_names(graph: onnx.GraphProto) -> frozenset[str]:
    """Returns the names of the inputs' symbolic extents."""
    symbols = (_symbol_of(dim) for value in graph.input for dim in value.type.tensor_type.shape.dim)
    return frozenset(filter(None, symbols))


def _named(dim: onnx.TensorShapeProto.Dimension, names: Container[str]) -> int | str | SymbolicDim | None:
    """Returns a declared extent: a number, a name, an expression over other names, or None."""
    if symbol := _symbol_of(dim):
        found = None if symbol.isidentifier() else parse_dim(symbol, names)
        return symbol if found is None or isinstance(found, Symbol) else found
    return dim.dim_value if dim.dim_value > 0 else None


#: The strings that exporters write for an unknown extent. They are no names: two such extents need not be equal.
_UNNAMED_EXTENTS = frozenset({"?", "*", "-1", "None"})


def _symbol_of(dim: onnx.TensorShapeProto.Dimension) -> str:
    """Returns the name of a symbolic extent, "" if it has none."""
    return "" if dim.dim_param in _UNNAMED_EXTENTS else dim.dim_param


class InputTypes:
    """Types of the inputs of one graph.

    names: the symbols of the inputs. given_extents: symbol -> the extent that the user gave it.
    """

    def __init__(self, graph: onnx.GraphProto, input_shapes: Mapping[str, Sequence[int | str | None]],
                 empty: frozenset[str]):
        """input_shapes: extents, names of symbols or None (as in the model), by input. empty: symbols that may be 0."""
        self.names = _dim_names(graph)
        self.input_shapes = input_shapes
        self.empty = empty
        self.given_extents: dict[str, int] = {}

    def bind(self, values: Sequence[onnx.ValueInfoProto]) -> list[str]:
        """Records the extents that the user gave to symbols of the model, and returns the contradictions among them as
        findings."""
        findings = []
        for value in values:
            shape_given = self.input_shapes.get(value.name, ())
            for axis, (dim, extent) in enumerate(zip(value.type.tensor_type.shape.dim, shape_given, strict=False)):
                symbol = _named(dim, self.names)
                if isinstance(symbol, str) and isinstance(extent, int) \
                        and self.given_extents.setdefault(symbol, extent) != extent:
                    findings.append(f"input {quoted(value.name)}: axis {axis} is {quoted(symbol)}, which "
                                    f"--input-shapes gives as {self.given_extents[symbol]} and as {extent}")
        return findings

    def of(self, value: onnx.ValueInfoProto) -> TensorType:
        """Returns the type of an input.

        Raises:
            ShapeError: if the input is no tensor, if its element type or size is not supported, or if the extents that
                the user gave do not fit it.
        """
        if not value.type.HasField("tensor_type"):
            raise ShapeError("is no tensor; sequences, maps and optionals are not supported")
        tensor = value.type.tensor_type
        if tensor.elem_type not in DTYPES and tensor.elem_type != onnx.TensorProto.STRING:
            raise ShapeError(f"has element type {type_name(tensor.elem_type)}, which is not supported")
        shape_given = self.input_shapes.get(value.name)
        if not tensor.HasField("shape") and shape_given is None:
            raise ShapeError("has no shape, not even a rank; give one in --input-shapes")
        rank = len(tensor.shape.dim) if tensor.HasField("shape") else len(shape_given or ())
        if shape_given is not None and len(shape_given) != rank:
            raise ShapeError(f"has {rank} axes, --input-shapes gives {len(shape_given)}")
        shape: list[Dim] = []
        for axis in range(rank):
            extent = shape_given[axis] if shape_given is not None else None
            dim = tensor.shape.dim[axis] if tensor.HasField("shape") else onnx.TensorShapeProto.Dimension()
            if isinstance(extent, (int, np.integer)) and extent < 0:
                raise ShapeError(f"--input-shapes gives axis {axis} the extent {extent}; extents are 0 or more")
            shape.append(self._symbol(extent) if isinstance(extent, str) else
                         int(extent) if extent is not None else self._model_dim(value.name, axis, dim))
        type_ = TensorType(DTYPES.get(tensor.elem_type, "int64"), tuple(shape))
        if (size := type_.static_bytes) is not None and size > MAX_BYTES:
            raise ShapeError(f"is {type_}, {size:,} bytes, and no tensor may reach 2 GB; use a smaller shape")
        return type_

    def _model_dim(self, name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> Dim:
        """Returns the extent that the file declares for an axis of the input `name`: a symbol of its own if it declares
        none."""
        found = _named(dim, self.names)
        if found is None:
            return self._symbol(f"{name}_{axis}")
        if isinstance(found, SymbolicDim):
            # The expression was parsed with symbols of at least 1.
            symbols_from_0 = {symbol: self._symbol(symbol) for symbol in self.empty}
            extent = substitute(found, {**symbols_from_0, **self.given_extents})
            if isinstance(extent, int) and extent < 0:
                raise ShapeError(f"has {quoted(_symbol_of(dim))} along axis {axis}, which is {extent}; extents are 0 "
                                 "or more")
            return extent
        return found if isinstance(found, int) else self.given_extents.get(found, self._symbol(found))

    def _symbol(self, name: str) -> Symbol:
        return Symbol(name, least=0 if name in self.empty else 1)
