# SPDX-License-Identifier: Apache-2.0
"""Prints TIR functions, which TVM lowers its operators to, as C kernels, for operators without a hand-written kernel.

    call of an operator ─ legalize ─► PrimFunc ─ schedule, fuse ─► fewer loops ─ loops ─► Program

Functions that cannot be printed (calls of libraries, threads, vectors) are refused with the reason and stay with TVM.
"""

from .printer import program_of

__all__ = ["program_of"]
