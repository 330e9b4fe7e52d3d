# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's DFT, STFT and MelWeightMatrix; declares determinants and inverses of matrices.

A transform of a short real signal, or of a length with other prime factors than 2, 3 and 5, becomes a product with a
constant matrix; the others become the operator `fourier`.
"""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ...ir.conditions import require_at_most, require_equal
from ...ir.dims import Dim, floordiv, product
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, decomposes, f32, register
from ..elementwise import cast_to, emit_broadcast
from ..rules import axis_of, emit_arange
from ..tensor.move import emit_slice
from ..tensor.runtime_axes import select_run_time_axis
from ..tensor.runtime_operands import number_of_steps
from .fourier import Fourier, factors_of

#: The shortest real signal that gets a fast transform. For shorter ones a product with a constant matrix is faster; for
#: longer ones the matrix would have millions of numbers.
MIN_FFT_LENGTH = 256


def dft_matrix(length: int, parts: int, inverse: bool, onesided: bool) -> np.ndarray:
    """Returns the matrix of a discrete Fourier transform, float64.

    Its rows are the signal [length, parts], flattened; its columns the spectrum [M, 2], flattened, with M = length or,
    if onesided, length // 2 + 1. For the inverse of a onesided spectrum its rows are the spectrum
    [length // 2 + 1, 2], and its columns the real signal [length].

    parts: 1 for real numbers, 2 for complex ones.
    """
    bins = length // 2 + 1
    if inverse and onesided:
        phases = np.outer(np.arange(bins), np.arange(length)) % length
        angle = 2 * np.pi * phases / length
        # Each frequency counts twice in the full spectrum, except 0 and, for an even length, the highest.
        weight = np.where((np.arange(bins) == 0) | (2 * np.arange(bins) == length), 1.0, 2.0)[:, None] / length
        return np.stack([weight * np.cos(angle), -weight * np.sin(angle)], 1).reshape(2 * bins, length)
    columns = bins if onesided else length
    phases = np.outer(np.arange(length), np.arange(columns)) % length
    angle = (2 if inverse else -2) * np.pi * phases / length
    scale = 1 / length if inverse else 1.0
    real, imaginary = scale * np.cos(angle), scale * np.sin(angle)
    rows = [np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)][:parts]
    return np.stack(rows, 1).reshape(length * parts, columns * 2)


def run_time_matrix(node: OnnxNode, length: Dim, columns: Dim, dtype: str) -> str:
    """Emits the `dft_matrix` of real signals whose length is known only at run time: [length, columns * 2]."""
    row, column = (node.emit("reshape", (emit_arange(node, extent, "int64"),), shape=shape)[0]
                   for extent, shape in ((length, (length, 1)), (columns, (1, columns))))
    extent = node.extent(length)
    (phases,) = node.emit("mod", (*emit_broadcast(node, "mul", (row, column)), extent))
    phases, extent = (cast_to(node, value, "float64")[0] for value in (phases, extent))
    (angle,) = node.emit("mul", (*node.emit("div", (phases, extent)), node.constant(np.array(-2 * np.pi))))
    parts = [node.emit("reshape", node.emit(part, (angle,)), shape=(length, columns, 1))[0] for part in ("cos", "sin")]
    (matrix,) = node.emit("reshape", node.emit("concat", parts, axis=2), shape=(length, columns * 2))
    return cast_to(node, matrix, dtype)[0]


def emit_dft(node: OnnxNode, value: str, length: int, inverse: bool, onesided: bool) -> str:
    """Emits the discrete Fourier transform of a value [..., N, parts] over axis N, which is cut or zero-padded to
    `length`. parts: 1 for real numbers, 2 for complex ones.

    Returns [..., M, 2], with M = length or, if onesided, length // 2 + 1. The inverse of a onesided spectrum is real:
    [..., length, 1].

    Raises:
        ShapeError: if N is symbolic, or the numbers are not real or complex.
    """
    type_ = node.type_of(value)
    axis, parts = type_.rank - 2, type_.shape[-1]
    extent = type_.shape[axis]
    if parts not in (1, 2) or not isinstance(extent, int):
        raise ShapeError(f"requires [..., N, 1] of real or [..., N, 2] of complex numbers with a known N, not "
                         f"{type_}")
    rows = length // 2 + 1 if inverse and onesided else length
    if inverse and onesided and parts != 2:
        raise ShapeError("the inverse of a onesided spectrum requires complex numbers")
    if extent > rows:
        value = emit_slice(node, value, axis, 0, rows)
    elif extent < rows:
        after = tuple(rows - extent if i == axis else 0 for i in range(type_.rank))
        (value,) = node.emit("pad", (value,), before=(0,) * type_.rank, after=after, mode="constant", value=0)
    has_fft = length >= MIN_FFT_LENGTH and length % 2 == 0 and factors_of(length // 2)
    if parts == 1 and onesided and not inverse and has_fft:
        (value,) = node.emit("reshape", (value,), shape=(*type_.shape[:axis], length // 2, 2))
        return Fourier.of(node, value, inverse=False, pairs=True)
    if parts == 2 and not onesided and factors_of(length) is not None:
        return Fourier.of(node, value, inverse)
    node.require_budget(length * parts, 2 * (length // 2 + 1 if onesided else length))
    matrix = dft_matrix(length, parts, inverse, onesided).astype(np.dtype(type_.dtype))
    outer = type_.shape[:axis]
    (value,) = node.emit("reshape", (value,), shape=(product(outer), rows * parts))
    (value,) = node.emit("matmul", (value, node.constant(matrix)), trans_a=0, trans_b=0)
    last = (length, 1) if inverse and onesided else (matrix.shape[1] // 2, 2)
    return node.emit("reshape", (value,), shape=(*outer, *last))[0]


@decomposes("DFT")
def dft(node: OnnxNode) -> tuple[str, ...]:
    """Imports DFT. Its axis is an attribute before operator set 20, then an operand."""
    rank = node.type(0).rank
    if node.opset >= 20 and node.has(2) and not node.is_const(2):
        return select_run_time_axis(node, 2, range(rank - 1), lambda axis: _dft(node, axis)[0])
    if node.opset >= 20:
        axis = int(node.const(2, "axis").reshape(-1)[0]) if node.has(2) else -2
    else:
        axis = node.attr("axis", 1)
    return _dft(node, axis_of(axis, rank))


def _dft(node: OnnxNode, axis: int) -> tuple[str, ...]:
    """Emits the transform of a DFT along an axis."""
    rank = node.type(0).rank
    if axis == rank - 1:
        raise ShapeError("the last axis holds real and imaginary parts")
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if node.has(1):
        length = int(node.const(1, "dft_length").reshape(-1)[0])
    else:
        length = node.type(0).shape[axis]
        length = 2 * (length - 1) if inverse and onesided else length
    if not isinstance(length, int) or length < 1:
        raise ShapeError(f"a transform of length {length}")
    order = (*(i for i in range(rank) if i not in (axis, rank - 1)), axis, rank - 1)
    (value,) = node.emit("transpose", node.inputs[:1], perm=order)
    value = emit_dft(node, value, length, inverse, onesided)
    return node.emit("transpose", (value,), perm=tuple(order.index(i) for i in range(rank)))


@decomposes("STFT")
def short_time_dft(node: OnnxNode) -> tuple[str, ...]:
    """Imports STFT, the transforms of frames of a signal times a window. Operands: signal [batch, N] or
    [batch, N, 1 or 2], step between frames, window [length], length of a frame. The result is
    [batch, frames, frequencies, 2]."""
    signal, value = node.type(0), node.inputs[0]
    if signal.rank == 2:
        (value,) = node.emit("reshape", (value,), shape=(*signal.shape, 1))
        signal = node.type_of(value)
    length = node.type(2).shape[0] if node.has(2) else node.dims(3, "frame_length", limit=signal.shape[1])[0]
    why = (f"frames of {length} samples of {node.type(0)}; requires a signal [batch][N] or [batch][N][1 or 2] of at "
           "least one frame")
    if signal.rank != 3 or not (isinstance(length, int) or signal.is_static):
        raise ShapeError(why)
    if isinstance(length, int):
        require_at_most(length, signal.shape[1], why)
    (value,) = node.emit("gather", (value, _frame_indices(node, signal.shape[1], length)), axis=1)
    if node.has(2):
        (window,) = node.emit("reshape", node.inputs[2:3], shape=(length, 1))
        (value,) = node.emit("mul", (value, window))
    if not isinstance(length, int):
        return (_dft_of_symbolic_frames(node, value, length),)
    return (emit_dft(node, value, length, inverse=False, onesided=bool(node.attr("onesided", 1))),)


def _dft_of_symbolic_frames(node: OnnxNode, value: str, length: Dim) -> str:
    """Emits the transform of real frames [batch, frames, length, 1] of symbolic length."""
    batch, frames, _, parts = node.type_of(value).shape
    if parts != 1:
        raise ShapeError("frames of complex numbers have to have a known length")
    columns, declared = length // 2 + 1 if node.attr("onesided", 1) else length, node.declared_shape()
    if declared is not None:
        columns = declared[2]
    (value,) = node.emit("reshape", (value,), shape=(batch * frames, length))
    matrix = run_time_matrix(node, length, columns, node.type_of(value).dtype)
    (value,) = node.emit("matmul", (value, matrix), trans_a=0, trans_b=0)
    return node.emit("reshape", (value,), shape=(batch, frames, columns, 2))[0]


def _frame_indices(node: OnnxNode, extent: Dim, length: Dim) -> str:
    """Emits the indices of the elements of each frame of a signal, int64 [frames, length]. extent: the signal's
    length."""
    along = emit_arange(node, length, "int64")
    if node.is_const(1) and isinstance(length, int):
        step = int(node.const(1).reshape(-1)[0])
        if step < 1:
            raise ShapeError(f"a frame every {step} elements")
        frames = floordiv(extent - length, step) + 1
        if isinstance(frames, int):
            node.require_budget(frames, length)
            return node.constant(np.arange(frames)[:, None] * step + np.arange(length))
        (starts,) = node.emit("mul", (emit_arange(node, frames, "int64"), node.constant(np.array(step))))
        return emit_broadcast(node, "add", (node.emit("reshape", (starts,), shape=(frames, 1))[0], along))[0]
    stated = node.declared_if_unknown(1)  # the result's declared shape, whose second extent is the number of frames
    (step,) = node.emit("reshape", cast_to(node, node.inputs[1], "int64"), shape=())
    first, stop = (node.extent(index) for index in (0, extent - length + 1))
    frames = number_of_steps(node, first, stop, step, extent) if stated is None else stated[1]
    (starts,) = node.emit("mul", (emit_arange(node, frames, "int64"), step))
    (starts,) = node.emit("reshape", (starts,), shape=(frames, 1))
    return emit_broadcast(node, "add", (starts, along))[0]


@decomposes("MelWeightMatrix")
def mel_weight_matrix(node: OnnxNode) -> tuple[str, ...]:
    """Imports MelWeightMatrix as a constant [dft_length // 2 + 1, bins]: triangular filters that are evenly spaced on
    the mel scale, mel = 2595 log10(1 + hertz / 700). Its operands are constants; frequencies and the sample rate are in
    hertz. Source: ONNX's reference, onnx/reference/ops/op_mel_weight_matrix.py."""
    names = "num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"
    bins, length, rate, lower_edge, upper_edge = (
        node.const(index, name).reshape(-1)[0].item() for index, name in enumerate(names))
    import onnx
    dtype = onnx.helper.tensor_dtype_to_np_dtype(node.attr("output_datatype", onnx.TensorProto.FLOAT))
    frequencies = length // 2 + 1
    if min(bins, length) < 1 or rate <= 0:
        raise MegccError(f"{bins} bins of a transform of length {length} at {rate} Hz")
    node.require_budget(frequencies, bins)
    mels = 2595 * np.log10(1 + np.array([lower_edge, upper_edge]) / 700)
    edges = 700 * (10 ** (np.linspace(*mels, bins + 2, endpoint=False) / 2595) - 1)  # ONNX divides by bins + 2
    edge_bins = ((length + 1) * edges // rate).astype(int)
    result = np.zeros((frequencies, bins))
    for band in range(bins):
        lower, centre, upper = edge_bins[band:band + 3]
        for frequency in range(max(lower, 0), min(centre + 1, frequencies) if lower < centre else 0):
            result[frequency, band] = (frequency - lower) / (centre - lower)
        if lower == centre and 0 <= centre < frequencies:
            result[centre, band] = 1
        for frequency in range(max(centre, 0), min(upper, frequencies)):
            result[frequency, band] = (upper - frequency) / (upper - centre)
    return (node.constant(result.astype(dtype)),)


def _require_square(x: TensorType) -> None:
    """Raises ShapeError unless the last two axes have equal extents."""
    why = f"requires square matrices, not {x}"
    if x.rank < 2:
        raise ShapeError(why)
    require_equal(x.shape[-1], x.shape[-2], why)


@register
class Determinant(Operator):
    """The determinant of square matrices, ONNX's Det: x [..., N, N] of floats to [...]."""

    kind = "determinant"
    onnx = ("Det",)
    cases = (Case((f32(3, 5, 5),)), Case((((2, 3, 1, 1), "float64"),)),
             Case((f32(3, 3),), values={0: np.array([[0, 1, 2], [0, 0, 3], [4, 5, 6]])}),
             Case((f32(2, 2),), values={0: np.ones((2, 2))}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        _require_square(x)
        return (TensorType(x.dtype, x.shape[:-2]),)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(np.linalg.det(x.astype(np.float64)), x.dtype),)


@register
class Inverse(Operator):
    """The inverse of square matrices, com.microsoft's Inverse: x [..., N, N] of floats to [..., N, N]. A matrix without
    an inverse gives NaNs."""

    kind = "inverse"
    onnx = ("com.microsoft::Inverse",)
    cases = (Case((f32(3, 5, 5),)), Case((((2, 3, 1, 1), "float64"),)), Case((f32(4, 4),)),
             Case((f32(3, 3),), values={0: np.array([[0, 1, 2], [0, 0, 3], [4, 5, 6]])}),
             Case((((11, 11), "float64"),)), Case((f32(2, 2, 2),), values={0: np.array([1, 1, 1, 1, 0, 2, 3, 0])}))

    @staticmethod
    def infer(attrs: Attrs, x: TensorType) -> tuple[TensorType, ...]:
        _require_square(x)
        return (x,)

    @staticmethod
    def compute(attrs: Attrs, x: np.ndarray) -> tuple[np.ndarray, ...]:
        result = np.full(x.shape, np.nan, np.float64)
        for index in np.ndindex(*x.shape[:-2]):
            if np.linalg.det(x[index].astype(np.float64)) != 0:
                result[index] = np.linalg.inv(x[index].astype(np.float64))
        return (result.astype(x.dtype),)
