# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows: short, whole, and nothing of a model that a browser would take for its own."""

from html.parser import HTMLParser

import numpy as np
import pytest
from onnx import helper

import tvm_megcc
from tests.onnx_models import model
from tvm_megcc import notebook, paths
from tvm_megcc.frontends.tvm_common.reports import Report

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Page(HTMLParser):
    """What elements a page has, and its text."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        assert all(name in ("style", "src", "alt") for name, _ in attrs), attrs
        if tag != "img":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


@pytest.fixture(scope="module")
def artifact():
    return tvm_megcc.compile(paths.examples() / "digits.onnx", "x86-64-v3,arm64")


def test_an_artifact_is_a_line_of_text(artifact):
    # its targets are in the order of the folder
    names = ", ".join(target.name for target in artifact.targets)
    assert repr(artifact) == str(artifact) == (
        f"<Artifact digits for {names}: 'image': float32[1,1,8,8] -> 'logits': float32[1,10]; "
        f"{len(artifact.sources)} C files, container of {len(artifact.container):,} bytes>")


def test_an_artifact_as_a_page(artifact):
    page = Page(artifact._repr_html_())
    assert page.elements.count("img") == 1 and page.elements.count("table") == 3
    for text in ("image", "float32[1,1,8,8]", "arm64", "x86-64-v3", "conv1+relu1", "6 kernel calls for",
                 *(f"{program['weight_bytes']:,}" for program in artifact.manifest["programs"])):
        assert text in page.text


def test_names_of_a_model_are_text():
    product = helper.make_node("MatMul", [HOSTILE, "w"], [f"{HOSTILE} out"], HOSTILE)
    artifact = tvm_megcc.compile(model([product], {HOSTILE: [1, 3]}, {f"{HOSTILE} out": [1, 2]},
                                       {"w": np.ones((3, 2), np.float32)}, name=HOSTILE), "x86-64-v3")
    page = Page(artifact._repr_html_())
    assert HOSTILE in page.text and "script" not in page.elements and page.elements.count("img") == 1


def test_long_things_are_shortened():
    row = {"kind": "relu", "origin": "n" * 10_000, "output": "o", "kernel": "k", "type": "float32[1]", "macs": 0}
    facts = {"inputs": [], "outputs": [], "programs": [
        {"target": "t", "weight_bytes": 0, "arena_bytes": 0, "lower_bound": 0, "calls": [row] * 100_000}]}
    text = notebook.model("m", facts, "", "t")
    assert len(text) < 200_000 and "and 99,800 more" in Page(text).text


def test_a_partition_report():
    report = Report(regions={"r<0>": 2})
    report.ours.update({"conv2d": 2})
    report.theirs.update({HOSTILE: 1})
    report.reasons[HOSTILE] = type(report.ours)({"no kernel for <this>": 1})
    page = Page(report._repr_html_())
    assert HOSTILE in page.text and "no kernel for <this>" in page.text and "r<0>" in page.text
    assert "script" not in page.elements and "img" not in page.elements


def test_a_report_of_the_command():
    """Single facts, rows, and rows inside rows; the text of the command is there too."""
    facts = {"model": HOSTILE, "equal": True, "nothing": None, "seconds": {"median": 0.00012345, "runs": 1234.0},
             "empty": [], "rows": [{"name": "a", "shape": [1, 8], "kernel": "k" * 130, "refused": {"x": "too wide"}},
                                   {"name": HOSTILE, "bytes": 12345, "calls": [{"inner": 7}]}]}
    page = Page(notebook.report(facts, f"first {HOSTILE}\nsecond"))
    assert page.elements.count("table") == 3 and "script" not in page.elements and "img" not in page.elements
    for text in (f"first {HOSTILE}", "second", "True", "seconds median", "0.0001234", "1,234", "1, 8", "k" * 130,
                 "x: too wide", "12,345", f"calls of {HOSTILE}", "inner"):
        assert text in page.text, text


def test_a_report_with_many_rows():
    text = notebook.report({"calls": [{"name": "n" * 10_000}] * 100_000}, "m")
    assert len(text) < 100_000 and "and 99,800 more" in Page(text).text
