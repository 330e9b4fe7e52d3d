# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

from . import (
    activation,
    columns,
    conv,
    conv3d,
    conv_transpose,
    copy,
    elementwise,
    gather,
    lrn,
    matmul,
    move,
    norm,
    pool,
    quant,
    reduce,
    resample,
    resize,
    rnn,
    shape,
    softmax,
)

__all__ = ["activation", "columns", "conv", "conv3d", "conv_transpose", "copy", "elementwise", "gather", "lrn",
           "matmul", "move", "norm", "pool", "quant", "reduce", "resample", "resize", "rnn", "shape", "softmax"]
