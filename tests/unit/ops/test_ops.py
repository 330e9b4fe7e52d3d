# SPDX-License-Identifier: Apache-2.0
"""Each operator's declaration against itself, against ONNX's own node tests and against ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from tests.onnx_models import fed, model, node
from tvm_megcc.errors import ModelError, ShapeError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.ir.dims import Symbol, substitute
from tvm_megcc.ir.expr import evaluate
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.ir.narrow import is_float
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops import rules
from tvm_megcc.ops.base import OPERATORS, Case
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.strings import StringTable

KINDS = sorted(OPERATORS)


def operands(case: Case, seed: int) -> list[np.ndarray | None]:
    generator = np.random.default_rng(seed)
    arrays = []
    for position, spec in enumerate(case.inputs):
        if spec is None:
            arrays.append(None)
            continue
        shape, dtype = spec
        value = case.values.get(position)
        if value is None:
            value = generator.standard_normal(shape) if is_float(dtype) else generator.integers(0, 10, shape)
        with np.errstate(over="ignore", invalid="ignore"):
            arrays.append(np.asarray(value).astype(np.dtype(dtype)).reshape(shape))
    return arrays


def type_of(array: np.ndarray | None) -> TensorType | None:
    if array is None:
        return None
    return TensorType("bool" if array.dtype == np.bool_ else array.dtype.name, array.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_inferred_types_are_those_of_the_results(kind: str):
    declaration = OPERATORS[kind]
    for index, case in enumerate(declaration.cases):
        arrays = operands(case, index)
        inferred = declaration.infer(Attrs(case.attrs), *map(type_of, arrays))
        results = declaration.compute(Attrs(case.attrs), *arrays)
        assert [type_of(np.asarray(array)) for array in results] == list(inferred), index


@pytest.mark.parametrize("kind", KINDS)
def test_symbolic_shapes_infer_what_known_ones_do(kind: str):
    for index, case in enumerate(OPERATORS[kind].cases):
        check_symbolic_batch(kind, case, index)


def check_symbolic_batch(kind: str, case: Case, index: int) -> None:
    """A batch that is a symbol gives the same shape once it is known, or is refused."""
    declaration = OPERATORS[kind]
    types = [type_of(array) for array in operands(case, index)]
    batch = types[0].shape[0] if types and types[0].rank else 1
    if batch == 1 or any(t is not None and t.rank and t.shape[0] not in (1, batch) for t in types):
        return  # it has none
    known = declaration.infer(Attrs(case.attrs), *types)
    symbolic = [t if t is None or not t.rank or t.shape[0] == 1 or position in case.constant
                else t.with_shape((Symbol("batch"), *t.shape[1:])) for position, t in enumerate(types)]
    try:
        inferred = declaration.infer(Attrs(case.attrs), *symbolic)
    except ShapeError:
        return
    for have, want in zip(inferred, known, strict=True):
        assert tuple(substitute(dim, {"batch": batch}) for dim in have.shape) == want.shape, f"{kind}[{index}]"


@pytest.mark.parametrize("kind", KINDS)
def test_extents_of_0(kind: str):
    """Operands without elements have results of the inferred types, or are refused."""
    declaration = OPERATORS[kind]
    for index, case in enumerate(declaration.cases):
        attrs, given = Attrs(case.attrs), operands(case, index)
        for arrays in emptied(given, {*case.constant, *case.values}):
            types = [type_of(array) for array in arrays]
            try:
                inferred = declaration.infer(attrs, *types)
                rules.require_accepted(declaration, attrs, types, arrays)
            except ShapeError:
                continue
            try:
                with np.errstate(all="ignore"):
                    results = declaration.compute(attrs, *arrays)
            except IndexError:  # an element of nothing, which kernels refuse
                assert any(type_.size for type_ in inferred)
                continue
            assert [type_of(np.asarray(array)) for array in results] == list(inferred), (index, types)


def emptied(arrays: list[np.ndarray | None], fixed: set[int]) -> Iterator[list[np.ndarray | None]]:
    """The operands with an extent of 0: of each axis, in all that have the same extent there."""
    first = arrays[0] if arrays and 0 not in fixed else None
    for axis in range(0 if first is None else first.ndim):
        alike = {place for place, array in enumerate(arrays) if array is not None and place not in fixed
                 and array.ndim > axis and array.shape[axis] == first.shape[axis]}
        yield [array[(slice(None),) * axis + (slice(0),)] if place in alike else array
               for place, array in enumerate(arrays)]


@pytest.mark.parametrize("kind", KINDS)
def test_expressions_mean_what_compute_means(kind: str):
    declaration = OPERATORS[kind]
    for index, case in enumerate(declaration.cases):
        expression = declaration.expression(Attrs(case.attrs))
        arrays = operands(case, index)
        if expression is not None and all(a is not None and a.dtype == np.float32 for a in arrays):
            with np.errstate(all="ignore"):
                expected = evaluate(expression, arrays)
                np.testing.assert_allclose(declaration.compute(Attrs(case.attrs), *arrays)[0], expected, rtol=1e-6)


#: Node tests that ask for more than rounding of every intermediate to 16 bits gives.
ROUNDED_DIFFERENTLY = ("_fp16", "_fp16_expanded", "_bf16", "_bf16_expanded")


@pytest.mark.parametrize(("parts", "least"), [(6, 240), pytest.param(1, 1480, marks=pytest.mark.slow)])
def test_onnx_node_tests(parts: int, least: int):
    """ONNX's own tests of single nodes, through importer and interpreter: supported means right. least: that pass of
    every sixth, and of all of them."""
    from onnx.backend.test.case.node import collect_testcases
    passed, failures = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases[::parts]:
        inputs, outputs = case.data_sets[0]
        if not all(isinstance(array, (np.ndarray, np.generic)) for array in (*inputs, *outputs)):
            continue
        if "bernoulli" in case.name:  # draws what nobody else does
            continue
        try:
            actual = run_node_test(case.model, inputs)
        except ModelError:
            continue
        for value, expected in zip(case.model.graph.output, outputs, strict=True):
            try:
                if np.asarray(expected).dtype == object:  # strings
                    np.testing.assert_array_equal(actual[value.name], expected)
                    continue
                np.testing.assert_allclose(actual[value.name], expected, rtol=max(case.rtol, 1e-3), atol=1e-5)
                assert actual[value.name].dtype == expected.dtype
            except AssertionError as error:
                if not case.name.endswith(ROUNDED_DIFFERENTLY):
                    failures.append(f"{case.name}: {error}")
        passed += 1
    assert not failures, "\n".join(failures[:5])
    assert passed >= least, f"only {passed} node tests import"


def run_node_test(model: onnx.ModelProto, inputs) -> dict[str, np.ndarray]:
    """With all operands at run time; with all but the first as constants where an operand has to be one."""
    names = [value.name for value in model.graph.input]
    try:
        graph = import_onnx(model)
    except ModelError:
        constant = onnx.ModelProto()
        constant.CopyFrom(model)
        constant.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(array), name)
                                          for name, array in list(zip(names, inputs, strict=True))[1:])
        graph = import_onnx(constant)
    strings, others = StringTable(graph.strings), {}
    feeds = {name: strings.codes(array, others) if name in graph.string_ports else array
             for name, array in zip(names, inputs, strict=True) if name in graph.inputs}
    return {name: strings.strings(array, others) if name in graph.string_ports else array
            for name, array in reference.run(graph, feeds).items()}


def one_node(op_type: str, arrays: dict[str, np.ndarray], constants: dict[str, np.ndarray], opset: int,
             outputs: int = 1, **attributes) -> onnx.ModelProto:
    results = [f"y{i}" for i in range(outputs)]
    only = node(op_type, " ".join([*arrays, *constants]), " ".join(results), **attributes)
    return model([only], fed(arrays), results, constants, opset)


X = np.random.default_rng(0).standard_normal((2, 3, 8, 6)).astype(np.float32)

W = np.random.default_rng(1).standard_normal((3, 4, 3, 3)).astype(np.float32)

#: What changed between operator sets: op, opset, constants, attributes.
VERSIONS = [
    ("Clip", 7, {}, {"min": -0.5, "max": 0.5}),
    ("Clip", 12, {"lo": np.float32(-0.5), "hi": np.float32(0.5)}, {}),
    ("Softmax", 7, {}, {}), ("Softmax", 12, {}, {"axis": 2}), ("Softmax", 13, {}, {}),
    ("Softmax", 13, {}, {"axis": 1}),
    ("LogSoftmax", 11, {}, {"axis": 3}),
    ("Squeeze", 11, {}, {}), ("Unsqueeze", 11, {}, {"axes": [0, 5]}), ("Unsqueeze", 13, {"axes": np.array([-1])}, {}),
    ("Slice", 9, {}, {"starts": [1, -4], "ends": [3, 2**31], "axes": [1, 2]}),
    ("Slice", 13, {"s": np.array([7, 0]), "e": np.array([-100, 6]), "a": np.array([2, -1]),
                   "t": np.array([-2, 4])}, {}),
    ("Pad", 9, {}, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "value": 2.0}),
    ("Pad", 9, {}, {"pads": [0, 0, 1, 1] * 2, "mode": "edge"}),
    ("Pad", 13, {"pads": np.array([0, 0, -1, 1, 0, 0, 2, -2])}, {"mode": "reflect"}),
    ("Pad", 18, {"pads": np.array([1, 1]), "value": np.float32(3), "axes": np.array([2])}, {}),
    ("Upsample", 7, {}, {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "nearest"}),
    ("Upsample", 9, {"scales": np.array([1, 1, 2, 2], np.float32)}, {"mode": "linear"}),
    ("Resize", 10, {"scales": np.array([1, 1, 0.5, 1.5], np.float32)}, {"mode": "nearest"}),
    ("Resize", 11, {"roi": np.array([], np.float32), "scales": np.array([1, 1, 2, 2], np.float32)},
     {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("Resize", 13, {"roi": np.array([], np.float32), "scales": np.array([], np.float32),
                    "sizes": np.array([2, 3, 5, 9])},
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}),
    ("ReduceSum", 11, {}, {"axes": [1, -1], "keepdims": 0}), ("ReduceSum", 13, {"axes": np.array([2])}, {}),
    ("ReduceMean", 13, {}, {"axes": [2, 3]}), ("ReduceMean", 18, {"axes": np.array([0, 2])}, {"keepdims": 0}),
    ("ReduceMax", 11, {}, {}), ("ReduceL2", 18, {"axes": np.array([1])}, {"noop_with_empty_axes": 1}),
    ("Dropout", 7, {}, {"ratio": 0.3}), ("Dropout", 13, {"ratio": np.float32(0.3)}, {}),
    ("Split", 11, {}, {"axis": 3, "split": [1, 3, 2]}), ("Split", 13, {"split": np.array([4, 3, 1])}, {"axis": 2}),
    ("Split", 18, {}, {"axis": 2, "num_outputs": 3}), ("Split", 11, {}, {"axis": 3}),
    ("Flatten", 9, {}, {"axis": 2}), ("Flatten", 13, {}, {"axis": -1}), ("Transpose", 13, {}, {}),
    ("Reshape", 13, {"shape": np.array([0, -1, 6])}, {}), ("Expand", 13, {"shape": np.array([2, 2, 1, 1, 6])}, {}),
    ("Tile", 13, {"r": np.array([1, 2, 1, 3])}, {}), ("Gather", 13, {"i": np.array([[1, -1]])}, {"axis": 2}),
    ("Gather", 13, {"i": np.array(-2)}, {"axis": 1}), ("Pow", 13, {"e": np.float32(2)}, {}),
    ("Pow", 13, {"e": np.array(3, np.int64)}, {}), ("PRelu", 9, {"slope": np.ones((3, 1, 1), np.float32) * 0.1}, {}),
    ("BatchNormalization", 9, {k: np.arange(1, 4, dtype=np.float32) for k in "sbmv"}, {"epsilon": 0.01}),
    ("BatchNormalization", 15, {k: np.arange(1, 4, dtype=np.float32) for k in "sbmv"}, {}),
    ("InstanceNormalization", 9, {k: np.arange(3, dtype=np.float32) for k in "sb"}, {}),
    ("LayerNormalization", 17, {"s": np.arange(6, dtype=np.float32)}, {}),
    ("ArgMax", 13, {}, {"axis": 2}), ("ArgMin", 13, {}, {"axis": -1, "keepdims": 0, "select_last_index": 1}),
    ("DepthToSpace", 13, {}, {"blocksize": 1}), ("SpaceToDepth", 13, {}, {"blocksize": 2}),
    ("HardSigmoid", 7, {}, {"alpha": 0.3}), ("Selu", 7, {}, {}), ("ThresholdedRelu", 10, {}, {"alpha": 0.2}),
    ("Hardmax", 13, {}, {}), ("Shrink", 9, {}, {"lambd": 0.3, "bias": 0.1}), ("Gelu", 20, {}, {"approximate": "tanh"}),
    ("Sign", 13, {}, {}), ("Elu", 7, {}, {"alpha": 0.7}), ("Celu", 12, {}, {"alpha": 0.7}),
    ("LpNormalization", 7, {}, {}),
    ("ConvTranspose", 11, {"w": W}, {"strides": [2, 3], "output_shape": [17, 20]}),
    ("ConvTranspose", 11, {"w": W}, {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ("ConvTranspose", 11, {"w": W}, {"strides": [3, 2], "output_padding": [2, 1], "pads": [1, 0, 2, 1]}),
    ("MaxPool", 12, {}, {"kernel_shape": [3, 2], "strides": [2, 1], "storage_order": 1}),
    ("LpPool", 11, {}, {"kernel_shape": [2, 3], "p": 3}), ("GlobalLpPool", 2, {}, {"p": 3}),
    ("LRN", 13, {}, {"size": 3, "alpha": 0.5}),
    ("Resize", 13, {"roi": np.array([0, 0, 0.2, -0.1, 1, 1, 0.7, 1.3], np.float32),
                    "scales": np.array([], np.float32),
                    "sizes": np.array([2, 3, 5, 9])},
     {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 2.0}),
    ("Resize", 13, {"roi": np.array([], np.float32), "scales": np.array([1, 1, 1.7, 0.6], np.float32)},
     {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}),
    ("GridSample", 16, {"grid": W.reshape(2, 3, 9, 2)}, {"mode": "bicubic", "padding_mode": "reflection"}),
    ("GridSample", 16, {"grid": W.reshape(2, 9, 3, 2)}, {"padding_mode": "border", "align_corners": 1}),
    ("MaxRoiPool", 7, {"rois": np.array([[1, 0.6, 1, 4, 6], [0, 2, 2, 2, 3]], np.float32)}, {"pooled_shape": [2, 3]}),
]


@pytest.mark.parametrize("row", VERSIONS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_operator_sets(row):
    onnxruntime = pytest.importorskip("onnxruntime")
    op_type, opset, constants, attributes = row
    parts = len(attributes.get("split", ())) or len(constants.get("split", ())) or 3
    outputs = {"Split": parts, "MaxPool": 2}.get(op_type, 1)
    model = one_node(op_type, {"x": X}, constants, opset, outputs, **attributes)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    for value in model.graph.output:
        value.ClearField("type")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": X})
    actual = reference.run(import_onnx(model), {"x": X})
    for index, want in enumerate(expected):
        np.testing.assert_allclose(actual[f"y{index}"], want, rtol=1e-4, atol=1e-5)
        assert actual[f"y{index}"].dtype == want.dtype


@pytest.mark.parametrize("attributes", [{"mode": "linear"}, {"mode": "nearest"},
                                        {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}])
def test_a_computed_region_crops_as_a_constant_one(attributes):
    roi = np.array([0, 0, 0.2, -0.1, 1, 1, 0.7, 1.3], np.float32)
    fixed = {"scales": np.array([], np.float32), "sizes": np.array([2, 3, 5, 9])}
    attributes = {**attributes, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -3.0}
    computed = import_onnx(one_node("Resize", {"x": X, "roi": roi}, fixed, 13, **attributes))
    known = import_onnx(one_node("Resize", {"x": X}, {"roi": roi, **fixed}, 13, **attributes))
    np.testing.assert_allclose(reference.run(computed, {"x": X, "roi": roi})["y0"],
                               reference.run(known, {"x": X})["y0"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extent", [1, 5, 8])
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slices_are_those_of_python(extent: int, step: int):
    """But where a backward slice starts before the axis: ONNX moves the start onto it."""
    for start in (-rules.END_OF_AXIS, -9, -2, 0, 1, 4, 9, rules.END_OF_AXIS):
        for end in (-rules.END_OF_AXIS, -9, -2, 0, 1, 4, 9, rules.END_OF_AXIS):
            if step < 0 and start < -extent:
                continue
            first, count = rules.slice_range(extent, start, end, step)
            expected = list(range(extent))[slice(start, None if step < 0 and end <= -rules.END_OF_AXIS else end, step)]
            assert [first + step * i for i in range(count)] == expected


@pytest.mark.parametrize(("shapes", "result"), [
    (((2, 3), (3,)), (2, 3)), (((2, 1), (1, 4)), (2, 4)), (((), (5,)), (5,)),
    (((Symbol("n"), 3), (1, 3)), (Symbol("n"), 3)), (((Symbol("n"),), (7,)), (7,)),
])
def test_broadcast(shapes, result):
    assert rules.broadcast(*shapes) == result


def test_broadcast_of_contradictory_shapes():
    with pytest.raises(ShapeError, match="do not broadcast"):
        rules.broadcast((2, 3), (4, 3))


def test_conversions_saturate():
    values = np.array([np.nan, np.inf, -np.inf, 2.9, -2.9, 300.0, -300.0], np.float32)
    assert rules.saturate(values, "int8").tolist() == [0, 127, -128, 2, -2, 127, -128]
    assert rules.saturate(values, "uint8").tolist() == [0, 255, 0, 2, 0, 255, 0]
    assert rules.saturate(np.array([1e30, -1e30]), "int64").tolist() == [2**63 - 1, -2**63]


def test_cubic_samples_beside_the_border_are_as_onnx_runtime_has_them():
    """Where the reference evaluator differs: docs/operators.md."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 3, 5, 4)).astype(np.float32)
    grid = (generator.random((2, 6, 7, 2)) * 5 - 2.5).astype(np.float32)
    for align in (0, 1):
        made = model([node("GridSample", "x g", "y", mode="cubic", padding_mode="border", align_corners=align)],
                     fed({"x": x, "g": grid}), ["y"], opset=20)
        (expected,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x, "g": grid})
        (found,) = reference.run(import_onnx(made), {"x": x, "g": grid}).values()
        np.testing.assert_allclose(found, expected, atol=1e-5)
