# SPDX-License-Identifier: Apache-2.0
"""Represents complex numbers, the results of real Fourier transforms, as two tensors of float32. Operators that move
elements move both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import ShapeError
from ...ops.math.spectral import emit_dft
from ...ops.tensor.move import emit_slice
from .file import Tensor
from .node import Node, Results, Unsupported, imports
from .value import Complex, Value

COMPLEX = "complex64"
#: Operators that a complex tensor passes through part by part.
MOVES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "GATHER",
         "GATHER_ND", "CONCATENATION", "PACK", "UNPACK", "TILE", "BROADCAST_TO", "REVERSE_V2")


def real_tensor(tensor: Tensor) -> Tensor:
    """Returns the description of the real or imaginary part of a complex tensor: the same with dtype float32. Other
    tensors are returned unchanged."""
    return replace(tensor, dtype="float32") if tensor.dtype == COMPLEX else tensor


@imports("RFFT2D")
def transform(node: Node) -> Results:
    """Imports RFFT2D of float32 [..., H, W] with fft_length (h, w): the last two axes are cut or zero-padded to h and
    w. The result is complex64 [..., h, w / 2 + 1]."""
    type_, lengths = node.type(0), node.const(1, "fft_length").reshape(-1).tolist()
    if type_.rank < 2 or len(lengths) != 2 or not type_.is_static or any(n < 1 or n & (n - 1) for n in lengths):
        raise ShapeError(f"a transform of {type_} with lengths {lengths}; it needs two lengths that are powers of two, "
                         "and an operand of known extents and rank 2 or more")
    height, width = lengths
    onnx_node = node.onnx_node()
    value = node.emit("reshape", node.plain(0), shape=(*type_.shape, 1))
    value = emit_dft(onnx_node, value, width, inverse=False, onesided=True)
    if (height, type_.shape[-2]) != (1, 1):  # the transform of one number is this number
        rank = type_.rank + 1
        swapped = (*range(rank - 3), rank - 2, rank - 3, rank - 1)  # height and width; the last axis is re, im
        value = emit_dft(onnx_node, node.emit("transpose", value, perm=swapped), height, inverse=False, onesided=False)
        value = node.emit("transpose", value, perm=swapped)
    shape = node.type_of(value).shape[:-1]
    parts = (emit_slice(onnx_node, value, len(shape), part, part + 1) for part in (0, 1))
    return [Complex(*(node.as_value(node.emit("reshape", part, shape=shape)) for part in parts))]


def _real(node: Node) -> Results:
    return [_complex_operand(node).real]


def _imaginary(node: Node) -> Results:
    return [_complex_operand(node).imaginary]


def _absolute(node: Node) -> Results:
    value = _complex_operand(node)
    squares = [node.emit("mul", part.in_order(value.real.order, node.name), part.in_order(value.real.order, node.name))
               for part in (value.real, value.imaginary)]
    return [node.as_value(node.emit("sqrt", node.emit("add", *squares)), value.real.order)]


#: Operators from complex to real numbers. A cast drops the imaginary part, as LiteRT's does.
TO_FLOATS: dict[str, Callable[[Node], Results]] = {
    "REAL": _real, "CAST": _real, "IMAG": _imaginary, "COMPLEX_ABS": _absolute}


def _complex_operand(node: Node) -> Complex:
    value = node.operands[0]
    if not isinstance(value, Complex) or node.results[0].dtype != "float32":
        raise Unsupported(f"gives {node.results[0].dtype} of complex numbers, which is not supported")
    return value


def by_parts(importer: Callable[[list, list[Tensor | None], list[Tensor]], list[Value]],
             operands: Sequence[Value | Complex | None], tensors: Sequence[Tensor | None],
             results: Sequence[Tensor]) -> list[Complex]:
    """Imports an operator of `MOVES` for each part of its complex operands. importer: imports it for real operands."""
    parts = [importer([getattr(value, part) if isinstance(value, Complex) else value for value in operands],
                      [tensor and real_tensor(tensor) for tensor in tensors], [*map(real_tensor, results)])
             for part in ("real", "imaginary")]
    return [Complex(*pair) for pair in zip(*parts, strict=True)]
