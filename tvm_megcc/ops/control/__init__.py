# SPDX-License-Identifier: Apache-2.0
"""Loops and branches, and operators that are given as C code."""

from . import extern, loops, tir
