# SPDX-License-Identifier: Apache-2.0
"""Lowers operators between dequantize_linear and quantize_linear to integers."""
