# SPDX-License-Identifier: Apache-2.0
"""Decoders as optimum exports them: keys and values that grow by Concat are states with room for more, beside ONNX
Runtime on the same files, which is given what the last run gave back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tvm_megcc
from tests import decoders
from tests.c_flags import WARNINGS, native_compiler
from tests.onnx_models import model, node
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.codegen.container import Storage
from tvm_megcc.errors import MegccError, MissingTool, ShapeError
from tvm_megcc.runtime.build import CFLAGS, c_sources
from tvm_megcc.runtime.toolchain import find_compiler, runs_here
from tvm_megcc.target import TARGETS, native

ROOM = 24
TOKENS = np.random.default_rng(1).integers(0, 40, (1, ROOM + 8))
STATES = {"present.*": "past_key_values.*"}
OPTIONS = {"states": STATES, "bounds": {"past_sequence_length": ROOM}, "name": "decoder"}
#: A prompt, tokens one by one, two at once, and one more.
PARTS = (4, 1, 1, 2, 1)
MODELS = {"gpt2": decoders.gpt2(), "counted": decoders.gpt2(positions=False, masked=False), "llama": decoders.llama()}


def compiled(proto: onnx.ModelProto, targets: str = "native", dispatch: str | None = "input_ids[1]=1..1,2..16",
             batch: int = 1, **options):
    native_compiler()
    length = 1 if dispatch is None else None
    return tvm_megcc.compile(proto, targets, input_shapes={"input_ids": (batch, length)}, dispatch=dispatch,
                             **{**OPTIONS, **options})


class Grown:
    """ONNX Runtime with tensors that grow."""

    def __init__(self, proto: onnx.ModelProto, batch: int = 1):
        onnxruntime = pytest.importorskip("onnxruntime")
        self.session = onnxruntime.InferenceSession(proto.SerializeToString())
        self.proto, self.names = proto, decoders.names_of_results(proto)
        self.past, self.length = decoders.empty(proto, batch), 0

    def given(self, tokens: np.ndarray, **others: np.ndarray) -> dict[str, np.ndarray]:
        return {**decoders.fed(self.proto, tokens, self.length), **others}

    def run(self, given: dict[str, np.ndarray]) -> np.ndarray:
        results = dict(zip(self.names, self.session.run(None, {**given, **self.past}), strict=True))
        self.past = {state: results[output] for output, state in decoders.pairs(2).items()}
        self.length += given["input_ids"].shape[1]
        return results["logits"]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", "arm64", "cortex-m4"])
@pytest.mark.parametrize("name", MODELS)
def test_parts_of_a_sequence(name, target, tmp_path):
    """A prompt and what follows it, on a microcontroller token by token; then another sequence."""
    proto, firmware = MODELS[name], TARGETS.get(target, native()).bare_metal
    other = Grown(proto)
    options = {"dispatch": None} if firmware else {}
    try:
        session = tvm_megcc.load(compiled(proto, target, **options).save(tmp_path / "decoder"), target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    for count in (1,) * sum(PARTS) if firmware else PARTS:
        given = other.given(TOKENS[:, other.length:other.length + count])
        np.testing.assert_allclose(session.run(given)["logits"], other.run(given), rtol=1e-4, atol=1e-5)
    assert session.states["past_sequence_length"] == sum(PARTS)
    for name_, value in other.past.items():
        np.testing.assert_allclose(session.states[name_][:, :, :sum(PARTS)], value, rtol=1e-4, atol=1e-5)
    session.reset()
    other = Grown(proto)
    given = other.given(TOKENS[:, 10:11 if firmware else 16])
    np.testing.assert_allclose(session.run(given)["logits"], other.run(given), rtol=1e-4, atol=1e-5)


def test_it_is_the_whole_sequence(tmp_path):
    """To the last row that there is room for; then a run is refused, changes nothing, and the session goes on."""
    proto = MODELS["llama"]
    session = tvm_megcc.load(compiled(proto).save(tmp_path / "decoder"))
    other = Grown(proto)
    whole = other.run(other.given(TOKENS[:, :ROOM]))
    parts, at = [], 0
    for count in (16, *(1,) * (ROOM - 17)):
        parts.append(session.run(decoders.fed(proto, TOKENS[:, at:at + count], at))["logits"])
        at += count
    before = session.states
    beyond = decoders.fed(proto, TOKENS[:, at:at + 2], at)
    with pytest.raises(ShapeError, match=rf"'past_sequence_length' is {ROOM - 1}"):
        session.run(beyond)
    with pytest.raises(MegccError, match=r"rows of the KV cache exceed its capacity|the KV cache is full"):
        session.run({**beyond, "attention_mask": np.ones((1, ROOM), np.int64)})
    for name, value in session.states.items():
        np.testing.assert_array_equal(value, before[name])
    parts.append(session.run(decoders.fed(proto, TOKENS[:, at:at + 1], at))["logits"])
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-4, atol=1e-5)
    with pytest.raises(MegccError, match=r"the KV cache is full: call reset\(\) to begin anew"):
        session.run({**decoders.fed(proto, TOKENS[:, :1], at), "attention_mask": np.ones((1, ROOM), np.int64)})
    for past in (ROOM, -1, 2 ** 40):
        counters, session.counters = session.counters, ()   # without the check in Python: the runtime has its own
        session.reset({"past_sequence_length": np.array([past])})
        session.counters = counters
        with pytest.raises(MegccError):
            session.run({**decoders.fed(proto, TOKENS[:, :1], 0), "attention_mask": np.ones((1, ROOM), np.int64)})


def test_in_place_without_copies(tmp_path):
    """Keys and values are written where they lie, attention reads them there, and those that share heads too."""
    artifact = compiled(MODELS["llama"], "c")
    (program,) = artifact.image.model.programs
    states = [program.tensors[program.outputs[state.output]] for state in program.states]
    assert [state.storage for state in states].count(Storage.state) == 4    # the fifth is the count
    assert "updated in place: past_key_values.0.key, past_key_values.0.value" in artifact.report
    kinds = [call["kind"] for call in artifact.manifest["programs"][0]["calls"]]
    assert kinds.count("append") == 4 and kinds.count("attention") == 2
    outputs = [call["output"] for call in artifact.manifest["programs"][0]["calls"]]
    assert not any(output.endswith(".rows") for output in outputs)


def test_masks_that_hide_and_sets_of_states(tmp_path):
    """Padding in front; states that are set; masks of another length are refused."""
    proto = MODELS["gpt2"]
    session, other = tvm_megcc.load(compiled(proto).save(tmp_path / "decoder")), Grown(proto)
    mask = np.array([[0, 0, 1, 1, 1]])
    for count in (3, 1, 1):
        at = other.length
        given = other.given(TOKENS[:, at:at + count], attention_mask=mask[:, :at + count])
        np.testing.assert_allclose(session.run(given)["logits"], other.run(given), rtol=1e-4, atol=1e-5)
    given = other.given(TOKENS[:, 5:6])
    for shape in ((1, 5), (1, 7), (1, ROOM + 1), (2, 6)):
        with pytest.raises(ShapeError, match="attention_mask"):
            session.run({**given, "attention_mask": np.ones(shape, np.int64)})
    kept = session.states
    expected = session.run(given)["logits"]
    session.reset(kept)
    np.testing.assert_array_equal(session.run(given)["logits"], expected)


@pytest.mark.slow
def test_one_token_of_several_sequences(tmp_path):
    """Known shapes, a batch of 2, and caches that are no attention's: their first rows are copied."""
    proto = decoders.gpt2(masked=False)
    session, other = tvm_megcc.load(compiled(proto, dispatch=None, batch=2).save(tmp_path / "decoder")), Grown(proto, 2)
    tokens = TOKENS[:, :12].reshape(2, 6)
    for step in range(6):
        given = other.given(tokens[:, step:step + 1])
        np.testing.assert_allclose(session.run(given)["logits"], other.run(given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["c", pytest.param("riscv64", marks=pytest.mark.slow)])
def test_sums_over_what_there_is(target, tmp_path):
    """No decoder: integers, an axis in the middle, a past that is read besides."""
    nodes = [node("Concat", "past x", "present", axis=1), node("ReduceSum", "present axes", "y", keepdims=0),
             node("ReduceSum", "past axes", "z", keepdims=0)]
    proto = model(nodes, {"past": ("int64", [2, "length", 3]), "x": ("int64", [2, 2, 3])},
                  {"present": ("int64", [2, "total", 3]), "y": ("int64", [2, 3]), "z": ("int64", [2, 3])},
                  {"axes": np.array([1])})
    artifact = tvm_megcc.compile(proto, target, states={"present": "past"}, bounds={"length": 7}, name="sums")
    try:
        session = tvm_megcc.load(artifact.save(tmp_path / "sums"), target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    x = np.arange(12).reshape(2, 2, 3)
    for turn in range(3):
        results = session.run({"x": x})
        np.testing.assert_array_equal(results["y"], (turn + 1) * x.sum(1))
        np.testing.assert_array_equal(results["z"], turn * x.sum(1))
    with pytest.raises(MegccError):
        session.run({"x": x})


OPERATORS = {
    "MultiHeadAttention": ({"q": (1, 1, 16), "k": (1, 1, 16), "v": (1, 1, 16)},
                           node("MultiHeadAttention", "q k v    pk pv", "y pk2 pv2", domain="com.microsoft",
                                num_heads=2)),
    "Attention": ({"q": (1, 4, 1, 8), "k": (1, 2, 1, 8), "v": (1, 2, 1, 8)},
                  node("Attention", "q k v  pk pv", "y pk2 pv2", is_causal=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPERATORS)
def test_operators_that_take_the_past(kind, tmp_path):
    """They are Concat(past, new) too."""
    new, attention = OPERATORS[kind]
    states = {"pk2": "pk", "pv2": "pv"}
    proto = model([attention], {**{name: list(shape) for name, shape in new.items()},
                                **dict.fromkeys(states.values(), (1, 2, "past", 8))},
                  {"y": None, **dict.fromkeys(states, (1, 2, "total", 8))}, opset=24)
    artifact = tvm_megcc.compile(proto, "native", bounds={"past": 5}, states=states, name="attention")
    assert "updated in place: pk, pv" in artifact.report
    session, rng = tvm_megcc.load(artifact.save(tmp_path / "made")), np.random.default_rng(2)
    onnxruntime = pytest.importorskip("onnxruntime") if attention.domain else None
    other = onnxruntime.InferenceSession(proto.SerializeToString()) if onnxruntime else ReferenceEvaluator(proto)
    past = {name: np.zeros((1, 2, 0, 8), np.float32) for name in states.values()}
    for _ in range(5):
        given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in new.items()}
        y, *kept = other.run(["y", *states], {**given, **past})
        np.testing.assert_allclose(session.run(given)["y"], y, rtol=1e-5, atol=1e-6)
        past = dict(zip(states.values(), kept, strict=True))


@pytest.mark.slow
def test_the_example(tmp_path):
    """tutorials/decoder/greedy.c: the tokens that ONNX Runtime's greedy search gives."""
    cpu = TARGETS["x86-64-v3"] if runs_here(TARGETS["x86-64-v3"]) else native()
    other, prompt = Grown(MODELS["llama"]), TOKENS[:, :5]
    onnx.save(MODELS["llama"], tmp_path / "decoder.onnx")
    try:
        compiler = find_compiler(cpu)
    except MissingTool as missing:
        pytest.skip(str(missing))
    made = tmp_path / "decoder_megcc"
    assert main(["compile", str(tmp_path / "decoder.onnx"), "-o", str(made), "--target", cpu.name, "--input-shapes",
                 "input_ids=(1,?)", "--dispatch", "input_ids[1]=1..1,2..16", "--bound", f"past_sequence_length={ROOM}",
                 "--state", "present.*=past_key_values.*"]) == 0
    source = Path(__file__).resolve().parents[3] / "tutorials" / "decoder" / "greedy.c"
    base = [*compiler.command, *cpu.cflags, "-I.", "-Iruntime/include"]
    sources = [str(path.relative_to(made)) for path in c_sources(made)]
    subprocess.run([*base, "-std=c11", "-O2", *WARNINGS, "-c", str(source), "-o", "greedy.o"], cwd=made, check=True)
    subprocess.run([*base, *CFLAGS, *sources, "greedy.o", "-lm", "-o", "greedy"], cwd=made, check=True)
    expected, tokens = [], prompt
    for _ in range(12):
        tokens = other.run(other.given(tokens))[:, -1:].argmax(-1)
        expected.append(int(tokens[0, 0]))
    command = ["./greedy", "decoder.megcc"]
    said = subprocess.run([*command, "12", *map(str, prompt[0])], cwd=made, capture_output=True, text=True, check=True)
    assert list(map(int, said.stdout.split())) == expected
    beyond = subprocess.run([*command, "30", *map(str, prompt[0])], cwd=made, capture_output=True, text=True)
    assert beyond.returncode == 1 and len(beyond.stdout.split()) == ROOM - 4


@pytest.mark.slow
def test_commands(tmp_path, capsys):
    """What inspect says of it; times of runs that all find as many rows; compare knows no first run."""
    onnx.save(MODELS["llama"], tmp_path / "decoder.onnx")
    options = ["--target", "native", "--input-shapes", "input_ids=(1,1)", "--bound", "past_sequence_length=4",
               "--state", "present.*=past_key_values.*"]
    try:
        assert main(["compile", str(tmp_path / "decoder.onnx"), "-o", str(tmp_path / "made"), *options]) == 0
    except MissingTool as missing:
        pytest.skip(str(missing))
    assert main(["inspect", str(tmp_path / "made")]) == 0
    said = capsys.readouterr().out
    assert "attention_mask  int64[1,4], of which past_sequence_length + 1 along axis 1 count" in said
    assert "state past_sequence_length.next becomes past_sequence_length, how many rows there are" in said
    if runs_here(native()):
        assert main(["bench", str(tmp_path / "made"), "--repeat", "10"]) == 0
    assert main(["compare", str(tmp_path / "decoder.onnx"), *options]) == REFUSED
    assert "leave out --state and --bound" in capsys.readouterr().err


@pytest.mark.parametrize("rows", [-1, ROOM + 1, 2**31, 2**32 + 1, -2**62])
def test_rows_that_there_is_no_room_for(rows, tmp_path):
    """A count of rows that a caller gives is checked where it is given, not only when the next run reads it."""
    session = tvm_megcc.load(compiled(MODELS["counted"]).save(tmp_path / "decoder"))
    with pytest.raises(ShapeError, match=f"is a number of rows from 0 to {ROOM}, not {rows}"):
        session.reset({"past_sequence_length": np.array([rows])})
    session.reset({"past_sequence_length": np.array([ROOM])})
    assert session.states["past_sequence_length"] == ROOM
