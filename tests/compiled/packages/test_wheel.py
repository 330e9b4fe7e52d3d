# SPDX-License-Identifier: Apache-2.0
"""What is published: the sdist holds the whole checkout, its tests pass, and the wheel made of it compiles, builds and
runs in a fresh environment, with the checkout absent."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]

SCRIPT = """
import numpy as np, tvm_megcc
from tvm_megcc import paths
assert {checkout!r} not in tvm_megcc.__file__, tvm_megcc.__file__
assert {checkout!r} not in str(paths.c_runtime()) and paths.schema().exists()
sample = np.load(paths.examples() / "digits.npz")
folder = tvm_megcc.compile(paths.examples() / "digits.onnx").save("digits_megcc")
logits = tvm_megcc.load(folder).run({{"image": sample["in:image"]}})["logits"]
assert logits.argmax() == sample["label"]
"""

#: Tests that a packager runs: of the compiler, of what lies beside the package, and of generated C.
TESTS = ("tests/unit/passes/test_passes.py", "tests/unit/project/test_architecture.py",
         "tests/compiled/packages/test_extern.py")


def run(*command, cwd, **environment):
    """What the command prints. Nothing of the environment leads to this checkout."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    result = subprocess.run([str(part) for part in command], cwd=cwd, env={**clean, **environment},
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the sdist, and with the wheel that was made of it alone."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"
    shutil.copytree(CHECKOUT, source, ignore=shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", "demo_out", ".hypothesis"))
    run(sys.executable, "-m", "build", "-o", folder, source, cwd=folder)
    shutil.rmtree(source)
    return folder


@pytest.mark.slow
def test_wheel_without_the_checkout(dist, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python, megcc = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "megcc"
    run(python, "-m", "pip", "install", "-q", *dist.glob("*.whl"), cwd=tmp_path)
    run(python, "-c", SCRIPT.format(checkout=str(CHECKOUT)), cwd=tmp_path)
    assert "x86-64" in run(megcc, "list", "targets", cwd=tmp_path)
    run(megcc, "run", "digits_megcc", cwd=tmp_path)
    assert "ran       here: a 7, the right answer" in run(megcc, "demo", cwd=tmp_path)
    cache = tmp_path / "cache"  # nothing that was built before
    refused = subprocess.run([megcc, "demo", "-o", "other"], cwd=tmp_path, capture_output=True, text=True, check=False,
                             env={"PATH": str(megcc.parent), "MEGCC_CACHE": str(cache), "HOME": str(tmp_path)})
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == ("megcc: the demo needs a C compiler: install zig with 'pip install ziglang', or one of "
                              "the system, such as gcc or clang\n")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
@pytest.mark.long
def test_demo_with_nothing_but_zig(dist, tmp_path):
    """Nothing else is on the path: zig brings the compiler, the linker and the C library."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    bin = tmp_path / "venv" / "bin"
    run(bin / "python", "-m", "pip", "install", "-q", *dist.glob("*.whl"), "ziglang", cwd=tmp_path)
    assert "a 7, the right answer" in run(bin / "megcc", "demo", cwd=tmp_path, PATH=str(bin),
                                          MEGCC_CACHE=str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.long
def test_sdist_passes_its_tests(dist, tmp_path):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    if shutil.which("git") and (CHECKOUT / ".git").exists():
        tracked = set(run("git", "ls-files", cwd=CHECKOUT).split("\n")) - {"", ".gitignore"}
        missing = sorted(name for name in tracked if (CHECKOUT / name).exists() and not (source / name).exists())
        assert not missing, f"MANIFEST.in leaves out {missing}"
    out = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *TESTS, cwd=source,
              PYTHONPATH=str(source), MEGCC_CACHE=str(tmp_path / "cache"))
    assert " passed" in out, out
