# SPDX-License-Identifier: Apache-2.0
"""Converts PyTorch objects to ONNX: results of `torch.onnx.export`, modules with an example input, and programs of
torch.export that TVM's importer does not support."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import MegccError, shortened
from .contents import kind_of

#: The package that torch.onnx needs besides PyTorch.
_EXPORTER = "onnxscript"


def is_onnx_program(model: Any) -> bool:
    """Whether the model is an ONNXProgram, which `torch.onnx.export` returns."""
    return any(part.__module__.startswith("torch.onnx") for part in type(model).__mro__) \
        and hasattr(model, "model_proto")


def is_module(model: Any) -> bool:
    """Whether the model is a `torch.nn.Module`."""
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)


def to_onnx_if_torch(model: Any, example_inputs: Any = None) -> Any:
    """Converts an ONNXProgram, or a module with an example input, to an ONNX model; returns any other model unchanged.
    Without the package onnxscript, a module becomes a program of torch.export, which TVM imports.

    Args:
        example_inputs: arguments to call the module with: a tuple, a dictionary by name, or one tensor.

    Raises:
        MegccError: for example inputs without a module, or if PyTorch cannot export the module.
    """
    if is_onnx_program(model):
        return model.model_proto
    if example_inputs is None:
        return model
    if not is_module(model):
        raise MegccError("example_inputs are for a module of PyTorch, which is exported with them; leave them out")
    arguments, named = (), {}
    if isinstance(example_inputs, Mapping):
        named = dict(example_inputs)
    else:
        arguments = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    import torch

    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        if _installed(_EXPORTER):
            proto = torch.onnx.export(model, arguments, kwargs=named, dynamo=True, verbose=False).model_proto
            proto.graph.name = type(model).__name__
            return proto
        return torch.export.export(model, arguments, named)
    except Exception as error:  # any of PyTorch's own
        raise MegccError(f"PyTorch does not export the module: {_first_line(error)}") from error
    finally:
        for part in training:
            part.training = True


def exported_program_to_onnx(model: Any, reason: MegccError) -> Any:
    """Converts a program of torch.export to an ONNX model. reason: the error of TVM's importer.

    Raises:
        MegccError: quoting `reason`, if PyTorch cannot convert it either.
    """
    if isinstance(model, (str, Path)) and kind_of(model) != "program":
        raise reason
    if not _installed("torch"):  # `reason` says so already
        raise reason
    if not _installed(_EXPORTER):
        raise MegccError(f"{reason}\n  With 'pip install {_EXPORTER}' it comes in as an ONNX model.") from None
    import torch

    try:
        program = torch.export.load(str(model)) if isinstance(model, (str, Path)) else model
        return torch.onnx.export(program, dynamo=True, verbose=False).model_proto
    except Exception as error:  # any of PyTorch's own
        raise MegccError(f"{reason}\n  As an ONNX model it does not come in either: {_first_line(error)}") from None


def _installed(package: str) -> bool:
    """Whether a package is installed. Import hooks of other packages may raise for a missing one."""
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def _first_line(error: Exception) -> str:
    return shortened(" ".join(f"{type(error).__name__}: {error}".split()), 300)
