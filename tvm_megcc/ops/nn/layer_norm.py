# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation (Ba et al. 2016) and RMS normalisation (Zhang and Sennrich 2019), each as one operator. The
importer emits means, squares and roots (nn/norm.py); passes/fusion/norms.py fuses them."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, f32, register


@register
class LayerNorm(Operator):
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, with mean and variance along the last axis.

    Operands, float32: x [..., N]; weight [N]; bias [N]. Result: float32 [..., N]. Attribute `epsilon`.
    """

    kind = "layer_norm"
    operands = ("x", "weight?", "bias?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, weight: TensorType | None = None,
              bias: TensorType | None = None) -> tuple[TensorType, ...]:
        return _result(x, weight, bias)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, weight: np.ndarray | None = None,
                bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        centred = x - x.mean(-1, keepdims=True, dtype=np.float64)
        inverse = 1 / np.sqrt(np.square(centred).mean(-1, keepdims=True) + attrs.epsilon)
        y = centred * inverse * (1 if weight is None else weight) + (0 if bias is None else bias)
        return (y.astype(np.float32),)


@register
class RmsNorm(Operator):
    """y = x / sqrt(mean(x²) + epsilon) * weight, with the mean along the last axis.

    Operands, float32: x [..., N]; weight [N]. Result: float32 [..., N]. Attribute `epsilon`.
    """

    kind = "rms_norm"
    operands = ("x", "weight?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, weight: TensorType | None = None) -> tuple[TensorType, ...]:
        return _result(x, weight)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        inverse = 1 / np.sqrt(np.square(x, dtype=np.float64).mean(-1, keepdims=True) + attrs.epsilon)
        return ((x * inverse * (1 if weight is None else weight)).astype(np.float32),)


def _result(x: TensorType, *per_element: TensorType | None) -> tuple[TensorType, ...]:
    """Returns the type of the normalised rows of x. per_element: operands with a number for each element of a row;
    None if absent. Raises ShapeError for others."""
    if x.dtype != "float32" or x.rank < 1:
        raise ShapeError(f"normalises rows of float32, not {x}")
    for operand in filter(None, per_element):
        require_shape(operand.shape, x.shape[-1:], f"operand {operand} for rows of {x}")
    return (TensorType("float32", x.shape),)


def _case(shape: tuple[int, ...], weight: bool = True, bias: bool = True, epsilon: float = 1e-5) -> Case:
    per_element = f32(shape[-1])
    return Case((f32(*shape), per_element if weight else None, per_element if bias else None), {"epsilon": epsilon},
                tuple(index for index, given in ((1, weight), (2, bias)) if given))


LayerNorm.cases = (_case((2, 5, 37)), _case((3, 384), epsilon=1e-12), _case((7, 3), bias=False),
                   _case((4, 1), weight=False), _case((16,), weight=False, bias=False), _case((1, 2, 3, 64)))


def _rms_case(shape: tuple[int, ...], weight: bool = True, epsilon: float = 1e-5) -> Case:
    return Case((f32(*shape), f32(shape[-1]) if weight else None), {"epsilon": epsilon}, (1,) if weight else ())


RmsNorm.cases = (_rms_case((2, 5, 37)), _rms_case((3, 576), epsilon=1e-6), _rms_case((7, 3), weight=False),
                 _rms_case((16, 1)), _rms_case((1, 2, 3, 64)))
