# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

from . import conv, copy, elementwise, matmul, move, norm, pool, quant, reduce, resize, shape, softmax

__all__ = ["conv", "copy", "elementwise", "matmul", "move", "norm", "pool", "quant", "reduce", "resize", "shape",
           "softmax"]
