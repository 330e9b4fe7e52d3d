# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention with the softmax in one pass over the keys."""
