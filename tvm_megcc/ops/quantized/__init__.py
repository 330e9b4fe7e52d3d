# SPDX-License-Identifier: Apache-2.0
"""Quantisation, dequantisation, and operators on quantised numbers."""

from . import (
    bnb4,
    conv_matmul,
    dynamic_quantize_linear,
    int4,
    integer_products,
    layer_norm,
    log_softmax,
    lookup_table,
    nbits,
    nbits_rows,
    pool_reduce,
    quantize_linear,
    reduce_prod,
    rsqrt,
    softmax,
    softmax_int8,
    softmax_int16,
)
