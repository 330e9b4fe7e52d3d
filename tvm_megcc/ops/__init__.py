# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

from . import (
    activation,
    columns,
    conv,
    conv3d,
    conv_transpose,
    copy,
    deform_conv,
    einsum,
    elementwise,
    gather,
    lrn,
    matmul,
    move,
    norm,
    pool,
    quant,
    quant_products,
    reduce,
    resample,
    resize,
    reverse,
    rnn,
    roi,
    sampling,
    scatter,
    shape,
    softmax,
    sort,
    spectral,
)

__all__ = ["activation", "columns", "conv", "conv3d", "conv_transpose", "copy", "deform_conv", "einsum", "elementwise",
           "gather", "lrn", "matmul", "move", "norm", "pool", "quant", "quant_products", "reduce",
           "resample", "resize", "reverse", "rnn", "roi", "sampling", "scatter", "shape", "softmax", "sort",
           "spectral"]
