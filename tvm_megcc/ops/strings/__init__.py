# SPDX-License-Identifier: Apache-2.0
"""Operators on string tensors, and counts of n-grams."""

from . import ngrams, strings
