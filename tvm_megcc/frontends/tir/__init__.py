# SPDX-License-Identifier: Apache-2.0
"""The long tail: a TIR function, which TVM makes of any of its operators, as a kernel in C.

    call of an operator ─ legalize ─► PrimFunc ─ schedule, fuse ─► fewer loops ─ loops ─► Program

Loops that cannot be printed (calls of libraries, threads, vectors) are refused by name and stay with TVM.
"""

from .printer import program_of

__all__ = ["program_of"]
