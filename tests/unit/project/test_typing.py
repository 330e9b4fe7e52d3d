# SPDX-License-Identifier: Apache-2.0
"""What mypy sees of the package. It keeps what it knows in `.mypy_cache`, as for whoever calls it by hand."""

import collections
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_megcc

PACKAGE = Path(tvm_megcc.__file__).parent
EXAMPLE = Path(__file__).with_name("typed_example.py")
UNTYPED = Path(__file__).with_name("untyped.txt")


@functools.cache
def complaints(path: Path) -> tuple[str, ...]:
    """What `mypy --strict` says of a file or a folder with all that it imports, a line each, by the settings of
    pyproject.toml."""
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'tvm_megcc[test]'")
    result = subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", str(path)], cwd=PACKAGE.parent,
                            capture_output=True, text=True, check=False)
    assert not result.stderr, result.stderr
    return tuple(line for line in result.stdout.splitlines() if ": error: " in line)


def of_the_file(path: Path) -> list[str]:
    """What it says of the file alone."""
    return [line for line in complaints(path) if Path(line.partition(":")[0]).name == path.name]


def test_a_program_with_types(tmp_path):
    assert not of_the_file(EXAMPLE)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(EXAMPLE.read_text().replace("threads=2", 'threads=2.5').replace("layers=True", "layer=True")
                     .replace("int(scores.argmax())", "scores"))
    said = "\n".join(of_the_file(wrong))
    assert all(word in said for word in ('"threads"', '"layer"', "Incompatible return value")), said


def test_files_with_types_stay_so():
    """Files that `mypy --strict` still complains about are listed in untyped.txt: who types one takes it out."""
    untyped = set(UNTYPED.read_text().split())
    wrong: dict[str, list[str]] = collections.defaultdict(list)
    for line in complaints(PACKAGE):
        wrong[line.partition(":")[0]].append(line)
    new = [line for file, lines in wrong.items() if file not in untyped for line in lines]
    assert not new, "\n".join(new)
    done = sorted(untyped - wrong.keys())
    assert not done, f"typed, or gone: take {', '.join(done)} out of {UNTYPED.name}"


def extents_compared(path: Path) -> list[str]:
    """Lines that compare or divide an extent as a number, which an expression over symbols is not: they raise a
    TypeError for models with open shapes. `ir.dims` has `number`, `static` and intervals for that."""
    return [line for line in complaints(path)
            if "SymbolicDim" in line and re.search(r"operand types? for (<|>|<=|>=|//|%) \(", line)]


def test_extents_are_compared_only_where_they_are_numbers(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from tvm_megcc.ir.types import TensorType\n\n\ndef is_wide(x: TensorType) -> bool:\n"
                     "    return x.shape[0] > 8\n")
    assert len(extents_compared(wrong)) == 1
    assert not extents_compared(PACKAGE)


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").exists()
    assert all(hasattr(tvm_megcc, name) for name in ("bench", "compare", "explain", "inspect"))
