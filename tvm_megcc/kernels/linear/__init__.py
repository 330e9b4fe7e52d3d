# SPDX-License-Identifier: Apache-2.0
"""Linear algebra: determinants, inverses, Fourier transforms, coupled probabilities."""
