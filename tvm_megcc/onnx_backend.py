# SPDX-License-Identifier: Apache-2.0
"""`onnx.backend.base.Backend` over the compiler: what runs is the generated C, in the C virtual machine.

    rep = onnx_backend.prepare(model)
    (y,) = rep.run([x])

Each model is compiled for this CPU and built by one call of the C compiler in a temporary folder, which is removed
when the library is loaded. Only the objects of the C runtime, which are the same for every model, stay in the cache.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from . import api, folders, paths
from .codegen.artifact import Artifact
from .errors import InternalError, MegccError, ToolError
from .frontends.onnx.sequences import is_sequence
from .ops.random.philox import Draw
from .runtime import build as builds
from .runtime.native import NativeSession
from .runtime.objects import run_tool
from .runtime.precompiled import intrinsics
from .runtime.toolchain import Compiler, find_compiler
from .target import Target, native

#: The flags of the ordinary build, with -O1 instead of -O2: these models run once, so compiling is to be fast.
_FLAGS = tuple("-O1" if flag == "-O2" else flag for flag in builds.CFLAGS) + ("-fPIC", "-DMEGCC_MODULE=model_module")


#: A value of ONNX: a tensor, a sequence of tensors (list), or an optional without a value (None).
Value = np.ndarray | list[np.ndarray] | None


class UnsupportedModel(NotImplementedError):
    """The compiler refuses the model; the message names the operators, types or shapes that it does not support."""


class MegccBackend(Backend):
    """The compiler as a backend of ONNX: `prepare`, `run_model`, `run_node`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> MegccRep:
        """Compiles and builds a model. A model with open input shapes is compiled by each call of `run`.

        Args:
            target: a `Target` that this CPU runs; default is this CPU.

        Raises:
            UnsupportedModel: for operators, element types and shapes that are not supported.
        """
        return MegccRep(model, kwargs.get("target") or native())

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Sequence[Any], device: str = "CPU",
                 outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None, **kwargs: Any
                 ) -> tuple[Value, ...]:
        """Runs one operator. outputs_info: (dtype, shape) of each result, where they are known."""
        names = list(dict.fromkeys(filter(None, node.input)))
        arrays = [np.asarray(array) for array in inputs]
        declared = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
                                                       array.shape)
                    for name, array in zip(names, arrays, strict=True)]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        if outputs_info is not None:
            results = [onnx.helper.make_tensor_value_info(
                           result.name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                       for result, (dtype, shape) in zip(results, outputs_info, strict=True)]
        graph = onnx.helper.make_graph([node], "node", declared, results)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


#: The supported kinds of inputs, as fields of `onnx.TypeProto`; the others are maps and sparse tensors.
_SUPPORTED_INPUTS = ("tensor_type", "sequence_type", "optional_type")


class MegccRep(BackendRep):
    """A model that `MegccBackend.prepare` compiled, or, if its input shapes are open, accepted."""

    def __init__(self, model: onnx.ModelProto, target: Target):
        names = [value.name for value in _inputs(model)
                 if value.type.WhichOneof("value") not in _SUPPORTED_INPUTS]
        if names:
            raise UnsupportedModel(f"inputs {', '.join(names)} are neither tensors nor sequences or optionals of them")
        self._model, self._target = _with_empty_inputs_known(model), target
        self._inputs = [value.name for value in _inputs(model)]
        has_open_shapes = not all(_has_known_shape(value) for value in _inputs(self._model))
        self._session = None if has_open_shapes else self._compiled()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Value, ...]:
        """Returns the outputs, in the model's order. inputs: arrays in the model's order, or by name."""
        if not isinstance(inputs, Mapping):
            inputs = dict(zip(self._inputs, inputs, strict=True))
        arrays: dict[str, np.ndarray] = {}
        empty: dict[str, None] = {}
        for value in _inputs(self._model):
            argument = inputs[value.name]
            if argument is None or (isinstance(argument, list) and not argument):
                empty[value.name] = None
            elif isinstance(argument, list):
                arrays.update((f"{value.name}.{index}", np.asarray(element)) for index, element in enumerate(argument))
            else:
                arrays[value.name] = np.asarray(argument)
        session = self._session or self._compiled({name: array.shape for name, array in arrays.items()}, empty)
        results = session.run(arrays)
        return tuple(_value(results, output) for output in self._model.graph.output)

    def _compiled(self, shapes: Mapping[str, Sequence[int]] | None = None,
                  empty: Mapping[str, None] | None = None) -> NativeSession:
        """Compiles the model for these input shapes. empty: inputs that are optionals without a value or empty
        sequences."""
        try:
            artifact = api.compile(self._model, self._target, input_shapes=shapes, constants=empty, name="model")
        except (InternalError, ToolError):
            raise
        except MegccError as error:
            raise UnsupportedModel(str(error)) from error
        if any(call["kind"] == Draw.kind for program in artifact.manifest["programs"] for call in program["calls"]):
            raise UnsupportedModel("draws random numbers, which differ from those of others; this interface has no "
                                   "input for their seed")
        return _load(artifact, self._target)


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Returns the inputs of the graph that are not initializers."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initializers]


def _has_known_shape(value: onnx.ValueInfoProto) -> bool:
    """Returns whether an input is a tensor whose extents are all numbers."""
    tensor = value.type.tensor_type
    return value.type.HasField("tensor_type") and tensor.HasField("shape") \
        and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _value(results: Mapping[str, np.ndarray], output: onnx.ValueInfoProto) -> Value:
    """Returns an output: a sequence as a list; None for an optional without a value."""
    if is_sequence(output.type):
        names = takewhile(lambda name: name in results, (f"{output.name}.{index}" for index in count()))
        return [results[name] for name in names]
    return results.get(output.name) if output.type.HasField("optional_type") else results[output.name]


def _with_empty_inputs_known(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with initializers for inputs without elements, which have one possible value."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for value in _inputs(model):
        tensor = value.type.tensor_type
        if any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in tensor.shape.dim):
            shape = [dim.dim_value for dim in tensor.shape.dim]
            array = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
            result.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    return result


def _load(artifact: Artifact, target: Target) -> NativeSession:
    """Builds the library in a temporary folder and returns a session on it; the folder is removed, the loaded library
    stays in memory."""
    compiler = find_compiler(target)
    with tempfile.TemporaryDirectory(prefix="megcc-") as scratch:
        folder = artifact.save(Path(scratch) / "model")
        library = folder / "libmodel.so"
        sources = [folder / "kernels.c", *sorted((folder / "kernels").glob("*.c"))]
        flags = (*_FLAGS, *target.cflags, "-pthread")
        precompiled_header = intrinsics(compiler, flags, "".join(source.read_text() for source in sources))
        run_tool([*compiler.command, *flags, *precompiled_header, f"-I{paths.c_runtime() / 'include'}", "-shared",
                  *map(str, sources), *map(str, _runtime_objects(compiler, target)), "-o", str(library)])
        return NativeSession(builds.Build(folder, target, compiler, library, None))


@cache
def _runtime_objects(compiler: Compiler, target: Target) -> list[Path]:
    """Returns the C runtime, compiled into a folder of the cache that its sources, flags and compiler name."""
    root = paths.c_runtime()
    headers = sorted([*(root / "include").rglob("*.h"), *(root / "src").rglob("*.h")])
    sources = [*sorted((root / "src").glob("*.c")), Path(builds.__file__).with_name("megcc_py.c")]
    flags = [*_FLAGS, *target.cflags, f"-I{root / 'include'}", f"-I{root / 'src'}"]
    digest = hashlib.sha256(repr([str(compiler), flags]).encode())
    for path in (*headers, *sources):
        digest.update(path.read_bytes())
    folder = paths.cache("backend") / digest.hexdigest()[:24]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folders.scratch(folder.parent) as scratch:
            staging = scratch / "objects"
            staging.mkdir()
            for source in sources:
                run_tool([*compiler.command, *flags, "-c", str(source), "-o", str(staging / f"{source.stem}.o")])
            try:
                staging.rename(folder)
            except OSError:  # another process was faster
                if not folder.exists():
                    raise
    return [folder / f"{source.stem}.o" for source in sources]


prepare = MegccBackend.prepare
run_node = MegccBackend.run_node
run_model = MegccBackend.run_model
supports_device = MegccBackend.supports_device
