# SPDX-License-Identifier: Apache-2.0
"""What the command reports, from Python: the same facts, and the same text."""

import html
import json

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError

DIGITS = paths.examples() / "digits.onnx"
IMAGE = np.load(paths.examples() / "digits.npz")["in:image"]


def command(capsys, *words: str):
    assert main([*map(str, words)]) == 0
    return capsys.readouterr().out


def test_compare(capsys):
    report = tvm_megcc.compare(DIGITS, arrays={"image": IMAGE}, reference="numpy", layers=True, optimize="size")
    assert report["equal"] is True and report["first_difference"] is None and len(report["layers"]) > 3
    arguments = ("compare", DIGITS, "--reference", "numpy", "--layers", "-O", "size",
                 "--inputs", paths.examples() / "digits.npz")
    assert str(report) == repr(report) == command(capsys, *arguments).rstrip("\n")
    assert report == json.loads(command(capsys, *arguments, "--json"))
    page = report._repr_html_()
    assert page.count("<table>") == 3 and f"<pre>{html.escape(str(report))}</pre>" in page
    assert all(f'<td style="text-align:left">{html.escape(row["kernel"])}</td>' in page for row in report["layers"])


def test_a_difference_is_no_error(tmp_path):
    assert not tvm_megcc.compare(DIGITS, reference="numpy", tolerance=0.0)["equal"]


def test_explain(capsys):
    report = tvm_megcc.explain(DIGITS, "x86-64-v3", inputs={"image": "uint8,scale=0.0625"})
    assert report["supported"] and str(report) == command(
        capsys, "explain", DIGITS, "--target", "x86-64-v3", "--input", "image=uint8,scale=0.0625").rstrip("\n")


def test_bench_and_inspect(tmp_path, capsys):
    folder = tvm_megcc.compile(DIGITS).save(tmp_path / "digits_megcc")
    report = tvm_megcc.bench(folder, arrays={"image": IMAGE}, repeat=2)
    assert report["seconds"]["runs"] == 2 and "digits" in str(report)
    said = json.loads(command(capsys, "bench", folder, "--repeat", 2, "--json", "--trace", tmp_path / "trace.json"))
    events = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in events] == [call["name"] for call in said["calls"]]
    assert main(["bench", str(folder), "--blocks", "2", "--trace", "a.json"]) == 1
    assert "leave out --against and --blocks" in capsys.readouterr().err
    assert str(tvm_megcc.inspect(folder)) == command(capsys, "inspect", folder).rstrip("\n")
    assert "kernels" in tvm_megcc.inspect(folder, size=True)["parts"]
    for view in (report, tvm_megcc.inspect(folder), tvm_megcc.inspect(folder, size=True)):
        assert view._repr_html_().count("<table>") >= 2


def test_what_is_wrong(tmp_path):
    with pytest.raises(TypeError, match=r"tvm_megcc.explain\(\) got an unexpected keyword argument 'optimise'"):
        tvm_megcc.explain(DIGITS, optimise="speed")
    with pytest.raises(TypeError, match=r"tvm_megcc.compile\(\): options are a CompileOptions, not str"):
        tvm_megcc.compile(DIGITS, "c", "size")
    with pytest.raises(MegccError, match="arrays has no 'image'; it has data"):
        tvm_megcc.compare(DIGITS, arrays={"data": IMAGE})
    for verb in (tvm_megcc.compare, tvm_megcc.bench):
        with pytest.raises(TypeError, match=r"arrays are a dictionary from names of inputs to arrays.*not ndarray"):
            verb(DIGITS, arrays=IMAGE)
    with pytest.raises(MegccError, match="reference is one of onnxruntime, litert, numpy, not 'torch'"):
        tvm_megcc.compare(DIGITS, reference="torch")
    for tolerance in ("x", -1, float("nan")):
        with pytest.raises(MegccError, match="tolerance is a number of at least 0"):
            tvm_megcc.compare(DIGITS, tolerance=tolerance)
    for repeat in ("x", 0, True):
        with pytest.raises(MegccError, match="repeat is a number of runs of at least 1"):
            tvm_megcc.bench(DIGITS, repeat=repeat)
    with pytest.raises(MegccError, match="bench one at a time"):
        tvm_megcc.bench([DIGITS, DIGITS])
    with pytest.raises(MegccError, match="does not exist"):
        tvm_megcc.inspect(tmp_path / "missing")
    for verb in (tvm_megcc.compare, tvm_megcc.explain, tvm_megcc.bench, tvm_megcc.inspect):
        with pytest.raises(TypeError, match=rf"tvm_megcc.{verb.__name__}\(\) takes the path of a model.*not bytes"):
            verb(b"model")
        assert verb.__name__ in dir(tvm_megcc)
