# SPDX-License-Identifier: Apache-2.0
"""`megcc export --for wheel`: the package in a fresh environment, where there is no compiler and nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.export import wheel

DIGITS = paths.examples() / "digits.onnx"
HOSTILE = "*/ \"\"\"'\\\u2028\n{x}#"


def installed(built: Path, where: Path) -> Path:
    """The Python of a new environment with the wheel, and with numpy, but nothing else of ours."""
    subprocess.run([sys.executable, "-m", "venv", where], check=True)
    python = where / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", built], check=True)
    (site,) = where.glob("lib/python*/site-packages")
    for part in Path(np.__file__).parents[1].glob("numpy*"):
        if part.name in ("numpy", "numpy.libs"):
            (site / part.name).symlink_to(part)
    return python


def said(python: Path, script: str) -> str:
    """What a script prints, where no program is on the path."""
    done = subprocess.run([python, "-c", script], env={"PATH": ""}, cwd=python.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_gives_what_the_model_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(DIGITS), "--for", "wheel", "--name", "some_digits", "--target", "native", "-q"]) == 0
    (built,) = (tmp_path / "some_digits_wheel").glob("*.whl")
    assert "some_digits-1.0.0-py3-none-" in built.name
    image = np.random.default_rng(0).uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    found = said(installed(built, tmp_path / "venv"), f"""
import threading, numpy as np, some_digits
image = np.load({str(tmp_path / 'image.npy')!r})
model, results = some_digits.Model(), []
for wrong in ({{}}, {{"image": image[0]}}, {{"image": image.astype(float)}}, {{"image": image, "more": image}}):
    try:
        model.run(wrong)
        raise SystemExit("not refused")
    except TypeError:
        pass
by_name = model.run({{"image": image}})["logits"]
for given in (image, [image], (image,)):
    assert np.array_equal(model.run(given)["logits"], by_name)
try:
    model.run([image, image])
    raise SystemExit("not refused")
except TypeError as error:
    assert "1 inputs" in str(error)
threads = [threading.Thread(target=lambda: results.append(model.run({{"image": image}})["logits"])) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
assert all((result == results[0]).all() for result in results) and len(results) == 4
print(results[0].tolist(), some_digits.__version__)
""")
    folder = tvm_megcc.compile(DIGITS, "native").save(tmp_path / "same")
    wanted = tvm_megcc.load(folder).run({"image": image})["logits"]
    np.testing.assert_array_equal(np.array(json.loads(found.rsplit(" ", 1)[0]), np.float32), wanted)


@pytest.mark.slow
def test_states_are_kept_and_names_are_no_code(tmp_path):
    made = model([node("Add", "x h", "y"), node("Identity", "y", "n")], {"x": [4], "h": [4]}, {"y": [4], "n": [4]})
    made.graph.node[0].output[0] = made.graph.node[1].input[0] = made.graph.output[0].name = HOSTILE
    compiled = tvm_megcc.compile(saved(made, tmp_path / "sum.onnx"), "native", states={"n": "h"})
    files = wheel.package(compiled.save(tmp_path / "sum", embed=True), "a_sum")
    (name,) = (name for name in files if name.endswith(".whl"))
    (tmp_path / name).write_bytes(files[name])
    assert files == wheel.package(tmp_path / "sum", "a_sum"), "the same model gives the same bytes"
    with zipfile.ZipFile(tmp_path / name) as archive:
        record = archive.read("a_sum-1.0.0.dist-info/RECORD").decode()
        assert {line.split(",")[0] for line in record.splitlines()} == set(archive.namelist())
    assert said(installed(tmp_path / name, tmp_path / "venv"), f"""
import numpy as np, a_sum
model = a_sum.Model()
for turn in range(3):
    found = model.run({{"x": np.arange(4, dtype=np.float32)}})
assert found[{HOSTILE!r}].tolist() == [0, 3, 6, 9], found
model.reset()
print(model.run({{"x": np.ones(4, np.float32)}})[{HOSTILE!r}].tolist())
""") == "[1.0, 1.0, 1.0, 1.0]\n"


@pytest.mark.parametrize(("target", "name", "version", "message"), [
    ("c", None, "1.0.0", "levels of one machine"), ("arm64,armv7", None, "1.0.0", "levels of one machine"),
    ("arm64", "json", "1.0.0", "no name of a Python package"), ("arm64", "class", "1.0.0", "no name of a Python"),
    ("arm64", "../x", "1.0.0", "no name of a Python package"), ("arm64", None, "1", "three numbers")])
def test_refusals(target, name, version, message, tmp_path):
    folder = tvm_megcc.compile(DIGITS, target).save(tmp_path / "digits")
    with pytest.raises(MegccError, match=message):
        wheel.package(folder, name, version)
