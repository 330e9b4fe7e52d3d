# SPDX-License-Identifier: Apache-2.0
"""Quantisation of floats: per axis, dynamic, and in blocks."""
