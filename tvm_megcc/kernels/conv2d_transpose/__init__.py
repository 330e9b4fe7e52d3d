# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions of floats."""
