# SPDX-License-Identifier: Apache-2.0
"""Imports TFLite files and programs of torch.export as Relax modules, through TVM's importers."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

import tvm

from ...errors import MegccError, MegccWarning
from ...ir.narrow import SIXTEEN_BITS
from ..contents import is_tflite
from .module import OUTPUTS
from .tflite import from_tflite_file


def load(model) -> tvm.IRModule:
    """Returns a model as a module whose attribute `OUTPUTS` has the names of its results.

    Args:
        model: path of a TFLite file or of a file that `torch.export.save` wrote, or an `ExportedProgram`.

    Raises:
        MegccError: if a package is not installed, or TVM's importer does not support the model.
    """
    if not isinstance(model, (str, Path)):
        return _from_program(model, "the program")
    path = Path(model)
    if not path.is_file():
        raise MegccError(f"{path}: there is no such file")
    if is_tflite(path):
        return _from_tflite(path)
    torch = _package("torch", path, "programs of torch.export are read by PyTorch")
    try:
        program = torch.export.load(str(path))
    except Exception as error:  # PyTorch raises many kinds for a file that is not a program
        raise MegccError(f"{path}: PyTorch does not read it: {_summary(error)}") from error
    return _from_program(program, str(path))


def _from_tflite(path: Path) -> tvm.IRModule:
    tflite = _package("tflite", path, "TVM reads TFLite files with the package tflite")
    try:
        return from_tflite_file(path.read_bytes(), tflite)
    except MegccError as error:
        raise MegccError(f"{path}: {error}") from None
    except Exception as error:  # TVM's importer raises many kinds
        raise MegccError(f"{path}: TVM's importer does not take it: {_summary(error)}") from error


def _from_program(program, name: str) -> tvm.IRModule:
    _hint_at_recurrent(program, name)
    from tvm.relax.frontend.torch import from_exported_program

    try:
        mod = from_exported_program(program)
    except Exception as error:  # TVM's importer raises many kinds
        raise MegccError(
            f"{name}: TVM's importer does not take it: {_summary(error)}{_advice_on_16_bits(program)}") from error
    return mod.with_attr(OUTPUTS, [str(name) for name in program.graph_signature.user_outputs])


def _advice_on_16_bits(program) -> str:
    """Returns advice for a program of 16-bit floats, "" for others. TVM's importer gives convolutions and products
    float32 results, and fails where these meet 16-bit operands."""
    dtypes = {str(value.dtype).removeprefix("torch.") for value in program.state_dict.values()}
    names = " and ".join(sorted(dtypes & set(SIXTEEN_BITS)))
    return f". Weights are {names}, of which it makes products of float32: export the network in float32 " \
           "(model.float()), or to ONNX (torch.onnx.export), which keeps the type" if names else ""


def _hint_at_recurrent(program, name: str) -> None:
    """Warns of recurrent layers in a program of torch.export. TVM's importer applies PyTorch's decompositions, which
    unroll every step."""
    operators = [f"aten.{kind}.input" for kind in ("gru", "lstm", "rnn_tanh", "rnn_relu")]
    targets = [str(node.target) for node in program.graph.nodes]
    layers = [operator.split(".")[1] for operator in operators if operator in targets]
    if layers:
        warnings.warn(f"{name}: torch.export writes its recurrent layers ({', '.join(layers)}) out step by step: slow "
                      "to compile, slow to run, and for one length only. In an ONNX file each stays one operator: "
                      "torch.onnx.export(model, inputs, 'model.onnx', dynamo=False)", MegccWarning, stacklevel=2)


def _package(name: str, path: Path, reason: str):
    """Imports a package that reading the file needs. reason: what reads the file, for the message."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MegccError(f"{path}: {reason}, which is not installed: pip install {name}") from error


def _summary(error: Exception) -> str:
    """Returns the type of an exception and the last line of its text that is not empty. TVM's errors begin with a stack
    trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
