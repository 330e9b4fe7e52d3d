# SPDX-License-Identifier: Apache-2.0
"""Matrix products, reductions, and Fourier transforms."""

from . import einsum, fourier, matmul, matmul_rows, reduce, spectral
