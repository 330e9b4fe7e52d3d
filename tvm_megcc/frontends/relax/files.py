# SPDX-License-Identifier: Apache-2.0
"""TFLite files and programs of torch.export as Relax modules, through TVM's importers."""

from __future__ import annotations

import importlib
from pathlib import Path

import tvm

from ...errors import MegccError
from .module import OUTPUTS


def load(model) -> tvm.IRModule:
    """A model as a module with the names of its results as an attribute.

    Args:
        model: path of a TFLite file or of what `torch.export.save` wrote, or an `ExportedProgram`.

    Raises:
        MegccError: if a package is not installed, and for what TVM's importer does not take.
    """
    if not isinstance(model, (str, Path)):
        return _of_program(model, "the program")
    path = Path(model)
    if not path.is_file():
        raise MegccError(f"{path}: there is no such file")
    if path.suffix == ".tflite":
        return _of_tflite(path)
    torch = _package("torch", path, "programs of torch.export are read by PyTorch")
    try:
        program = torch.export.load(str(path))
    except Exception as error:  # whatever PyTorch raises for a file that is none of its programs
        raise MegccError(f"{path}: PyTorch does not read it: {_line(error)}") from error
    return _of_program(program, str(path))


def _of_tflite(path: Path) -> tvm.IRModule:
    tflite = _package("tflite", path, "TVM reads TFLite files with the package tflite")
    from tvm.relax.frontend.tflite import from_tflite

    try:
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        graph = model.Subgraphs(0)
        outputs = [graph.Tensors(graph.Outputs(index)).Name().decode() for index in range(graph.OutputsLength())]
        mod = from_tflite(model)
    except Exception as error:  # TVM's importer raises many kinds
        raise MegccError(f"{path}: TVM's importer does not take it: {_line(error)}") from error
    return mod.with_attr(OUTPUTS, outputs)


def _of_program(program, where: str) -> tvm.IRModule:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        mod = from_exported_program(program)
    except Exception as error:  # likewise
        raise MegccError(f"{where}: TVM's importer does not take it: {_line(error)}") from error
    return mod.with_attr(OUTPUTS, [str(name) for name in program.graph_signature.user_outputs])


def _package(name: str, path: Path, why: str):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MegccError(f"{path}: {why}, which is not installed: pip install {name}") from error


def _line(error: Exception) -> str:
    """The last line of an exception that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
