# SPDX-License-Identifier: Apache-2.0
"""QMoE, mixtures of experts with weights of 4 and 8 bits, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tests.decoder_folders import WORDS, genai, likeliest
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.options import CompileOptions
from tvm_megcc.tools.lm.compile import compile_model
from tvm_megcc.tools.lm.model import LanguageModel

EXPERTS, WIDTH, HIDDEN, TOKENS = 4, 32, 64, 5


def mixture(bits: int = 4, block: int = 32, zeros: bool = False, bias: bool = True, poisoned: int | None = None,
            chosen: int = 2, activation: str = "swiglu", **attributes) -> onnx.ModelProto:
    """A model of one drawn QMoE. poisoned: an expert whose results are NaN."""
    draw = np.random.default_rng(bits + block)
    constants: list[onnx.TensorProto] = []

    def constant(array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array, f"constant{len(constants)}"))
        return constants[-1].name

    products, points = [], []
    for rows, depth in ((HIDDEN * (1 + (activation == "swiglu")), WIDTH), (WIDTH, HIDDEN)):
        blocks = (depth // block,) if block else ()
        offset = draw.normal(0, 0.3, (EXPERTS, rows)).astype(np.float32)
        if poisoned is not None:
            offset[poisoned] = np.nan
        products += [constant(draw.integers(0, 256, (EXPERTS, rows, depth * bits // 8), np.uint8)),
                     constant(draw.uniform(0.001, 0.03, (EXPERTS, rows, *blocks)).astype(np.float32)),
                     constant(offset) if bias else ""]
        shape = (EXPERTS, rows, -(-blocks[0] * bits // 8)) if block else (EXPERTS, rows * bits // 8)
        points.append(constant(draw.integers(0, 256, shape, np.uint8)) if zeros else "")
    inputs = ["x", "logits", *products, "", "", "", *points]
    while not inputs[-1]:
        inputs.pop()
    attributes |= {"block_size": block} if block else {}
    node = helper.make_node("QMoE", inputs, ["y"], domain="com.microsoft", k=chosen, expert_weight_bits=bits,
                            activation_type=activation, swiglu_fusion=int(activation == "swiglu"), **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (
        ("x", [1, TOKENS, WIDTH]), ("logits", [TOKENS, EXPERTS]), ("y", [1, TOKENS, WIDTH]))]
    graph = helper.make_graph([node], "experts", ports[:2], ports[2:], constants)
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])


def result(model: onnx.ModelProto, given: dict[str, np.ndarray], folder) -> np.ndarray:
    try:
        made = tvm_megcc.compile(model, name="experts", activations="float32")
        return tvm_megcc.load(made.save(folder / "made")).run(given)["y"]
    except MissingTool as missing:
        pytest.skip(str(missing))


def inputs() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {"x": draw.normal(size=(1, TOKENS, WIDTH)).astype(np.float32),
            "logits": draw.normal(size=(TOKENS, EXPERTS)).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5},
    {"zeros": True, "block": 16, "bias": False, "chosen": 3},
    {"zeros": True, "block": 0, "activation": "gelu", "chosen": 1},
    {"bits": 8, "block": 0, "activation": "silu"}], ids=str)
def test_results(options, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model, given = mixture(**options), inputs()
    (wanted,) = runtime.InferenceSession(model.SerializeToString()).run(None, given)
    np.testing.assert_allclose(result(model, given, tmp_path), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
def test_experts_that_no_token_chooses_are_not_computed(tmp_path):
    given = inputs()
    given["logits"][:, 1] = -9
    assert np.isfinite(result(mixture(poisoned=1), given, tmp_path)).all()
    given["logits"][2, 1] = 9
    assert np.isnan(tvm_megcc.load(tmp_path / "made").run(given)["y"]).any()


@pytest.mark.parametrize("options, message", [
    ({"activation": "relu2"}, "has activation_type 'relu2'"), ({"chosen": 5}, "chooses 5 of 4 experts"),
    ({"use_sparse_mixer": 1}, "has use_sparse_mixer 1"), ({"quant_type": "fp4"}, "has quant_type 'fp4'"),
    ({"weights_prepacked": 1}, "has weights_prepacked 1"), ({"fc2_expert_weight_bits": 2}, "has weights of 2 bits"),
    ({"fc1_expert_weight_bits": 8}, "has scales")], ids=str)
def test_what_is_refused(options, message):
    with pytest.raises(MegccError, match=message):
        tvm_megcc.compile(mixture(**options), target="c")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "shape"), [
    (1, (EXPERTS, 2 * HIDDEN, 3)), (2, (2 * HIDDEN,)), (2, (EXPERTS, 2 * HIDDEN - 3)), (3, (EXPERTS, 2 * HIDDEN, 7)),
    (4, (EXPERTS - 1, WIDTH, HIDDEN // 2)), (4, (EXPERTS, WIDTH, HIDDEN)), (4, (EXPERTS, WIDTH + 32, HIDDEN // 2)),
    (0, (EXPERTS, 2 * HIDDEN, WIDTH)), (0, (EXPERTS, 2 * HIDDEN, 0)), (0, (EXPERTS, 2 * HIDDEN + 1, WIDTH // 2))])
def test_operands_that_contradict_each_other_are_refused(number, shape):
    """When the model is read: in the branch of an expert they would only fail the runs that choose it."""
    model = mixture(zeros=True)
    constant = model.graph.initializer[number]
    array = np.zeros(shape, numpy_helper.to_array(constant).dtype)
    constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    if number in (0, 4):  # scales and the rest that fit these weights
        blocks = shape[2] * 2 // 32
        for offset, rest in enumerate(((blocks,), (), (-(-blocks // 2),)), 1):
            other = model.graph.initializer[number + offset]
            fitting = np.zeros((*shape[:2], *rest), numpy_helper.to_array(other).dtype)
            other.CopyFrom(numpy_helper.from_array(fitting, other.name))
    with pytest.raises(MegccError, match="QMoE"):
        tvm_megcc.compile(model, name="experts")


def test_a_language_model(tmp_path):
    pytest.importorskip("tokenizers")
    source = genai(tmp_path / "experts", experts=3)
    try:
        model = LanguageModel(compile_model(source, tmp_path / "made", prompt=4,
                                            options=CompileOptions(activations="float32")))
    except MissingTool as missing:
        pytest.skip(str(missing))
    tokens = model.encode("cdefgh")
    assert tokens == [0, *map(WORDS.index, "cdefgh")]
    logits, found = model.read(tokens), []
    for _ in range(16):
        found.append(int(logits.argmax()))
        logits = model.read(found[-1:])
    assert found == likeliest(source / "text.onnx", tokens, 16)
