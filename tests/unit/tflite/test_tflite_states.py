# SPDX-License-Identifier: Apache-2.0
"""TFLite files that keep something from run to run: SVDF layers, variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from flatbuffers import flexbuffers

import tvm_megcc
from tests.tflite_draws import FILES, Draw
from tests.tflite_files import Quantized, Tensor, written
from tests.tflite_hybrid_draws import FLOATS
from tests.unit.tflite.test_tflite_operators import file_of, lstm
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.fixed_point import multiplier
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.frontends.tflite.quantized.fixed_point import rescale
from tvm_megcc.passes.streaming.states import first_states, keep_states
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def steps_of(data: bytes, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The output y of each run of LiteRT, one behind the other."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()
    made = []
    for array in feeds:
        interpreter.set_tensor(x["index"], array)
        interpreter.invoke()
        made.append(interpreter.get_tensor(y["index"]).copy())
    return made


def found_of(data: bytes, feeds: Sequence[np.ndarray], path) -> list[np.ndarray]:
    """The same of our graph."""
    path.write_bytes(data)
    graph = import_tflite(path)
    states = first_states(graph)
    made = []
    for array in feeds:
        values = reference.run(graph, {graph.inputs[0]: array, **states})
        states = {target: values[source] for source, target in graph.states}
        made.append(values[graph.outputs[0]])
    return made


def svdf(form: str, seed: int) -> tuple[bytes, list[np.ndarray]]:
    random = np.random.default_rng(seed)
    batch, inputs, units, rank, memory = (int(random.integers(1, high)) for high in (3, 9, 6, 4, 6))
    filters, dtype = units * rank, "int8" if form == "int8" else "float32"

    def numbers(shape, kind: str) -> np.ndarray:
        limits = np.iinfo(kind)
        return random.integers(limits.min + 1, limits.max + 1, shape).astype(kind)

    tensors: dict = {"x": (batch, inputs), "y": (batch, units),
                     "state": Tensor((batch, memory * filters), variable=True)}
    shapes = {"features": (filters, inputs), "times": (filters, memory), "bias": (units,)}
    tensors.update((name, random.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items())
    if form != "float32":
        tensors["features"] = Quantized(shapes["features"], 0.02, 0, "int8", array=numbers(shapes["features"], "int8"))
        time = "int16" if form == "int8" else "int8"
        tensors["times"] = Quantized(shapes["times"], 0.01 if time == "int8" else 3e-5, 0, time,
                                     array=numbers(shapes["times"], time))
    if form == "int8":
        tensors.update(x=Quantized((batch, inputs), 0.03, -5), y=Quantized((batch, units), 0.2, 7),
                       state=Quantized(tensors["state"].shape, 2e-3, 0, "int16", variable=True),
                       bias=Quantized((units,), 6e-8, 0, "int32", array=numbers((units,), "int16").astype(np.int32)))
    fields = {"Rank": rank, "FusedActivationFunction": 1, "AsymmetricQuantizeInputs": bool(seed % 2)}
    data = written(tensors, [("SVDF", "SVDFOptions", fields, ["x", "features", "times", "bias", "state"], ["y"])],
                   ["x"], ["y"])
    feeds = [numbers((batch, inputs), "int8") if dtype == "int8" else
             random.standard_normal((batch, inputs)).astype(np.float32) for _ in range(7)]
    return data, feeds


def test_svdf_of_micro(tmp_path):
    """A state of int8, as TFLite Micro's kernel has it: numbers beyond it are cut off."""
    random, (n, inputs, units, rank, memory) = np.random.default_rng(1), (2, 5, 4, 2, 3)
    filters = units * rank

    def drawn(*shape: int) -> np.ndarray:
        return random.integers(-128, 128, shape).astype(np.int8)

    w, t, b = drawn(filters, inputs), drawn(filters, memory), random.integers(-900, 900, units).astype(np.int32)
    tensors = {"x": Quantized((n, inputs), 0.1, 7), "w": Quantized(w.shape, 0.01, array=w),
               "t": Quantized(t.shape, 0.02, array=t), "b": Quantized(b.shape, 0.02 * 0.03, 0, "int32", array=b),
               "s": Quantized((n, filters * memory), 0.03, -20, variable=True), "y": Quantized((n, units), 0.2, 3)}
    path = tmp_path / "micro.tflite"
    path.write_bytes(written(tensors, [("SVDF", "SVDFOptions", {"Rank": rank}, ["x", "w", "t", "b", "s"], ["y"])],
                             ["x"], ["y"]))
    graph = import_tflite(path)
    assert np.unique(graph.initial_states["s"]).tolist() == [-20]
    state, kept = np.full((n, filters, memory), -20, np.int64), dict(graph.initial_states)
    first, last = (multiplier(float(np.float32(a) * np.float32(b) / np.float32(c)))
                   for a, b, c in ((0.1, 0.01, 0.03), (0.03, 0.02, 0.2)))
    for _ in range(5):
        x = drawn(n, inputs)
        sums = rescale((x.astype(np.int64) - 7) @ w.astype(np.int64).T, first)
        state = np.concatenate([state[..., 1:], np.clip(sums - 20, -128, 127)[..., None]], -1)
        total = ((state + 20) * t).reshape(n, units, -1).sum(-1) + b
        found = reference.run(graph, {"x": x, **kept})
        np.testing.assert_array_equal(found["y"], np.clip(rescale(total, last) + 3, -128, 127))
        kept = {name: found[output] for output, name in graph.states}
    assert len(np.unique(found["y"])) > 4


def test_layers_that_begin_anew_say_so(tmp_path, caplog):
    data, _ = file_of(lstm(4, 1, 3, 4))
    path = tmp_path / "layer.tflite"
    path.write_bytes(data)
    tvm_megcc.compile(path, "c")
    (said,) = caplog.messages
    assert said.startswith("layer.tflite: recurrent layers begin every run with states of zeros. To go on where the "
                           "last run ended: --state x18.next=x18 --state x19.next=x19 ")
    caplog.clear()
    tvm_megcc.compile(path, "c", states={"h.next": "x18", "c.next": "x19"})
    assert not caplog.messages


@pytest.mark.parametrize("form", ["float32", "hybrid", "int8"])
def test_svdf(form: str, tmp_path):
    for seed in range(6):
        data, feeds = svdf(form, seed)
        for found, wanted in zip(found_of(data, feeds, tmp_path / "one.tflite"), steps_of(data, feeds), strict=True):
            if form == "int8":
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, atol=1e-5)


def variables(first: Sequence[float] = (0.0, 0.0)) -> bytes:
    """y = x + what all runs before have had."""
    handle = ("VAR_HANDLE", "VarHandleOptions", {"SharedName": "sum"}, [], ["v"])
    tensors = {"x": (2,), "y": (2,), "v": Tensor((), "resource"), "old": (2,), "first": np.array(first, np.float32)}
    operators = [("CALL_ONCE", "CallOnceOptions", {"InitSubgraphIndex": 1}, [], []), handle,
                 ("READ_VARIABLE", "", {}, ["v"], ["old"]), ("ADD", "AddOptions", {}, ["x", "old"], ["y"]),
                 ("ASSIGN_VARIABLE", "", {}, ["v", "y"], [])]
    return written(tensors, operators, ["x"], ["y"], once=[handle, ("ASSIGN_VARIABLE", "", {}, ["v", "first"], [])])


def test_variables(tmp_path):
    feeds = [np.array([step, -1], np.float32) for step in range(4)]
    found, wanted = found_of(variables(), feeds, tmp_path / "one.tflite"), steps_of(variables(), feeds)
    np.testing.assert_array_equal(found, wanted)
    assert found[-1].tolist() == [6, -4]
    graph = import_tflite(tmp_path / "one.tflite")
    assert graph.inputs == ("x", "sum") and graph.states == (("sum.next", "sum"),)
    with pytest.raises(ModelError, match="input 'sum' is in another state too"):
        keep_states(graph, {"y": "sum"})


@pytest.mark.parametrize("layer", ["float32", "hybrid", "RNN", "int8"])
def test_recurrent_layers(layer: str, tmp_path):
    """Their states, where somebody asks for them: runs go on where the last one ended, as LiteRT's do."""
    path, names = tmp_path / "one.tflite", ("h",) if layer == "RNN" else ("h", "c")
    kind = "UNIDIRECTIONAL_SEQUENCE_" + ("RNN" if layer == "RNN" else "LSTM")
    for seed in range(40):
        draw = Draw(kind, seed)
        draw.dtype = "int8"
        data = FILES[kind](draw) if layer == "int8" else FLOATS[kind](draw)
        floats = not any(isinstance(tensor, Quantized) for tensor in draw.tensors.values())
        more = "n1" in draw.tensors or "p" in draw.tensors
        if draw.dtype != "int8" or {"float32": not floats or more, "hybrid": floats or not more}.get(layer, False):
            continue
        path.write_bytes(data)
        graph = import_tflite(path, states={f"{name}.next": name for name in names})
        assert set(graph.inputs) == {"x", *names} and not graph.states
        assert set(graph.outputs) == {"y", *(f"{name}.next" for name in names)}
        kept = {name: graph.initial_states.get(name, np.zeros(graph.types[name].shape, graph.types[name].dtype))
                for name in names}
        feeds = [draw.feeds()["x"] for _ in range(3)]
        for x, wanted in zip(feeds, steps_of(data, feeds), strict=True):
            found = reference.run(graph, {"x": x, **kept})
            kept = {name: found[f"{name}.next"] for name in names}
            np.testing.assert_allclose(found["y"], wanted, atol=0 if layer == "int8" else 1e-5)
        break
    else:
        raise AssertionError("no file of that kind")


def test_variables_that_begin_with_numbers(tmp_path):
    feeds = [np.array([step, -1], np.float32) for step in range(4)]
    data = variables((3.0, 1.0))
    np.testing.assert_array_equal(found_of(data, feeds, tmp_path / "one.tflite"), steps_of(data, feeds))


def test_variables_that_begin_with_what_they_are_not(tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(variables((3.0, 1.0, 2.0)))
    with pytest.raises(ModelError, match=r"variable 'sum' is float32\[2\], and begins as float32\[3\]"):
        import_tflite(path)


@pytest.mark.parametrize("dtype, zero", [("int8", -128), ("int8", 127), ("uint8", 255), ("int16", 0)])
def test_variables_of_bytes_begin_with_their_zero_point(dtype: str, zero: int, tmp_path):
    """As in streaming networks for microcontrollers: the last steps, which are zeros before there are any."""
    def made(shape, **fields) -> Quantized:
        return Quantized(shape, 0.5, zero, dtype, **fields)

    handle = ("VAR_HANDLE", "VarHandleOptions", {"SharedName": "kept"}, [], ["v"])
    ints = {name: np.array(value, np.int32) for name, value in (
        ("begin", [0, 1, 0]), ("end", [0, 0, 0]), ("ones", [1, 1, 1]))}
    tensors = {"x": made((1, 1, 3)), "old": made((1, 2, 3)), "y": made((1, 3, 3)), "new": made((1, 2, 3)),
               "v": Tensor((), "resource"), "first": made((1, 2, 3), array=np.full((1, 2, 3), zero, dtype)), **ints}
    operators = [("CALL_ONCE", "CallOnceOptions", {"InitSubgraphIndex": 1}, [], []), handle,
                 ("READ_VARIABLE", "", {}, ["v"], ["old"]),
                 ("CONCATENATION", "ConcatenationOptions", {"Axis": 1}, ["old", "x"], ["y"]),
                 ("STRIDED_SLICE", "StridedSliceOptions", {"BeginMask": 5, "EndMask": 7}, ["y", "begin", "end", "ones"],
                  ["new"]), ("ASSIGN_VARIABLE", "", {}, ["v", "new"], [])]
    data = written(tensors, operators, ["x"], ["y"], once=[handle, ("ASSIGN_VARIABLE", "", {}, ["v", "first"], [])])
    limits, random = np.iinfo(dtype), np.random.default_rng(2)
    feeds = [random.integers(limits.min, limits.max + 1, (1, 1, 3)).astype(dtype) for _ in range(4)]
    found = found_of(data, feeds, tmp_path / "one.tflite")
    assert (found[0][:, :2] == zero).all()
    np.testing.assert_array_equal(found, steps_of(data, feeds))


def circular(zero: int, slots: int, cycles: int) -> bytes:
    options = flexbuffers.Builder()
    with options.Map():
        options.Int("cycles_max", cycles)
    tensors = {"x": Quantized((2, 1, 1, 3), 0.5, zero), "kept": Quantized((2, slots, 1, 3), 0.5, zero, variable=True),
               "y": Quantized((2, slots, 1, 3), 0.25, -7)}
    return written(tensors, [(":CIRCULAR_BUFFER", "", {}, ["x"], ["kept"], {"custom": bytes(options.Finish())}),
                             ("QUANTIZE", "", {}, ["kept"], ["y"])], ["x"], ["y"])


@pytest.mark.parametrize("zero", [-128, 0, 127])
def test_circular_buffers(zero: int, tmp_path):
    """TFLite Micro's operator: the last steps, before the first ones the zero point."""
    random = np.random.default_rng(1)
    feeds = [random.integers(-128, 128, (2, 1, 1, 3)).astype(np.int8) for _ in range(6)]
    for slots in (1, 4):
        found = found_of(circular(zero, slots, 1), feeds, tmp_path / "one.tflite")
        steps = [np.full((2, 1, 1, 3), zero, np.int8)] * slots
        for x, y in zip(feeds, found, strict=True):
            steps = [*steps[1:], x]
            kept = (np.concatenate(steps, 1).astype(int) - zero) * 2 - 7
            np.testing.assert_array_equal(y, np.clip(kept, -128, 127))


@pytest.mark.parametrize("clip", [np.nan, np.inf, -0.5])
def test_clips_that_are_none(clip: float, tmp_path):
    """Numbers of the file that would stand in generated code."""
    numbers = np.random.default_rng(0).integers(-127, 128, (4, 4)).astype(np.int8)
    for hybrid in (True, False):
        weights = {f"{mark}{gate}": Quantized((4, 4), 0.01, 0, "int8", 0, numbers) if hybrid
                   else numbers.astype(np.float32) for mark in "wr" for gate in range(4)}
        biases = {f"b{gate}": np.zeros(4, np.float32) for gate in range(4)}
        states = {name: Tensor((2, 4), variable=True) for name in "hc"}
        read = ["x", *weights, "", "", "", *biases, "", "", "h", "c", "", "", "", ""]
        fields = {"FusedActivationFunction": 4, "CellClip": clip, "TimeMajor": True}
        data = written({"x": (3, 2, 4), "y": (3, 2, 4), **weights, **biases, **states},
                       [("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", fields, read, ["y"])],
                       ["x"], ["y"])
        (tmp_path / "one.tflite").write_bytes(data)
        with pytest.raises(ModelError, match="its option CellClip is"):
            import_tflite(tmp_path / "one.tflite")


@pytest.mark.parametrize("cycles", [2, 3])
def test_circular_buffers_whose_runs_do_not_all_count(cycles: int, tmp_path):
    """Every so many-th run goes on behind the first buffer, and every sixth behind the second. Results of the others
    are those of the last one, zeros at first."""
    tensors: dict = {"x": Quantized((2, 1, 1, 3), 0.5, 3)}
    operators, shape = [], (2, 4, 1, 3)
    for index, every in enumerate((cycles, 6 // cycles)):
        options = flexbuffers.Builder()
        with options.Map():
            options.Int("cycles_max", every)
        tensors[f"kept{index}"] = Quantized(shape, 0.5, 3, variable=True)
        tensors[f"y{index}"] = Quantized(shape, 0.25, -7)
        operators += [(":CIRCULAR_BUFFER", "", {}, ["x"], [f"kept{index}"], {"custom": bytes(options.Finish())}),
                      ("QUANTIZE", "", {}, [f"kept{index}"], [f"y{index}"])]
    path = tmp_path / "one.tflite"
    path.write_bytes(written(tensors, operators, ["x"], ["y0", "kept0", "y1"]))
    graph, random = import_tflite(path), np.random.default_rng(1)
    states = first_states(graph)
    kept = [np.full(shape, 3, np.int8)] * 2
    wanted = {"y0": np.zeros(shape, np.int8), "y1": np.zeros(shape, np.int8)}
    for run in range(1, 15):
        x = random.integers(-128, 128, (2, 1, 1, 3)).astype(np.int8)
        found = reference.run(graph, {"x": x, **states})
        states = {target: found[source] for source, target in graph.states}
        for index, (counts, every) in enumerate(((True, cycles), (run % cycles == 0, 6))):
            if counts:
                kept[index] = np.concatenate([kept[index][:, 1:], x], 1)
            if run % every == 0:
                real = (kept[index].astype(int) - 3) * 2 - 7
                wanted[f"y{index}"] = np.clip(real, -128, 127).astype(np.int8)
        for name, array in zip(graph.outputs, (wanted["y0"], kept[0], wanted["y1"]), strict=False):
            np.testing.assert_array_equal(found[name], array)


def test_circular_buffers_that_are_refused(tmp_path):
    (tmp_path / "one.tflite").write_bytes(circular(0, 4, 2**40))
    with pytest.raises(ModelError, match="only once in 1099511627776 runs"):
        import_tflite(tmp_path / "one.tflite")
