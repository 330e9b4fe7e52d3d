# SPDX-License-Identifier: Apache-2.0
"""`megcc list kernels --op`: what it says is what the compiler does, and times are of right results."""

from __future__ import annotations

import json

import pytest

from tvm_megcc import cli
from tvm_megcc.codegen.c_source.bind import bind
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError, for_the_command
from tvm_megcc.ir.graph import Attrs
from tvm_megcc.kernels.choice import choose
from tvm_megcc.kernels.site import Site
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.runtime.toolchain import runs_here
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.bench import candidates as listed

CONV = ("conv2d", ("1x16x12x12",), ("32x16x3x3", "32"), "pads=1,1,1,1")


@pytest.mark.slow
def test_a_convolution():
    report = listed.candidates(*CONV, target="arm64")
    assert report["macs"] == 12 * 12 * 32 * 16 * 9
    assert report["results"] == ["float32[1,32,12,12]"]
    rows = report["candidates"]
    assert [row["chosen"] for row in rows] == [True] + [False] * (len(rows) - 1)
    assert [row["cost"] for row in rows] == sorted(row["cost"] for row in rows)
    assert {"direct", "winograd", "winograd_raw", "pixels", "plain"} == {row["kernel"] for row in rows}
    assert report["refused"] == {"depthwise": "needs one filter a channel"}
    blocked = {row["kernel"]: row for row in rows if row["layouts"].startswith("nchw4c")}
    assert blocked["direct"]["weights"] == "conv_oihw(4,1)" and blocked["direct"]["weight_bytes"] == 32 * 16 * 9 * 4
    assert blocked["winograd_raw"]["weight_bytes"] == 32 * 16 * 9 * 4
    assert blocked["winograd"]["weight_bytes"] == 32 * 16 * 36 * 4 and blocked["winograd"]["workspace_bytes"] > 0
    assert all("us" not in row for row in rows)


@pytest.mark.parametrize("kind", ["conv2d", "matmul", "max_pool", "softmax", "concat", "lstm"])
def test_costs_are_those_of_selection(kind: str):
    """For the operator's own first case, in every layout."""
    case, target = OPERATORS[kind].cases[0], TARGETS["x86-64-v3"]
    written = [f"{dtype}:" + "x".join(map(str, shape)) for shape, dtype in
               (spec for spec in case.inputs if spec is not None)]
    graph = listed._graph(OPERATORS[kind], written[:1], written[1:], Attrs(case.attrs))
    report = listed.candidates(kind, written[:1], written[1:], target="x86-64-v3")
    best = {}
    for row in report["candidates"]:
        best.setdefault(row["layouts"], row)
    (op,) = graph.ops
    found = [c for c in listed.candidates_of(Site.of(graph, op, Context(target))) if not c.kernel.tile]
    for candidate in found:
        choice = choose(candidate.site)
        assert best[candidate.layouts]["kernel"] == choice.kernel.label
        assert best[candidate.layouts]["cost"] == round(choice.cost)
        assert best[candidate.layouts]["symbol"] == bind(candidate.site, choice).spec.symbol


@pytest.mark.slow
@pytest.mark.skipif(not runs_here(TARGETS["x86-64-v3"]), reason="no CPU with AVX2")
def test_times(capsys):
    """Each has one, those of -O size and other tiles too, and the fastest is 1.0 of itself."""
    report = listed.candidates(*CONV, target="x86-64-v3", time=True, tiles=True)
    rows = report["candidates"]
    assert all(row["us"] > 0 and row["code_bytes"] > 0 and row["of_fastest"] >= 1 for row in rows)
    assert min(row["of_fastest"] for row in rows) == 1
    assert any(row["kernel"] == "direct_1v" for row in rows)
    assert cli.main(["list", "kernels", "--op", "conv2d", "--shape", "1x16x12x12", "--weight", "32x16x3x3", "--attrs",
                     "pads=1,1,1,1; strides=2,2", "--target", "x86-64-v3", "-O", "size", "--time"]) == 0
    shown = capsys.readouterr().out
    assert "of fastest" in shown and "strides=2,2" in shown and "\n*  " in shown
    assert "winograd: no, its weights are several times as large as the model's" in shown


def test_json(capsys):
    assert cli.main(["list", "kernels", "--op", "softmax", "--shape", "4x100", "--target", "c", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["operator"] == "softmax" and report["candidates"][0]["chosen"]


@pytest.mark.parametrize(("arguments", "said"), [
    (("con2d", ["1x2"]), "no operator 'con2d'; 'conv2d'"),
    (("conv2d", ["1x4x5x5"]), "operands x, w, b?; 1 of them have a shape. Give --shape"),
    (("conv2d", ["1x4x5x5"], ["4x3x3x3"]), "require 3 input channels, float32[1,4,5,5] has 4"),
    (("conv2d", ["1x4x5x5"], ["4x4x3x3"], "pad=1"), "no attribute 'pad'; it has dilations, groups, pads, strides"),
    (("conv2d", ["1x4x5x5"], ["4x4x3x3"], "pads=1,1"), "pads=1,1: expected a value such as pads=0,0,0,0"),
    (("conv2d", ["1x4x5x5"], ["4x4x3x3"], "pads=one"), "pads=one: expected a value such as"),
    (("conv2d", ["1by4"], ["4x4x3x3"]), "'1by4' is no shape; write it as 1x64x56x56"),
    (("conv2d", ["int8:1x4x5x5"], ["4x4x3x3"]), "direct: x is int8, it works on float32"),
    (("reshape", ["1x4x5x5"], [], "shape=4,6"), "cannot have shape [4,6]"),
    (("softmax", ["4x4"], [], "", "c,arm64"), "one target, not for c,arm64"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_errors_say_what_to_do(arguments, said: str):
    with for_the_command(), pytest.raises(MegccError) as error:
        listed.candidates(*arguments)
    assert said in str(error.value)


@pytest.mark.parametrize(("arguments", "said"), [
    (["kernels", "--shape", "1x2"], "megcc list kernels --op conv2d --shape"),
    (["ops", "--op", "add"], "not for 'megcc list ops'")])
def test_options_that_do_not_fit(arguments, said: str, capsys):
    assert cli.main(["list", *arguments]) == 1
    assert said in capsys.readouterr().err
