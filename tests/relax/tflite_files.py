# SPDX-License-Identifier: Apache-2.0
"""Small TFLite files, written with the functions that the package tflite generates from the format's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import flatbuffers
import numpy as np


@dataclass(frozen=True)
class Quantized:
    """A tensor of int8 that stands for (q - zero_point) * scale."""

    shape: tuple[int, ...]
    scale: float
    zero_point: int
    dtype = np.dtype(np.int8)


def written(tensors: Mapping[str, np.ndarray | Quantized | tuple[int, ...]], operators: Sequence[tuple],
            inputs: Sequence[str], outputs: Sequence[str], graphs: int = 1, signatures: Sequence[str] = ()) -> bytes:
    """A file of one graph, of float32 where nothing else is said.

    tensors: by name, a constant, a quantised tensor or a shape.
    operators: (name of the operator, name of its table of options, options, inputs, outputs).
    graphs: so many times the graph is in the file.
    """
    import tflite

    builder = flatbuffers.Builder(1024)

    def table(name: str, **fields) -> int:
        getattr(tflite, f"{name}Start")(builder)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(builder, value)
        return getattr(tflite, f"{name}End")(builder)

    def vector(offsets: Sequence[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    def numbers(values: Sequence[int]) -> int:
        return builder.CreateNumpyVector(np.array(values, np.int32))

    names = list(tensors)
    buffers, described = [table("Buffer")], []
    for name, value in tensors.items():
        if isinstance(value, np.ndarray):
            data = builder.CreateNumpyVector(np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8))
            buffers.append(table("Buffer", Data=data))
        quantized = {}
        if isinstance(value, Quantized):
            scale = builder.CreateNumpyVector(np.array([value.scale], np.float32))
            zero_point = builder.CreateNumpyVector(np.array([value.zero_point], np.int64))
            quantized = {"Quantization": table("QuantizationParameters", Scale=scale, ZeroPoint=zero_point)}
        shape = numbers(getattr(value, "shape", value))
        kind = getattr(tflite.TensorType, str(getattr(value, "dtype", "float32")).upper())
        described.append(table("Tensor", Shape=shape, Type=kind, Name=builder.CreateString(name),
                               Buffer=len(buffers) - 1 if isinstance(value, np.ndarray) else 0, **quantized))
    codes = list(dict.fromkeys(operator for operator, *_ in operators))
    kinds = [getattr(tflite.BuiltinOperator, code) for code in codes]
    code_tables = [table("OperatorCode", DeprecatedBuiltinCode=min(kind, 127), BuiltinCode=kind, Version=1)
                   for kind in kinds]
    calls = []
    for operator, options, fields, read, made in operators:
        options_table = table(options, **fields)
        operands, results = numbers([names.index(name) for name in read]), numbers([names.index(n) for n in made])
        calls.append(table("Operator", OpcodeIndex=codes.index(operator), Inputs=operands, Outputs=results,
                           BuiltinOptionsType=getattr(tflite.BuiltinOptions, options), BuiltinOptions=options_table))
    graph = table("SubGraph", Tensors=vector(described), Inputs=numbers([names.index(name) for name in inputs]),
                  Outputs=numbers([names.index(name) for name in outputs]), Operators=vector(calls))
    keys = [table("SignatureDef", SignatureKey=builder.CreateString(key)) for key in signatures]
    model = table("Model", Version=3, OperatorCodes=vector(code_tables), Subgraphs=vector([graph] * graphs),
                  Buffers=vector(buffers), SignatureDefs=vector(keys))
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


def network() -> bytes:
    """Convolution (SAME, stride 2, relu6), depthwise convolution (relu), pools, a residual, a dense layer, softmax."""
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
