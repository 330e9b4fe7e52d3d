# SPDX-License-Identifier: Apache-2.0
"""The front end for ONNX, which needs no TVM. The other front ends use its `builder`, the graph under construction,
too."""

from .importer import import_onnx, input_dims

__all__ = ["import_onnx", "input_dims"]
