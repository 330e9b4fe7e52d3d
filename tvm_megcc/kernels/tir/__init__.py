# SPDX-License-Identifier: Apache-2.0
"""Kernels that are printed from TVM's own loops (TIR)."""
