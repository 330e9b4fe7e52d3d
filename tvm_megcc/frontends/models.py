# SPDX-License-Identifier: Apache-2.0
"""Any model as a graph: an ONNX file, a module of TVM, what TVM's importers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..dispatch import Dispatcher, Intervals, buckets_of, parse_dispatch, parse_shape_sets
from ..errors import MegccError
from ..extern import Externs
from ..ir.graph import Graph
from ..ir.shapes import Bucket
from . import _tvm, formats

Shapes = Mapping[str, Sequence[int]]


def import_model(model, *, params: Mapping[str, object] | None = None,
                 input_shapes: str | Shapes | Sequence[Shapes] | None = None,
                 dispatch: str | Dispatcher | Intervals | None = None, constants: Mapping[str, object] | None = None,
                 output_names: Sequence[str] | None = None,
                 extern: Externs | None = None) -> tuple[Graph, tuple[Bucket, ...]]:
    """The graph of a model, its inputs as the model has them, and the ranges of shapes it is compiled for.

    The arguments are those of `tvm_megcc.compile`.

    Raises:
        MegccError: saying what of the model cannot be imported, where, and what to do.
    """
    rules = parse_dispatch(dispatch) if isinstance(dispatch, str) else dispatch
    sets, name = shape_sets(input_shapes), Path(model).stem if isinstance(model, (str, Path)) else "model"
    if _tvm.is_for_importers(model):
        model = _tvm.loaded(model)
    if _tvm.is_module(model):
        if constants or output_names or extern:
            raise MegccError("constants, output_names and extern are for ONNX files; bind constants of a module with "
                             "params")
        shapes, buckets = buckets_of(_tvm.attribute("input_dims", "module")(model), sets, rules)
        return _tvm.attribute("import_module", "module")(model, params, shapes, name), buckets
    if params:
        raise MegccError("params are the weights of a module of TVM; an ONNX file has its own, and constants= binds "
                         "inputs")
    formats.refuse_unreadable(model)
    from .onnx import import_onnx, input_dims

    shapes, buckets = buckets_of(input_dims(model), sets, rules)
    return import_onnx(model, input_shapes=shapes, output_names=output_names, constants=constants,
                       extern=extern), buckets


def input_names(model) -> list[str]:
    """Names of a model's inputs.

    Raises:
        MegccError: for what is no model that we read.
    """
    if _tvm.is_for_importers(model):
        model = _tvm.loaded(model)
    if _tvm.is_module(model):
        return list(_tvm.attribute("input_dims", "module")(model))
    formats.refuse_unreadable(model)
    from .onnx import input_dims

    return list(input_dims(model))


def shape_sets(input_shapes: str | Shapes | Sequence[Shapes] | None) -> list[Shapes]:
    """Sets of input shapes, in whichever form they were given."""
    if isinstance(input_shapes, str):
        return parse_shape_sets(input_shapes)
    if input_shapes is None or isinstance(input_shapes, Mapping):
        return [dict(input_shapes or {})]
    return list(input_shapes)
