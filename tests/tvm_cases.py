# SPDX-License-Identifier: Apache-2.0
"""Networks for the tests of both TVM front ends (`tests/relax`, `tests/relay`): TVM imports them from ONNX, they are
partitioned, built and run, and the results are compared with ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node

#: The target of all networks: scalar C, which compiles fast.
TARGET = "megcc-c"


@dataclass(frozen=True)
class Graph:
    """An ONNX graph of float32 with one input, "data".

    weights: {name: shape} of random initializers. given: {name: array} of other initializers. regions: the expected
    number of regions. differs: why TVM's importers for Relax and Relay give different operators, "" if they do not.
    """

    name: str
    shape: tuple[int | str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    regions: int = 1
    slow: bool = True
    differs: str = ""

    def model(self) -> onnx.ModelProto:
        generator = np.random.RandomState(1)
        arrays = {name: (generator.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))).astype("float32")
                  for name, shape in self.weights.items()} | dict(self.given)
        made = model(self.nodes, {"data": self.shape}, self.outputs, arrays, opset=13, name=self.name)
        return onnx.shape_inference.infer_shapes(made)

    def data(self, **extents: int) -> np.ndarray:
        """Returns a random input. extents: the values of symbolic extents."""
        shape = [dim if isinstance(dim, int) else extents[dim] for dim in self.shape]
        return np.random.RandomState(sum(shape)).standard_normal(shape).astype("float32")

    def expected(self, data: np.ndarray) -> list[np.ndarray]:
        """Returns the outputs that ONNX Runtime computes."""
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(self.model().SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {"data": data})


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


POSITIVE = np.linspace(0.5, 1.5, 8, dtype="float32")
STATISTICS = {"scale": POSITIVE, "shift": POSITIVE - 1, "mean": (POSITIVE - 1) / 4, "var": POSITIVE}

GRAPHS = (
    Graph("conv_bn_relu_residual", (1, 3, 9, 8), (
        node("Conv", "data w", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c scale shift mean var", "n"),
        node("Relu", "n", "r"), node("Conv", "r v b", "d", pads=[1, 1, 1, 1]), node("Add", "d r", "s"),
        node("Relu", "s", "y"), node("GlobalAveragePool", "y", "z")), ("y", "z"),
        {"w": (8, 3, 3, 3), "v": (8, 8, 3, 3), "b": (8,)}, STATISTICS, slow=False,
        differs="Relax has a mean for the global pool"),
    Graph("depthwise_clip", (2, 8, 9, 8), (
        node("Conv", "data w b", "c", group=8, strides=[2, 2], pads=[0, 0, 1, 1]), node("Clip", "c low high", "k"),
        node("Conv", "k v", "y")), ("y",), {"w": (8, 1, 3, 3), "b": (8,), "v": (6, 8, 1, 1)},
        {"low": np.float32(0), "high": np.float32(6)}),
    Graph("gemm_softmax", (3, 4, 5), (
        node("Flatten", "data", "f"), node("Gemm", "f w b", "g", transB=1, alpha=0.5), node("Tanh", "g", "t"),
        node("MatMul", "t v", "m"), node("Softmax", "m", "y")), ("y",), {"w": (7, 20), "b": (7,), "v": (7, 5)}),
    Graph("split_concat_shuffle", (1, 8, 6, 4), (
        node("Split", "data sizes", "a b", axis=1), node("Sigmoid", "a", "s"), node("Mul", "a s", "silu"),
        node("Concat", "b silu", "c", axis=1), node("Reshape", "c five", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3, 4]), node("Reshape", "t four", "y")), ("y",), {},
        {"sizes": ints(3, 5), "five": ints(1, 2, 4, 6, 4), "four": ints(1, 8, 6, 4)}),
    Graph("pyramid", (1, 4, 8, 6), (
        node("MaxPool", "data", "p", kernel_shape=[2, 2], strides=[2, 2]), node("Conv", "p w b", "c"),
        node("LeakyRelu", "c", "l", alpha=0.2), node("Resize", "l  scales", "u", mode="nearest",
                                                     coordinate_transformation_mode="asymmetric",
                                                     nearest_mode="floor"),
        node("Add", "u data", "s"), node("ConvTranspose", "s v", "y", strides=[2, 2])), ("y",),
        {"w": (4, 4, 1, 1), "b": (4,), "v": (4, 3, 2, 2)}, {"scales": np.array([1, 1, 2, 2], "float32")}),
    Graph("attention", (2, 5, 8), (
        node("MatMul", "data q", "qs"), node("MatMul", "data k", "ks"), node("Transpose", "ks", "kt", perm=[0, 2, 1]),
        node("MatMul", "qs kt", "a"), node("Mul", "a root", "m"), node("Softmax", "m", "p", axis=2),
        node("MatMul", "p data", "o"), node("Add", "o data", "y")), ("y",), {"q": (8, 8), "k": (8, 8)},
        {"root": np.float32(0.35)}, differs="Relay has dense for a product with a weight"),
    Graph("statistics", (2, 3, 7), (
        node("ReduceMean", "data", "m", axes=[2], keepdims=1), node("Sub", "data m", "d"), node("Mul", "d d", "q"),
        node("ReduceMean", "q", "v", axes=[2], keepdims=1), node("Add", "v eps", "e"), node("Sqrt", "e", "r"),
        node("Div", "d r", "n"), node("ReduceMax", "n", "y", axes=[1], keepdims=0)), ("n", "y"), {},
        {"eps": np.float32(1e-5)}),
    Graph("pads_and_slices", (1, 3, 6, 7), (
        node("Pad", "data widths", "p"), node("Slice", "p starts ends axes steps", "s"),
        node("AveragePool", "s", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])), ("y",), {},
        {"widths": ints(0, 0, 1, 2, 0, 0, 2, 1), "starts": ints(1, 7), "ends": ints(8, 0), "axes": ints(2, 3),
         "steps": ints(1, -2)}),
)
OPEN = Graph("open_batch", ("n", 3, 8, 6), (
    node("Conv", "data w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), node("GlobalAveragePool", "r", "g"),
    node("Flatten", "g", "f"), node("Gemm", "f v d", "y", transB=1)), ("y",),
    {"w": (8, 3, 3, 3), "b": (8,), "v": (5, 8), "d": (5,)})

PARAMETERS = [pytest.param(graph, id=graph.name, marks=[pytest.mark.slow] * graph.slow) for graph in GRAPHS]


@dataclass(frozen=True)
class FrontEnd:
    """The functions of a front end, which have different names in both.

    imported: returns an ONNX model as a module of TVM.
    partitioned, report: `partition_for_megcc` and `report`.
    session: returns, for a partitioned module, a function from an input to the results.
    dispatched: applies `Dispatch` to a module; takes the shape of "data" with None for open axes, and the ranges.
    """

    imported: Callable
    partitioned: Callable
    report: Callable
    session: Callable
    dispatched: Callable


def check_graph(front_end: FrontEnd, graph: Graph, assert_same: Callable) -> None:
    """Checks that all operators are in the expected regions, and that the results are ONNX Runtime's."""
    partitioned = front_end.partitioned(front_end.imported(graph.model()), target=TARGET)
    report = front_end.report(partitioned)
    assert not report.theirs and len(report.regions) == graph.regions and report.share == 1.0, str(report)
    data = graph.data()
    assert_same(front_end.session(partitioned)(data), graph.expected(data))


def check_open(front_end: FrontEnd, assert_same: Callable) -> None:
    """Checks a network with a symbolic batch, with one region for all batches and with clones for ranges."""
    mod = front_end.imported(OPEN.model())
    ranged = front_end.dispatched(mod, (None, 3, 8, 6), {"data": {0: [(1, 2), (2, 5)]}})
    for module in (mod, ranged):
        partitioned = front_end.partitioned(module, target=TARGET)
        assert front_end.report(partitioned).share == 1.0
        session = front_end.session(partitioned)
        for n in (1, 4, 2):
            data = OPEN.data(n=n)
            assert_same(session(data), OPEN.expected(data))
    with pytest.raises(ValueError, match=r"main: input 'data' has an extent on axis 0.* that no bucket holds; it may "
                                         "be 1 to 4"):
        session(OPEN.data(n=5))


def assert_same(actual, expected, tolerance: float = 1e-4, noise: float = 0.0) -> None:
    """Within `tolerance` of each output's largest magnitude, or `noise` where that is more; integers exactly."""
    assert len(actual) == len(expected)
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        assert got.shape == want.shape and got.dtype == want.dtype, f"output {index}: {got.dtype}{got.shape}"
        if want.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
            largest = float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
            with np.errstate(invalid="ignore"):
                error = float(np.abs(np.where((got == want) | np.isnan(want), 0, got - want)).max(initial=0.0))
            allowed = max(tolerance * max(largest, 1e-3), noise)
            assert error <= allowed, f"output {index}: error {error:g} of {largest:g}"
        else:
            np.testing.assert_array_equal(got, want)
