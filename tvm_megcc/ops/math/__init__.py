# SPDX-License-Identifier: Apache-2.0
"""Products, reductions and transforms."""

from . import einsum, fourier, matmul, reduce, spectral
