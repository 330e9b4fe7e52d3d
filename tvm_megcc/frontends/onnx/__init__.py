# SPDX-License-Identifier: Apache-2.0
"""The front end for ONNX, which needs no TVM. All front ends construct their graph with its `builder`."""

from .importer import import_onnx
from .input_types import input_dims

__all__ = ["import_onnx", "input_dims"]
