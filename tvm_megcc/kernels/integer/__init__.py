# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products of 8-bit operands, with sums in int32."""
