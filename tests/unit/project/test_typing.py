# SPDX-License-Identifier: Apache-2.0
"""What type checkers see of the package."""

import subprocess
import sys
from pathlib import Path

import pytest

import tvm_megcc

PACKAGE = Path(tvm_megcc.__file__).parent
EXAMPLE = Path(__file__).with_name("typed_example.py")


def mypy(path: Path, tmp_path: Path) -> str:
    """What it complains about in the file, with all it knows of the package's own types."""
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'tvm_megcc[test]'")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"),
         "--no-error-summary", str(path)], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert not result.stderr, result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_program_with_types(tmp_path):
    assert mypy(EXAMPLE, tmp_path) == ""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(EXAMPLE.read_text().replace("threads=2", 'threads="2"').replace("layers=True", "layer=True")
                     .replace("int(scores.argmax())", "scores"))
    said = mypy(wrong, tmp_path)
    assert all(word in said for word in ('"threads"', '"layer"', "Incompatible return value")), said


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").exists()
    assert all(hasattr(tvm_megcc, name) for name in ("bench", "compare", "explain", "inspect"))
