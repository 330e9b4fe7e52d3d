# SPDX-License-Identifier: Apache-2.0
"""Top-k, unique, NonZero, non-maximum suppression, n-grams."""
