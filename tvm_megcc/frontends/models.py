# SPDX-License-Identifier: Apache-2.0
"""Any model as a graph: an ONNX or TFLite file, a module of TVM, what TVM's importers read."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..dispatch import Dispatcher, Intervals, buckets_of, parse_dispatch, parse_shape_sets
from ..errors import MegccError, ModelError
from ..extern import Externs
from ..ir.graph import Graph
from ..ir.shapes import Bucket
from ..ir.streams import Stream
from ..named_dims import Size, parse_dims, with_dims
from ..passes.streaming.growing_states import grow_states, growing
from ..passes.streaming.states import expanded
from ..passes.streaming.streams import streamed
from . import _tvm, formats, torch_models

logger = logging.getLogger(__name__)

Shapes = Mapping[str, Sequence[int]]

#: How names of TFLite files end.
TFLITE = ".tflite"


def import_model(model, *, params: Mapping[str, object] | None = None,
                 input_shapes: str | Shapes | Sequence[Shapes] | None = None,
                 dispatch: str | Dispatcher | Intervals | None = None, constants: Mapping[str, object] | None = None,
                 output_names: Sequence[str] | None = None, extern: Externs | None = None,
                 states: Mapping[str, str] | None = None, bounds: Mapping[str, int] | None = None,
                 dims: str | Sequence[str] | Mapping[str, Size] | None = None,
                 stream: str | Stream | None = None, signature: str = "") -> tuple[Graph, tuple[Bucket, ...]]:
    """The graph of a model, its inputs as the model has them, and the ranges of shapes it is compiled for.

    The arguments are those of `tvm_megcc.compile`.

    Raises:
        MegccError: saying what of the model cannot be imported, where, and what to do.
    """
    model = torch_models.of_torch(model)
    stream = Stream.parse(stream) if isinstance(stream, str) else stream
    if stream is not None and dispatch:
        raise MegccError("a stream has blocks of one size: leave out --dispatch, or --stream")
    if signature and not is_tflite(model):
        raise MegccError("signature is for TFLite files, which may have several")
    graph, buckets = _import_whole(model, params, input_shapes, dispatch, constants, output_names, extern, states,
                                   bounds, parse_dims(dims or {}), signature)
    if stream is None:
        return graph, buckets
    return streamed(graph, stream, {*(states or {}).values(), *(target for _, target in graph.states)}), buckets


def _import_whole(model, params, input_shapes, dispatch, constants, output_names, extern, states,
                  bounds, named, signature) -> tuple[Graph, tuple[Bucket, ...]]:
    """`import_model` of what is no stream."""
    rules = parse_dispatch(dispatch) if isinstance(dispatch, str) else dispatch
    sets, name = shape_sets(input_shapes), Path(model).stem if isinstance(model, (str, Path)) else "model"
    if is_tflite(model):
        if params or constants or bounds:
            raise MegccError("params, constants and bounds are not for TFLite files")
        found = _of_tflite(model, sets, rules, output_names, states, extern, signature, named)
        if isinstance(found, tuple):
            return found
        model = found
    elif _tvm.is_for_importers(model):
        model = _loaded(model)
    if _tvm.is_module(model):
        if constants or output_names or extern or bounds:
            raise MegccError("constants, bounds, output_names and extern are for ONNX files; bind constants of a "
                             "module with params")
        dims = _tvm.attribute("input_dims", "module")(model)
        shapes, buckets = buckets_of(dims, *with_dims(dims, sets, rules, named))
        return _tvm.attribute("import_module", "module")(model, params, shapes, name), buckets
    if params:
        raise MegccError("params are the weights of a module of TVM; an ONNX file has its own, and constants= binds "
                         "inputs")
    formats.refuse_unreadable(model)
    from .onnx import import_onnx, input_dims

    dims = input_dims(model)
    shapes, buckets = buckets_of(dims, *with_dims(dims, sets, rules, named))
    pairs = expanded(states or {}, dims)
    rooms = growing(dims, pairs, bounds or {})
    graph = import_onnx(model, input_shapes=shapes, output_names=output_names, constants=constants, extern=extern,
                        bounds={name: most for name, most in (bounds or {}).items() if name not in rooms})
    return grow_states(graph, pairs, rooms), buckets


def _loaded(model):
    """A program of torch.export as a module of TVM or, where that does not take it, as an ONNX model."""
    try:
        return _tvm.loaded(model)
    except MegccError as error:
        return torch_models.through_onnx(model, error)


def is_tflite(model) -> bool:
    return isinstance(model, (str, Path)) and Path(model).suffix == TFLITE


def _of_tflite(model, sets: Sequence[Shapes], rules, output_names, states, extern, signature: str, named):
    """A TFLite file as a graph and its ranges of shapes or, where TVM is installed and reads what we do not, as a
    module of TVM."""
    from .tflite import UnsupportedModel, import_tflite, input_dims

    dims = input_dims(model, signature)
    shapes, buckets = buckets_of(dims, *with_dims(dims, sets, rules, named))
    try:
        return import_tflite(model, shapes, output_names, states, extern, signature), buckets
    except UnsupportedModel as error:
        advice = ["Bind custom operators to C functions of yours with --extern (docs/extern.md)"] * error.custom
        advice += ["Leave what is quantised there in float32 when the model is converted"] * error.quantised
        if error.custom or extern or signature:  # of which TVM knows nothing
            raise ModelError(str(model), error.findings, ". ".join(advice)) from None
        if importlib.util.find_spec("tvm") is None:
            advice.append("TVM's importer reads some more: pip install 'tvm_megcc[tflite]'")
            raise ModelError(str(model), error.findings, ". ".join(advice)) from None
        logger.info("%s comes in through TVM's importer: %s", model, error.findings[0])
        try:
            return _tvm.loaded(model)
        except MegccError as other:
            logger.info("TVM's importer: %s", other)
            advice.append("TVM's importer does not take it either (-v shows why)")
            raise ModelError(str(model), error.findings, ". ".join(advice)) from None


def input_names(model, signature: str = "") -> list[str]:
    """Names of a model's inputs.

    Raises:
        MegccError: for what is no model that we read.
    """
    if is_tflite(model):
        from .tflite import input_dims as tflite_dims

        return list(tflite_dims(model, signature))
    if _tvm.is_for_importers(model):
        model = _loaded(model)
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
