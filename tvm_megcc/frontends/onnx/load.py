# SPDX-License-Identifier: Apache-2.0
"""Loads an ONNX file, bytes or ModelProto, and reports errors of the file itself."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import numpy_helper

from ...errors import MegccError, ModelError, quoted
from ...folders import read
from ...ir.limits import MAX_BYTES
from ...ir.narrow import bits_of
from .strings import StringTable

#: ONNX's names of element types -> names of numpy's and ml_dtypes' dtypes.
_DTYPE_NAMES = {
    "FLOAT": "float32", "FLOAT16": "float16", "DOUBLE": "float64", "INT8": "int8", "UINT8": "uint8", "INT16": "int16",
    "UINT16": "uint16", "INT32": "int32", "UINT32": "uint32", "INT64": "int64", "UINT64": "uint64", "BOOL": "bool",
    "BFLOAT16": "bfloat16", "FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2", "FLOAT8E5M2FNUZ": "float8_e5m2fnuz", "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn", "INT4": "int4", "UINT4": "uint4", "INT2": "int2", "UINT2": "uint2",
}
#: ONNX's numbers of element types -> our dtypes. The installed onnx package may be too old to have all of them.
DTYPES = {onnx.TensorProto.DataType.Value(name): dtype for name, dtype in _DTYPE_NAMES.items()
          if name in onnx.TensorProto.DataType.keys()}

#: Element types whose `raw_data` has the bytes of a numpy array on a little-endian machine.
_RAW_NUMPY_DTYPES = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                     "uint64"}

#: A model of an older operator set is accepted if its operators did not change up to this one.
OLDEST_OPSET = 6


@dataclass(frozen=True)
class LoadedModel:
    """A parsed model.

    proto: the model, external data not yet read.
    name: the name of the model, for the graph and messages.
    folder: where external data lies, None for a model in memory.
    opsets: domain, "ai.onnx" for ONNX's own -> version of its operator set.
    file: the file of the model, None for a model in memory.
    """

    proto: onnx.ModelProto
    name: str
    folder: Path | None
    opsets: dict[str, int]
    file: Path | None = None


def load(model: str | Path | bytes | onnx.ModelProto | LoadedModel) -> LoadedModel:
    """Reads and parses a model; returns one that is loaded already.

    Raises:
        ModelError: if the file cannot be read, or is not an ONNX model that this version can import.
    """
    if isinstance(model, LoadedModel):
        return model
    folder, path = None, None
    if isinstance(model, onnx.ModelProto):
        proto, subject = model, model.graph.name or "model"
    else:
        if isinstance(model, (bytes, bytearray)):
            data, subject = bytes(model), "model"
        else:
            path = Path(model)
            subject, folder = path.name, path.parent
            try:
                data = read(path)
            except OSError as error:
                raise ModelError(str(path), [f"cannot be read: {error.strerror}"]) from None
        proto = _parse(data, subject)
    if not has_valid_strings(proto):
        raise ModelError(subject, ["a name in it is not valid UTF-8: the file is damaged, or was not written by an "
                                   "ONNX library"], "export the model again")
    name = (Path(model).stem if isinstance(model, (str, Path)) else "") or proto.graph.name or "model"
    if name == "model" and folder is not None:  # the folder says more than model.onnx
        name = folder.resolve().name
    opsets = {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import}
    _check_model(proto, subject, opsets)
    return LoadedModel(proto, name, folder, opsets, path)


def _parse(data: bytes, subject: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        reason = f"is no ONNX model, or is truncated or corrupt ({len(data):,} bytes read)"
        raise ModelError(subject, [reason], "export or download the file again") from None
    return proto


@lru_cache(maxsize=64)
def _fields_of(message_type) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Returns the names of a message's string fields, and of its message fields with whether they are repeated."""
    fields = message_type.DESCRIPTOR.fields
    return (tuple(field.name for field in fields if field.type == FieldDescriptor.TYPE_STRING),
            tuple((field.name, isinstance(getattr(message_type(), field.name), Sequence))
                  for field in fields if field.type == FieldDescriptor.TYPE_MESSAGE))


def has_valid_strings(message: Message) -> bool:
    """Whether all strings of a message are valid UTF-8. The parser returns others as bytes."""
    strings, messages = _fields_of(type(message))
    for name in strings:
        value = getattr(message, name)
        if isinstance(value, bytes) or (not isinstance(value, str) and any(isinstance(v, bytes) for v in value)):
            return False
    for name, is_repeated in messages:
        if is_repeated:
            children = getattr(message, name)
        else:
            children = [getattr(message, name)] if message.HasField(name) else []
        if not all(map(has_valid_strings, children)):
            return False
    return True


def _check_model(proto: onnx.ModelProto, subject: str, opsets: dict[str, int]) -> None:
    """Raises ModelError for a model without a graph or without an operator set that can be imported. subject: the file
    name for messages."""
    findings = []
    if not proto.graph.output and not proto.graph.node:
        findings.append("the model has no graph with outputs: the file is empty, truncated or no ONNX model")
    elif opsets.get("ai.onnx", 1) < 1:
        findings.append(f"it states operator set {opsets['ai.onnx']}, and the first one is 1; export the model again")
    elif not {"ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training"} & set(opsets):
        findings.append(_missing_opset_error(opsets))
    elif opsets.get("ai.onnx", 1) > onnx.defs.onnx_opset_version():
        findings.append(f"operator set {opsets['ai.onnx']} is newer than {onnx.defs.onnx_opset_version()}, the newest "
                        "that the installed onnx package knows; update the package")
    if findings:
        raise ModelError(subject, findings)


def _missing_opset_error(opsets: dict[str, int]) -> str:
    """Returns the error text for a model that imports no operator set of ONNX's own domain."""
    if opsets:
        return f"the model has operators of {', '.join(sorted(opsets))} only, and none of these is supported"
    return "the model names no ONNX operator set (opset_import)"


class TensorError(ValueError):
    """Raised if a tensor of the file has no usable value; the message says why."""


def tensor_array(tensor: onnx.TensorProto, folder: Path | None, strings: StringTable | None = None) -> np.ndarray:
    """Returns the value of an initializer or tensor attribute, reading external data. Strings are returned as their
    codes in `strings`, int64.

    Raises:
        TensorError: for an unsupported element type, missing or short data, or more than 2 GB.
    """
    if any(dim < 0 for dim in tensor.dims):
        raise TensorError(f"has a negative extent in {tuple(tensor.dims)}")
    if tensor.data_type == onnx.TensorProto.STRING and strings is not None:
        if len(tensor.string_data) != math.prod(tensor.dims):
            raise TensorError(f"has {len(tensor.string_data)} strings where {math.prod(tensor.dims)} are needed")
        try:
            return strings.codes(tensor.string_data, tuple(tensor.dims))
        except MegccError as error:
            raise TensorError(str(error)) from None
    if tensor.data_type not in DTYPES:
        raise TensorError(f"has element type {type_name(tensor.data_type)}, which is not supported")
    dtype = DTYPES[tensor.data_type]
    needed = -(-math.prod(tensor.dims) * bits_of(dtype) // 8)
    if needed > MAX_BYTES:
        raise TensorError(f"has {needed:,} bytes, and no tensor may reach 2 GB; split it, or store it in int8")
    raw = tensor.raw_data if tensor.HasField("raw_data") else None
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw = _external_data(tensor, folder, needed)
    if raw is not None and len(raw) != needed:
        raise TensorError(f"has {len(raw):,} bytes of data where {needed:,} are needed; weights are missing")
    try:
        if raw is not None and dtype in _RAW_NUMPY_DTYPES and sys.byteorder == "little":
            return np.frombuffer(raw, dtype).reshape(tuple(tensor.dims))    # not copied: it may have gigabytes
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw)
        array = np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError):
        raise TensorError("has no usable data; weights are missing") from None
    if array.dtype == np.bool_:
        return array.view(np.uint8) != 0  # the bytes of a file may be others than 0 and 1
    return array.astype(np.dtype(dtype), copy=False)


def _external_data(tensor: onnx.TensorProto, folder: Path | None, needed: int) -> bytes:
    """Reads the bytes of a tensor from an external file, which must be in the model's folder or a subfolder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise TensorError(f"has its data in the file {quoted(location)}; give the path of the model, not its bytes")
    try:
        data = _read_range(folder, location, entries.get("offset", ""), entries.get("length", ""), needed)
    except OSError as error:
        data, reason = None, (error.strerror or "it cannot be read").lower()
    except ValueError as error:
        data, reason = None, str(error)
    if data is None:
        raise TensorError(f"has its data in the file {quoted(location)}, which cannot be used: {reason}; "
                          "put it beside the model")
    return data


def _read_range(folder: Path, location: str, offset: str, length: str, needed: int) -> bytes:
    """Returns `needed` bytes of an external file.

    location: path of the file, relative to `folder`. offset, length: decimal numbers of bytes as in the model, or "".

    Raises:
        OSError: if the file cannot be read.
        ValueError: with the reason, if the location is not allowed or the file does not have these bytes.
    """
    relative = PurePosixPath(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise ValueError("the path leads out of the folder of the model")
    if not all(re.fullmatch(r"\d{0,18}", number, re.ASCII) for number in (offset, length)):
        raise ValueError("offset and length are no numbers of bytes")
    if length and int(length) != needed:
        raise ValueError(f"the model says {int(length):,} bytes of it, and {needed:,} are needed")
    path = folder / relative
    if not path.is_file():
        raise ValueError("there is no such file")
    if int(offset or 0) + needed > path.stat().st_size:
        raise ValueError("it is too short")
    with path.open("rb") as file:
        file.seek(int(offset or 0))
        return file.read(needed)


def type_name(data_type: int) -> str:
    """Returns the name of one of ONNX's element types for messages."""
    try:
        return onnx.TensorProto.DataType.Name(data_type).lower()
    except ValueError:
        return f"number {data_type}"


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yields the graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the names of the values that a node reads, those that its subgraphs capture included."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        inner = {*(tensor.name for tensor in graph.initializer), *(value.name for value in graph.input)}
        inner.update(name for child in graph.node for name in child.output)
        for child in graph.node:
            yield from (name for name in reads(child) if name not in inner)
        yield from (value.name for value in graph.output if value.name not in inner)
