# SPDX-License-Identifier: Apache-2.0
"""Imports any model as a graph: an ONNX or TFLite file, a module of TVM, or a format that TVM's importers read."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..dispatch import Shape, buckets_of, parse_dispatch, parse_shape_sets, possibly_empty
from ..errors import MegccError, ModelError, ShapeError
from ..ir.graph import Graph
from ..ir.shapes import Bucket, hull
from ..named_dims import with_dims
from ..option_values import Shapes
from ..options import CompileOptions
from ..passes.streaming.kv_cache import capacities_of, grow_states
from ..passes.streaming.states import expanded
from ..passes.streaming.streams import streamed
from . import _tvm, formats, torch_models
from .contents import is_gguf, is_tflite

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import CompileKeywords
    from .tflite import UnsupportedModel

logger = logging.getLogger(__name__)


def import_model(model, options: CompileOptions | None = None, *, params: Mapping[str, object] | None = None,
                 **changes: Unpack[CompileKeywords]) -> tuple[Graph, tuple[Bucket, ...]]:
    """Returns the graph of a model, and its buckets: the ranges of shapes that it is compiled for.

    Args:
        model, params: as for `tvm_megcc.compile`.
        options, changes: `CompileOptions`, and single fields that replace theirs.

    Raises:
        MegccError: saying what cannot be imported, where in the model, and what to do.
    """
    options, model = CompileOptions.of(options, changes, "import_model"), torch_models.to_onnx_if_torch(model)
    if options.stream is not None and options.dispatch:
        raise MegccError("a stream has blocks of one size: leave out --dispatch, or --stream")
    if options.signature and not is_tflite(model):
        raise MegccError("signature is for TFLite files, which may have several")
    graph, buckets = _import_unstreamed(model, options, params)
    if options.stream is None:
        return graph, buckets
    state_inputs = {*options.states.values(), *(target for _, target in graph.states)}
    return streamed(graph, options.stream, unstreamed=state_inputs), buckets


def _import_unstreamed(model, options: CompileOptions, params: Mapping[str, object] | None
                       ) -> tuple[Graph, tuple[Bucket, ...]]:
    """Imports a model as `import_model` does, without the rewriting into a stream of blocks."""
    name = Path(model).stem if isinstance(model, (str, Path)) else "model"
    formats.refuse_misnamed(model)
    if is_tflite(model):
        if options.sinks:
            raise MegccError(f"--sinks {options.sinks}: attention sinks are for language models: megcc lm compile")
        if params or options.constants or options.bounds:
            raise MegccError("params, --constant and --bound are not for TFLite files")
        return _import_tflite_file(model, options)
    if is_gguf(model):
        return _import_gguf_file(model, options, params)
    if options.sinks and not options.states:
        raise MegccError(f"--sinks {options.sinks}: attention sinks are for language models: megcc lm compile")
    if _tvm.needs_tvm_importer(model):
        model = _from_exported_program(model)
    if _tvm.is_module(model):
        if options.constants or options.output_names or options.extern or options.bounds:
            raise MegccError("--constant, --bound, --output-names and --extern are for ONNX files; bind constants of a "
                             "module with params")
        return _import_tvm_module(model, options, params, name)
    if params:
        raise MegccError("params are the weights of a module of TVM; an ONNX file has its own, and constants= binds "
                         "inputs")
    formats.refuse_unreadable(model)
    return _import_onnx_file(model, options)


def _import_onnx_file(model, options: CompileOptions) -> tuple[Graph, tuple[Bucket, ...]]:
    """Imports an ONNX model with its states. A bound of a state that grows by Concat is the capacity of that state."""
    from .onnx import import_onnx, input_dims
    from .onnx_sinks import with_sinks

    dims = input_dims(model)
    shapes, buckets = _shapes_of(dims, options)
    states = expanded(options.states, dims)
    capacities = capacities_of(dims, states, options.bounds)
    other_bounds = {name: bound for name, bound in options.bounds.items() if name not in capacities}
    if other_bounds:  # the bound of a state that an option misspells would be here: the error must name the state
        for source, target in states.items():
            if target not in dims:
                raise MegccError(f"state '{source}={target}': the model has no input '{target}'; its inputs are "
                                 f"{', '.join(dims)}")
    graph = import_onnx(model, input_shapes=shapes, output_names=options.output_names, constants=options.constants,
                        extern=options.extern, bounds=other_bounds, empty=possibly_empty(buckets))
    if not options.sinks:
        return grow_states(graph, states, capacities), buckets
    if len(capacities) != 1:
        raise MegccError(f"--sinks {options.sinks}: attention sinks are for one KV cache, whose capacity is a --bound")
    ((_, capacity),) = capacities.items()
    graph, sinks = with_sinks(graph, states, capacity, options.sinks)
    graph = grow_states(graph, states, capacities, sinks=sinks)
    outputs = tuple(name for name in graph.outputs if name not in sinks.first.values())
    return graph.with_(outputs=outputs), buckets


def _shapes_of(inputs: Mapping[str, Shape], options: CompileOptions) -> tuple[Shapes, tuple[Bucket, ...]]:
    """Returns the shapes of the model's inputs, with symbols for dynamic extents, and the buckets of these symbols."""
    rules = parse_dispatch(options.dispatch) if isinstance(options.dispatch, str) else options.dispatch
    return buckets_of(inputs, *with_dims(inputs, shape_sets(options.input_shapes), rules, options.dims))


def _import_gguf_file(model, options: CompileOptions, params: Mapping[str, object] | None
                      ) -> tuple[Graph, tuple[Bucket, ...]]:
    """Imports a language model, whose KV cache is a state without the user naming it."""
    from .gguf import import_gguf, input_dims

    if params or options.constants or options.states or options.output_names or options.extern:
        raise MegccError("params, --constant, --state, --output-names and --extern are not for GGUF files")
    shapes, buckets = _shapes_of(input_dims(model), options)
    if possibly_empty(buckets):
        raise MegccError("a run of a language model has at least one token: begin the range at 1")
    return import_gguf(model, shapes, options.bounds, hull(buckets), options.sinks), buckets


def _import_tvm_module(module, options: CompileOptions, params: Mapping[str, object] | None, name: str
                       ) -> tuple[Graph, tuple[Bucket, ...]]:
    """Imports a module of Relax or Relay. params: weights by the names of its parameters; name: that of the graph."""
    # The functions are those of `relax.module` or `relay.module`, whichever the installed TVM has.
    input_dims, import_module = (_tvm.attribute(function, "module") for function in ("input_dims", "import_module"))
    shapes, buckets = _shapes_of(input_dims(module), options)
    return import_module(module, params, shapes, name), buckets


def _from_exported_program(model):
    """Converts a program of torch.export to a module of TVM or, if TVM does not support it, to an ONNX model."""
    try:
        return _tvm.to_module(model)
    except MegccError as error:
        return torch_models.exported_program_to_onnx(model, error)


def _import_tflite_file(model, options: CompileOptions) -> tuple[Graph, tuple[Bucket, ...]]:
    """Imports a TFLite file. If it has operators that we do not support, TVM's importer is tried, if installed.

    Raises:
        ModelError: the error of our own importer, also if TVM fails.
    """
    from .tflite import UnsupportedModel, import_tflite, input_dims

    shapes, buckets = _shapes_of(input_dims(model, options.signature), options)
    try:
        return import_tflite(model, shapes, options.output_names, options.states, options.extern,
                             signature=options.signature, empty=possibly_empty(buckets)), buckets
    except UnsupportedModel as error:
        return _import_tflite_with_tvm(model, options, error)


def _import_tflite_with_tvm(model, options: CompileOptions, error: UnsupportedModel
                            ) -> tuple[Graph, tuple[Bucket, ...]]:
    """Imports a TFLite file through TVM's importer. error: that of our own importer.

    Raises:
        ModelError: `error` with advice, if TVM is not installed or does not import the file either.
    """
    advice = []
    if error.custom:
        advice.append("Bind custom operators to C functions of yours with --extern (docs/extern.md)")
    if error.quantised:
        advice.append("Leave what is quantised there in float32 when the model is converted")
    if error.custom or options.extern or options.signature or options.output_names:  # TVM does not support these
        raise ModelError(str(model), error.findings, ". ".join(advice)) from None
    if importlib.util.find_spec("tvm") is None:
        advice.append("TVM's importer reads some more: pip install 'tvm_megcc[tflite]'")
        raise ModelError(str(model), error.findings, ". ".join(advice)) from None
    logger.info("%s comes in through TVM's importer: %s", model, error.findings[0])
    tvm_reads_it = False
    try:
        module = _tvm.to_module(model)
        tvm_reads_it = True
        return _import_tvm_module(module, options, params=None, name=Path(model).stem)
    except ShapeError:  # of the shapes that the user gave, so advice on operators would mislead
        raise
    except MegccError as tvm_error:
        logger.info("TVM's importer: %s", tvm_error)
        advice.append("TVM's importer does not take it either (-v shows why)" if not tvm_reads_it else
                      f"TVM reads it, and there are no kernels for what it makes of it: {_first_finding(tvm_error)}")
        raise ModelError(str(model), error.findings, ". ".join(advice)) from None


def _first_finding(error: MegccError) -> str:
    return error.findings[0] if isinstance(error, ModelError) else str(error)


def input_names(model, signature: str = "") -> list[str]:
    """Returns the names of a model's inputs.

    Raises:
        MegccError: for a model that cannot be read.
    """
    formats.refuse_misnamed(model)
    if is_tflite(model):
        from .tflite import input_dims as tflite_dims

        return list(tflite_dims(model, signature))
    if is_gguf(model):
        from .gguf import input_dims as gguf_dims

        return list(gguf_dims(model))
    if _tvm.needs_tvm_importer(model):
        model = _from_exported_program(model)
    if _tvm.is_module(model):
        return list(_tvm.attribute("input_dims", "module")(model))
    formats.refuse_unreadable(model)
    from .onnx import input_dims

    return list(input_dims(model))


def shape_sets(input_shapes: str | Shapes | Sequence[Shapes] | None) -> list[Shapes]:
    """Returns the sets of input shapes as a list of one shape by the name of its input.

    Args:
        input_shapes: the option --input-shapes as text, one set, several sets, or None.

    Raises:
        MegccError: for a set that is not a mapping.
    """
    if isinstance(input_shapes, str):
        return parse_shape_sets(input_shapes)
    if input_shapes is None or isinstance(input_shapes, Mapping):
        return [_with_python_ints(input_shapes or {})]
    sets = list(input_shapes)
    if not all(isinstance(shapes, Mapping) for shapes in sets):
        raise MegccError(f"--input-shapes: {input_shapes!r} names no input; give shapes by the names of inputs, such "
                         'as {"data": (1, 3, 224, 224)} or "data=(1,3,224,224)"')
    return [_with_python_ints(shapes) for shapes in sets]


def _with_python_ints(shapes: Shapes) -> Shapes:
    """Returns the shapes with integers of Python in place of numpy's, which are extents of another kind."""
    return {name: tuple(int(dim) if isinstance(dim, np.integer) else dim for dim in shape)
            if isinstance(shape, (tuple, list, np.ndarray)) else shape for name, shape in shapes.items()}
