# SPDX-License-Identifier: Apache-2.0
"""Pooling and sums of 8-bit operands."""
