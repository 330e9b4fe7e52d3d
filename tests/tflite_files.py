# SPDX-License-Identifier: Apache-2.0
"""Writes small TFLite files with the functions that the package tflite generates from the format's schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import flatbuffers
import numpy as np


@dataclass(frozen=True)
class Quantized:
    """A quantised tensor, which represents (q - zero_point) * scale.

    scale, zero_point: one number, or one for each index of `axis`. array: the elements of a constant; int8 if the dtype
    is int4 or int2. blocks: (name of the tensor of block scales, name of that of block zero points or "", elements of a
    block). details: the schema's number of QuantizationDetails.
    """

    shape: tuple[int, ...]
    scale: float | Sequence[float]
    zero_point: int | Sequence[int] = 0
    dtype: str = "int8"
    axis: int = 0
    array: np.ndarray | None = None
    variable: bool = False
    blocks: tuple[str, str, int] | None = None
    details: int = 0


@dataclass(frozen=True)
class Tensor:
    """A tensor that is not quantised. signature: the shape signature, with -1 for dynamic extents. variable: whether it
    keeps its value from run to run."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    signature: tuple[int, ...] = ()
    variable: bool = False


@dataclass(frozen=True)
class Sparse:
    """A sparse constant, as SparsityParameters of the schema describes it.

    order: the axis of each level; numbers from the rank on are axes within blocks. dense: levels that store all
    coordinates. blocks: axis -> extent of a block. wide: bytes of a stored index.
    """

    array: np.ndarray
    order: Sequence[int]
    dense: Sequence[int] = ()
    blocks: Mapping[int, int] = dataclasses.field(default_factory=dict)
    wide: int = 4
    quantized: Quantized | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    def levels(self) -> tuple[np.ndarray, list[int | tuple[list[int], list[int]]]]:
        """Returns the stored values and, for each level, its size (dense) or its segments and indices (CSR)."""
        rank, axes = self.array.ndim, list(self.blocks)
        cut = self.array.reshape([part for axis, extent in enumerate(self.shape) for part in (
            (extent // self.blocks[axis], self.blocks[axis]) if axis in self.blocks else (extent,))])
        places = [axis + sum(other < axis for other in axes) for axis in range(rank)]
        places += [places[axis] + 1 for axis in axes]
        cut = cut.transpose([places[axis] for axis in self.order])
        prefixes, levels = [()], []
        for level, extent in enumerate(cut.shape):
            listed = level in self.dense or self.order[level] >= rank
            children = [[at for at in range(extent) if listed or cut[(*prefix, at)].any()] for prefix in prefixes]
            prefixes = [(*prefix, at) for prefix, some in zip(prefixes, children, strict=True) for at in some]
            segments = np.cumsum([0, *map(len, children)]).tolist()
            levels.append(extent if listed else (segments, [prefix[-1] for prefix in prefixes]))
        return np.array([cut[prefix] for prefix in prefixes], self.array.dtype), levels


#: Packed element types -> (number in the schema, bits of an element). The first element is in a byte's lowest bits.
NARROW = {"int4": (17, 4), "int2": (19, 2)}


def narrowed(array: np.ndarray, bits: int) -> np.ndarray:
    """Packs int8 elements of a few bits into bytes; returns uint8."""
    each = 8 // bits
    flat = array.reshape(-1).astype(np.uint8) & ((1 << bits) - 1)
    lanes = np.pad(flat, (0, -flat.size % each)).reshape(-1, each)
    return np.bitwise_or.reduce(lanes << (np.arange(each, dtype=np.uint8) * bits), axis=1).astype(np.uint8)


def written(tensors: Mapping[str, np.ndarray | Quantized | Tensor | Sparse | tuple[int, ...]],
            operators: Sequence[tuple], inputs: Sequence[str], outputs: Sequence[str], graphs: int = 1,
            signatures: Sequence[str] | Mapping[str, int] = (), once: Sequence[tuple] = (),
            behind: Sequence[tuple[Sequence[tuple], Sequence[str], Sequence[str]]] = ()) -> bytes:
    """Returns the bytes of a TFLite file.

    tensors: name -> a constant, a description of a tensor, or the shape of a float32 tensor.
    operators: (name of the operator, name of its options table or "", options, inputs, outputs, more). Absent inputs
        are "". The name of a custom operator begins with a colon. more: optional; {"custom": bytes of its options,
        "intermediates": names of tensors}.
    inputs, outputs: names of tensors.
    graphs: the number of copies of the graph in the file.
    behind: further graphs with the same tensors: (operators, inputs, outputs).
    once: operators of a last graph without inputs and outputs.
    signatures: name -> index of the graph, or names in the order of the graphs.
    """
    import tflite

    builder = flatbuffers.Builder(1024)

    def table(name: str, **fields) -> int:
        fields = {field: builder.CreateNumpyVector(value) if isinstance(value, np.ndarray) else value
                  for field, value in fields.items()}
        getattr(tflite, f"{name}Start")(builder)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(builder, value)
        return getattr(tflite, f"{name}End")(builder)

    def vector(offsets: Sequence[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    def numbers(values: Sequence[int]) -> np.ndarray:
        return np.array(values, np.int32)

    def level_table(level: int | tuple, wide: int) -> int:
        if isinstance(level, int):
            return table("DimensionMetadata", Format=tflite.DimensionType.DENSE, DenseSize=level)
        kind = {1: "Uint8Vector", 2: "Uint16Vector", 4: "Int32Vector"}[wide]
        segments, indices = (table(kind, Values=np.array(each, f"{'i' if wide == 4 else 'u'}{wide}")) for each in level)
        which = getattr(tflite.SparseIndexVector, kind)
        return table("DimensionMetadata", Format=tflite.DimensionType.SPARSE_CSR, ArraySegmentsType=which,
                     ArraySegments=segments, ArrayIndicesType=which, ArrayIndices=indices)

    def in_blocks(scales: str, zero_points: str, size: int) -> int:
        """Writes a table BlockwiseQuantization (scales, zero_points, block_size), which the package tflite lacks."""
        builder.StartObject(3)
        for field, number in enumerate((names.index(scales), names.index(zero_points) if zero_points else -1, size)):
            builder.PrependInt32Slot(field, number, 0)
        return builder.EndObject()

    names = list(tensors)
    buffers, described = [table("Buffer")], []
    for name, value in tensors.items():
        array = value if isinstance(value, np.ndarray) else getattr(value, "array", None)
        more = {}
        if isinstance(value, Sparse):
            array, levels = value.levels()
            more["Sparsity"] = table("SparsityParameters", TraversalOrder=numbers(value.order),
                                     BlockMap=numbers(list(value.blocks)),
                                     DimMetadata=vector([level_table(level, value.wide) for level in levels]))
            value = value.quantized or value
        wide, bits = NARROW.get(getattr(value, "dtype", ""), (0, 8))
        if array is not None:
            array = array if bits == 8 else narrowed(array, bits)
            buffers.append(table("Buffer", Data=np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)))
        if isinstance(value, Quantized):
            scale, zero_point = np.atleast_1d(np.float32(value.scale)), np.atleast_1d(np.int64(value.zero_point))
            zero_point = np.broadcast_to(zero_point, scale.shape).copy()
            given = {"DetailsType": value.details} if value.details else {"Scale": scale, "ZeroPoint": zero_point}
            if value.blocks:
                given = {"DetailsType": 2, "Details": in_blocks(*value.blocks)}
            more["Quantization"] = table("QuantizationParameters", **given, QuantizedDimension=value.axis)
        if getattr(value, "signature", ()):
            more["ShapeSignature"] = numbers(value.signature)
        if getattr(value, "variable", False):
            more["IsVariable"] = True
        kind = wide or getattr(tflite.TensorType, str(getattr(value, "dtype", "float32")).upper())
        described.append(table("Tensor", Shape=numbers(getattr(value, "shape", value)), Type=kind,
                               Name=builder.CreateString(name), Buffer=len(buffers) - 1 if array is not None else 0,
                               **more))
    rows = [(operators, inputs, outputs), *behind, *([(once, (), ())] if once else [])]
    codes = list(dict.fromkeys(operator for own, *_ in rows for operator, *_ in own))
    code_tables = []
    for code in codes:
        kind = tflite.BuiltinOperator.CUSTOM if code[0] == ":" else getattr(tflite.BuiltinOperator, code)
        more = {"CustomCode": builder.CreateString(code[1:])} if code[0] == ":" else {}
        code_tables.append(table("OperatorCode", DeprecatedBuiltinCode=min(kind, 127), BuiltinCode=kind,
                                 Version=VERSIONS.get(code, 1), **more))

    def call(operator: str, options: str, fields: Mapping, read: Sequence[str], made: Sequence[str], *rest) -> int:
        fields = {field: builder.CreateString(value) if isinstance(value, str) else value
                  for field, value in fields.items()}
        place = "BuiltinOptions" if hasattr(tflite.BuiltinOptions, options or "NONE") else "BuiltinOptions2"
        more = {f"{place}Type": getattr(getattr(tflite, place), options),
                place: table(options, **fields)} if options else {}
        for part in rest:
            more["CustomOptions"] = np.frombuffer(part.get("custom", b""), np.uint8)
            more["Intermediates"] = numbers([names.index(name) for name in part.get("intermediates", ())])
        return table("Operator", OpcodeIndex=codes.index(operator),
                     Inputs=numbers([names.index(name) if name else -1 for name in read]),
                     Outputs=numbers([names.index(name) for name in made]), **more)

    graph, *rest = (table("SubGraph", Tensors=vector(described), Inputs=numbers([names.index(name) for name in read]),
                          Outputs=numbers([names.index(name) for name in made]),
                          Operators=vector([call(*row) for row in own])) for own, read, made in rows)
    def named(read: Sequence[str]) -> int:
        return vector([table("TensorMap", Name=builder.CreateString(name), TensorIndex=names.index(name))
                       for name in read])

    called = signatures if isinstance(signatures, Mapping) else {key: place for place, key in enumerate(signatures)}
    ends = [(inputs, outputs)] * graphs + [(read, made) for _, read, made in behind]
    keys = [table("SignatureDef", SignatureKey=builder.CreateString(key), SubgraphIndex=index,
                  Inputs=named(ends[index][0]), Outputs=named(ends[index][1])) for key, index in called.items()]
    model = table("Model", Version=3, OperatorCodes=vector(code_tables), Subgraphs=vector([graph] * graphs + rest),
                  Buffers=vector(buffers), SignatureDefs=vector(keys))
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


#: Operator -> its version, by which LiteRT decides which options it reads; 1 for others.
VERSIONS = {"FULLY_CONNECTED": 5, "UNIDIRECTIONAL_SEQUENCE_LSTM": 3, "BATCH_MATMUL": 2, "TRANSPOSE_CONV": 3, "SVDF": 3,
            "RESIZE_BILINEAR": 3, "RESIZE_NEAREST_NEIGHBOR": 3, "STRIDED_SLICE": 4, "GATHER": 5, "BROADCAST_TO": 2}

#: Operators for which LiteRT's optimised kernels are the reference. It has no reference kernel for them, or one that
#: differs from TensorFlow (LOCAL_RESPONSE_NORMALIZATION uses one channel too few).
OPTIMISED = ("CEIL", "ROUND", "ELU", "BROADCAST_TO", "LOCAL_RESPONSE_NORMALIZATION")


def litert(data: bytes, feeds: Mapping[str, np.ndarray], outputs: Sequence[str] = (),
           optimised: bool = False) -> dict[str, np.ndarray]:
    """Returns the tensors that LiteRT computes, by name: the outputs, or those in `outputs`. optimised: whether to use
    its optimised kernels instead of the reference kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if optimised else OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kernels,
                              experimental_preserve_all_tensors=bool(outputs))
    inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
    for name, array in feeds.items():
        if tuple(inputs[name]["shape"]) != array.shape:
            interpreter.resize_tensor_input(inputs[name]["index"], array.shape)
    interpreter.allocate_tensors()
    for name, array in feeds.items():
        interpreter.set_tensor(inputs[name]["index"], array)
    interpreter.invoke()
    details = interpreter.get_tensor_details() if outputs else interpreter.get_output_details()
    return {detail["name"]: interpreter.get_tensor(detail["index"]) for detail in details
            if not outputs or detail["name"] in outputs}


def network() -> bytes:
    """Returns a float32 network: convolution (SAME, stride 2, relu6), depthwise convolution (relu), a residual sum, a
    pool, a dense layer and a softmax."""
    import tflite

    generator = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    same, valid = tflite.Padding.SAME, tflite.Padding.VALID
    relu, relu6 = tflite.ActivationFunctionType.RELU, tflite.ActivationFunctionType.RELU6
    tensors = {
        "image": (1, 17, 13, 3), "w1": weights(8, 3, 3, 3), "b1": weights(8, 1).reshape(8), "c1": (1, 9, 7, 8),
        "w2": weights(1, 3, 3, 8), "b2": weights(8, 1).reshape(8), "c2": (1, 9, 7, 8), "sum": (1, 9, 7, 8),
        "pooled": (1, 4, 3, 8), "flat": (1, 96), "shape": np.array([1, 96], np.int32), "w3": weights(10, 96),
        "b3": weights(10, 1).reshape(10), "dense": (1, 10), "scores": (1, 10)}
    operators = [
        ("CONV_2D", "Conv2DOptions", {"Padding": same, "StrideW": 2, "StrideH": 2, "FusedActivationFunction": relu6,
                                      "DilationWFactor": 1, "DilationHFactor": 1}, ["image", "w1", "b1"], ["c1"]),
        ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions",
         {"Padding": same, "StrideW": 1, "StrideH": 1, "DepthMultiplier": 1, "FusedActivationFunction": relu,
          "DilationWFactor": 1, "DilationHFactor": 1}, ["c1", "w2", "b2"], ["c2"]),
        ("ADD", "AddOptions", {}, ["c1", "c2"], ["sum"]),
        ("MAX_POOL_2D", "Pool2DOptions", {"Padding": valid, "StrideW": 2, "StrideH": 2, "FilterWidth": 2,
                                          "FilterHeight": 2}, ["sum"], ["pooled"]),
        ("RESHAPE", "ReshapeOptions", {}, ["pooled", "shape"], ["flat"]),
        ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["flat", "w3", "b3"], ["dense"]),
        ("SOFTMAX", "SoftmaxOptions", {"Beta": 1.0}, ["dense"], ["scores"])]
    return written(tensors, operators, ["image"], ["scores", "sum"])
