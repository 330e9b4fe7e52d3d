# SPDX-License-Identifier: Apache-2.0
"""`megcc report`: the facts, the page with hostile names in it, and how a browser shows it."""

import json
import re
import shutil
import subprocess
import tempfile

import numpy as np
import pytest
from onnx import helper

from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.toolchain import find_compiler, find_emulator
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.report import page as report_page

DIGITS = str(paths.examples() / "digits.onnx")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: A browser that fetches nothing by itself.
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
         "--enable-logging=stderr", "--virtual-time-budget=8000", "--window-size=1300,2000")
OWNED = "document.title='owned'"
HOSTILE = (f"</script><script>{OWNED}</script>", f"<img src=x onerror=\"{OWNED}\">", f"'\"-->{{{{ {OWNED} }}}}",
           f"$$\\href{{javascript:{OWNED}}}{{x}}$$", f"`${{{OWNED}}}`\\u003cscript>\u2028")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def needs_bokeh():
    pytest.importorskip("bokeh", reason="Bokeh is not installed: pip install 'tvm_megcc[report]'")


def hostile_model(path) -> str:
    """A chain of convolutions; every name wants to run a script."""
    first, name, second, weight, last = HOSTILE
    nodes = [helper.make_node("Conv", [first, weight], [second], name, pads=[1, 1, 1, 1]),
             helper.make_node("Softmax", [second], ["h" + last], last, axis=3),
             helper.make_node("Conv", ["h" + last, weight], [last], name + "2", pads=[1, 1, 1, 1])]
    shape = [1, 8, 16, 16]
    return saved(model(nodes, {first: shape}, {last: shape}, {weight: np.ones((8, 8, 3, 3), np.float32)}, name=first),
                 path)


@pytest.mark.slow
def test_facts(capsys):
    needs_bokeh()
    assert main(["report", DIGITS, "-o", "page.html", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    calls = [row for row in facts["rows"] if row["kernel"]]
    assert facts["time"]["measured"] and facts["time"]["unit"] == "ms" and facts["sizes"]["calls"] == len(calls)
    assert sum(row["share"] for row in calls) == pytest.approx(1)
    assert {total["kind"] for total in facts["sizes"]["code"]} >= {"conv2d", "matmul", "runtime"}
    assert len(facts["memory"]["live"]) == len(calls) + 1
    assert max(facts["memory"]["live"]) == facts["memory"]["lower_bound"] <= facts["memory"]["arena"]
    page = open("page.html", encoding="utf-8").read()
    assert all(row["kernel"] in page and row["operator"].split("#")[0].strip()[:12] in page for row in calls)


@pytest.mark.slow
def test_what_does_not_run_here_is_estimated(capsys):
    needs_bokeh()
    assert main(["report", DIGITS, "--target", "riscv64-v512", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert not facts["time"]["measured"] and facts["time"]["unit"] == "cycles"
    assert "this machine does not run code for riscv64-v512" in facts["time"]["how"]
    assert "Not measured" in open("digits_report.html", encoding="utf-8").read()


@pytest.mark.slow
def test_a_microcontroller_is_counted_as_bench_does(capsys):
    needs_bokeh()
    try:
        find_compiler(TARGETS["cortex-m4"]), find_emulator(TARGETS["cortex-m4"])
    except MissingTool as missing:
        pytest.skip(str(missing))
    assert main(["report", DIGITS, "--target", "cortex-m4", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["bench", DIGITS, "--target", "cortex-m4", "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    unit = facts["time"]["unit"]
    assert facts["time"]["measured"] and facts["time"]["total"] == counted[unit]
    assert [row["time"] for row in facts["rows"] if row["kernel"]] == [call[unit] for call in counted["calls"]]
    assert "in an emulator" in open("digits_report.html", encoding="utf-8").read()


@pytest.mark.slow
def test_shapes_that_change_are_the_largest_ones(tmp_path, capsys):
    needs_bokeh()
    nodes = [node("Sigmoid", "x", "h"), node("Softmax", "h", "y", axis=1)]
    saved(model(nodes, {"x": ["n", 100]}, {"y": ["n", 100]}), tmp_path / "open.onnx")
    assert main(["report", "open.onnx", "--dispatch", "x[0]=1..8", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["time"]["measured"] and facts["inputs"] == [{"name": "x", "type": "float32[n,100]"}]
    assert facts["memory"]["arena"] >= 2 * 8 * 100 * 4 and facts["memory"]["unbounded"] == 0
    assert main(["report", "open.onnx", "--dispatch", "x[0]=1..8,9..*", "-o", "page.html", "-q"]) == 0
    assert "values whose size has no limit" in open("page.html", encoding="utf-8").read()


def test_without_bokeh_the_message_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(report_page.importlib.util, "find_spec", lambda name: None)
    assert main(["report", DIGITS]) == REFUSED
    assert "pip install 'tvm_megcc[report]'" in capsys.readouterr().err


def test_the_model_itself_is_not_written_over(tmp_path, capsys):
    network = tmp_path / "net.onnx"
    network.write_bytes(b"model")
    assert main(["report", str(network), "-o", str(network)]) == REFUSED
    assert "would be lost" in capsys.readouterr().err and network.read_bytes() == b"model"


def test_a_folder_holds_no_reasons(capsys):
    needs_bokeh()
    assert main(["compile", DIGITS, "-o", "made", "-q"]) == 0
    assert main(["report", "made"]) == REFUSED
    assert "is compiled already" in capsys.readouterr().err


@pytest.mark.slow
def test_names_of_a_model_are_only_text(tmp_path):
    """Nothing of them is markup, and the page's policy names the scripts that may run."""
    needs_bokeh()
    assert main(["report", hostile_model(tmp_path / "hostile.onnx"), "-o", "page.html", "--target", "c", "-q"]) == 0
    page = open("page.html", encoding="utf-8").read()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert policy.startswith("default-src 'none'") and "'unsafe-inline'" not in policy.split("script-src")[1]
    assert len(scripts) == 3 and all(report_page._hash(script) in policy for script in scripts)
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "<img" not in body and "owned" in body and not re.search(r"(src|href)=[\"']?(https?:)?//", body)


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no browser: 'apt-get install chromium'")

    def run(page, *options) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            return subprocess.run([found, *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()],
                                  capture_output=True, text=True, timeout=120, check=False)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "hostile"])
def test_in_a_browser(name, browser, tmp_path):
    needs_bokeh()
    image = pytest.importorskip("PIL.Image")
    model = DIGITS if name == "digits" else hostile_model(tmp_path / "hostile.onnx")
    page = tmp_path / "page.html"
    assert main(["report", model, "-o", str(page), "-q"]) == 0
    shown = browser(page, "--dump-dom")
    assert shown.stdout.count("bk-Figure") >= 2, "both pictures are drawn"
    assert "<title>owned" not in shown.stdout
    said = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert not re.search("Error|Refused|Uncaught", "\n".join(said)), said
    browser(page, f"--screenshot={tmp_path / 'page.png'}")
    picture = np.asarray(image.open(tmp_path / "page.png").convert("RGB")).astype(int)
    blue = np.abs(picture - [0x00, 0x72, 0xB2]).max(axis=2) < 8
    assert blue.sum() > 5000, "the bars of the slowest kind"
