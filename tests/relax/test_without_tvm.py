# SPDX-License-Identifier: Apache-2.0
"""`import tvm_megcc` neither needs nor imports TVM; with it, either order of imports registers."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

WITHOUT_TVM = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Absent())
"""
CHECK = """
import tvm_ffi
tag = tvm.target.Target("megcc-x86-64-v3")
assert tag.attrs["model"] == "x86-64-v3", tag
assert "megcc" in tvm.relax.pipeline.PIPELINE_MAP
assert tvm_ffi.get_global_func("relax.ext.megcc") is not None
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
assert len(get_patterns_with_prefix("megcc.")) > 100
"""


def python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_does_not_import_tvm():
    python("import sys, tvm_megcc; assert not {'tvm', 'tvm_ffi'} & set(sys.modules)")


def test_without_tvm():
    """An ONNX file compiles; what needs TVM says so."""
    out = python(WITHOUT_TVM + """
import tvm_megcc
from tvm_megcc import paths
tvm_megcc.compile(paths.examples() / "digits.onnx", "c")
try:
    tvm_megcc.partition_for_megcc
except ImportError as error:
    print(error)
""")
    assert out == "partition_for_megcc needs TVM, which is not installed: pip install 'tvm_megcc[tvm]'\n"


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("tvm"), reason="TVM is not installed")
@pytest.mark.parametrize("imports", [
    "import tvm_megcc; from tvm import relax; import tvm",
    *(pytest.param(imports, marks=pytest.mark.slow) for imports in ("import tvm, tvm_megcc", "import tvm_megcc, tvm"))])
def test_both_orders_register(imports):
    python(imports + CHECK)
