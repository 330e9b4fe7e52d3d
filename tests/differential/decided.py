# SPDX-License-Identifier: Apache-2.0
"""Where the references differ from each other: the sentence of the specification that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from .cases import Case
from .operands import operands
from .specified import sliced


def always(case: Case) -> bool:
    return True


@dataclass(frozen=True)
class Decided:
    """A row of the table. sentence: of the operator's text in ONNX, and after the colon who does otherwise.

    within: error that the text leaves open, relative to the largest magnitude of an output or to 1; of integers a
    difference. unspecified: the text leaves results open, so that none is compared.
    """

    operators: tuple[str, ...]
    sentence: str
    when: Callable[[Case], bool] = always
    within: float = 0
    unspecified: bool = False


def _has(*dtypes: str) -> Callable[[Case], bool]:
    return lambda case: not set(dtypes).isdisjoint(case.dtypes.values())


def _wide(case: Case) -> bool:
    return "float64" in case.dtypes.values() or case.attributes.get("output_datatype") == TensorProto.DOUBLE


def _sliced_away(case: Case) -> bool:
    return case.opset >= 10 and not sliced(case).size


def _of_integers(case: Case) -> bool:
    return case.model.graph.output[0].type.tensor_type.elem_type not in (
        TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def _same(case: Case) -> bool:
    return "SAME" in case.attributes.get("auto_pad", "")


def _strings(case: Case) -> bool:
    return any(array is not None and array.dtype == object for array in operands(case))


def _not_finite(case: Case) -> bool:
    return any(array is not None and array.dtype.kind == "f" and not np.isfinite(array).all()
               for array in operands(case))


def _huge(case: Case) -> bool:
    """With numbers whose squares or sums no float32 holds."""
    numbers = (array for array in operands(case) if array is not None and array.dtype.kind in "fi")
    return any((np.abs(np.nan_to_num(array.astype(np.float64))) > 1e18).any() for array in numbers)


def _at_ends(case: Case) -> bool:
    """With integers so large that two of them have a sum beyond their type."""
    numbers = (array for array in operands(case) if array is not None and array.dtype.kind in "iu")
    return any((np.abs(array.astype(np.float64)) > np.iinfo(array.dtype).max / 2).any() for array in numbers)


def _beyond_integers(case: Case) -> bool:
    """With a real number that the type of the result, an integer, does not hold."""
    kind = helper.tensor_dtype_to_np_dtype(case.model.graph.output[0].type.tensor_type.elem_type)
    x = operands(case)[0]
    if kind.kind not in "iu" or x is None or x.dtype.kind != "f":
        return False
    whole, limits = np.trunc(x.astype(np.float64)), np.iinfo(kind)
    return not ((whole >= limits.min) & (whole <= limits.max)).all()


_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DECIDED: tuple[Decided, ...] = (
    Decided(("Cast", "CastLike"), "float to fixed point: undefined if out of range", _beyond_integers,
            unspecified=True),
    Decided(("OneHot",), "values: in the format [off_value, on_value]: ONNX's evaluator multiplies by the difference, "
            "which is no number for infinities", _not_finite),
    Decided(("GlobalMaxPool",), "The first two dimensions of output shape are the same as the input (N x C), while the "
            "other dimensions are all 1: ONNX's evaluator adds one to three", lambda case: operands(case)[0].ndim > 4),
    Decided(("QLinearConv",), "y has the rank of x: of one dimension and groups, ONNX's evaluator joins the groups' "
            "results by broadcasting", lambda case: case.attributes.get("group", 1) > 1),
    Decided(("MaxPool", "GlobalMaxPool", "MaxRoiPool", "ArgMax", "ArgMin", "Hardmax"), "The largest number: the texts "
            "do not say of what is no number; it is the largest here, as in PyTorch, and ONNX Runtime passes over it",
            _not_finite, unspecified=True),
    Decided(("QuantizeLinear", "DynamicQuantizeLinear"), "y = saturate((x / y_scale) + y_zero_point): the text does "
            "not say of what is no number", _not_finite, unspecified=True),
    Decided(("QuantizeLinear",), "y = saturate((x / y_scale) + y_zero_point): ONNX's evaluator wraps around where an "
            "int32 ends", _has("int32")),
    Decided(("RoiAlign", "MaxRoiPool", "Resize", "Upsample", "GridSample", "DeformConv", "DFT", "STFT", "Conv",
             "ConvTranspose"), "Sums of products: the texts do not say whether 0 times infinity is among them",
            _not_finite, unspecified=True),
    Decided(("GlobalAveragePool", "AveragePool", "LpPool", "GlobalLpPool", "LpNormalization", "LayerNormalization",
             "RMSNormalization", "GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization", "LRN",
             "Conv", "ConvTranspose", "DeformConv", "Gemm", "MatMul", "Einsum", "Attention", "RNN", "GRU", "LSTM",
             "DFT", "STFT", "GridSample", "Resize", "Upsample", "RoiAlign"), "Sums: the texts do not say in which "
            "precision nor in which order they are; where a float32 or an int64 ends, references end or wrap around, "
            "each at another place", _huge, unspecified=True),
    Decided(("Shrink",), "If x < -lambd, y = x + bias: ONNX Runtime computes integers in float32", _has(*_INTEGERS)),
    Decided(("Clip",), "They default to numeric_limits::lowest() and numeric_limits::max(): ONNX's evaluator has no "
            "bound there", _not_finite),
    Decided(("Erf", "Gelu"), "Computes the error function of the given input tensor element-wise: ONNX's evaluator "
            "has a polynomial with an error of 3e-8", _has("float64", *_INTEGERS)),
    Decided(("HardSwish",), "y = x * max(0, min(1, alpha * x + beta)), where alpha = 1/6: the body of the function "
            "has a float32 there", _has("float64")),
    Decided(("Shrink",), "If x < -lambd, y = x + bias: ONNX Runtime computes float64 in float32", _has("float64")),
    Decided(("BatchNormalization",), "Y = (X - input_mean) / sqrt(input_var + epsilon) * scale + B: ONNX's evaluator "
            "computes the root in the statistics' type", lambda case: len(set(case.dtypes.values())) > 1, within=1e-6),
    Decided(("MelWeightMatrix",), "frequency_bins = ((dft_length + 1) * frequency_bins) // sample_rate: ONNX's "
            "evaluator has frequencies in the edges' type", _has("float16")),
    Decided(("Gemm", "Shrink", "GridSample", "Resize", "Upsample"), "Factors of integers are floats: the texts do not "
            "say in which precision products are, nor what they are where an integer ends", _at_ends, unspecified=True),
    Decided(("GroupNormalization", "LayerNormalization", "RMSNormalization"), "stash_type: the floating-point "
            "precision used in stage one of the computation: float64 is kept here", _has("float64")),
    Decided(("GroupNormalization",), "y = scale * (x - mean) / sqrt(variance + epsilon) + bias: the body of the "
            "function has the variance as the difference of two means"),
    Decided(("LRN",), "0 <= i <= min(C - 1, c + ceil((size - 1) / 2)): ONNX's evaluator goes over the batch there"),
    Decided(("RNN", "GRU", "LSTM"), "sequence_lens: optional tensor specifying lengths of the sequences in a batch: "
            "ONNX's evaluator does not read it, nor clip", _has("float16", "float64")),
    Decided(("GridSample",), "The output Y has the type of X: ONNX's evaluator multiplies integers by weights that it "
            "made integers, and a sum that is whole but for an error of rounding may lose one", _has(*_INTEGERS),
            within=1),
    Decided(("ReduceLogSumExp",), "Computes the log sum exponent of the input tensor's elements: ONNX Runtime makes "
            "integers of exponentials", _has(*_INTEGERS)),
    Decided(("ReduceProd",), "Computes the product of the input tensor's elements: the text does not say what integers "
            "do that it leads out of; they wrap around here, and ONNX Runtime has the least number",
            _has("int32", "int64", "uint32", "uint64")),
    Decided(("Hardmax",), "Input will be coerced into a 2-dimensional tensor: ONNX's evaluator does not",
            lambda case: case.opset < 13),
    Decided(("MeanVarianceNormalization",), "(X - EX) / sqrt(E(X - EX)^2), and the body adds 1e-9: ONNX Runtime "
            "divides by the deviation alone"),
    Decided(("MeanVarianceNormalization",), "(X - EX) / sqrt(E(X - EX)^2): of float32 numbers that are nearly equal, "
            "most of the difference is rounding", within=1e-3),
    Decided(("DynamicQuantizeLinear",), "y_scale = (maximum(0, max(x)) - minimum(0, min(x))) / (qmax - qmin), which is "
            "0 of zeros: ONNX Runtime gives 1, ONNX's evaluator 1 / 255",
            lambda case: not any(array.any() for array in operands(case)), within=1),
    Decided(("NonZero",), "For scalar input, NonZero produces output shape (0, N) instead of (1, N), which is "
            "different from Numpy's behavior: ONNX Runtime does as numpy", lambda case: operands(case)[0].ndim == 0),
    Decided(("ReduceMean",), "Reduction over an empty set of values yields undefined: ONNX Runtime gives 0"),
    Decided(("InstanceNormalization",), "y = scale * (x - mean) / sqrt(variance + epsilon) + B: ONNX Runtime takes "
            "mean and scale into one factor in float32"),
    Decided(("Resize", "Upsample"), "Linear and cubic interpolation: the text does not say how integers are rounded; "
            "to the nearest here", _has(*_INTEGERS), within=1),
    Decided(("Unique",), "sorted: whether to sort the unique elements in ascending order before returning as output: "
            "ONNX's evaluator always does", lambda case: case.attributes.get("sorted") == 0),
    Decided(("HannWindow", "HammingWindow", "BlackmanWindow"), "The text does not say how a real number becomes an "
            "integer, and some are whole but for an error of rounding", _of_integers, within=1),
    Decided(("Resize", "Upsample", "DeformConv", "RoiAlign", "GridSample", "HannWindow", "HammingWindow",
             "BlackmanWindow", "AffineGrid", "Attention"), "Neither text nor references agree on a precision of "
            "float64: places and weights are float32 here", _wide, within=2e-5),
    Decided(("AveragePool",), "d[i] is dilation value along axis i: ONNX's evaluator has other windows where they are "
            "dilated", lambda case: set(case.attributes.get("dilations", [1])) != {1}),
    Decided(("ScatterElements", "ScatterND"), "reduction: min, max: ONNX Runtime passes over what is no number",
            _not_finite),
    Decided(("LogSoftmax", "Softmax"), "Exp(input) / ReduceSum(Exp(input)): ONNX Runtime passes over what is no number",
            _not_finite),
    Decided(("MaxUnpool",), "If output_shape is specified, pads values are ignored, and test_maxunpool_export_with_"
            "output_shape has indices into the shape without it: ONNX Runtime has them into that",
            lambda case: len(case.model.graph.node[0].input) > 2),
    Decided(("Col2Im",), "dilations: along each spatial axis of the image: ONNX Runtime has them for two axes only",
            lambda case: operands(case)[1].size != 2),
    Decided(("Det",), "Calculates determinant of a square matrix: ONNX Runtime eliminates in float32"),
    Decided(("Attention",), "Query i attends key j iff j <= i + past_sequence_length: ONNX Runtime and ONNX's "
            "evaluator each have it otherwise", lambda case: bool(case.attributes.get("is_causal"))),
    Decided(("RoiAlign",), "mode: the pooling method: ONNX Runtime and ONNX's evaluator differ in which maximum",
            lambda case: case.attributes.get("mode") == "max"),
    Decided(("AffineGrid",), "-1 and 1 refer to the centers of the corner pixels: a line of one pixel begins at -1 in "
            "ONNX's evaluator, and at 1 in ONNX Runtime", lambda case: bool(case.attributes.get("align_corners"))),
    Decided(("Resize",), "x_original = length_resized > 1 ? (x_resized + 0.5) / scale - 0.5 : 0: ONNX's evaluator asks "
            "so of the length before it is whole", lambda case: (
                case.attributes.get("coordinate_transformation_mode") == "pytorch_half_pixel")),
    Decided(("Resize",), "If x_original is outside the range [0, length_original - 1], extrapolation_value is used: "
            "ONNX's evaluator has x_original in float32, ONNX Runtime copies where all scales are 1", lambda case: (
                case.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize")),
    Decided(("Resize", "Upsample"), "output_dimension = floor(input_dimension * scale): ONNX Runtime adds a small "
            "number first"),
    Decided(("Slice",), "If a negative value is passed for step, it represents slicing backward, and ends are clamped: "
            "ONNX Runtime gives other extents where the result is empty", _sliced_away),
    Decided(("Gather",), "Gather entries of the axis dimension of data: ONNX Runtime copies one string of an entry "
            "of several", _strings),
    Decided(("DFT", "STFT"), "Computes the discrete Fourier Transform of the input: ONNX Runtime has angles in float32 "
            "for some lengths", _wide, within=1e-5),
    Decided(("ConvTranspose",), "output_shape[i] = input_shape[i] * strides[i]: ONNX Runtime and ONNX's evaluator give "
            "less where the kernel is shorter than the stride", _same),
    Decided(("MaxPool", "AveragePool", "LpPool"), "SAME_UPPER or SAME_LOWER: output_spatial_shape[i] = "
            "ceil(input_spatial_shape[i] / strides_spatial_shape[i]): ONNX Runtime refuses pads below 0 or forgets "
            "dilations, ONNX's evaluator cuts off", _same),
    Decided(("ConvTranspose",), "output_padding: additional elements added to one side in the output, and then B: "
            "ONNX's evaluator leaves B out there", _has("float16", "float64")),
    Decided(("GlobalLpPool", "LpPool"), "Lp pooling consists of computing the Lp norm on all values of a subset of the "
            "input tensor: ONNX's evaluator takes the mean of windows over the pads", _has("float16", "float64")),
)


def decided(case: Case) -> list[Decided]:
    """The rows of a case."""
    return [row for row in DECIDED if case.kind in row.operators and row.when(case)]
