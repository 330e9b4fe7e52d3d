# SPDX-License-Identifier: Apache-2.0
"""Operators of ONNX Runtime's domain com.microsoft."""

from . import attention, early, fused, norm, qlinear, quantized
