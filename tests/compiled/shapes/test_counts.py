# SPDX-License-Identifier: Apache-2.0
"""Extents that a run computes, compiled: against the interpreter, in memory that was planned for their bounds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper

import tvm_megcc
from tests.onnx_models import graph_proto, model, node
from tvm_megcc.codegen import container
from tvm_megcc.errors import MegccError, MissingTool
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.runtime import reference
from tvm_megcc.runtime.device import local_session


def same(session, graph, inputs) -> dict[str, np.ndarray]:
    results, expected = session.run(inputs), reference.run(graph, inputs)
    for name, value in expected.items():
        assert results[name].shape == value.shape
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-6)
    return results


def masks(generator: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Of which nothing, some, and all is set."""
    return [(generator.random(shape) < share).astype(np.float32) * 2 for share in (0.5, 0.0, 1.0, 0.2)]


def counting():
    """Counts of two tensors, one that results have and one that a shape is made from."""
    nodes = [node("NonZero", "x", "a"), node("Transpose", "a", "t"), node("GatherND", "x t", "g"),
             node("Exp", "g", "e"),
             node("NonZero", "y", "b"), node("Shape", "b", "s"), node("Gather", "s one", "n"),
             node("Add", "n one", "m"), node("Concat", "m two", "shape", axis=0), node("Expand", "v shape", "w")]
    return model(nodes, {"x": [3, 4], "y": [9], "v": [1, 2]}, {"a": ("int64", [2, "p"]), "e": ["p"], "w": ["q", 2]},
                   {"one": np.array([1]), "two": np.array([2])})


@pytest.mark.slow
def test_what_a_run_counts(tmp_path):
    """Counts of two tensors, an extent that follows from one of them, results of both, none and all of them. A session
    goes on after a run that went beyond a bound; nothing is allocated."""
    source = counting()
    artifact = tvm_megcc.compile(source, "native", bounds={"b": 5}, name="counts")
    graph, generator = import_onnx(source, bounds={"b": 5}), np.random.default_rng(1)
    assert artifact.manifest["buckets"] == [{"a": [0, 12], "b": [0, 5]}]
    with tvm_megcc.load(artifact.save(tmp_path / "counts")) as session:
        assert [port.shape for port in session.outputs] == [(2, "a"), ("a",), ("b + 1", 2)]
        bound = session.bind({"x": (x := np.ones((3, 4), np.float32)), "y": np.zeros(9, np.float32)})
        for mask in masks(generator, (3, 4)):
            y = np.zeros(9, np.float32)
            y[:int(mask.sum()) % 6] = 1
            given = {"x": mask, "y": y, "v": np.array([[1, 2]], np.float32)}
            same(session, graph, given)
            with pytest.raises(MegccError, match="a value of 'b'"):
                session.run({**given, "y": np.ones(9, np.float32)})
        x[1:] = 0
        assert bound()["a"].tolist() == [[0, 0, 0, 0], [0, 1, 2, 3]] and bound()["w"].shape == (1, 2)


def expanding():
    """A shape that is an input, of which nothing is known."""
    return model([node("Expand", "x s", "e"), node("Exp", "e", "y")], {"x": [1, 3], "s": ("int64", [2])}, ["y"])


def test_extents_without_a_bound_are_allocated(tmp_path):
    """In both directions of growth."""
    source = expanding()
    graph = import_onnx(source)
    with tvm_megcc.load(tvm_megcc.compile(source, "native", name="expand").save(tmp_path / "expand")) as session:
        for rows in (4, 0, 90, 1, 1000):
            result = same(session, graph, {"x": np.ones((1, 3), np.float32), "s": np.array([rows, 3])})
            assert result["y"].shape == (rows, 3)
        with pytest.raises(MegccError, match="Bound"):
            session.run({"x": np.ones((1, 3), np.float32), "s": np.array([-1, 3])})


@pytest.mark.parametrize("target", ["native", "c"])
def test_extents_that_a_shape_leaves_as_they_are(target, tmp_path):
    """By 1 in a shape that a run is given."""
    x = np.array([[3], [-4]], np.int8)
    source = model([node("Expand", "x s", "y")], {"x": ("int8", [2, 1]), "s": ("int64", [3])}, ["y"])
    with tvm_megcc.load(tvm_megcc.compile(source, target).save(tmp_path / "out"), target) as session:
        for shape in ([1, 1, 1], [1, 2, 1], [4, 1, 5], [1, 1, 0]):
            found = session.run({"x": x, "s": np.array(shape)})["y"]
            np.testing.assert_array_equal(found, x * np.ones(shape, np.int8))
        for shape in ([1, 3, 1], [1, 0, 1], [1, -1, 1]):
            with pytest.raises(MegccError, match=r"s\[1\]"):
                session.run({"x": x, "s": np.array(shape)})


def detector(boxes: int = 60):
    """Scores and boxes from a picture, the best boxes of each class, and what a further layer makes of those."""
    generator = np.random.default_rng(3)
    draw = lambda *shape: generator.normal(size=shape).astype(np.float32)  # noqa: E731
    nodes = [node("Conv", "x wb", "cb", strides=[2, 2]), node("Conv", "x ws", "cs", strides=[2, 2]),
             node("Reshape", "cb as_boxes", "tb"), node("Transpose", "tb", "boxes", perm=[0, 2, 1]),
             node("Reshape", "cs as_scores", "flat"), node("Sigmoid", "flat", "scores"),
             node("NonMaxSuppression", "boxes scores most share least", "found"),
             node("Gather", "found two", "which", axis=1), node("Gather", "boxes which", "kept", axis=1),
             node("MatMul", "kept w", "y")]
    side = int(boxes ** 0.5)
    return model(nodes, {"x": [1, 3, 2 * side, 2 * side]}, {"found": ("int64", ["n", 3]), "y": [1, "n", 5]},
                 {"wb": draw(4, 3, 2, 2), "ws": draw(2, 3, 2, 2), "as_boxes": np.array([1, 4, -1]), "w": draw(4, 5),
                  "as_scores": np.array([1, 2, -1]), "two": np.array(2), "most": np.array([6]),
                  "share": np.array([0.4], np.float32), "least": np.array([0.85], np.float32)}), side


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m4", *(pytest.param(name, marks=pytest.mark.long)
                                                   for name in ("native", "riscv32"))])
def test_a_detector_needs_no_allocator(target, tmp_path):
    source, side = detector()
    folder = tvm_megcc.compile(source, target, name="detector").save(tmp_path / target, embed=True)
    graph, generator = import_onnx(source), np.random.default_rng(0)
    found = []
    with tvm_megcc.load(folder) as session:
        for scale in (0.3, 0, 3):
            x = scale * generator.normal(size=(1, 3, 2 * side, 2 * side)).astype(np.float32)
            found.append(len(same(session, graph, {"x": x})["found"]))
    assert found[1] == 0 and found[0] != found[2] and 0 < found[0] <= 12
    with pytest.raises(MegccError, match='n; give bounds with bounds="NAME=1000", or ranges'):
        tvm_megcc.compile(model([node("Relu", "x", "y")], {"x": ["n"]}, ["y"]), "cortex-m4", dispatch="x[0]=1..*")


@pytest.mark.parametrize("target", ["native", pytest.param("arm64", marks=pytest.mark.slow),
                                    pytest.param("riscv64-v", marks=pytest.mark.slow)])
def test_boxes_of_any_size(target, tmp_path):
    """Many that overlap, boxes without an area, and such as are not finite; shares at their ends and beyond."""
    names = ("boxes", "scores", "most", "share", "least")
    reals = {"boxes": [2, 300, 4], "scores": [2, 3, 300], "share": [1], "least": [1]}
    source = model([node("NonMaxSuppression", " ".join(names), "found")], {**reals, "most": ("int64", [1])},
                   {"found": ("int64", [None, 3])})
    graph, generator = import_onnx(source), np.random.default_rng(7)
    try:
        session = tvm_megcc.load(tvm_megcc.compile(source, target, name="boxes").save(tmp_path / target), target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    with session, np.errstate(all="ignore"):
        for share, odd in ((0.5, None), (0.3, 0.0), (0.0, None), (1.0, None), (-0.5, None), (0.5, np.inf),
                           (0.4, np.nan), (0.5, 3e38)):
            boxes = generator.uniform(-1, 1, (2, 300, 4)).astype(np.float32)
            if odd is not None:
                boxes[generator.random(boxes.shape) < 0.1] = odd
            given = {"boxes": boxes, "scores": generator.random((2, 3, 300)).astype(np.float32).round(2),
                     "most": np.array([120]), "share": np.array([share], np.float32),
                     "least": np.array([0.05], np.float32)}
            assert same(session, graph, given)["found"].shape[1] == 3


def nested():
    """A loop that the run ends, with a loop in it that ends by itself, a branch, and a count; and what each turn gave.
    """
    scalar, flag = ("int64", []), ("bool", [])
    inner = graph_proto([node("Mul", "w half", "w2"), node("ReduceMax", "w2", "m", keepdims=0),
                         node("Greater", "m one", "go")], {"j": scalar, "g2": flag, "w": [4]}, {"go": flag, "w2": [4]},
                        {"half": np.float32(0.5), "one": np.float32(1)})
    yes, no = (graph_proto([node(kind, names, kind)], {}, {kind: [4]})
               for kind, names in (("Sub", "v x0"), ("Add", "v v")))
    body = graph_proto([helper.make_node("Loop", ["five", "", "v"], ["shrunk"], body=inner),
                        node("ReduceSum", "shrunk", "sum", keepdims=0), node("Greater", "sum lim", "c"),
                        helper.make_node("If", ["c"], ["u"], then_branch=yes, else_branch=no),
                        node("Relu", "u", "r"), node("NonZero", "r", "nz"), node("Transpose", "nz", "t"),
                        node("GatherND", "r t", "kept"), node("ReduceSum", "kept", "total", keepdims=0),
                        node("Less", "i five", "k")],
                       {"i": scalar, "g": flag, "v": [4]}, {"k": flag, "u": [4], "total": []},
                       {"lim": np.float32(2), "five": np.int64(5)})
    return model([node("Neg", "x", "x0"), helper.make_node("Loop", ["n", "", "x"], ["last", "sums"], body=body)],
                 {"x": [4], "n": scalar}, {"last": [4], "sums": ["turns"]})


def turning():
    """A loop in which two values of different sizes go round, all of whose shapes are known."""
    body = graph_proto([node("Add", "v v", "u"), node("Neg", "w", "z")],
                       {"i": ("int64", []), "g": ("bool", []), "v": [4], "w": [2, 3]},
                       {"g": ("bool", []), "u": [4], "z": [2, 3]})
    return model([helper.make_node("Loop", ["n", "c", "x", "y"], ["last", "other"], body=body)],
                 {"x": [4], "y": [2, 3], "n": ("int64", []), "c": ("bool", [])}, {"last": [4], "other": [2, 3]})


@pytest.mark.slow
def test_damaged_loops_are_refused(tmp_path):
    """Each rule about copies, jumps and turns, broken by itself: with the field that it is about."""
    folder = tvm_megcc.compile(turning(), "native", name="turning").save(tmp_path / "turning")
    file = folder / "turning.megcc"
    found = container.read(file.read_bytes())
    (program,) = found.programs
    opcodes = [instruction.opcode.name for instruction in program.instructions]
    first, last, move = opcodes.index("loop"), len(opcodes) - 1 - opcodes[::-1].index("loop"), opcodes.index("move")
    given = {"x": np.ones(4, np.float32), "y": np.ones((2, 3), np.float32), "n": np.array(3), "c": np.array(True)}
    with tvm_megcc.load(folder) as session:
        assert session.run(given)["last"].tolist() == [8] * 4
        assert session.run({**given, "c": np.array(False)})["last"].tolist() == [1] * 4
    operands = {name: index for index, name in enumerate(("x", "y", "n", "c", "last", "other"))}

    def refused(index: int, where: str, operand: dict[int, int] | None = None, **fields: int) -> None:
        instructions, values = list(program.instructions), list(program.operands)
        instructions[index] = dataclasses.replace(instructions[index], **fields)
        for place, tensor in (operand or {}).items():
            values[program.instructions[index].operands + place] = tensor
        changed = dataclasses.replace(program, instructions=tuple(instructions), operands=tuple(values))
        file.write_bytes(container.write(dataclasses.replace(found, programs=(changed,))))
        with pytest.raises(MegccError, match=where):
            tvm_megcc.load(folder)

    assert program.instructions[move].inputs == 2
    refused(move, "Instruction.inputs", inputs=4)
    refused(move, "Instruction.operands", operands=10**6)
    moves = [i for i, name in enumerate(opcodes) if name == "move" and program.operands[
        program.instructions[i].operands + 1] in (operands["last"], operands["other"])]
    refused(moves[0], "Program.operands", {1: operands["x"]})              # an input is not written
    refused(moves[0], "Tensor.dtype", {0: operands["n"]})
    refused(moves[0], "TensorSlot.offset", {0: operands["last"], 1: operands["last"]})
    larger = operands["y"] if program.operands[program.instructions[moves[0]].operands] == operands["x"] else None
    if larger is not None:
        refused(moves[0], "Tensor.dims", {0: larger})
    refused(first, "Instruction.first_extent", first_extent=first)         # its end is behind it
    refused(first, "Instruction.first_extent", first_extent=len(opcodes) + 1)
    refused(last, "Instruction.first_extent", first_extent=last + 1)
    refused(last, "Instruction.first_extent", first_extent=0)
    refused(last, "Program.operands", {0: operands["n"]})                  # the turn is written
    refused(last, "Program.operands", {1: operands["x"]})
    refused(last, "Program.operands", {2: operands["n"]})
    refused(last, "Instruction.inputs", inputs=2)


@pytest.mark.slow
def test_damaged_counts_are_refused(tmp_path):
    folder = tvm_megcc.compile(counting(), "native", bounds={"b": 5}, name="counts").save(tmp_path / "counts")
    file = folder / "counts.megcc"
    found = container.read(file.read_bytes())
    (program,) = found.programs
    index = [instruction.opcode.name for instruction in program.instructions].index("extent")
    given = {"x": np.ones((3, 4), np.float32), "y": np.zeros(9, np.float32), "v": np.ones((1, 2), np.float32)}
    for where, fields in (("Instruction.first_extent", {"first_extent": 1}),
                          ("Instruction.first_extent", {"first_extent": 7}),
                          ("Instruction.operands", {"operands": 0}), ("Instruction.operands", {"operands": 10**6}),
                          ("instruction", {"inputs": 3})):
        instructions = list(program.instructions)
        instructions[index] = dataclasses.replace(instructions[index], **fields)
        changed = dataclasses.replace(program, instructions=tuple(instructions))
        file.write_bytes(container.write(dataclasses.replace(found, programs=(changed,))))
        with pytest.raises(MegccError, match=where), tvm_megcc.load(folder) as session:
            session.run(given)


@pytest.mark.slow
def test_a_loop_of_no_turns_gives_nothing(tmp_path):
    """Also where nothing limits the turns, so that memory of what they give is there from the first one on."""
    body = graph_proto([node("Add", "v v", "u"), node("ReduceMax", "u", "m", keepdims=0), node("Identity", "g", "k")],
                       {"i": ("int64", []), "g": ("bool", []), "v": [3]}, {"k": ("bool", []), "u": [3], "m": []})
    source = model([helper.make_node("Loop", ["n", "", "x"], ["y", "most"], body=body)],
                   {"x": [3], "n": ("int64", [])}, {"y": [3], "most": ["turns"]})
    x = np.array([1, 2, 3], np.float32)
    with tvm_megcc.load(tvm_megcc.compile(source, name="turns").save(tmp_path / "turns")) as session:
        for turns, most in ((0, []), (2, [6, 12]), (-1, []), (-2**63, []), (1, [6])):
            given = session.run({"x": x, "n": np.array(turns)})
            np.testing.assert_array_equal(given["most"], np.float32(most))
            np.testing.assert_array_equal(given["y"], x * 2 ** len(most))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", pytest.param("c", marks=pytest.mark.long), "cortex-m4"])
def test_loops_and_branches(target, tmp_path):
    source, generator = nested(), np.random.default_rng(5)
    graph = import_onnx(source, bounds={"last": 8})
    artifact = tvm_megcc.compile(source, target, bounds={"last": 8}, name="nested")
    with tvm_megcc.load(artifact.save(tmp_path / target, embed=True)) as session:
        for turns in (0, 1, 3, 50):
            given = {"x": generator.normal(scale=3, size=4).astype(np.float32), "n": np.array(turns)}
            assert same(session, graph, given)["sums"].shape == (min(turns, 6),)
            onnxruntime = pytest.importorskip("onnxruntime")
            expected = onnxruntime.InferenceSession(source.SerializeToString()).run(["sums"], given)[0]
            np.testing.assert_allclose(session.run(given)["sums"], expected, rtol=1e-5)


def test_different_values(tmp_path):
    """Unique in both orders, what the run finds of each, and a layer behind it; a bound that the user states."""
    nodes = [node("Unique", "x", "y first inverse members"), node("Exp", "y", "e"),
             node("Unique", "x", "z", sorted=0), node("Unique", "w", "rows", axis=1)]
    source = model(nodes, {"x": ["n"], "w": [2, 6]}, {"e": ["u"], "first": ("int64", ["u"]), "z": ["v"],
                   "inverse": ("int64", ["n"]), "members": ("int64", ["u"]), "rows": [2, "r"]})
    artifact = tvm_megcc.compile(source, "native", dispatch="x[0]=1..30", bounds={"rows": 3}, name="unique")
    draw = np.random.default_rng(4)
    with tvm_megcc.load(artifact.save(tmp_path / "unique")) as session:
        for n, values in ((30, 8), (1, 1), (17, 1), (30, 1000)):
            x, w = draw.integers(0, values, n).astype(np.float32) / 16, draw.integers(0, 2, (2, 6)).astype(np.float32)
            w[1] = w[0] * 2
            y, *rest = np.unique(x, True, True, True)
            found = session.run({"x": x, "w": w})
            np.testing.assert_allclose(found["e"], np.exp(y), rtol=1e-5)
            for name, expected in zip(("first", "inverse", "members"), rest, strict=True):
                np.testing.assert_array_equal(found[name], expected)
            np.testing.assert_array_equal(found["z"], list(dict.fromkeys(x.tolist())))
            np.testing.assert_array_equal(found["rows"], np.unique(w, axis=1))
        with pytest.raises(MegccError):
            session.run({"x": x, "w": np.arange(12, dtype=np.float32).reshape(2, 6)})


def best_boxes():
    """The best of the boxes above a score, of which there may be none, and columns of these, as RetinaNet has it."""
    nodes = [node("Greater", "s least", "above"), node("NonZero", "above", "places"),
             node("Transpose", "places", "rows", perm=[1, 0]), node("GatherND", "b rows", "boxes"),
             node("GatherND", "s rows", "scores"), node("Shape", "scores", "found"),
             node("Concat", "most found", "both", axis=0), node("ReduceMin", "both", "fewer", keepdims=0),
             node("Reshape", "fewer all", "k"), node("TopK", "scores k", "best order"),
             node("Gather", "boxes order", "y"),
             node("Slice", "y one three one one", "middle"), node("Slice", "y three four one one", "last")]
    return model(nodes, {"s": [20], "b": [20, 4]}, {"best": ["n"], "middle": ["n", 2], "last": ["n", 1]},
                 {"least": np.float32(0.5), "most": np.array([5]), "all": np.array([-1]), "one": np.array([1]),
                  "three": np.array([3]), "four": np.array([4])})


@pytest.mark.slow
def test_columns_of_what_may_be_nothing(tmp_path):
    source, generator = best_boxes(), np.random.default_rng(2)
    artifact, graph = tvm_megcc.compile(source, "native", name="boxes"), import_onnx(source)
    assert artifact.manifest["buckets"] == [{"places": [0, 20]}], "what the least of two numbers can be follows"
    with tvm_megcc.load(artifact.save(tmp_path / "boxes")) as session:
        for count in (0, 3, 20, 1, 0):
            scores = np.where(np.arange(20) < count, generator.permutation(20) + 1, 0).astype(np.float32)
            found = same(session, graph, {"s": scores, "b": generator.random((20, 4)).astype(np.float32)})
            assert found["last"].shape == (min(count, 5), 1)


def read_by_runs():
    """Numbers that need not be extents: a shape with -1 and 0, of a constant too, pads that crop, a depth."""
    return model([node("Reshape", "x s", "r"), node("Reshape", "c s", "constant"), node("Pad", "x p", "padded"),
                  node("OneHot", "i d v", "places"), node("NonZero", "z", "none"), node("Exp", "r", "e")],
                 {"x": [2, 6], "s": ("int64", [2]), "p": ("int64", [4]), "d": ("int64", []), "i": ("int64", [3]),
                  "z": []},
                 ["r", "constant", "padded", "places", "none", "e"],
                 {"c": np.arange(12, dtype=np.float32).reshape(2, 6), "v": np.array([0, 1], np.float32)}, opset=18)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["native", "c"])
def test_numbers_that_need_not_be_extents(tmp_path, target):
    """Within bounds, so that nothing is allocated."""
    bounds = {"p": 4, "d": 7}
    source = read_by_runs()
    graph = import_onnx(source, bounds=bounds)
    artifact = tvm_megcc.compile(source, target, bounds=bounds, name="read")
    with tvm_megcc.load(artifact.save(tmp_path / "read")) as session:
        given = {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "i": np.array([0, 1, -1]), "z": np.float32(1)}
        for shape, pads, depth in (([3, 4], [0, 0, 0, 0], 3), ([-1, 3], [-1, -2, 0, 3], 1),
                                   ([0, -1], [1, 4, -2, -6], 7)):
            same(session, graph, {**given, "s": np.array(shape), "p": np.array(pads), "d": np.array(depth)})
        with pytest.raises(MegccError):
            session.run({**given, "s": np.array([5, -1]), "p": np.array([0] * 4), "d": np.array(3)})


@pytest.mark.slow
def test_triangles_of_extents_that_change(tmp_path):
    source = model([node("Trilu", "x k", "y", upper=0), node("EyeLike", "x", "eye", k=1), node("Add", "y eye", "z")],
                   {"x": ["n", "m"], "k": ("int64", [])}, ["z"])
    artifact = tvm_megcc.compile(source, "native", dims={"n": "1..9", "m": "1..40"}, name="triangles")
    graph = import_onnx(source)
    with tvm_megcc.load(artifact.save(tmp_path / "triangles")) as session:
        for rows, columns in ((9, 40), (1, 1), (7, 3)):
            for k in (-2, 0, 5):
                same(session, graph, {"x": np.ones((rows, columns), np.float32), "k": np.array(k)})


def test_outputs_of_any_size_cannot_be_timed(tmp_path):
    """Timing keeps memory for all outputs in another process."""
    source = model([node("Expand", "v shape", "y")], {"v": [1], "shape": ("int64", [2])}, ["y"])
    folder = tvm_megcc.compile(source, "c", name="any").save(tmp_path / "any")
    given = {"v": np.ones(1, np.float32), "shape": np.array([2, 3])}
    assert tvm_megcc.load(folder).run(given)["y"].shape == (2, 3)
    with pytest.raises(MegccError, match=r"the size of y is known only at run time.*y=1000"):
        local_session(folder).times(given, 1, 0)
