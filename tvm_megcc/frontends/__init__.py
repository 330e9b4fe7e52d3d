# SPDX-License-Identifier: Apache-2.0
"""Imports models into graphs: ONNX, TFLite, GGUF, PyTorch, and TVM's Relax and Relay."""
