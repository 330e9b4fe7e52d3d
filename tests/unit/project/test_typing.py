# SPDX-License-Identifier: Apache-2.0
"""What mypy sees of the package. It keeps what it knows in `.mypy_cache`, as for whoever calls it by hand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_megcc

pytestmark = pytest.mark.xdist_group("mypy")  # one process writes its cache
PACKAGE = Path(tvm_megcc.__file__).parent
EXAMPLE = Path(__file__).with_name("typed_example.py")


def mypy(path: Path) -> str:
    """What it complains about in the file, with all it knows of the package's own types."""
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'tvm_megcc[test]'")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(path)],
        cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert not result.stderr, result.stderr
    return result.stdout


def test_a_program_with_types(tmp_path):
    assert mypy(EXAMPLE) == ""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(EXAMPLE.read_text().replace("threads=2", 'threads=2.5').replace("layers=True", "layer=True")
                     .replace("int(scores.argmax())", "scores"))
    said = mypy(wrong)
    assert all(word in said for word in ('"threads"', '"layer"', "Incompatible return value")), said


def extents_compared(path: Path, tmp_path: Path) -> list[str]:
    """Lines that compare or divide an extent as a number, which an expression over symbols is not: they raise a
    TypeError for models with open shapes. `ir.dims` has `number`, `static` and intervals for that."""
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'tvm_megcc[test]'")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path / "cache"), str(path)],
        cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert not result.stderr, result.stderr
    return [line for line in result.stdout.splitlines()
            if "SymbolicDim" in line and re.search(r"operand types? for (<|>|<=|>=|//|%) \(", line)]


@pytest.mark.slow
def test_extents_are_compared_only_where_they_are_numbers(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from tvm_megcc.ir.types import TensorType\n\n\ndef is_wide(x: TensorType) -> bool:\n"
                     "    return x.shape[0] > 8\n")
    assert len(extents_compared(wrong, tmp_path)) == 1
    assert not extents_compared(PACKAGE, tmp_path)


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").exists()
    assert all(hasattr(tvm_megcc, name) for name in ("bench", "compare", "explain", "inspect"))
