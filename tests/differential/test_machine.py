# SPDX-License-Identifier: Apache-2.0
"""Drawn models of a fixed seed, and the parts of what draws, compiles and compares them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tvm_megcc.errors import MegccError, ToolError

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from .coverage import REFUSED, refusals  # noqa: E402
from .families import FAMILIES  # noqa: E402
from .family import Failed, Family, features_of, merged, value_class  # noqa: E402
from .result import BAD, Feature, Result  # noqa: E402
from .schedule import Plan, results  # noqa: E402
from .targets import TARGETS, chosen  # noqa: E402
from .worker import compile_each, compiled  # noqa: E402


class Named:
    def __init__(self, number: int):
        self.number, self.label = number, f"case {number}"


class Fake(Family):
    """Cases that are numbers. fails: number -> what is raised where it is among those that are compiled."""

    name, batch = "fake", 4

    def __init__(self, fails: dict[int, Exception]):
        self.fails, self.folders = fails, []

    def draw(self, seed, number, operator=""):
        return Named(number)

    def check(self, case):
        raise NotImplementedError

    def make(self, cases, target):
        for case in cases:
            if type(self.fails.get(case.number)) is MegccError:
                raise self.fails[case.number]

    def run(self, cases, target, folder):
        self.folders.append([case.number for case in cases])
        for case in cases:
            if case.number in self.fails:
                raise self.fails[case.number]
        return [{"y": np.array(case.number)} for case in cases]

    def compare(self, case, found):
        return "" if int(found["y"]) != 9 else "nine"

    def refusal(self, case):
        return "ten" if case.number == 10 else ""


def test_one_that_fails_leaves_the_others():
    family = Fake({2: MegccError("no"), 5: Failed("fault"), 7: ToolError("cc"), 11: KeyError("k"),
                   3: Failed("decode_save_opc: Assertion `ctx->insn_start != NULL' failed.")})
    found = list(compile_each(family, 1, "", range(12), "c"))
    assert [each.number for each in found] == list(range(12)) and {each.target for each in found} == {"c"}
    assert {each.number: each.outcome for each in found if each.outcome != "right"} == {
        2: "refused", 3: "emulator", 5: "crash", 7: "crash", 9: "wrong", 10: "refused", 11: "crash"}
    assert family.folders[:3] == [[0, 1, 3], [0], [1, 3]]  # 2 is refused before anything is built
    assert compiled(family, [], "c") == []


def test_models_side_by_side():
    """Of two cases; in graphs within a graph, too."""
    family = FAMILIES["onnx"]
    cases = [family.draw(3, number) for number in (401, 402)]
    model, feeds = merged(cases)
    assert sorted(feeds) == sorted(f"c{case.number}_{name}" for case in cases for name in case.feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = dict(zip([value.name for value in model.graph.output], session.run(None, feeds), strict=True))
    for case in cases:
        assert not family.compare(case, {"y0": found[f"c{case.number}_y0"]})
    inner = onnx.parser.parse_graph("g () => (float y) { y = Neg (x) }")
    outer = onnx.helper.make_node("If", ["b"], ["z"], then_branch=inner, else_branch=inner)
    cases[0].model.graph.node.append(outer)
    assert [node.input[0] for each in merged(cases)[0].graph.node if each.op_type == "If"
            for node in each.attribute[0].g.node] == ["c401_x"]


def test_features():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2] x, int64[1] i) => (float y) '
        "{ y = Gather <axis = -1> (x, i) }")
    assert features_of(model) == (Feature("Gather", ("float", "int64"), ("axis=-1",)),)
    assert [value_class(value) for value in (b"NOTSET", 3, 1e9, -7.5, float("nan"), [1, 2], 0.5)] == [
        "NOTSET", "3", "> 0", "< 0", "nan", "2 values", "> 0"]
    result = Result(1, "l", "right", "", "c", features_of(model))
    assert Result.of([1, "l", "right", "", "c", [["Gather", ["float", "int64"], ["axis=-1"]]]]) == result


def test_targets():
    names, skipped = chosen("all")
    assert set(names) <= set(TARGETS) and len(names) + len(skipped) == len(TARGETS)
    assert chosen("") == ([], [])
    (line,) = chosen("c,no-such-target")[1]
    assert line.startswith("skipped no-such-target: unknown target")


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param(name, marks=[pytest.mark.long] * (name not in ("onnx", "tflite")))
                                    for name in FAMILIES])
def test_drawn_models(family: str, tmp_path):
    """None is wrong in numpy, nor compiled for this machine."""
    if lacks := FAMILIES[family].missing():
        pytest.skip(lacks)
    found = list(results(Plan(family, seed=3, objects=tmp_path, first=400, count=300, targets=["native"], unit=3)))
    bad = [f"{each.target} {each.label}: {each.reason}" for each in found if each.outcome in BAD]
    assert not bad, "\n".join(bad)
    new = set(refusals((family, each) for each in found if not each.target)) - set(REFUSED.read_text().splitlines())
    assert not new, "refused, and not in refused.txt"
    for target in ("", "native"):
        outcomes = [each.outcome for each in found if each.target == target]
        assert len(outcomes) > 60 and outcomes.count("right") > 0.8 * len(outcomes)
