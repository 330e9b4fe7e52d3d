# SPDX-License-Identifier: Apache-2.0
"""Finds scales and zero points of integer inputs and outputs, from the operators next to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph, Op

#: Operators that only move elements: their result has the scale and zero point of the first operand.
_MOVES = ("reshape", "transpose", "copy")


class Quantisation(NamedTuple):
    """Affine quantisation of a tensor, as ONNX and TFLite define it: real = scale * (integer - zero_point).

    scale: a float32 value.
    zero_point: the integer that stands for 0.
    """

    scale: float
    zero_point: int

    def quantize(self, numbers: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
        """Quantises to this dtype, with ties to even, as ONNX's QuantizeLinear does. NaN becomes the zero point."""
        limits = np.iinfo(dtype)
        with np.errstate(over="ignore"):
            steps = np.rint(np.asarray(numbers, np.float32) / np.float32(self.scale)).astype(np.float64)
        integers: npt.NDArray[Any] = np.nan_to_num(steps + self.zero_point, nan=self.zero_point)
        limited: npt.NDArray[Any] = np.clip(integers, limits.min, limits.max)
        return limited.astype(dtype)

    def dequantize(self, integers: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Returns scale * (integer - zero_point), as float32."""
        return ((integers.astype(np.int64) - self.zero_point) * np.float64(self.scale)).astype(np.float32)


def quantised_ports(graph: Graph) -> dict[str, Quantisation]:
    """Returns {name of a port: its quantisation}.

    The quantisation is known for ports that the graph states it for, for inputs that only dequantize_linear with one
    scale reads, and for outputs that quantize_linear computes; operators that only move elements may lie between. Other
    ports are not quantised, have several scales, or are used as integers.
    """
    producers, consumers = graph.producers(), graph.consumers()
    found = {name: _of_input(graph, consumers, name) for name in graph.inputs}
    found |= {name: _of_output(graph, producers, name) for name in graph.outputs if name not in found}
    stated = {name: Quantisation(*pair) for name, pair in graph.quantised.items() if name in found}
    return stated | {name: quantisation for name, quantisation in found.items() if quantisation is not None}


def _of_input(graph: Graph, consumers: dict[str, list[Op]], name: str) -> Quantisation | None:
    """Returns the quantisation that all consumers of a value agree on; None if there is none."""
    found = set()
    for op in consumers.get(name, ()):
        if op.kind in _MOVES and op.inputs[0] == name:
            found.add(_of_input(graph, consumers, op.outputs[0]))
        else:
            found.add(_parameters(graph, op) if op.kind == "dequantize_linear" and op.inputs[0] == name else None)
    return found.pop() if len(found) == 1 else None


def _of_output(graph: Graph, producers: dict[str, Op], name: str) -> Quantisation | None:
    op = producers.get(name)
    while op is not None and op.kind in _MOVES:
        op = producers.get(op.inputs[0])
    return _parameters(graph, op) if op is not None and op.kind == "quantize_linear" else None


def _parameters(graph: Graph, op: Op) -> Quantisation | None:
    """Returns scale and zero point of a quantize_linear or dequantize_linear; None if they are no constants, or are per
    axis."""
    scale = graph.constants.get(op.inputs[1])
    zero = graph.constants.get(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else np.zeros((), np.int32)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return Quantisation(float(np.float32(scale.item())), int(zero.item()))
