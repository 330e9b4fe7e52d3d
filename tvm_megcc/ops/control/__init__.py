# SPDX-License-Identifier: Apache-2.0
"""Loops and branches; operators given by C code."""

from . import extern, loops, tir
