# SPDX-License-Identifier: Apache-2.0
"""Random TFLite files of one operator, continued from `tflite_cases`: moves, windows, products and layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.tflite_cases import BYTES, INTEGERS, PLAIN, QUANTIZED, REALS, RULES, Case, Rule, Spec, rule
from tests.tflite_draws import FILES
from tests.tflite_hybrid_draws import FLOATS
from tvm_megcc.frontends.tflite.quantized.importers import INT16_IMPORTERS

MOVED = (*REALS, *INTEGERS, "bool", *PLAIN, *QUANTIZED)


@rule("RESHAPE", of=MOVED)
def reshape(case: Case) -> Spec:
    shape = case.shape(0, 4)
    case.x("x", shape), case.y("y", (), like="x")
    wanted = list(case.random.permutation(shape).tolist())
    if wanted and case.often(0.5):
        wanted = [int(np.prod(wanted[:2])), *wanted[2:]]
    if wanted and case.often(0.3) and 0 not in wanted:
        wanted[case.number(0, len(wanted) - 1)] = -1
    if case.often(0.3):
        return case.spec("ReshapeOptions", {"NewShape": np.array(wanted, np.int32)}, ["x"], ["y"])
    return case.spec("ReshapeOptions", {"NewShape": np.array(wanted, np.int32)}, ["x", case.ints("n", wanted)], ["y"])


@rule("EXPAND_DIMS", of=MOVED)
def expand_dims(case: Case) -> Spec:
    shape = case.shape(0, 4)
    case.x("x", shape), case.y("y", (), like="x")
    axis = case.number(-len(shape) - 1, len(shape))
    return case.spec("ExpandDimsOptions", {}, ["x", case.ints("n", [axis] if case.often(0.5) else axis)], ["y"])


@rule("SQUEEZE", of=MOVED)
def squeeze(case: Case) -> Spec:
    shape = case.shape(0, 5)
    case.x("x", shape), case.y("y", (), like="x")
    ones = [axis for axis, extent in enumerate(shape) if extent == 1 and case.often(0.5)]
    ones = [axis - len(shape) if case.often(0.3) else axis for axis in ones]
    return case.spec("SqueezeOptions", {"SqueezeDims": np.array(ones, np.int32)}, ["x"], ["y"])


@rule("TRANSPOSE", of=MOVED)
def transpose(case: Case) -> Spec:
    shape = case.shape(1, 5)
    case.x("x", shape), case.y("y", (), like="x")
    perm = [axis - len(shape) if case.often(0.1) else axis for axis in case.random.permutation(len(shape)).tolist()]
    return case.spec("TransposeOptions", {}, ["x", case.ints("n", perm)], ["y"])


@rule("CONCATENATION", "PACK", of=MOVED)
def joined(case: Case) -> Spec:
    shape, names = list(case.shape(1, 4)), [f"x{index}" for index in range(case.number(1, 4))]
    pack = case.kind == "PACK"
    axis = case.number(-len(shape) - pack, len(shape) - 1 + pack)
    for name in names:
        own = list(shape)
        if not pack and shape[axis]:
            own[axis] = case.number(1, 4)
        case.x(name, own, like=names[0] if name != names[0] and (case.dtype != "uint8" or case.often(0.7)) else "")
    case.y("y", (), like=names[0])
    options = ("PackOptions", {"Axis": axis, "ValuesCount": len(names)}) if pack else \
        ("ConcatenationOptions", {"Axis": axis, "FusedActivationFunction": 0})
    return case.spec(*options, names, ["y"], again=pack and len(names) > 1)


@rule("UNPACK", "SPLIT", "SPLIT_V", of=MOVED)
def parted(case: Case) -> Spec:
    shape = list(case.shape(1, 4))
    axis = case.axis(len(shape))
    if case.kind == "SPLIT_V":
        sizes = [case.number(1, 3) for _ in range(case.number(1, 3))]
        shape[axis] = sum(sizes)
        if case.often(0.3):
            sizes[case.number(0, len(sizes) - 1)] = -1
        count = len(sizes)
    else:
        count = case.one_of(1, 2, 3)
        shape[axis] = count * (1 if case.kind == "UNPACK" else case.number(1, 3))
    names = [f"y{index}" for index in range(count)]
    case.x("x", shape)
    for name in names:
        case.y(name, (), like="x")
    if case.kind == "UNPACK":
        return case.spec("UnpackOptions", {"Axis": axis, "Num": count}, ["x"], names)
    if case.kind == "SPLIT":
        return case.spec("SplitOptions", {"NumSplits": count}, [case.ints("n", axis), "x"], names)
    return case.spec("SplitVOptions", {"NumSplits": count}, ["x", case.ints("m", sizes), case.ints("n", axis)], names)


@rule("PAD", "PADV2", "MIRROR_PAD", of=MOVED)
def pad(case: Case) -> Spec:
    shape, mirrored = case.shape(1, 5 if case.kind != "MIRROR_PAD" else 4), case.kind == "MIRROR_PAD"
    mode = case.number(0, 1)
    pads = [[case.number(0, min(3, extent - (1 - mode)) if mirrored else 3) for _ in range(2)] if extent else [0, 0]
            for extent in shape]
    case.x("x0", shape), case.y("y", (), like="x0")
    case.ints("n", pads, case.one_of("int32", "int32", "int64"))
    more = []
    if case.kind == "PADV2":
        case.x("x1", (), like="x0")
        more = ["x1"]
    return case.spec("MirrorPadOptions" if mirrored else "", {"Mode": mode} if mirrored else {}, ["x0", "n", *more],
                     ["y"], constants=0.8)


@rule("TILE", of=MOVED)
def tile(case: Case) -> Spec:
    shape = case.shape(0, 4)
    case.x("x", shape), case.y("y", (), like="x")
    return case.spec("", {}, ["x", case.ints("n", [case.number(1, 3) for _ in shape], case.one_of("int32", "int64"))],
                     ["y"])


@rule("BROADCAST_TO", of=MOVED)
def broadcast_to(case: Case) -> Spec:
    whole = list(case.shape(0, 5))
    shape = [1 if case.often(0.4) else extent for extent in whole][case.number(0, len(whole)):]
    case.x("x", shape), case.y("y", (), like="x")
    return case.spec("", {}, ["x", case.ints("n", whole)], ["y"])


@rule("SLICE", of=MOVED)
def slice_(case: Case) -> Spec:
    shape = case.shape(1, 5)
    begin = [case.number(0, max(extent - 1, 0)) for extent in shape]
    size = [-1 if case.often(0.2) else case.number(min(1, extent), extent - first)
            for extent, first in zip(shape, begin, strict=True)]
    dtype = case.one_of("int32", "int64")
    case.x("x", shape), case.y("y", (), like="x")
    return case.spec("SliceOptions", {}, ["x", case.ints("n", begin, dtype), case.ints("m", size, dtype)], ["y"])


@rule("STRIDED_SLICE", of=MOVED)
def strided_slice(case: Case) -> Spec:
    shape = case.shape(1, 4)
    count = case.number(1, len(shape))
    begin, end = ([case.number(-extent - 1, extent + 1) for extent in shape[:count]] for _ in range(2))
    steps = [case.one_of(1, 1, 2, -1, -2, 3) for _ in range(count)]
    shares = {"Begin": 0.5, "End": 0.5, "ShrinkAxis": 0.2 if 0 not in shape else 0, "NewAxis": 0.1}
    masks = {f"{name}Mask": case.number(0, 2**count - 1) if case.often(share) else 0 for name, share in shares.items()}
    for bit in range(count):
        if masks["ShrinkAxisMask"] >> bit & 1:  # of an index beyond the axis LiteRT reads what it never wrote
            begin[bit], steps[bit] = case.number(-shape[bit], shape[bit] - 1) if shape[bit] else 0, 1
    masks["BeginMask"] &= ~masks["ShrinkAxisMask"]
    masks["EllipsisMask"] = 1 << case.number(0, count - 1) if case.often(0.1) else 0
    case.x("x", shape), case.y("y", (), like="x")
    return case.spec("StridedSliceOptions", masks,
                     ["x", case.ints("b", begin), case.ints("e", end), case.ints("s", steps)], ["y"])


@rule("GATHER", of=MOVED)
def gather(case: Case) -> Spec:
    shape, batch = case.shape(1, 4), 0
    axis = case.number(0, len(shape) - 1)
    indices = case.shape(0, 2)
    if axis and case.often(0.3):
        batch = case.number(1, axis)
        indices = (*shape[:batch], *indices)
    if axis and shape[axis] and case.often(0.2) and not batch:
        axis -= len(shape)
    case.x("x0", shape), case.x("x1", indices, case.one_of("int32", "int64")), case.y("y", (), like="x0")
    case.limits["x1"] = (0, max(shape[axis] - 1, 0))
    return case.spec("GatherOptions", {"Axis": axis, "BatchDims": batch}, ["x0", "x1"], ["y"], constants=0.5)


def points(case: Case, shape, rows: tuple[int, ...]) -> np.ndarray:
    """Returns random indices into the first axes of a tensor."""
    return np.stack([case.random.integers(0, max(extent, 1), rows) for extent in shape], -1)


@rule("GATHER_ND", of=MOVED)
def gather_nd(case: Case) -> Spec:
    shape = case.shape(1, 4)
    depth, rows = case.number(1, len(shape)), case.shape(0, 2)
    case.x("x0", shape), case.x("x1", (*rows, depth), case.one_of("int32", "int64")), case.y("y", (), like="x0")
    case.values["x1"] = points(case, shape[:depth], rows).astype(case.tensors["x1"].dtype)
    return case.spec("", {}, ["x0", "x1"], ["y"], constants=0.5)


@rule("SCATTER_ND", of=(*REALS, *INTEGERS, "bool", "int8", "uint8"))
def scatter_nd(case: Case) -> Spec:
    shape = case.shape(1, 4)
    depth, rows = case.number(1, len(shape)), case.number(1, 4)
    case.values["x0"] = points(case, shape[:depth], (rows,)).astype(np.int32)
    case.x("x0", (rows, depth), "int32"), case.x("x1", (rows, *shape[depth:])), case.y("y", ())
    return case.spec("", {}, ["x0", "x1", case.ints("n", shape)], ["y"], constants=0.3)


@rule("REVERSE_V2", of=MOVED)
def reverse(case: Case) -> Spec:
    shape = case.shape(1, 4)
    axes = case.axes(len(shape)) or (case.axis(len(shape)),)
    case.x("x", shape), case.y("y", shape, like="x")
    return case.spec("", {}, ["x", case.ints("n", axes)], ["y"])


@rule("REVERSE_SEQUENCE", of=MOVED)
def reverse_sequence(case: Case) -> Spec:
    shape = case.shape(2, 4)
    batch, along = case.random.permutation(len(shape))[:2].tolist()
    case.x("x0", shape), case.x("x1", shape[batch:batch + 1], case.one_of("int32", "int64"))
    case.y("y", shape, like="x0")
    case.limits["x1"] = (min(1, shape[along]), shape[along])
    return case.spec("ReverseSequenceOptions", {"SeqDim": along, "BatchDim": batch}, ["x0", "x1"], ["y"])


@rule("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", of=MOVED)
def blocks(case: Case) -> Spec:
    rank = case.one_of(3, 4, 4)
    sizes = [case.number(1, 3) for _ in range(rank - 2)]
    pads = [[case.number(0, 2), 0] for _ in sizes]
    if case.kind == "SPACE_TO_BATCH_ND":
        extents = [case.number(1, 4) * size for size in sizes]
        pads = [[first, -(extent + first) % size]
                for (first, _), extent, size in zip(pads, extents, sizes, strict=True)]
        shape = [case.number(1, 2), *extents, case.number(1, 4)]
    else:
        extents = [case.number(2, 4) for _ in sizes]
        pads = [[case.number(0, min(1, extent * size - 1)), 0] for extent, size in zip(extents, sizes, strict=True)]
        shape = [int(np.prod(sizes)) * case.number(1, 2), *extents, case.number(1, 4)]
    case.x("x", shape), case.y("y", (), like="x")
    return case.spec("", {}, ["x", case.ints("n", sizes), case.ints("m", pads)], ["y"])


@rule("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", of=MOVED)
def depth(case: Case) -> Spec:
    size, (n, h, w, c) = case.number(1, 3), (case.number(1, 2), case.number(1, 4), case.number(1, 4), case.number(1, 4))
    shape = (n, h * size, w * size, c) if case.kind == "SPACE_TO_DEPTH" else (n, h, w, c * size * size)
    case.x("x", shape), case.y("y", (), like="x")
    options = "".join(part.title() for part in case.kind.split("_")) + "Options"
    return case.spec(options, {"BlockSize": size}, ["x"], ["y"])


@rule("SHAPE", "RANK", of=MOVED)
def shape_of(case: Case) -> Spec:
    dtype = case.one_of("int32", "int64") if case.kind == "SHAPE" else "int32"
    case.x("x", case.shape(0, 5)), case.y("y", (), dtype)
    fields = {"OutType": {"int32": 2, "int64": 4}[dtype]} if case.kind == "SHAPE" else {}
    return case.spec(f"{case.kind.title()}Options", fields, ["x"], ["y"])


@rule("FILL", of=MOVED)
def fill(case: Case) -> Spec:
    case.x("x0", ()), case.y("y", (), like="x0")
    return case.spec("", {}, [case.ints("n", case.shape(0, 4), case.one_of("int32", "int64")), "x0"], ["y"])


@rule("RANGE", of=(*REALS, *INTEGERS))
def range_(case: Case) -> Spec:
    step = case.one_of(1, 2, 3, -1, -2)
    first = case.number(-5, 5)
    last = first + step * case.number(0, 6) + (case.number(0, 1) if abs(step) > 1 else 0)
    for name, value in (("a", first), ("b", last), ("c", step)):
        case.ints(name, value, case.dtype)
    case.y("y", ())
    return case.spec("", {}, ["a", "b", "c"], ["y"])


@rule("ONE_HOT", of=(*REALS, *INTEGERS, "bool", "int8", "uint8"))
def one_hot(case: Case) -> Spec:
    shape, count = case.shape(0, 3), case.number(1, 5)
    case.x("x0", shape, case.one_of("int32", "int64")), case.x("x1", ()), case.x("x2", ()), case.y("y", ())
    case.limits["x0"] = (-1, count)
    return case.spec("OneHotOptions", {"Axis": case.number(-1, len(shape))},
                     ["x0", case.ints("n", count), "x1", "x2"], ["y"], constants=0.6)


@rule("EMBEDDING_LOOKUP", of=(*REALS, *PLAIN, *QUANTIZED))
def embedding(case: Case) -> Spec:
    shape = (case.number(1, 5), *case.shape(1, 3, (1, 2, 3, 5)))
    case.x("x0", (case.number(1, 6),), "int32"), case.x("x1", shape), case.y("y", (), like="x1")
    case.limits["x0"] = (0, max(shape[0] - 1, 0))
    return case.spec("", {}, ["x0", "x1"], ["y"], constants=0.8)


@rule("DYNAMIC_UPDATE_SLICE", of=(*REALS, *INTEGERS, "bool", "int8", *BYTES))
def dynamic_update_slice(case: Case) -> Spec:
    shape = case.shape(1, 4)
    case.x("x0", shape), case.x("x1", [case.number(min(1, extent), extent) for extent in shape], like="x0")
    case.x("x2", (len(shape),), case.one_of("int32", "int64")), case.y("y", shape, like="x0")
    case.limits["x2"] = (-2, 9)
    return case.spec("", {}, ["x0", "x1", "x2"], ["y"])


@rule("MATRIX_DIAG", of=(*REALS, *INTEGERS, *PLAIN))
def matrix_diag(case: Case) -> Spec:
    shape = case.shape(1, 3)
    case.x("x", shape), case.y("y", (*shape, shape[-1]))
    return case.spec("MatrixDiagOptions", {}, ["x"], ["y"])


@rule("BROADCAST_ARGS", of=INTEGERS)
def broadcast_args(case: Case) -> Spec:
    whole = case.shape(1, 4)
    a, b = ([1 if case.often(0.3) else extent for extent in whole][case.number(0, len(whole) - 1):] for _ in range(2))
    case.ints("a", a, case.dtype), case.ints("b", b, case.dtype), case.y("y", ())
    return case.spec("", {}, ["a", "b"], ["y"])


# --- windows ----------------------------------------------------------------------------------------------------------


def window(case: Case, shape, kernel) -> dict:
    """Returns random options of a window. Padding is VALID only if the image is at least as large as the window."""
    strides = [case.number(1, 3) for _ in kernel]
    dilations = [case.one_of(1, 1, 2, 3) for _ in kernel]
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    padding = case.number(0, 1) if all(extent >= size for extent, size in zip(shape, reach, strict=True)) else 0
    return {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1],
            "DilationHFactor": dilations[0], "DilationWFactor": dilations[1],
            "FusedActivationFunction": case.number(0, 3) if case.often(0.5) else 0}


def weights(case: Case, shape, axis: int, bias: bool = True) -> tuple[list[str], float]:
    """Adds weights and a bias. Returns their names, and the magnitude of the sums of products."""
    if not case.quantised:
        case.tensors["w"] = case.random.standard_normal(shape).astype(np.float32)
        case.tensors["b"] = case.random.standard_normal(shape[axis]).astype(np.float32)
        return ["w", *(["b"] if bias else [])], 0.0
    scales = case.weights(shape, axis, case.tensors["x"])
    return ["w", *(["b"] if bias else [])], case.tensors["x"].scale * max(scales) * case.scale(5, 2000)


@rule("CONV_2D", "DEPTHWISE_CONV_2D", of=(*REALS, *QUANTIZED))
def conv(case: Case) -> Spec:
    depthwise, groups = case.kind == "DEPTHWISE_CONV_2D", case.one_of(1, 1, 1, 2) if not case.quantised else 1
    channels, kernel = case.number(1, 6) * groups, (case.number(1, 4), case.number(1, 4))
    outputs = channels * case.number(1, 3) if depthwise else groups * case.number(1, 6)
    image = case.number(1, 9), case.number(1, 9)
    case.x("x", (case.number(1, 3), *image, channels))
    shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, channels // groups)
    names, size = weights(case, shape, 3 if depthwise else 0, case.often(0.9))
    case.y("y", (), scale=size)
    more = {"DepthMultiplier": outputs // channels} if depthwise else {}
    return case.spec("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions",
                     {**window(case, image, kernel), **more}, ["x", *names], ["y"])


@rule("CONV_3D", of=REALS)
def conv3d(case: Case) -> Spec:
    channels, outputs, kernel = case.number(1, 3), case.number(1, 3), [case.number(1, 3) for _ in range(3)]
    image = [case.number(3, 6) for _ in range(3)]
    case.x("x", (case.number(1, 2), *image, channels))
    case.tensors["w"] = case.random.standard_normal((*kernel, channels, outputs)).astype(np.float32)
    case.tensors["b"] = case.random.standard_normal(outputs).astype(np.float32)
    case.y("y", ())
    fields = {f"Stride{axis}": case.number(1, 2) for axis in "DHW"}
    return case.spec("Conv3DOptions", {**fields, "Padding": case.number(0, 1),
                                       "FusedActivationFunction": case.number(0, 3)}, ["x", "w", "b"], ["y"])


@rule("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D", of=(*REALS, *QUANTIZED))
def pool(case: Case) -> Spec:
    image, kernel = (case.number(1, 9), case.number(1, 9)), (case.number(1, 4), case.number(1, 4))
    case.x("x", (case.number(1, 2), *image, case.number(1, 6))), case.y("y", (), like="x")
    fields = {name: value for name, value in window(case, image, kernel).items() if "Dilation" not in name}
    if fields["Padding"] and any(extent < size for extent, size in zip(image, kernel, strict=True)):
        fields["Padding"] = 0
    return case.spec("Pool2DOptions", {**fields, "FilterHeight": kernel[0], "FilterWidth": kernel[1]}, ["x"], ["y"])


@rule("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", of=(*REALS, *QUANTIZED))
def resize(case: Case) -> Spec:
    shape = (case.number(1, 2), case.number(1, 9), case.number(1, 9), case.number(1, 4))
    corners, half = case.one_of((0, 0), (1, 0), (0, 1))
    case.x("x", shape), case.y("y", (), like="x")
    name = "ResizeBilinear" if case.kind == "RESIZE_BILINEAR" else "ResizeNearestNeighbor"
    return case.spec(f"{name}Options", {"AlignCorners": corners, "HalfPixelCenters": half},
                     ["x", case.ints("n", [case.number(1, 14), case.number(1, 14)])], ["y"])


@rule("TRANSPOSE_CONV", of=(*REALS, *QUANTIZED))
def transpose_conv(case: Case) -> Spec:
    channels, outputs, kernel = case.number(1, 5), case.number(1, 5), (case.number(1, 4), case.number(1, 4))
    image, strides, padding = (case.number(1, 5), case.number(1, 5)), (case.number(1, 3), case.number(1, 3)), 0
    case.x("x", (case.number(1, 2), *image, channels))
    names, size = weights(case, (outputs, *kernel, channels), 0)
    padding = case.number(0, 1)
    sizes = [extent * stride if padding == 0 else (extent - 1) * stride + reach
             for extent, stride, reach in zip(image, strides, kernel, strict=True)]
    case.y("y", (), scale=size)
    case.ints("n", (case.tensors["x"].shape[0], *sizes, outputs))
    bias = names[1:] if case.often(0.7) else []
    fields = {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1],
              "FusedActivationFunction": case.number(0, 3)}
    return case.spec("TransposeConvOptions", fields, ["n", "w", "x", *bias], ["y"])


# --- products ---------------------------------------------------------------------------------------------------------


@rule("FULLY_CONNECTED", of=(*REALS, *QUANTIZED))
def fully_connected(case: Case) -> Spec:
    inputs, outputs = case.number(1, 40), case.number(1, 20)
    shape = (*case.shape(1, 3, (1, 2, 3, 5)), inputs)
    case.x("x", shape)
    names, size = weights(case, (outputs, inputs), 0)
    case.y("y", (), scale=size)
    fields = {"FusedActivationFunction": case.number(0, 3) if case.often(0.5) else 0, "KeepNumDims": case.often(0.5)}
    return case.spec("FullyConnectedOptions", fields, ["x", names[0], case.one_of("b", "b", "")], ["y"])


@rule("BATCH_MATMUL", of=(*REALS, "qint8", "qint16"))
def batch_matmul(case: Case) -> Spec:
    """A batch matmul whose second operand is a constant or an input, with broadcast batch axes."""
    left, right = case.often(0.5), case.often(0.5)
    rows, depth_, columns = case.number(1, 9), case.number(1, 40), case.number(1, 17)
    stack = list(case.shape(0, 3, (1, 2, 3)))
    a, b = ([1 if case.often(0.3) else extent for extent in stack] for _ in range(2))
    a, b = (each[case.number(0, len(stack)) if case.often(0.3) else 0:] for each in (a, b))
    wide = case.dtype == "int16"
    case.x("x0", (*a, *((depth_, rows) if left else (rows, depth_))), scale=case.scale(1e-3, 0.1))
    case.x("x1", (*b, *((columns, depth_) if right else (depth_, columns))), scale=case.scale(1e-3, 0.1))
    size = case.tensors["x0"].scale * case.tensors["x1"].scale * case.scale(20, 2000) * (200 if wide else 1) \
        if case.quantised else 0.0
    case.y("y", (), scale=size)
    return case.spec("BatchMatMulOptions", {"AdjX": left, "AdjY": right}, ["x0", "x1"], ["y"], constants=0.5)


# --- files of other modules -------------------------------------------------------------------------------------------


def drawn(case: Case) -> Spec:
    """A file of `tflite_draws`, of 8 or 16 bits."""
    return FILES[case.kind](case)  # type: ignore[return-value]


def hybrid(case: Case) -> Spec:
    """A file of `tflite_hybrid_draws`: float32 operands with weights of 8 bits."""
    return FLOATS[case.kind](case)  # type: ignore[return-value]


#: Name of a set of rules -> operator -> rule. The rules above have the name "".
OTHERS: dict[str, dict[str, Rule]] = {
    "drawn": {kind: Rule(drawn, ("int8", "uint8", *(("int16",) if kind in INT16_IMPORTERS and kind != "EQUAL" else ())))
              for kind in FILES if kind != "CUSTOM TFLite_Detection_PostProcess"},
    "hybrid": {kind: Rule(hybrid, REALS) for kind in FLOATS},
}

#: Operator -> (name of the set, rule) of all its rules.
ALL = {**{kind: (("", each),) for kind, each in RULES.items()}}
for word, rules in OTHERS.items():
    for kind, each in rules.items():
        ALL[kind] = (*ALL.get(kind, ()), (word, each))

#: Every (operator, name of the set of rules, element type).
ROUND = [(kind, word, dtype) for kind, rules in ALL.items() for word, each in rules for dtype in each.dtypes]


def spec_of(number: int) -> Spec:
    """Returns random file `number`. Numbers go through `ROUND` again and again, with another seed each time."""
    kind, word, dtype = ROUND[number % len(ROUND)]
    case = Case(kind, dtype, number // len(ROUND))
    each = next(each for own, each in ALL[kind] if own == word)
    spec = each.draw(case)
    return replace(spec, label=f"{number}: {kind} {word} {dtype}")
