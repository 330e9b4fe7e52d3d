# SPDX-License-Identifier: Apache-2.0
"""Families of operators that are not in ONNX's own domain."""
