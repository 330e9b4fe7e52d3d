# SPDX-License-Identifier: Apache-2.0
"""The fusion of attention, two matrix products with a softmax between them, into one operator.

Axes have letters, as in `ops/nn/fused_attention.py`: b batch, n heads, s queries, t keys, h elements of queries and
keys, v elements of values, c an axis from which one index is taken (such as of packed queries, keys and values).
"""
