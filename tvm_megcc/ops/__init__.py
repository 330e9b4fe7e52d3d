# SPDX-License-Identifier: Apache-2.0
"""The operators: importing this package registers every family."""

from . import elementwise, move, norm, quant, reduce, resize, shape, softmax

__all__ = ["elementwise", "move", "norm", "quant", "reduce", "resize", "shape", "softmax"]
