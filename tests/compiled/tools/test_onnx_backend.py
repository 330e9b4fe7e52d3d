# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests through `tvm_megcc.onnx_backend`: compiled C, in the virtual machine, or refused by name.

While they run, everything that could answer in the compiler's place raises: the numpy interpreter of graphs, the
reference implementation of ONNX, ONNX Runtime.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import warnings
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import onnx
import pytest

pytestmark = pytest.mark.skipif(not shutil.which("cc") and not shutil.which("gcc"), reason="no C compiler")

#: Tests that pass of those in the two slow tests. They only rise.
LEAST = {"constants": 1080, "operands": 231}
PROCESSES = 2

#: What models hold as constants: operands of these operators from these positions on.
PARAMETERS = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Split", "TopK", "CumSum", "Slice", "Pad",
                     "Resize", "Upsample", "Clip", "Trilu", "Dropout", "CumProd", "OneHot", "DFT", "STFT", "Col2Im",
                     "CenterCropPad", "AffineGrid"), 1),
    **dict.fromkeys((f"Reduce{kind}" for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum",
                                                  "LogSumExp", "SumSquare")), 1),
    **dict.fromkeys(("ConstantOfShape", "Range", "MelWeightMatrix", "BlackmanWindow", "HannWindow", "HammingWindow"),
                    0),
    "QuantizeLinear": 1, "DequantizeLinear": 1, "MaxUnpool": 2,
}


@cache
def node_tests() -> dict:
    """Name -> test case of ONNX, float64 and the like included; what is no tensor is left out."""
    from onnx.backend.test.case.node import collect_testcases
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    return {case.name: case for case in cases if case.data_sets and all(
        isinstance(array, (np.ndarray, np.generic)) for array in (*case.data_sets[0][0], *case.data_sets[0][1]))}


def forbid_others() -> None:
    """From here on nothing in this process but the compiled C can compute a model."""
    from tvm_megcc.runtime import reference

    def refuse(*args, **kwargs):
        raise AssertionError("an interpreter was asked in place of the compiled code")

    reference.run = refuse
    import onnx.reference
    onnx.reference.ReferenceEvaluator.__init__ = refuse
    onnx.reference.ReferenceEvaluator.run = refuse
    sys.modules["onnxruntime"] = None  # importing it raises ImportError


def frozen(model: onnx.ModelProto, inputs) -> tuple[onnx.ModelProto, list]:
    """The model with operands that are parameters as initializers, and the inputs that are left."""
    reads: dict[str, list[bool]] = {}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            parameter = position >= PARAMETERS.get(node.op_type, len(node.input))
            reads.setdefault(name, []).append(parameter)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    left = []
    for value, array in zip(model.graph.input, inputs, strict=True):
        if all(reads.get(value.name, [False])):
            result.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), value.name))
        else:
            left.append(array)
    return result, left


def verdict(name: str, freeze: bool, target: str | None = None) -> tuple[str, str]:
    """("pass" | "refused" | "wrong" | "error", why)

    target: by default plain C, which compilers are quick at, for three tests of four, and this CPU for the fourth.
    """
    from tvm_megcc import onnx_backend
    from tvm_megcc.target import parse_targets

    target = target or ("native" if zlib.crc32(name.encode()) % 4 == 0 else "c")

    case = node_tests()[name]
    model, (inputs, expected) = case.model, case.data_sets[0]
    if freeze:
        model, inputs = frozen(model, inputs)
    try:
        outputs = onnx_backend.prepare(model, target=parse_targets(target)[0]).run(list(inputs))
    except onnx_backend.UnsupportedModel as error:
        return "refused", str(error)
    except Exception as error:
        return "error", f"{name}: {type(error).__name__}: {error}"
    try:
        assert len(outputs) == len(expected)
        for actual, wanted in zip(outputs, expected, strict=True):
            assert (actual.dtype, actual.shape) == (np.asarray(wanted).dtype, np.asarray(wanted).shape)
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(actual, wanted, rtol=case.rtol, atol=case.atol)
            else:
                np.testing.assert_array_equal(actual, wanted)
    except AssertionError as error:
        return "wrong", f"{name}: {error}"
    return "pass", ""


def verdicts(names: list[str], freeze: bool, processes: int, target: str | None = None) -> dict[str, tuple[str, str]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, forbid_others) as pool:
        results = pool.map(verdict, names, [freeze] * len(names), [target] * len(names), chunksize=8)
        return dict(zip(names, results, strict=True))


def check(results: dict[str, tuple[str, str]]) -> Counter:
    """Refusals name what they refuse; nothing else goes wrong."""
    wrong = [why for kind, why in results.values() if kind in ("wrong", "error")]
    assert not wrong, f"{len(wrong)} of {len(results)}:\n" + "\n".join(wrong[:10])
    unclear = [why for kind, why in results.values() if kind == "refused" and "contradicts its operands" in why]
    assert not unclear, "\n".join(unclear[:10])
    return Counter(kind for kind, _ in results.values())


#: One of each family.
SAMPLE = ("test_add_bcast", "test_sin", "test_pow_types_int32_int32", "test_where_example", "test_mod_mixed_sign_int8",
          "test_gather_0", "test_scatternd_add", "test_top_k_same_values", "test_reshape_reordered_all_dims",
          "test_argmax_keepdims_random", "test_reduce_sum_empty_set", "test_tril_neg", "test_softmax_axis_1",
          "test_conv_with_strides_padding", "test_quantizelinear", "test_celu_expanded", "test_max_float16",
          "test_split_variable_parts_2d_opset18", "test_attention_4d_causal_fp16",
          "test_reduce_l2_keep_dims_random", "test_nonzero_example", "test_unique_sorted_without_axis",
          "test_image_decoder_decode_png_rgb")


@pytest.mark.slow
def test_a_sample():
    """Every one passes but the last, which is refused by name."""
    results = verdicts(list(SAMPLE), False, 1, "c")
    assert {name for name, (kind, _) in results.items() if kind == "refused"} == {SAMPLE[-1]}
    assert check(results)["pass"] == len(SAMPLE) - 1
    assert "ImageDecoder" in results[SAMPLE[-1]][1]


@pytest.mark.slow
@pytest.mark.parametrize("nth", [48, pytest.param(1, marks=pytest.mark.long)])
def test_with_parameters_as_constants(nth: int):
    """As real models have them: every nth test, and every fifth expansion of one into simpler operators."""
    names = sorted(node_tests())
    expanded = [name for name in names if "_expanded" in name]
    names = [name for name in names if "_expanded" not in name] + expanded[::5]
    counts = check(verdicts(names[::nth], True, PROCESSES))
    assert counts["pass"] >= LEAST["constants"] // nth, dict(counts)


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 12))])
def test_with_parameters_as_operands(part: int):
    """As ONNX gives them: the tests that have such operands, in twelve parts; the others are the same as above."""
    names = [name for name, case in sorted(node_tests().items()) if "_expanded" not in name
             and len(frozen(case.model, case.data_sets[0][0])[1]) < len(case.model.graph.input)]
    counts = check(verdicts(names[part::12], False, PROCESSES))
    assert counts["pass"] >= LEAST["operands"] // 12, dict(counts)


def test_inputs_that_are_no_tensors():
    """Sequences are taken; of others `prepare` says that they are not, rather than a run."""
    from onnx import TensorProto, helper

    from tvm_megcc import onnx_backend

    def prepared(value) -> onnx_backend.MegccRep:
        graph = helper.make_graph([helper.make_node("SequenceLength", ["x"], ["n"])], "g", [value],
                                  [helper.make_tensor_value_info("n", TensorProto.INT64, [])])
        return onnx_backend.prepare(helper.make_model(graph))

    sequence = prepared(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None))
    assert sequence.run([[np.zeros(3, np.float32)] * 2]) == (2,)
    for other in (helper.make_sparse_tensor_value_info("x", TensorProto.FLOAT, [3]),
                  helper.make_value_info("x", helper.make_map_type_proto(
                      TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [1])))):
        with pytest.raises(onnx_backend.UnsupportedModel, match="inputs x are neither tensors nor sequences"):
            prepared(other)


@pytest.mark.slow
def test_others_are_forbidden():
    """The guard of the other tests works: in a process behind it no interpreter answers."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), forbid_others) as pool:
        assert pool.submit(_answers).result() == []


def _answers() -> list[str]:
    """Which interpreters still work."""
    from tvm_megcc.frontends.onnx import import_onnx
    from tvm_megcc.runtime import reference

    model = node_tests()["test_relu"].model
    x = np.ones((3, 4, 5), np.float32)
    attempts = {"reference": lambda: reference.run(import_onnx(model), {"x": x}),
                "onnx.reference": lambda: onnx.reference.ReferenceEvaluator(model).run(None, {"x": x}),
                "onnxruntime": lambda: __import__("onnxruntime")}
    answered = []
    for name, attempt in attempts.items():
        try:
            attempt()
            answered.append(name)
        except (AssertionError, ImportError):
            pass
    return answered


@pytest.mark.slow
def test_inputs_whose_rank_a_run_tells():
    from tvm_megcc import onnx_backend

    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g",
                                   [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)],
                                   [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])
    rep = onnx_backend.prepare(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    for shape in ((3,), (2, 3)):
        (y,) = rep.run([np.ones(shape, np.float32)])
        assert y.shape == shape and (y == -1).all()
