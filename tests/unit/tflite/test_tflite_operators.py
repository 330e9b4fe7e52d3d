# SPDX-License-Identifier: Apache-2.0
"""Every operator that the TFLite reader knows, in files of one, against LiteRT's reference kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import tflite

from tests.tflite_files import OPTIMISED, Tensor, litert, written
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.frontends.tflite.node import IMPORTERS
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

#: LiteRT draws other numbers.
DRAWN = {"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"}
SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
RELU, RELU_N1, RELU6, TANH = (getattr(tflite.ActivationFunctionType, name)
                              for name in ("RELU", "RELU_N1_TO_1", "RELU6", "TANH"))


class Case(NamedTuple):
    """inputs: shapes, other element types as `Tensor`, constants as arrays, None for absent ones. results: likewise.
    least: of the numbers that are fed."""

    kind: str
    inputs: tuple
    results: tuple
    options: str = ""
    fields: dict = {}
    least: float = -2.0
    variables: tuple[int, ...] = ()


def i32(*values) -> np.ndarray:
    return np.array(values, np.int32)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def t(dtype: str, *shape: int) -> Tensor:
    return Tensor(shape, dtype)


def window(padding, strides=(1, 1), dilations=(1, 1), activation=0, **more) -> dict:
    return {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1], "FusedActivationFunction": activation,
            **({"DilationHFactor": dilations[0], "DilationWFactor": dilations[1]} if dilations else {}), **more}


def pool(padding, kernel, strides=(1, 1), activation=0) -> dict:
    return window(padding, strides, (), activation, FilterHeight=kernel[0], FilterWidth=kernel[1])


def conv(x, w, y, bias=True, kind="CONV_2D", options="Conv2DOptions", **fields) -> Case:
    outputs = w[3] if kind == "DEPTHWISE_CONV_2D" else w[0]
    return Case(kind, (x, floats(*w), floats(outputs, seed=1) if bias else None), (y,), options, window(**fields))


def binary(kind: str, a, b, y, options="", **fields) -> Case:
    return Case(kind, (a, b), (y,), options, fields)


def same(kind: str, *shape: int, options="", least=-2.0, **fields) -> Case:
    return Case(kind, (shape or (2, 3, 4, 5),), (shape or (2, 3, 4, 5),), options, fields, least)


def reduction(kind: str, x, axes, y, keep=False) -> Case:
    return Case(kind, (x, i32(*axes)), (y,), "ReducerOptions", {"KeepDims": keep})


def strided(x, begin, end, steps, y, **masks) -> Case:
    return Case("STRIDED_SLICE", (x, i32(*begin), i32(*end), i32(*steps)), (y,), "StridedSliceOptions",
                {f"{name}Mask": mask for name, mask in masks.items()})


def lstm(time: int, batch: int, inputs: int, units: int, time_major=False, coupled=False, peepholes=False,
         clip=0.0) -> Case:
    x = (time, batch, inputs) if time_major else (batch, time, inputs)
    weights = [floats(units, inputs, seed=index) for index in range(4)]
    recurrent = [floats(units, units, seed=10 + index) for index in range(4)]
    peeps = [floats(units, seed=20 + index) if peepholes else None for index in range(3)]
    biases = [floats(units, seed=30 + index) for index in range(4)]
    if coupled:
        weights[0] = recurrent[0] = peeps[0] = biases[0] = None
    states = [t("float32", batch, units)] * 2
    return Case("UNIDIRECTIONAL_SEQUENCE_LSTM",
                (x, *weights, *recurrent, *peeps, *biases, None, None, *states, None, None, None, None),
                ((*x[:2], units),), "UnidirectionalSequenceLSTMOptions",
                {"FusedActivationFunction": TANH, "CellClip": clip, "TimeMajor": time_major}, variables=(18, 19))


IMAGE = (2, 7, 6, 3)
CASES = [
    conv(IMAGE, (8, 3, 3, 3), (2, 4, 3, 8), padding=SAME, strides=(2, 2), activation=RELU6),
    conv(IMAGE, (4, 3, 2, 3), (2, 5, 5, 4), padding=VALID, activation=RELU),
    conv(IMAGE, (4, 3, 2, 3), (2, 7, 6, 4), padding=SAME, dilations=(2, 3), activation=RELU_N1),
    conv((1, 5, 5, 4), (6, 1, 1, 2), (1, 5, 5, 6), padding=SAME),
    conv(IMAGE, (1, 3, 3, 6), (2, 7, 6, 6), kind="DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions", padding=SAME,
         DepthMultiplier=2),
    conv(IMAGE, (1, 3, 2, 3), (2, 3, 3, 3), kind="DEPTHWISE_CONV_2D", options="DepthwiseConv2DOptions",
         padding=VALID, strides=(2, 2), DepthMultiplier=1),
    Case("CONV_3D", ((1, 4, 5, 3, 2), floats(2, 3, 2, 2, 4), floats(4)), ((1, 2, 3, 2, 4),), "Conv3DOptions",
         {"Padding": SAME, "StrideD": 2, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": RELU}),
    Case("TRANSPOSE_CONV", (i32(2, 14, 12, 5), floats(5, 3, 3, 3), IMAGE), ((2, 14, 12, 5),), "TransposeConvOptions",
         {"Padding": SAME, "StrideH": 2, "StrideW": 2}),
    Case("TRANSPOSE_CONV", (i32(2, 15, 13, 5), floats(5, 3, 3, 3), IMAGE, floats(5)), ((2, 15, 13, 5),),
         "TransposeConvOptions", {"Padding": VALID, "StrideH": 2, "StrideW": 2}),
    Case("TRANSPOSE_CONV", (i32(2, 21, 12, 2), floats(2, 2, 3, 3), IMAGE), ((2, 21, 12, 2),), "TransposeConvOptions",
         {"Padding": SAME, "StrideH": 3, "StrideW": 2}),
    *(Case(kind, (IMAGE,), (y,), "Pool2DOptions", pool(padding, kernel, strides, activation))
      for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
      for padding, kernel, strides, activation, y in ((SAME, (3, 2), (2, 2), RELU, (2, 4, 3, 3)),
                                                      (VALID, (2, 3), (1, 2), 0, (2, 6, 2, 3)))),
    *(Case(f"RESIZE_{kind}", (IMAGE, i32(*size)), ((2, *size, 3),), f"Resize{name}Options",
           {"AlignCorners": corners, "HalfPixelCenters": half})
      for kind, name in (("BILINEAR", "Bilinear"), ("NEAREST_NEIGHBOR", "NearestNeighbor"))
      for size in ((14, 9), (3, 5), (1, 11)) for corners, half in ((0, 0), (1, 0), (0, 1))),
    Case("LOCAL_RESPONSE_NORMALIZATION", (IMAGE,), (IMAGE,), "LocalResponseNormalizationOptions",
         {"Radius": 1, "Bias": 1.5, "Alpha": 0.7, "Beta": 0.6}),
    Case("DEPTH_TO_SPACE", ((2, 3, 2, 8),), ((2, 6, 4, 2),), "DepthToSpaceOptions", {"BlockSize": 2}),
    Case("SPACE_TO_DEPTH", ((2, 4, 6, 3),), ((2, 2, 3, 12),), "SpaceToDepthOptions", {"BlockSize": 2}),

    Case("FULLY_CONNECTED", ((3, 4), floats(5, 4), floats(5)), ((3, 5),), "FullyConnectedOptions",
         {"FusedActivationFunction": RELU}),
    Case("FULLY_CONNECTED", ((2, 3, 4), floats(5, 4), None), ((2, 3, 5),), "FullyConnectedOptions",
         {"KeepNumDims": True}),
    Case("FULLY_CONNECTED", ((2, 3, 4), floats(5, 12), floats(5)), ((2, 5),), "FullyConnectedOptions"),
    *(Case("BATCH_MATMUL", ((2, *((4, 3) if x else (3, 4))), (2, *((5, 4) if y else (4, 5)))), ((2, 3, 5),),
           "BatchMatMulOptions", {"AdjX": x, "AdjY": y}) for x in (False, True) for y in (False, True)),
    Case("SOFTMAX", ((3, 7),), ((3, 7),), "SoftmaxOptions", {"Beta": 0.7}), same("LOG_SOFTMAX", 3, 7),
    same("L2_NORMALIZATION", 2, 3, 4, 5, options="L2NormOptions"),
    *(reduction(kind, IMAGE, axes, y, keep) for kind in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
      for axes, y, keep in (((1, 2), (2, 3), False), ((-1,), (2, 7, 6, 1), True), ((0, 1, 2, 3), (), False))),
    *(reduction(kind, t("bool", 3, 4), (1,), t("bool", 3)) for kind in ("REDUCE_ANY", "REDUCE_ALL")),
    *(Case(kind, (IMAGE, i32(axis)), (t(dtype, *(extent for index, extent in enumerate(IMAGE) if index != axis)),),
           f"{name}Options", {"OutputType": getattr(tflite.TensorType, dtype.upper())})
      for kind, name in (("ARG_MAX", "ArgMax"), ("ARG_MIN", "ArgMin")) for axis, dtype in ((3, "int32"), (1, "int64"))),
    *(Case("CUMSUM", ((3, 4, 2), i32(1)), ((3, 4, 2),), "CumsumOptions", {"Exclusive": exclusive, "Reverse": reverse})
      for exclusive in (False, True) for reverse in (False, True)),
    Case("TOPK_V2", ((3, 9), np.array(4, np.int32)), ((3, 4), t("int32", 3, 4)), "TopKV2Options"),
    Case("ONE_HOT", (t("int32", 5), np.array(3, np.int32), np.array(2.5, np.float32), np.array(-1, np.float32)),
         ((5, 3),), "OneHotOptions", {"Axis": -1}),

    *(binary(kind, IMAGE, b, IMAGE, f"{kind.title()}Options", FusedActivationFunction=activation)
      for kind in ("ADD", "SUB", "MUL", "DIV") for b, activation in (((6, 3), RELU6), (IMAGE, 0), ((), RELU))),
    *(binary(kind, (1, 3, 4), (2, 3, 1), (2, 3, 4)) for kind in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE",
                                                              "FLOOR_DIV", "FLOOR_MOD")),
    *(binary(kind, t("int32", 3, 5), t("int32", 5), t("int32", 3, 5))
      for kind in ("ADD", "SUB", "MUL", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "BITWISE_XOR", "RIGHT_SHIFT")),
    Case("POW", ((3, 4), (3, 4)), ((3, 4),), least=0.1),
    *(binary(kind, t("int32", 3, 5), t("int32", 5), t("bool", 3, 5))
      for kind in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")),
    *(binary(kind, (3, 5), (5,), t("bool", 3, 5)) for kind in ("LESS", "GREATER_EQUAL")),
    *(binary(kind, t("bool", 3, 5), t("bool", 3, 5), t("bool", 3, 5)) for kind in ("LOGICAL_AND", "LOGICAL_OR")),
    Case("LOGICAL_NOT", (t("bool", 7),), (t("bool", 7),)),
    Case("ADD_N", ((3, 4), (3, 4), (3, 4)), ((3, 4),)),
    *(same(kind) for kind in ("ABS", "NEG", "SIGN", "EXP", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "LOGISTIC", "TANH",
                              "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "HARD_SWISH", "ELU", "SQUARE",
                              "ZEROS_LIKE")),
    *(same(kind, least=0.1) for kind in ("LOG", "SQRT", "RSQRT")),
    same("LEAKY_RELU", options="LeakyReluOptions", Alpha=0.3),
    *(same("GELU", options="GeluOptions", Approximate=approximate) for approximate in (False, True)),
    Case("PRELU", (IMAGE, floats(1, 1, 3)), (IMAGE,)),
    Case("SELECT", (t("bool", 3, 4), (3, 4), (3, 4)), ((3, 4),)),
    Case("SELECT", (t("bool", 3), (3, 4), (3, 4)), ((3, 4),)),
    Case("SELECT_V2", (t("bool", 3, 1), (4,), ()), ((3, 4),)),
    *(Case("CAST", (t(a, 3, 4),), (t(b, 3, 4),), "CastOptions",
           {"InDataType": getattr(tflite.TensorType, a.upper()), "OutDataType": getattr(tflite.TensorType, b.upper())})
      for a, b in (("float32", "int32"), ("int32", "float32"), ("bool", "float32"), ("float32", "bool"),
                   ("int64", "int32"), ("uint8", "float32"))),
    Case("DEQUANTIZE", (floats(3, 4).astype(np.float16),), ((3, 4),)),

    Case("RESHAPE", ((2, 3, 4), i32(-1, 6)), ((4, 6),), "ReshapeOptions", {"NewShape": i32(4, 6)}),
    Case("RESHAPE", ((2, 3, 4),), ((3, 8),), "ReshapeOptions", {"NewShape": i32(3, 8)}),
    Case("EXPAND_DIMS", ((2, 3), i32(-1)), ((2, 3, 1),)),
    Case("SQUEEZE", ((1, 2, 1, 3),), ((1, 2, 3),), "SqueezeOptions", {"SqueezeDims": i32(2)}),
    Case("SQUEEZE", ((1, 2, 1, 3),), ((2, 3),), "SqueezeOptions"),
    Case("TRANSPOSE", ((2, 3, 4), i32(2, 0, 1)), ((4, 2, 3),)),
    Case("CONCATENATION", ((2, 3), (2, 4), floats(2, 1)), ((2, 8),), "ConcatenationOptions", {"Axis": -1}),
    Case("PACK", ((2, 3), (2, 3)), ((2, 2, 3),), "PackOptions", {"Axis": 1, "ValuesCount": 2}),
    Case("UNPACK", ((2, 3, 4),), ((2, 4),) * 3, "UnpackOptions", {"Axis": 1, "Num": 3}),
    Case("SPLIT", (i32(2), (2, 3, 6)), ((2, 3, 2),) * 3, "SplitOptions", {"NumSplits": 3}),
    Case("SPLIT_V", ((2, 7), i32(2, -1, 4), i32(1)), ((2, 2), (2, 1), (2, 4)), "SplitVOptions", {"NumSplits": 3}),
    Case("PAD", (IMAGE, i32([0, 0], [1, 2], [3, 0], [0, 1])), ((2, 10, 9, 4),)),
    Case("PADV2", ((2, 3), i32([1, 0], [0, 2]), np.array(1.5, np.float32)), ((3, 5),)),
    *(Case("MIRROR_PAD", ((3, 4), i32([2, 1], [1, 3])), ((6, 8),), "MirrorPadOptions", {"Mode": mode})
      for mode in (0, 1)),
    Case("TILE", ((2, 3), i32(2, 3)), ((4, 9),)), Case("BROADCAST_TO", ((3, 1), i32(2, 3, 4)), ((2, 3, 4),)),
    Case("SLICE", ((4, 5), i32(1, 2), i32(2, -1)), ((2, 3),)),
    strided((4, 5, 6), (1, 0, -1), (3, 4, 0), (1, 2, -2), (2, 2, 3)),
    strided((4, 5, 6), (0, 1, 2), (0, 3, 0), (1, 1, 1), (4, 2, 4), Begin=1, End=5),
    strided((4, 5), (-3, 0), (0, 0), (1, 1), (5,), ShrinkAxis=1, End=2),
    strided((4, 5, 6), (0, -2), (0, 0), (1, 1), (4, 5), Ellipsis=1, ShrinkAxis=2),
    strided((4, 5), (0, 0, 1), (0, 0, 3), (1, 1, 1), (4, 1, 2), NewAxis=2, Begin=1, End=1),
    Case("GATHER", ((4, 5), t("int32", 3)), ((3, 5),), "GatherOptions", {"Axis": 0}),
    Case("GATHER", ((4, 5), i32(4, 0, 2)), ((4, 3),), "GatherOptions", {"Axis": 1}),
    Case("GATHER", ((2, 5, 3), i32([4, 0], [1, 1])), ((2, 2, 3),), "GatherOptions", {"Axis": 1, "BatchDims": 1}),
    Case("GATHER_ND", ((4, 5), i32([3, 4], [0, 1])), ((2,),)),
    Case("WHERE", (t("bool", 3, 5),), (Tensor((15, 2), "int64", signature=(-1, 2)),)),
    Case("WHERE", ((2, 3, 4),), (Tensor((24, 3), "int64", signature=(-1, 3)),)),
    Case("MATRIX_DIAG", ((2, 4),), ((2, 4, 4),), "MatrixDiagOptions"),
    Case("MATRIX_DIAG", (t("int32", 3),), (t("int32", 3, 3),), "MatrixDiagOptions"),
    Case("EMBEDDING_LOOKUP", (t("int32", 3), floats(6, 4)), ((3, 4),)),
    Case("SCATTER_ND", (i32([1], [3], [1]), (3, 4), i32(5, 4)), ((5, 4),)),
    Case("DYNAMIC_UPDATE_SLICE", ((4, 5, 6), (4, 2, 6), t("int32", 3)), ((4, 5, 6),)),
    Case("DYNAMIC_UPDATE_SLICE", ((4, 5, 6), (3, 2, 6), i32(0, 9, 1)), ((4, 5, 6),)),
    Case("DYNAMIC_UPDATE_SLICE", (t("int8", 2, 5, 6), t("int8", 1, 2, 3), t("int32", 3)), (t("int8", 2, 5, 6),)),
    Case("DYNAMIC_UPDATE_SLICE", ((4, 5), (4, 5), i32(1, -1)), ((4, 5),)),
    Case("REVERSE_V2", ((2, 3, 4), i32(1)), ((2, 3, 4),)),
    Case("REVERSE_SEQUENCE", ((2, 5, 3), i32(3, 5)), ((2, 5, 3),), "ReverseSequenceOptions",
         {"SeqDim": 1, "BatchDim": 0}),
    Case("SHAPE", ((2, 3),), (t("int32", 2),), "ShapeOptions", {"OutType": tflite.TensorType.INT32}),
    Case("BROADCAST_ARGS", (i32(3, 1), i32(2, 1, 4)), (t("int32", 3),)),
    Case("RANK", ((2, 3),), (t("int32"),)), Case("FILL", (i32(2, 3), ()), ((2, 3),)),
    Case("RANGE", (np.array(1, np.int32), np.array(9, np.int32), np.array(3, np.int32)), (t("int32", 3),)),
    Case("SPACE_TO_BATCH_ND", ((2, 3, 4, 3), i32(2, 2), i32([0, 1], [2, 0])), ((8, 2, 3, 3),)),
    Case("BATCH_TO_SPACE_ND", ((8, 2, 3, 3), i32(2, 2), i32([0, 1], [2, 0])), ((2, 3, 4, 3),)),

    lstm(5, 2, 3, 4), lstm(4, 1, 3, 4, time_major=True), lstm(5, 2, 3, 4, coupled=True), lstm(6, 2, 3, 4, clip=0.2),
    lstm(5, 2, 3, 4, peepholes=True), lstm(5, 2, 3, 4, peepholes=True, coupled=True, clip=0.3),
    *(Case("UNIDIRECTIONAL_SEQUENCE_RNN", (x, floats(4, 3), floats(4, 4, seed=1), floats(4, seed=2),
                                           t("float32", x[1 if major else 0], 4)),
           ((*x[:2], 4),), "SequenceRNNOptions", {"FusedActivationFunction": activation, "TimeMajor": major},
           variables=(4,)) for x, major, activation in (((2, 5, 3), False, TANH), ((5, 2, 3), True, RELU))),
]


def file_of(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """A file of the operator, and numbers for its inputs."""
    tensors, read, feeds = {}, [], {}
    generator = np.random.default_rng(len(CASES))
    for index, operand in enumerate(case.inputs):
        name = "" if operand is None else f"x{index}"
        read.append(name)
        if operand is None:
            continue
        if index in case.variables:
            operand = Tensor(operand.shape, operand.dtype, variable=True)
        tensors[name] = operand
        if isinstance(operand, np.ndarray) or index in case.variables:
            continue
        type_ = operand if isinstance(operand, Tensor) else Tensor(operand)
        draw = generator.uniform(max(case.least, 0 if type_.dtype in ("bool", "uint8") else -9), 3, type_.shape)
        if type_.dtype == "bool":
            draw = draw > 1.5
        elif type_.dtype != "float32":
            draw = np.floor(np.where(np.abs(draw) < 1, 1, draw))
            if case.kind in ("GATHER", "EMBEDDING_LOOKUP", "ONE_HOT", "RIGHT_SHIFT"):
                draw = np.abs(draw)
        feeds[name] = draw.astype(type_.dtype)
    names = [f"y{index}" for index in range(len(case.results))]
    tensors.update(zip(names, case.results, strict=True))
    return written(tensors, [(case.kind, case.options, case.fields, read, names)], list(feeds), names), feeds


def label(case: Case) -> str:
    return case.kind.lower()


@pytest.mark.parametrize("case", CASES, ids=label)
def test_operator(case: Case, tmp_path):
    data, feeds = file_of(case)
    expected = litert(data, feeds, optimised=case.kind in OPTIMISED)
    path = tmp_path / "one.tflite"
    path.write_bytes(data)
    graph = import_tflite(path)
    assert list(graph.inputs) == list(feeds) and list(graph.outputs) == list(expected)
    found = reference.run(graph, feeds)
    for name, wanted in expected.items():
        assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(found[name], wanted, atol=2e-5, rtol=2e-5)
        else:
            np.testing.assert_array_equal(found[name], wanted)


@pytest.mark.parametrize("axes", [(1,), (0, 1)])
@pytest.mark.parametrize("kind", ["REDUCE_MAX", "REDUCE_MIN"])
def test_extremes_of_infinities(kind: str, axes: tuple[int, ...], tmp_path):
    """Where some axes are left, LiteRT's reference begins with the worst finite number; where none is, with an element.
    """
    data, feeds = file_of(reduction(kind, (2, 3), axes, (2,) if len(axes) < 2 else ()))
    (tmp_path / "one.tflite").write_bytes(data)
    graph = import_tflite(tmp_path / "one.tflite")
    (name,) = feeds
    for number in (np.inf, -np.inf):
        feeds = {name: np.full((2, 3), number, np.float32)}
        (expected,), (found,) = litert(data, feeds).values(), reference.run(graph, feeds).values()
        np.testing.assert_array_equal(found, expected)


def test_every_operator_has_a_case():
    # The others: test_tflite_quantised.py, test_tflite_states.py, test_tflite_sparse.py, test_tflite_complex.py,
    # test_tflite_random.py, test_tflite_graphs.py.
    ours = {kind for kind in IMPORTERS if not kind.startswith("CUSTOM ")}
    assert ours - {"SVDF", "DENSIFY", "RFFT2D", "TENSOR_LIST_SET_ITEM", *DRAWN} == {case.kind for case in CASES}
