# SPDX-License-Identifier: Apache-2.0
"""ONNX models into our graph, without TVM. `builder`, the graph under construction, serves the other front ends too."""

from .importer import import_onnx, input_dims

__all__ = ["import_onnx", "input_dims"]
