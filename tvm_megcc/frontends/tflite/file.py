# SPDX-License-Identifier: Apache-2.0
"""Reads a TFLite file. The file is not trusted: every offset, length and index is checked here, and nowhere else.

The accessors of the package `tflite` raise an exception for an offset outside the file, and indices are compared with
the lengths of their tables. Tables may overlap, so a small file could make a reader read the same bytes without end:
the total of bytes read is limited.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import tflite
from flatbuffers import flexbuffers
from flatbuffers.number_types import Int32Flags

from ...errors import ModelError, ShapeError, quoted
from ...ir.intervals import INT32, SATURATED
from ...ir.limits import MAX_BYTES, MAX_RANK
from ...ir.types import ORDINARY
from . import sparse

#: The file identifier, which follows the first four bytes.
IDENTIFIER = b"TFL3"
#: At most this many times the size of the file, plus this many bytes, are read, so that a small file that refers to
#: the same tables again and again cannot take long. Valid files rarely share tables, so they are far below the limit.
_READ_FACTOR, _READ_ALLOWANCE = 16, 1 << 20
#: BlockwiseQuantization of the schema, which the package lacks: its number in the union QuantizationDetails, and the
#: vtable offsets of its fields scales, zero_points and block_size, all int32.
_BLOCKWISE, _BLOCK_FIELDS = 2, (4, 6, 8)
#: int8 elements that are stored in less than a byte, the first of a byte in its lowest bits: the type's number in the
#: schema, some of which the package lacks -> bits of an element.
_PACKED_BITS = {17: 4, 19: 2}
#: The exceptions that the accessors raise for bytes that are not valid tables.
_DAMAGE = (struct.error, ValueError, IndexError, TypeError, AttributeError, OverflowError, KeyError)


@dataclass(frozen=True)
class Quantization:
    """real = scale * (integer - zero_point). If there are several scales, each belongs to one index of `axis`."""

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int


@dataclass(frozen=True)
class Blocks:
    """real = scale * integer, with a scale for each `size` integers of a row. scale: float32 [rows, blocks of a row],
    or None if the file has no constant with them."""

    size: int
    scale: np.ndarray | None


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file.

    shape: the default shape.
    signature: the same shape with -1 for dynamic extents, empty if there are none.
    dtype: our name or, if we lack the type, the format's in lower case.
    data: the bytes of a constant, None for others.
    buffer: the index of the file's buffer that holds the data.
    is_variable: whether operators update it from run to run.
    bits: the size in the file of an element of `data`, which has int8 elements if that is less than 8.
    blocks: the scales of weights that have one for each block of a row, None for others.
    """

    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None
    buffer: int = 0
    quantization: Quantization | None = None
    is_variable: bool = False
    bits: int = 8
    blocks: Blocks | None = None

    @property
    def array(self) -> np.ndarray:
        """Returns a constant's value, a view of the file or, for a sparse constant, of its dense form."""
        return np.frombuffer(self.data, np.dtype(self.dtype)).reshape(self.shape)


@dataclass(frozen=True)
class Operator:
    """An operator of the file.

    inputs, outputs: indices of tensors, -1 for an absent input.
    kind: the name in the schema, such as "CONV_2D"; "CUSTOM " and the operator's own name for a custom one.
    options: value by the name of the package's accessor, such as "StrideW".
    custom: the options of a custom operator, in a format of its own.
    intermediates: indices of tensors that only hold the quantisation of intermediate results.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: bytes = b""
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subgraph:
    """A subgraph of a file. inputs, outputs: indices of tensors."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class File(Subgraph):
    """A file with the subgraph to run, `graphs[main_graph]`. signatures: name -> the index of its subgraph."""

    graphs: tuple[Subgraph, ...] = ()
    signatures: tuple[tuple[str, int], ...] = ()
    main_graph: int = 0

    def graph(self, index: int) -> Subgraph:
        """Returns another subgraph.

        Raises:
            ShapeError: if there is none of that index.
        """
        if not 0 <= index < len(self.graphs) or index == self.main_graph:
            raise ShapeError(f"runs graph {index} of {len(self.graphs)}")
        return self.graphs[index]

    def with_main_graph(self, index: int) -> File:
        """Returns the file with another subgraph to run."""
        graph = self.graphs[index]
        return File(graph.tensors, graph.operators, graph.inputs, graph.outputs, self.graphs, self.signatures, index)


def read(data: bytes, subject: str) -> File:
    """Parses the bytes of a file. subject: the file's name in messages.

    Raises:
        ModelError: if it is not a TFLite file, or is damaged.
    """
    if data[4:8] != IDENTIFIER:
        raise ModelError(subject, [f"is no TFLite file ({len(data):,} bytes, without its mark {IDENTIFIER.decode()})"])
    try:
        return _Reader(data).file()
    except _InvalidScale as error:
        raise ModelError(subject, [str(error)], "Convert it again: such scales come of calibration data, or weights, "
                                                "with infinite numbers or NaN.") from None
    except _UnsupportedScales as error:
        raise ModelError(subject, [str(error)], "Quantise the weights with a scale each channel, or for each block of "
                                                "a row.") from None
    except _Damaged as error:
        reason = str(error)
    except _DAMAGE:
        reason = "a table of it leads out of the file"
    raise ModelError(subject, [f"is truncated or corrupt: {reason}"], "Convert or download the file again.")


def flexible(data: bytes) -> dict[str, int | float | bool | str]:
    """Returns the options of a custom operator: the scalars and strings of a FlexBuffers map.

    Raises:
        ShapeError: for bytes that are not such a map.
    """
    try:
        entries = flexbuffers.GetRoot(bytearray(data)).AsMap
        keys, values = entries.Keys, entries.Values
        if len(keys) > len(data):
            raise ValueError
        found = {keys[index].AsKey: values[index] for index in range(len(keys))}
        return {str(name): value.Value for name, value in found.items()
                if value.IsNumeric or value.IsBool or value.IsString}
    except _DAMAGE:
        raise ShapeError("its options are damaged") from None


class _Damaged(Exception):
    """Raised if the file is damaged."""


class _UnsupportedScales(Exception):
    """Raised if weights have scales that are valid but not supported, such as scales along several axes."""


class _InvalidScale(Exception):
    """Raised if a tensor's scale is infinite, NaN or negative."""


@cache
def _enum_names(enumeration: type) -> dict[int, str]:
    """Returns number -> name of an enumeration of the package."""
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}


@cache
def _field_names(table: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of a table's scalar fields, and of its vectors of numbers."""
    names = [name for name, value in vars(table).items()
             if callable(value) and not name.startswith("_") and name != "Init"]
    vectors = [name.removesuffix("Length") for name in names if name.endswith("Length")]
    single = [name for name in names
              if not any(name in (of, f"{of}Length", f"{of}AsNumpy", f"{of}IsNone") for of in vectors)]
    return tuple(single), tuple(name for name in vectors if f"{name}AsNumpy" in names)


class _Reader:
    """Reads the tables of a file. bytes_left: how many more bytes may be read. Methods raise `_Damaged`."""

    def __init__(self, data: bytes):
        self.data = data
        self.bytes_left = _READ_FACTOR * len(data) + _READ_ALLOWANCE

    def file(self) -> File:
        model = tflite.Model.GetRootAs(self.data, 0)
        graphs = self.tables(model, "Subgraphs")
        if not graphs:
            raise _Damaged("it has no graph")
        kinds = [self.kind(code) for code in self.tables(model, "OperatorCodes")]
        buffers = [self.buffer(buffer) for buffer in self.tables(model, "Buffers")]
        subgraphs = tuple(self.graph(graph, kinds, buffers) for graph in graphs)
        signatures = tuple((self.text(signature.SignatureKey()), signature.SubgraphIndex())
                           for signature in self.tables(model, "SignatureDefs"))
        for name, index in signatures:
            if not 0 <= index < len(subgraphs):
                raise _Damaged(f"signature {quoted(name)} is graph {index} of {len(subgraphs)}")
        return File(tensors=(), operators=(), inputs=(), outputs=(), graphs=subgraphs, signatures=signatures) \
            .with_main_graph(0)

    def graph(self, graph, kinds: list[str], buffers: list[np.ndarray]) -> Subgraph:
        tables = self.tables(graph, "Tensors")
        tensors = tuple(self.tensor(tensor, buffers) for tensor in tables)
        tensors = tuple(self.with_block_scales(tensor, table.Quantization(), tensors)
                        for tensor, table in zip(tensors, tables, strict=True))
        operators = tuple(self.operator(call, kinds, len(tensors)) for call in self.tables(graph, "Operators"))
        inputs, outputs = (self.indices(graph, name, len(tensors)) for name in ("Inputs", "Outputs"))
        return Subgraph(tensors, operators, inputs, outputs)

    def spend(self, count: int, size: int) -> None:
        """Charges `count` items of `size` bytes to the limit of bytes read, before they are read. 16 more are for the
        table around them, so that the limit also ends a chain of empty ones."""
        self.bytes_left -= count * size + 16
        if count * size > len(self.data) or self.bytes_left < 0:
            raise _Damaged("its tables are longer than the file")

    def tables(self, table, name: str) -> list:
        """Returns the tables in the vector `name` of a table."""
        count = getattr(table, f"{name}Length")()
        self.spend(count, 4)
        get: Callable[[int], Any] = getattr(table, name)
        return [get(index) for index in range(count)]

    def numbers(self, table, name: str, size: int = 4) -> np.ndarray:
        """Returns the vector of numbers `name` of a table. size: bytes of a number."""
        count = getattr(table, f"{name}Length")()
        self.spend(count, size)
        return getattr(table, f"{name}AsNumpy")() if count else np.zeros(0, np.int32)

    def text(self, value: bytes | None) -> str:
        self.spend(len(value or b""), 1)
        return (value or b"").decode("utf-8", "replace")

    def indices(self, table, name: str, count: int, minimum: int = 0) -> tuple[int, ...]:
        """Returns a vector of indices of tensors, each from `minimum` to `count` - 1."""
        found = self.numbers(table, name)
        if found.size and not minimum <= found.min() <= found.max() < count:
            raise _Damaged(f"it mentions tensor {found.min() if found.min() < minimum else found.max()} of {count}")
        return tuple(found.tolist())

    def kind(self, code) -> str:
        """Returns `Operator.kind` for an operator code. Old files have the code in the deprecated field only."""
        number = max(code.DeprecatedBuiltinCode(), code.BuiltinCode())
        name = _enum_names(tflite.BuiltinOperator).get(number, f"operator {number}")
        return f"CUSTOM {self.text(code.CustomCode())}" if name == "CUSTOM" else name

    def buffer(self, buffer) -> np.ndarray:
        start, size = buffer.Offset(), buffer.Size()
        if start > 1:  # the data of files beyond 2 GB follow the tables; the schema's 0 and 1 are no offsets
            if start + size > len(self.data):
                raise _Damaged("a constant extends beyond the end of the file")
            return np.frombuffer(self.data, np.uint8, size, start)
        return self.numbers(buffer, "Data", 1).view(np.uint8)

    def tensor(self, tensor, buffers: list[np.ndarray]) -> Tensor:
        name = self.text(tensor.Name())
        shape, signature = self.numbers(tensor, "Shape"), self.numbers(tensor, "ShapeSignature")
        if max(len(shape), len(signature)) > MAX_RANK:
            raise _Damaged(f"tensor {quoted(name)} has {len(shape)} axes, and at most {MAX_RANK} are supported")
        number = tensor.Type()
        bits = _PACKED_BITS.get(number, 8)
        dtype = "int8" if bits < 8 else _enum_names(tflite.TensorType).get(number, f"type {number}").lower()
        if bits < 8 and tensor.Sparsity():
            dtype = f"sparse int{bits}"
        if not 0 <= tensor.Buffer() < max(len(buffers), 1):
            raise _Damaged(f"tensor {quoted(name)} is in buffer {tensor.Buffer()} of {len(buffers)}")
        data = buffers[tensor.Buffer()] if buffers else np.zeros(0, np.uint8)
        extents = tuple(shape.tolist())
        is_constant = bool(data.size or tensor.Sparsity()) and not tensor.IsVariable()
        if is_constant and dtype in ORDINARY:
            if bits < 8:
                data = self.unpacked(name, data, math.prod(extents), bits)
            if tensor.Sparsity():
                data = self.dense(tensor.Sparsity(), name, extents, np.dtype(dtype), data)
            self._check_size(name, extents, dtype, data.size)
        return Tensor(name, extents, tuple(signature.tolist()), dtype, data if is_constant else None, tensor.Buffer(),
                      self.quantization(tensor.Quantization(), name, extents, dtype), bool(tensor.IsVariable()), bits)

    def unpacked(self, name: str, data: np.ndarray, count: int, bits: int) -> np.ndarray:
        """Returns `count` integers of `bits` bits, which lie packed in `data`, as int8 in bytes."""
        per_byte = 8 // bits
        if data.size != -(-count // per_byte):
            raise _Damaged(f"tensor {quoted(name)} has {count:,} numbers of {bits} bits, and its constant has "
                           f"{data.size:,} bytes")
        self.bytes_left -= count
        lanes = data[:, None] >> (np.arange(per_byte, dtype=np.uint8) * bits) << (8 - bits)
        return (lanes.reshape(-1)[:count].view(np.int8) >> (8 - bits)).view(np.uint8)

    def with_block_scales(self, tensor: Tensor, table, tensors: Sequence[Tensor]) -> Tensor:
        """Returns the tensor with the scales of its blocks, which are a tensor of their own."""
        if table is None or table.DetailsType() != _BLOCKWISE:
            return tensor
        details = table.Details()
        scales, zero_points, size = (
            details.Get(Int32Flags, details.Pos + offset) if (offset := details.Offset(field)) else 0
            for field in _BLOCK_FIELDS)
        if not 0 <= scales < len(tensors) or size < 1 or len(tensor.shape) != 2 or tensor.shape[1] % size:
            raise _Damaged(f"tensor {quoted(tensor.name)} of {list(tensor.shape)} has no scales for rows in blocks of "
                           f"{size} numbers")
        given, blocks = tensors[scales], (tensor.shape[0], tensor.shape[1] // size)
        scale = given.array.reshape(-1) if given.data is not None and given.dtype in ("float16", "float32") else None
        if scale is not None and scale.size != math.prod(blocks):
            raise _Damaged(f"tensor {quoted(tensor.name)} has {math.prod(blocks):,} blocks and {scale.size:,} scales")
        # 0 is the field's default, and so no zero points; LiteRT ignores those that there are.
        zeros = tensors[zero_points] if 0 < zero_points < len(tensors) else None
        if zeros is not None and zeros.data is not None and zeros.dtype in ORDINARY and zeros.array.any():
            raise _UnsupportedScales(f"tensor {quoted(tensor.name)} has a zero point for each block of its numbers, "
                                     "which is not supported")
        scale = None if scale is None else scale.astype(np.float32).reshape(blocks)
        return replace(tensor, quantization=None, blocks=Blocks(size, scale))

    def dense(self, table, name: str, shape: tuple[int, ...], dtype: np.dtype, data: np.ndarray) -> np.ndarray:
        """Returns the bytes of a sparse constant in dense form."""
        bytes_ = math.prod(shape) * dtype.itemsize
        self.bytes_left -= bytes_
        if min(shape, default=0) < 0 or self.bytes_left < 0 or data.size % dtype.itemsize:
            raise _Damaged(f"sparse tensor {quoted(name)} has more zeros than a file of this size may have")
        levels = [sparse.Level(level.DenseSize(), *(self.positions(level, kind) for kind in ("Segments", "Indices")))
                  for level in self.tables(table, "DimMetadata")]
        try:
            return sparse.dense(data.view(dtype), shape, self.numbers(table, "TraversalOrder").tolist(),
                                self.numbers(table, "BlockMap").tolist(), levels).reshape(-1).view(np.uint8)
        except ValueError as error:
            raise _Damaged(f"sparse tensor {quoted(name)} contradicts itself: {error}") from None

    def positions(self, level, kind: str) -> np.ndarray | None:
        """Returns the segments or indices of a level of a sparse constant; None for a dense level."""
        if level.Format() != tflite.DimensionType.SPARSE_CSR:
            return None
        table = getattr(level, f"Array{kind}")()
        vector_type = _enum_names(tflite.SparseIndexVector).get(getattr(level, f"Array{kind}Type")(), "")
        vector = getattr(tflite, vector_type, None)
        if table is None or vector is None:
            raise _Damaged("a sparse constant has no positions")
        numbers = vector()
        numbers.Init(table.Bytes, table.Pos)
        return self.numbers(numbers, "Values")

    @staticmethod
    def _check_size(name: str, shape: tuple[int, ...], dtype: str, size: int) -> None:
        wanted = np.dtype(dtype).itemsize
        for extent in shape:
            wanted *= extent
            if not 0 <= wanted <= MAX_BYTES:
                break
        if wanted != size:
            raise _Damaged(f"tensor {quoted(name)} is {dtype}{list(shape)}, and its constant has {size:,} bytes")

    def quantization(self, table, name: str, shape: tuple[int, ...], dtype: str) -> Quantization | None:
        if table is None:
            return None
        if table.DetailsType() > _BLOCKWISE:
            raise _UnsupportedScales(f"tensor {quoted(name)} has scales along several axes, which is not supported")
        scale, zero_point = self.numbers(table, "Scale"), self.numbers(table, "ZeroPoint", 8)
        if not scale.size:
            return None
        axis = table.QuantizedDimension() if len(shape) != 1 else 0  # some files name wrong axes for biases
        if not zero_point.size:
            zero_point = np.zeros(scale.size, np.int64)
        if not (np.isfinite(scale) & (scale >= 0)).all():
            wrong = scale[~(np.isfinite(scale) & (scale >= 0))][0]
            raise _InvalidScale(f"tensor {quoted(name)} has the scale {wrong}, which is not a finite number >= 0")
        fits = scale.size == 1 or (0 <= axis < len(shape) and shape[axis] == scale.size)
        if not fits or zero_point.size not in (1, scale.size):
            raise _Damaged(f"tensor {quoted(name)} has scales and zero points that do not fit it")
        minimum, maximum = SATURATED.get(dtype, INT32)
        if not minimum <= zero_point.min() <= zero_point.max() <= maximum:
            raise _Damaged(f"tensor {quoted(name)} of {dtype} has a zero point out of the range of its dtype")
        return Quantization(scale.astype(np.float32), np.broadcast_to(zero_point, scale.shape).astype(np.int64), axis)

    def operator(self, call, kinds: list[str], count: int) -> Operator:
        if not 0 <= call.OpcodeIndex() < len(kinds):
            raise _Damaged(f"it mentions operator code {call.OpcodeIndex()} of {len(kinds)}")
        custom = self.numbers(call, "CustomOptions", 1)
        return Operator(kinds[call.OpcodeIndex()], self.indices(call, "Inputs", count, -1),
                        self.indices(call, "Outputs", count), self.options(call), custom.astype(np.uint8).tobytes(),
                        self.indices(call, "Intermediates", count))

    def options(self, call) -> dict[str, Any]:
        """Returns the scalars, strings and vectors of numbers among an operator's options."""
        names, number, union = tflite.BuiltinOptions, call.BuiltinOptionsType(), call.BuiltinOptions()
        if union is None:  # the options of operators added since 2023 are in a second union
            names, number, union = tflite.BuiltinOptions2, call.BuiltinOptions2Type(), call.BuiltinOptions2()
        table_type = getattr(tflite, _enum_names(names).get(number, "NONE"), None)
        if union is None or table_type is None:
            return {}
        table = table_type()
        table.Init(union.Bytes, union.Pos)
        scalars, vectors = _field_names(table_type)
        options = {field: value for field in scalars if not hasattr(value := getattr(table, field)(), "Init")}
        self.spend(sum(len(value) for value in options.values() if isinstance(value, bytes)), 1)
        options.update((field, self.numbers(table, field)) for field in vectors)
        return options
