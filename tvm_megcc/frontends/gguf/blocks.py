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
    if tensor.encoding.name in _FLOATS:
        return None
    if tensor.encoding.name not in _DECODERS:
        raise MegccError(f"tensor {quoted(tensor.name)} is of {tensor.encoding.name}; "
                         f"{', '.join([*_FLOATS, *_DECODERS])} are read")
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
    return data.view(_FLOATS[tensor.encoding.name]).astype(np.float32).reshape(tensor.shape)


_Decoded = tuple[np.ndarray, np.ndarray, np.ndarray]
_FLOATS = {"F32": "<f4", "F16": "<f2", "BF16": "", "F64": "<f8"}


def _low_then_high(bytes_: np.ndarray) -> np.ndarray:
    """Unpacks 4-bit numbers from bytes [blocks, n]: the low halves of all bytes, then the high ones, [blocks, 2n]."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], 1)


def _float16(rows: np.ndarray, at: int) -> np.ndarray:
    """Reads the float16 at byte `at` of each block, as float32 [blocks, 1]."""
    return np.ascontiguousarray(rows[:, at:at + 2]).view("<f2").astype(np.float32)


def _bits(bytes_: np.ndarray) -> np.ndarray:
    """Unpacks bytes [blocks, n] into bits [blocks, 8n], the lowest of each byte first."""
    return np.unpackbits(bytes_, axis=1, bitorder="little")


def _q4_0(rows: np.ndarray) -> _Decoded:
    scale = _float16(rows, 0)
    return _low_then_high(rows[:, 2:]), scale, -8 * scale


def _q4_1(rows: np.ndarray) -> _Decoded:
    return _low_then_high(rows[:, 4:]), _float16(rows, 0), _float16(rows, 2)


def _q5_0(rows: np.ndarray) -> _Decoded:
    scale = _float16(rows, 0)
    return _low_then_high(rows[:, 6:]) | _bits(rows[:, 2:6]) << 4, scale, -16 * scale


def _q5_1(rows: np.ndarray) -> _Decoded:
    return _low_then_high(rows[:, 8:]) | _bits(rows[:, 4:8]) << 4, _float16(rows, 0), _float16(rows, 2)


def _q8_0(rows: np.ndarray) -> _Decoded:
    scale = _float16(rows, 0)
    return rows[:, 2:] ^ 128, scale, -128 * scale


def _iq4_nl(rows: np.ndarray) -> _Decoded:
    scale = _float16(rows, 0)
    return IQ4_NL.view(np.uint8)[_low_then_high(rows[:, 2:])] ^ 128, scale, -128 * scale


def _k_scales(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns scales and offsets of the eight blocks of Q4_K and Q5_K: 6-bit numbers in 12 bytes, times two float16."""
    packed = rows[:, 4:16]
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], 1)
    least = np.concatenate([middle & 63, high >> 4 | (middle >> 6) << 4], 1)
    return _float16(rows, 0) * scale, -(_float16(rows, 2) * least)


def _quarters(bytes_: np.ndarray) -> np.ndarray:
    """Unpacks 4-bit numbers of Q4_K and Q5_K, 128 bytes a row. Each 32 bytes hold 64 numbers: the first 32 in the low
    halves, the others in the high ones."""
    return _low_then_high(bytes_.reshape(-1, 32)).reshape(len(bytes_), -1)


def _q4_k(rows: np.ndarray) -> _Decoded:
    return _quarters(rows[:, 16:]), *_k_scales(rows)


def _q5_k(rows: np.ndarray) -> _Decoded:
    """Decodes Q5_K. Bit n of each of the 32 bytes from byte 16 on is the fifth bit of a number of block n."""
    fifth = _bits(rows[:, 16:48].reshape(-1, 1)).reshape(-1, 32, 8)
    return _quarters(rows[:, 48:]) | np.swapaxes(fifth, 1, 2).reshape(len(rows), -1) << 4, *_k_scales(rows)


def _q6_k(rows: np.ndarray) -> _Decoded:
    """Decodes Q6_K. Each 128 numbers have 64 bytes with their low four bits, and 32 bytes with the high two bits of
    four numbers each."""
    low = _low_then_high(rows[:, :128].reshape(-1, 64)).reshape(-1, 4, 32)
    upper = rows[:, 128:192].reshape(-1, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scale = _float16(rows, 208) * np.ascontiguousarray(rows[:, 192:208]).view(np.int8)
    return (low | upper << 4).reshape(len(rows), -1), scale, -32 * scale


#: Quantised encodings -> bits of a number, elements of a block, the decoder of the file's blocks, uint8 [n, bytes].
_DECODERS: dict[str, tuple[int, int, Callable[[np.ndarray], _Decoded]]] = {
    "Q4_0": (4, 32, _q4_0), "Q4_1": (4, 32, _q4_1), "Q5_0": (8, 32, _q5_0), "Q5_1": (8, 32, _q5_1),
    "Q8_0": (8, 32, _q8_0), "Q4_K": (4, 32, _q4_k), "Q5_K": (8, 32, _q5_k), "Q6_K": (8, 16, _q6_k),
    "IQ4_NL": (8, 32, _iq4_nl)}
