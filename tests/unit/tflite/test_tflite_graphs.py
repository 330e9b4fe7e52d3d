# SPDX-License-Identifier: Apache-2.0
"""TFLite files of several graphs that run each other, against LiteRT's kernels."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

import tvm_megcc
from tests.tflite_files import Tensor, litert, written
from tvm_megcc.errors import ModelError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

IF, BRANCHES = "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
#: y of w: its double through a convolution, whose channels are the last axis; or a third of it.
YES = ([("CONV_2D", "Conv2DOptions", {"StrideH": 1, "StrideW": 1}, ["w", "eye", "zeros"], ["v"]),
        ("ADD", "AddOptions", {}, ["v", "v"], ["u"])], ["w", "eye"], ["u"])
NO = ([("MUL", "MulOptions", {}, ["w", "third"], ["u"])], ["w", "eye"], ["u"])
TENSORS = {"x": (1, 2, 3, 4), "limit": np.array([0.0], np.float32), "axes": np.array([0, 1, 2, 3], np.int32),
           "sum": (), "positive": (1,), "y": (1, 2, 3, 4), "w": (1, 2, 3, 4), "v": (1, 2, 3, 4), "u": (1, 2, 3, 4),
           "eye": np.eye(4, dtype=np.float32).reshape(4, 1, 1, 4), "zeros": np.zeros(4, np.float32),
           "third": np.array([1 / 3], np.float32), "z": (1, 2, 3, 4)}


def typed(**more) -> dict:
    return {**TENSORS, "positive": Tensor((1,), "bool"), "limits": Tensor((1,), "bool"), **more}


def chosen(behind, tensors=None, options=None, condition: str = "positive") -> bytes:
    operators = [("SUM", "ReducerOptions", {"KeepDims": False}, ["x", "axes"], ["sum"]),
                 ("GREATER", "", {}, ["sum", "limit"], ["positive"]),
                 ("ADD", "AddOptions", {}, ["x", "x"], ["z"]),
                 ("IF", IF, options or BRANCHES, [condition, "z", "eye"], ["y"])]
    return written(tensors or typed(), operators, ["x"], ["y"], behind=behind)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_run_chooses(sign: int, tmp_path):
    data, path = chosen([YES, NO]), tmp_path / "one.tflite"
    path.write_bytes(data)
    graph = import_tflite(path)
    assert "branch" in [op.kind for op in graph.ops]
    x = sign * np.random.default_rng(1).random((1, 2, 3, 4)).astype(np.float32)
    (found,), (wanted,) = reference.run(graph, {"x": x}).values(), litert(data, {"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("yes", [True, False])
def test_a_constant_chooses(yes: bool, tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(chosen([YES, NO], typed(always=np.array([yes])), condition="always"))
    graph = import_tflite(path)
    assert "branch" not in [op.kind for op in graph.ops]
    x = np.random.default_rng(1).random((1, 2, 3, 4)).astype(np.float32)
    (found,) = reference.run(graph, {"x": x}).values()
    np.testing.assert_allclose(found, x * (4 if yes else 2 / 3), rtol=1e-6)


REFUSED = {
    "a graph that is not there": ([YES], {}, "runs graph 2 of 2"),
    "the first graph": ([YES, NO], {"ThenSubgraphIndex": 0, "ElseSubgraphIndex": 2}, "runs graph 0 of 3"),
    "fewer inputs": ([YES, (NO[0], ["w"], ["u"])], {}, "gives 2 values to a graph of 1 inputs"),
    "another type": ([YES, ([("SUM", "ReducerOptions", {"KeepDims": False}, ["w", "axes"], ["sum"])], ["w", "eye"],
                            ["sum"])], {}, r"give float32\[1,2,3,4\] and float32\[\]"),
    "what is in it": ([YES, ([("MUL", "MulOptions", {}, ["w", "x"], ["u"])], ["w", "eye"], ["u"])], {},
                      "in IF 'y': tensor 'x': is read before"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path):
    behind, options, message = REFUSED[name]
    path = tmp_path / "one.tflite"
    path.write_bytes(chosen(behind, options=options))
    with pytest.raises(ModelError, match=message):
        import_tflite(path)


def test_a_graph_that_runs_itself(tmp_path):
    operators = [("SUM", "ReducerOptions", {"KeepDims": False}, ["w", "axes"], ["sum"]),
                 ("GREATER", "", {}, ["sum", "limit"], ["limits"]),
                 ("IF", IF, {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1}, ["limits", "w", "eye"], ["u"])]
    path = tmp_path / "one.tflite"
    path.write_bytes(chosen([(operators, ["w", "eye"], ["u"]), NO]))
    with pytest.raises(ModelError, match="more than 4 deep"):
        import_tflite(path)


def test_extents_that_the_file_leaves_open(tmp_path):
    """What does not fit may fit with others."""
    tensors = {"x": Tensor((1, 1), signature=(-1, -1)), "shape": np.array([1, 7], np.int32), "y": (1, 7)}
    path = tmp_path / "one.tflite"
    path.write_bytes(written(tensors, [("RESHAPE", "", {}, ["x", "shape"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError, match=r"leaves extents of its inputs open and was read with 'x' as \(1,1\).*"
                                         r'input_shapes="x=\(N,N\)" with a number for each N'):
        import_tflite(path)
    assert import_tflite(path, {"x": (7, 1)}).types["y"].shape == (1, 7)


#: While the last of `n` is less than a limit: it counts, w is doubled and a ninth of the number that stays is added.
WHILE = "WhileOptions"
GOES = ([("LESS", "", {}, ["n", "most"], ["more"])], ["n", "w", "k"], ["more"])
TURN = ([("ADD", "AddOptions", {}, ["n", "one"], ["n1"]),
         ("CONV_2D", "Conv2DOptions", {"StrideH": 1, "StrideW": 1}, ["w", "eye", "zeros"], ["v"]),
         ("MUL", "MulOptions", {}, ["k", "third"], ["t"]),
         ("ADD", "AddOptions", {}, ["v", "t"], ["u"])], ["n", "w", "k"], ["n1", "u", "k"])
LOOP_TENSORS = {**TENSORS, "n": Tensor((1,), "int32"), "n0": Tensor((1,), "int32"), "n1": Tensor((1,), "int32"),
                "last": Tensor((1,), "int32"), "one": np.array([1], np.int32), "most": np.array([5], np.int32),
                "more": Tensor((1,), "bool"), "k": (4,), "k0": (4,), "k1": (4,), "t": (4,)}


def looped(turn=TURN, goes=GOES, tensors=None) -> bytes:
    operators = [("ADD", "AddOptions", {}, ["x", "x"], ["z"]),
                 ("WHILE", WHILE, {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}, ["n0", "z", "k0"],
                  ["last", "y", "k1"])]
    return written(tensors or LOOP_TENSORS, operators, ["x", "n0", "k0"], ["last", "y"], behind=[goes, turn])


@pytest.mark.parametrize("first", [-3, 4, 5, 9])
def test_turns_until_the_run_ends_them(first: int, tmp_path):
    data, path = looped(), tmp_path / "one.tflite"
    path.write_bytes(data)
    graph, random = import_tflite(path), np.random.default_rng(2)
    (loop,) = (op for op in graph.ops if op.kind == "loop")
    assert loop.attrs.carried == 2, "what stays as it is does not go round"
    given = {"x": random.random((1, 2, 3, 4)).astype(np.float32), "n0": np.array([first], np.int32),
             "k0": random.random(4).astype(np.float32)}
    found, wanted = reference.run(graph, given), litert(data, given)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(("change", "message"), [
    ({"goes": (GOES[0], GOES[1], ["n"])}, r"its condition is int32\[1\]"),
    ({"goes": (GOES[0], GOES[1], ["more", "more"])}, "requires 1 outputs of a subgraph that has 2"),
    ({"turn": (TURN[0], TURN[1], ["n1", "u"])}, "requires 3 outputs of a subgraph that has 2"),
    ({"turn": (TURN[0], TURN[1], ["n1", "t", "k"])}, r"is float32\[1,2,3,4\] at first and then float32\[4\]"),
    ({"turn": ([("MUL", "MulOptions", {}, ["k", "x"], ["u"])], TURN[1], ["n", "u", "k"])},
     "in WHILE 'last': tensor 'x'"),
])
def test_loops_refused(change: dict, message: str, tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(looped(**change))
    with pytest.raises(ModelError, match=message):
        import_tflite(path)


#: A recurrent layer as Keras' converter writes it out: each turn reads a step, and puts what it gives into a list by
#: joining what is in front of it, the item, and what is behind it.
STEPS, UNITS = 7, 3
LIST = (STEPS, 1, UNITS)


def recurrent(next_step: int = 1, first_size: int = -1, empty: np.ndarray | None = None,
              filled: bool = False) -> bytes:
    """filled: the state begins as zeros of the batch of x, instead of as an input."""
    random = np.random.default_rng(3)

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    def numbers(*values: int) -> np.ndarray:
        return np.array(values, np.int32)

    growing = Tensor((1, 1, UNITS), signature=(-1, 1, UNITS))
    tensors = {
        "x": (STEPS, 1, 2), "zero": np.array(0, np.int32), "h0": (1, UNITS),
        "empty": np.zeros(LIST, np.float32) if empty is None else empty,
        "steps": np.array(STEPS, np.int32), "last": Tensor((), "int32"), "all": growing, "h9": (1, UNITS),
        "turn": Tensor((), "int32"), "list": growing, "h": (1, UNITS), "more": Tensor((), "bool"),
        "one": np.array(1, np.int32), "next": Tensor((), "int32"), "step": np.array(next_step, np.int32),
        "behind": Tensor((), "int32"), "w": drawn(UNITS, 2), "r": drawn(UNITS, UNITS), "b": drawn(UNITS),
        "now": (1, 2), "a": (1, UNITS), "c": (1, UNITS), "s": (1, UNITS), "h1": (1, UNITS), "length": numbers(1),
        "ends": numbers(first_size, -1), "starts": numbers(0, 0), "origin": numbers(0, 0, 0),
        "rest": numbers(-1, -1, -1), "turns": Tensor((1,), "int32"), "nexts": Tensor((1,), "int32"),
        "size": Tensor((3,), "int32"),
        "begin": Tensor((3,), "int32"), "before": growing, "item": (1, 1, UNITS), "after": growing, "joined": growing}
    body = [("ADD", "AddOptions", {}, ["turn", "one"], ["next"]),
            ("ADD", "AddOptions", {}, ["turn", "step"], ["behind"]),
            ("GATHER", "GatherOptions", {"Axis": 0}, ["x", "turn"], ["now"]),
            ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["now", "w", "b"], ["a"]),
            ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["h", "r", ""], ["c"]),
            ("ADD", "AddOptions", {}, ["a", "c"], ["s"]), ("TANH", "", {}, ["s"], ["h1"]),
            ("RESHAPE", "", {}, ["turn", "length"], ["turns"]), ("RESHAPE", "", {}, ["behind", "length"], ["nexts"]),
            ("CONCATENATION", "ConcatenationOptions", {"Axis": 0}, ["turns", "ends"], ["size"]),
            ("CONCATENATION", "ConcatenationOptions", {"Axis": 0}, ["nexts", "starts"], ["begin"]),
            ("SLICE", "", {}, ["list", "origin", "size"], ["before"]),
            ("SLICE", "", {}, ["list", "begin", "rest"], ["after"]),
            ("EXPAND_DIMS", "", {}, ["h1", "zero"], ["item"]),
            ("CONCATENATION", "ConcatenationOptions", {"Axis": 0}, ["before", "item", "after"], ["joined"])]
    ports = ["turn", "list", "h", "x"]
    loop = ("WHILE", WHILE, {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}, ["zero", "empty", "h0", "x"],
            ["last", "all", "h9", "x9"])
    tensors |= {"x9": (STEPS, 1, 2), "extents": Tensor((3,), "int32"), "batch": Tensor((), "int32"),
                "state": Tensor((2,), "int32"), "0.": np.array(0, np.float32), "units": np.array(UNITS, np.int32),
                **{f"{number}s": numbers(number) for number in (1, 2)}}
    fill = [("SHAPE", "ShapeOptions", {}, ["x"], ["extents"]),
            ("STRIDED_SLICE", "StridedSliceOptions", {"ShrinkAxisMask": 1}, ["extents", "1s", "2s", "1s"], ["batch"]),
            ("PACK", "PackOptions", {"ValuesCount": 2}, ["batch", "units"], ["state"]),
            ("FILL", "", {}, ["state", "0."], ["h0"])]
    return written(tensors, [*fill, loop] if filled else [loop], ["x"] if filled else ["x", "h0"], ["all", "h9"],
                   behind=[([("LESS", "", {}, ["turn", "steps"], ["more"])], ports, ["more"]),
                           (body, ports, ["next", "joined", "h1", "x"])])


def test_items_of_lists_are_written(tmp_path):
    data, path = recurrent(), tmp_path / "one.tflite"
    path.write_bytes(data)
    graph, random = import_tflite(path), np.random.default_rng(2)
    given = {"x": random.standard_normal((STEPS, 1, 2)).astype(np.float32),
             "h0": random.standard_normal((1, UNITS)).astype(np.float32)}
    found, wanted = reference.run(graph, given), litert(data, given)
    assert found["all"].shape == LIST and len(np.unique(wanted["all"])) == STEPS * UNITS
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, err_msg=name)


def listed(stacked=LIST) -> bytes:
    """The same layer as `select_tf_ops` leaves it: lists are values of TensorFlow's, and its operators' own."""
    random = np.random.default_rng(3)

    def drawn(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    list_ = Tensor((), "variant")
    tensors = {
        "x": (STEPS, 1, 2), "zero": np.array(0, np.int32), "h0": (1, UNITS), "steps": np.array(STEPS, np.int32),
        "given": list_, "empty": list_, "in": list_, "out": list_, "in9": list_, "out9": list_, "joined": list_,
        "last": Tensor((), "int32"), "h9": (1, UNITS), "turn": Tensor((), "int32"), "h": (1, UNITS),
        "more": Tensor((), "bool"), "one": np.array(1, np.int32), "next": Tensor((), "int32"),
        "w": drawn(UNITS, 2), "r": drawn(UNITS, UNITS), "b": drawn(UNITS), "now": (1, 2), "a": (1, UNITS),
        "c": (1, UNITS), "s": (1, UNITS), "h1": (1, UNITS), "items": np.array([-1, UNITS], np.int32),
        "steps_shape": np.array([1, 2], np.int32), "all": Tensor(stacked)}
    body = [("ADD", "AddOptions", {}, ["turn", "one"], ["next"]),
            (":FlexTensorListGetItem", "", {}, ["in", "turn", "steps_shape"], ["now"]),
            ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["now", "w", "b"], ["a"]),
            ("FULLY_CONNECTED", "FullyConnectedOptions", {}, ["h", "r", ""], ["c"]),
            ("ADD", "AddOptions", {}, ["a", "c"], ["s"]), ("TANH", "", {}, ["s"], ["h1"]),
            (":FlexTensorListSetItem", "", {}, ["out", "turn", "h1"], ["joined"])]
    ports = ["turn", "out", "h", "in"]
    own = [(":FlexTensorListFromTensor", "", {}, ["x", "steps_shape"], ["given"]),
           (":FlexTensorListReserve", "", {}, ["items", "steps"], ["empty"]),
           ("WHILE", WHILE, {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}, ["zero", "empty", "h0", "given"],
            ["last", "out9", "h9", "in9"]),
           (":FlexTensorListStack", "", {}, ["out9", "items"], ["all"])]
    return written(tensors, own, ["x", "h0"], ["all", "h9"],
                   behind=[([("LESS", "", {}, ["turn", "steps"], ["more"])], ports, ["more"]),
                           (body, ports, ["next", "joined", "h1", "in"])])


def test_lists_of_tensorflow(tmp_path):
    path, random = tmp_path / "one.tflite", np.random.default_rng(2)
    path.write_bytes(listed())
    given = {"x": random.standard_normal((STEPS, 1, 2)).astype(np.float32),
             "h0": random.standard_normal((1, UNITS)).astype(np.float32)}
    found, wanted = reference.run(import_tflite(path), given), litert(recurrent(), given)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("batch", [3, "B"])
@pytest.mark.parametrize("flex", [False, True])
def test_lists_of_another_batch(batch: int | str, flex: bool, tmp_path):
    """The file has a list of zeros of the batch that it was converted with; LiteRT runs no other batch, so it runs the
    rows one after the other."""
    path, random = tmp_path / "one.tflite", np.random.default_rng(2)
    path.write_bytes(listed() if flex else recurrent())
    given = {"x": random.standard_normal((STEPS, 3, 2)).astype(np.float32),
             "h0": random.standard_normal((3, UNITS)).astype(np.float32)}
    graph = import_tflite(path, {"x": (STEPS, batch, 2), "h0": (batch, UNITS)})
    found = reference.run(graph, given)
    for row in range(3):
        wanted = litert(recurrent(), {"x": given["x"][:, row:row + 1], "h0": given["h0"][row:row + 1]})
        np.testing.assert_allclose(found["all"][:, row:row + 1], wanted["all"], rtol=1e-5, atol=2e-6)
        np.testing.assert_allclose(found["h9"][row:row + 1], wanted["h9"], rtol=1e-5, atol=2e-6)


@pytest.mark.slow
def test_lists_of_a_batch_of_the_run(tmp_path):
    path, random = tmp_path / "one.tflite", np.random.default_rng(2)
    path.write_bytes(recurrent(filled=True))
    graph = import_tflite(path, {"x": (STEPS, "B", 2)})
    artifact = tvm_megcc.compile(path, "c", dispatch="x[1]=1..4")
    with tvm_megcc.load(artifact) as session:
        for batch in (1, 4, 2):
            feeds = {"x": random.standard_normal((STEPS, batch, 2)).astype(np.float32)}
            found, wanted = session.run(feeds), reference.run(graph, feeds)
            for name in wanted:
                np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)


def test_lists_of_another_batch_that_are_not_empty(tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(recurrent(empty=np.arange(STEPS * UNITS, dtype=np.float32).reshape(LIST)))
    with pytest.raises(ModelError, match=r"puts an item of \[2, 3\] into a list of float32\[7,1,3\], whose extents the "
                                         "file states: compile it with the shapes of the file, or convert the model"):
        import_tflite(path, {"x": (STEPS, 2, 2), "h0": (2, UNITS)})


def test_lists_that_do_not_fit(tmp_path):
    path = tmp_path / "one.tflite"
    path.write_bytes(listed((STEPS + 1, 1, UNITS)))
    with pytest.raises(ModelError, match=r"makes a list of 7 items, and float32\[8, 1, 3\] is stacked of it"):
        import_tflite(path)
    own = [(":FlexEmptyTensorList", "", {}, ["n", "m"], ["l"]), (":FlexTensorListStack", "", {}, ["l", "n"], ["y"])]
    tensors = {"x": (1,), "n": np.array([2], np.int32), "m": np.array(3, np.int32), "l": Tensor((), "variant"),
               "y": (3, 2)}
    path.write_bytes(written(tensors, own, ["x"], ["y"]))
    with pytest.raises(ModelError, match=r"lists whose length changes[^$]*without select_tf_ops, .* unroll=True"):
        import_tflite(path)


@pytest.mark.parametrize("change", [{"next_step": 2}, {"first_size": 2}])
def test_what_is_no_item(change: dict, tmp_path):
    """Joins of other lengths than the list's are not taken for it."""
    path = tmp_path / "one.tflite"
    path.write_bytes(recurrent(**change))
    with pytest.raises(ModelError, match="WHILE"):
        import_tflite(path)


def test_what_a_composite_consists_of(tmp_path):
    """The graph that it names, whatever it is called."""
    options = flexbuffers.Builder()
    with options.Map():
        pass
    composite = {"Name": "odml.anything", "DecompositionSubgraphIndex": 1,
                 "CompositeAttributes": np.frombuffer(bytes(options.Finish()), np.uint8)}

    def file(index: int, **tensors) -> bytes:
        own = [("ADD", "AddOptions", {}, ["x", "x"], ["z"]),
               ("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions", {**composite, "DecompositionSubgraphIndex": index},
                ["z", "eye"], ["y"])]
        return written(typed(**tensors), own, ["x"], ["y"], behind=[YES])
    data, path = file(1), tmp_path / "one.tflite"
    path.write_bytes(data)
    x = np.random.default_rng(1).random((1, 2, 3, 4)).astype(np.float32)
    (found,), (wanted,) = reference.run(import_tflite(path), {"x": x}).values(), litert(data, {"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    for index in (0, 7):
        path.write_bytes(file(index))
        with pytest.raises(ModelError, match=f"STABLEHLO_COMPOSITE 'y': runs graph {index} of 2"):
            import_tflite(path)
