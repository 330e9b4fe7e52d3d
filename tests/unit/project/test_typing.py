# SPDX-License-Identifier: Apache-2.0
"""What mypy sees of the package. It keeps what it knows in `.mypy_cache`, as for whoever calls it by hand."""

import collections
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_megcc

PACKAGE = Path(tvm_megcc.__file__).parent
EXAMPLE = Path(__file__).with_name("typed_example.py")
UNTYPED = Path(__file__).with_name("untyped.txt")


#: A function that compares an extent as a number.
COMPARES = """from tvm_megcc.ir.types import TensorType


def is_wide(x: TensorType) -> bool:
    return x.shape[0] > 8
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory) -> tuple[str, ...]:
    """What `mypy --strict` says of the package, of an example and of two wrong programs, a line each, by the settings
    of pyproject.toml. One run, since each reads the whole package."""
    pytest.importorskip("mypy", reason="mypy is not installed: pip install 'tvm_megcc[test]'")
    folder = tmp_path_factory.mktemp("typed")
    (folder / "wrong_example.py").write_text(
        EXAMPLE.read_text().replace("threads=2", "threads=2.5").replace("layers=True", "layer=True")
        .replace("int(scores.argmax())", "scores"))
    (folder / "wrong_extent.py").write_text(COMPARES)
    result = subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", PACKAGE, EXAMPLE,
                             *sorted(folder.iterdir())], cwd=PACKAGE.parent, capture_output=True, text=True,
                            check=False)
    assert not result.stderr, result.stderr
    return tuple(line for line in result.stdout.splitlines() if ": error: " in line)


def of_the_file(complaints: tuple[str, ...], name: str) -> list[str]:
    return [line for line in complaints if Path(line.partition(":")[0]).name == name]


def test_a_program_with_types(complaints):
    assert not of_the_file(complaints, EXAMPLE.name)
    said = "\n".join(of_the_file(complaints, "wrong_example.py"))
    assert all(word in said for word in ('"threads"', '"layer"', "Incompatible return value")), said


def test_files_with_types_stay_so(complaints):
    """Files that `mypy --strict` still complains about are listed in untyped.txt: who types one takes it out."""
    untyped = set(UNTYPED.read_text().split())
    wrong: dict[str, list[str]] = collections.defaultdict(list)
    for line in complaints:
        if line.startswith(f"{PACKAGE.name}/"):
            wrong[line.partition(":")[0]].append(line)
    new = [line for file, lines in wrong.items() if file not in untyped for line in lines]
    assert not new, "\n".join(new)
    done = sorted(untyped - wrong.keys())
    assert not done, f"typed, or gone: take {', '.join(done)} out of {UNTYPED.name}"


def test_extents_are_compared_only_where_they_are_numbers(complaints):
    """A line that compares or divides an extent as a number, which an expression over symbols is not, raises a
    TypeError for models with open shapes. `ir.dims` has `number`, `static` and intervals for that."""
    found = [line for line in complaints
             if "SymbolicDim" in line and re.search(r"operand types? for (<|>|<=|>=|//|%) \(", line)]
    assert len(of_the_file(tuple(found), "wrong_extent.py")) == 1
    assert len(found) == 1, "\n".join(found)


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").exists()
    assert all(hasattr(tvm_megcc, name) for name in ("bench", "compare", "explain", "inspect"))
