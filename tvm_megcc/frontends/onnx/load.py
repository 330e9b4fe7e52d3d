# SPDX-License-Identifier: Apache-2.0
"""An ONNX file, bytes or proto as a checked ModelProto: what is wrong with the file itself is found here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper, numpy_helper

from ...errors import ModelError

#: Element types that a graph of ours can hold.
DTYPES = {
    onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.INT8: "int8", onnx.TensorProto.UINT8: "uint8", onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.UINT16: "uint16", onnx.TensorProto.INT32: "int32", onnx.TensorProto.UINT32: "uint32",
    onnx.TensorProto.INT64: "int64", onnx.TensorProto.UINT64: "uint64", onnx.TensorProto.BOOL: "bool",
}

#: Of an older one only the operators are taken that have not changed up to this one.
OLDEST_OPSET = 6

#: No tensor of a model may reach this size: extents and offsets are 32 bits wide on the device.
TENSOR_LIMIT = 2**31


@dataclass(frozen=True)
class LoadedModel:
    """proto: the model, external data not yet read. folder: where external data lies, None for a model in memory."""

    proto: onnx.ModelProto
    name: str
    folder: Path | None
    opsets: dict[str, int]


def load(model: str | Path | bytes | onnx.ModelProto) -> LoadedModel:
    """Reads and parses.

    Raises:
        ModelError: where there is no file, or it is no ONNX model that can be imported at all.
    """
    folder = None
    if isinstance(model, onnx.ModelProto):
        proto, subject = model, model.graph.name or "model"
    else:
        if isinstance(model, (bytes, bytearray)):
            data, subject = bytes(model), "model"
        else:
            path = Path(model)
            subject, folder = path.name, path.parent
            try:
                data = path.read_bytes()
            except OSError as error:
                raise ModelError(str(path), [f"cannot be read: {error.strerror}"]) from None
        proto = _parse(data, subject)
    name = (Path(model).stem if isinstance(model, (str, Path)) else "") or proto.graph.name or "model"
    if name == "model" and folder is not None:
        name = folder.resolve().name
    opsets = {entry.domain or "ai.onnx": entry.version for entry in proto.opset_import}
    _check_model(proto, subject, opsets)
    return LoadedModel(proto, name, folder, opsets)


def _parse(data: bytes, subject: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        reason = f"is no ONNX model, or is truncated or corrupt ({len(data)} bytes read: {error})"
        raise ModelError(subject, [reason], "export or download the file again") from None
    return proto


def _check_model(proto: onnx.ModelProto, subject: str, opsets: dict[str, int]) -> None:
    findings = []
    if not proto.graph.output:
        findings.append("the model has no graph with outputs: the file is empty, truncated or no ONNX model")
    elif "ai.onnx" not in opsets:
        findings.append("the model names no ONNX operator set (opset_import)")
    elif opsets["ai.onnx"] > onnx.defs.onnx_opset_version():
        findings.append(f"operator set {opsets['ai.onnx']} is newer than {onnx.defs.onnx_opset_version()}, the newest "
                        "that the installed onnx package knows; update the package")
    if findings:
        raise ModelError(subject, findings)


class TensorError(ValueError):
    """A tensor of the file that has no usable value; the message says why."""


def tensor_array(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray:
    """The value of an initializer or tensor attribute, external data included.

    Raises:
        TensorError: element type we cannot hold, missing or short data, more than 2 GB.
    """
    if tensor.data_type not in DTYPES:
        raise TensorError(f"has element type {type_name(tensor.data_type)}, which is not supported")
    if any(dim < 0 for dim in tensor.dims):
        raise TensorError(f"has a negative extent in {tuple(tensor.dims)}")
    itemsize = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    wanted = math.prod(tensor.dims) * itemsize
    if wanted >= TENSOR_LIMIT:
        raise TensorError(f"has {wanted:,} bytes, and no tensor may reach 2 GB; split it, or store it in int8")
    if external_data_helper.uses_external_data(tensor):
        tensor = _with_external_data(tensor, folder)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != wanted:
        raise TensorError(f"has {len(tensor.raw_data)} bytes of data where {wanted} are needed; weights are missing")
    try:
        return np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise TensorError(f"has no usable data, weights are missing ({error})") from None


def _with_external_data(tensor: onnx.TensorProto, folder: Path | None) -> onnx.TensorProto:
    location = external_data_helper.ExternalDataInfo(tensor).location
    if folder is None:
        raise TensorError(f"has its data in the file '{location}'; give the path of the model, not its bytes")
    loaded = onnx.TensorProto()
    loaded.CopyFrom(tensor)
    try:
        external_data_helper.load_external_data_for_tensor(loaded, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TensorError(f"has its data in the file '{location}', which cannot be read; put it beside the model "
                          f"({reason})") from None
    return loaded


def type_name(data_type: int) -> str:
    try:
        return onnx.TensorProto.DataType.Name(data_type).lower()
    except ValueError:
        return f"number {data_type}"


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the values that a node reads, those that its subgraphs capture included."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        inner = {*(tensor.name for tensor in graph.initializer), *(value.name for value in graph.input)}
        inner.update(name for child in graph.node for name in child.output)
        for child in graph.node:
            yield from (name for name in reads(child) if name not in inner)
        yield from (value.name for value in graph.output if value.name not in inner)
