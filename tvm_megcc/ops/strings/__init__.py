# SPDX-License-Identifier: Apache-2.0
"""String tensors and n-grams."""

from . import ngrams, strings
