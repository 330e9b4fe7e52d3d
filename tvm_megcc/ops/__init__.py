# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

from . import (
    activation,
    conv,
    copy,
    elementwise,
    gather,
    matmul,
    move,
    norm,
    pool,
    quant,
    reduce,
    resize,
    shape,
    softmax,
)

__all__ = ["activation", "conv", "copy", "elementwise", "gather", "matmul", "move", "norm", "pool", "quant", "reduce",
           "resize", "shape", "softmax"]
