# SPDX-License-Identifier: Apache-2.0
"""Decodes quantised tensors of a GGUF file into integers with a scale and an offset for each block of a row.

Source: the structs and `dequantize_row_*` of ggml-common.h and ggml-quants.c. Values are little endian.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import MegccError, quoted
from ...ops.quantized.blocks import Blocks
from .file import Tensor

#: The codebook of IQ4_NL: the value of each 4-bit code.
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)


def blocks(tensor: Tensor) -> Blocks | None:
    """Decodes a quantised tensor, with all axes except the last flattened to rows; None for a float tensor.

    Raises:
        MegccError: for an encoding that is not supported.
    """
    if tensor.encoding.name in _FLOAT_DTYPES:
        return None
    if tensor.encoding.name not in _DECODERS:
        raise MegccError(f"tensor {quoted(tensor.name)} is of {tensor.encoding.name}; "
                         f"{', '.join([*_FLOAT_DTYPES, *_DECODERS])} are read")
    bits, block, decode = _DECODERS[tensor.encoding.name]
    rows = tensor.data.reshape(-1, tensor.encoding.size)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite and NaN scales are refused below
        numbers, scale, offset = decode(rows)
    if not (np.isfinite(scale).all() and np.isfinite(offset).all()):
        raise MegccError(f"tensor {quoted(tensor.name)} has scales that are no finite numbers")
    width = tensor.shape[-1]
    return Blocks(bits, block, numbers.astype(np.uint8).reshape(-1, width),
                  *(np.broadcast_to(array, (len(rows), tensor.encoding.elements // block)).astype(np.float32)
                    .reshape(-1, width // block) for array in (scale, offset)))


def floats(tensor: Tensor) -> np.ndarray:
    """Returns the tensor's values as float32, in its shape.

    Raises:
        MegccError: as `blocks`.
    """
    quantised = blocks(tensor)
    if quantised is not None:
        return quantised.dequantized().reshape(tensor.shape)
    data = np.array(tensor.data)
    if tensor.encoding.name == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    return data.view(_FLOAT_DTYPES[tensor.encoding.name]).astype(np.float32).reshape(tensor.shape)


#: A decoder's results for n blocks of the file: unsigned numbers [n, elements], and float32 scales and offsets, each
#: [n, 1] or [n, sub-blocks]. A value is number * scale + offset. The byte offsets in the decoders are those of ggml's
#: structs.
_Decoded = tuple[np.ndarray, np.ndarray, np.ndarray]
#: Encodings of float tensors -> numpy dtypes, "" where numpy has none.
_FLOAT_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "", "F64": "<f8"}


def _unpack_int4(bytes_: np.ndarray) -> np.ndarray:
    """Unpacks 4-bit numbers from bytes [blocks, n]: the low four bits of all bytes, then the high ones, [blocks, 2n].
    """
    return np.concatenate([bytes_ & 15, bytes_ >> 4], 1)


def _read_float16(rows: np.ndarray, offset: int) -> np.ndarray:
    """Reads the float16 at byte `offset` of each block, as float32 [blocks, 1]."""
    return np.ascontiguousarray(rows[:, offset:offset + 2]).view("<f2").astype(np.float32)


def _unpack_bits(bytes_: np.ndarray) -> np.ndarray:
    """Unpacks bytes [blocks, n] into bits [blocks, 8n], the lowest of each byte first."""
    return np.unpackbits(bytes_, axis=1, bitorder="little")


def _q4_0(rows: np.ndarray) -> _Decoded:
    scale = _read_float16(rows, 0)
    return _unpack_int4(rows[:, 2:]), scale, -8 * scale


def _q4_1(rows: np.ndarray) -> _Decoded:
    return _unpack_int4(rows[:, 4:]), _read_float16(rows, 0), _read_float16(rows, 2)


def _q5_0(rows: np.ndarray) -> _Decoded:
    scale = _read_float16(rows, 0)
    return _unpack_int4(rows[:, 6:]) | _unpack_bits(rows[:, 2:6]) << 4, scale, -16 * scale


def _q5_1(rows: np.ndarray) -> _Decoded:
    return _unpack_int4(rows[:, 8:]) | _unpack_bits(rows[:, 4:8]) << 4, _read_float16(rows, 0), _read_float16(rows, 2)


def _unsigned(codes: np.ndarray) -> np.ndarray:
    """Returns the bytes of int8 numbers as uint8 numbers that are greater by 128."""
    return codes ^ 128


def _q8_0(rows: np.ndarray) -> _Decoded:
    scale = _read_float16(rows, 0)
    return _unsigned(rows[:, 2:]), scale, -128 * scale


def _iq4_nl(rows: np.ndarray) -> _Decoded:
    scale = _read_float16(rows, 0)
    return _unsigned(IQ4_NL.view(np.uint8)[_unpack_int4(rows[:, 2:])]), scale, -128 * scale


def _k_scales(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns scales and offsets of the eight sub-blocks of Q4_K and Q5_K, float32 [blocks, 8].

    Twelve bytes hold eight 6-bit scales and eight 6-bit minima, each set times a float16. Bytes 0 to 3 have the first
    four scales, bytes 4 to 7 the first four minima, in their low six bits. Bytes 8 to 11 have the low four bits of the
    other scales and of the other minima, whose high two bits are those of bytes 0 to 7.
    """
    packed = rows[:, 4:16]
    scale_bytes, minimum_bytes, shared_bytes = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = np.concatenate([scale_bytes & 63, (shared_bytes & 15) | (scale_bytes >> 6) << 4], 1)
    minimum = np.concatenate([minimum_bytes & 63, shared_bytes >> 4 | (minimum_bytes >> 6) << 4], 1)
    return _read_float16(rows, 0) * scale, -(_read_float16(rows, 2) * minimum)


def _unpack_k_quants(bytes_: np.ndarray) -> np.ndarray:
    """Unpacks 4-bit numbers of Q4_K and Q5_K, 128 bytes a row. Each 32 bytes hold 64 numbers: the first 32 in their low
    four bits, the others in the high four bits."""
    return _unpack_int4(bytes_.reshape(-1, 32)).reshape(len(bytes_), -1)


def _q4_k(rows: np.ndarray) -> _Decoded:
    return _unpack_k_quants(rows[:, 16:]), *_k_scales(rows)


def _q5_k(rows: np.ndarray) -> _Decoded:
    """Decodes Q5_K. Bit n of each of the 32 bytes from byte 16 on is the fifth bit of a number of sub-block n."""
    fifth = _unpack_bits(rows[:, 16:48].reshape(-1, 1)).reshape(-1, 32, 8)
    return _unpack_k_quants(rows[:, 48:]) | np.swapaxes(fifth, 1, 2).reshape(len(rows), -1) << 4, *_k_scales(rows)


def _q6_k(rows: np.ndarray) -> _Decoded:
    """Decodes Q6_K. Each 128 numbers have 64 bytes with their low four bits, and 32 bytes with the high two bits of
    four numbers each. The blocks of the file have 128 bytes of low bits, 64 of high bits, 16 scales of sub-blocks as
    int8, and a float16 that multiplies these."""
    low_bits = _unpack_int4(rows[:, :128].reshape(-1, 64)).reshape(-1, 4, 32)
    high_bits = rows[:, 128:192].reshape(-1, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scale = _read_float16(rows, 208) * np.ascontiguousarray(rows[:, 192:208]).view(np.int8)
    return (low_bits | high_bits << 4).reshape(len(rows), -1), scale, -32 * scale


#: Quantised encodings -> (bits of a number after decoding, elements that share a scale, the decoder of n blocks of the
#: file, uint8 [n, bytes of a block]).
_DECODERS: dict[str, tuple[int, int, Callable[[np.ndarray], _Decoded]]] = {
    "Q4_0": (4, 32, _q4_0), "Q4_1": (4, 32, _q4_1), "Q5_0": (5, 32, _q5_0), "Q5_1": (5, 32, _q5_1),
    "Q8_0": (8, 32, _q8_0), "Q4_K": (4, 32, _q4_k), "Q5_K": (5, 32, _q5_k), "Q6_K": (6, 16, _q6_k),
    "IQ4_NL": (8, 32, _iq4_nl)}
