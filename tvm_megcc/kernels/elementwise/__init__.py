# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators, fused chains of them, casts and lookup tables."""
