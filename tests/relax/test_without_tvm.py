# SPDX-License-Identifier: Apache-2.0
"""`import tvm_megcc` neither needs nor imports TVM; `import tvm` registers us, and so do both in either order."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

WITHOUT_TVM = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Absent())
"""
#: A TVM with Relax of another version than it is.
OF_VERSION = """
import sys, types, warnings
from importlib.machinery import ModuleSpec
class Pretend:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == "tvm" else None
    def create_module(self, spec): return None
    def exec_module(self, module):
        module.__version__, module.relax = "{version}", types.ModuleType("tvm.relax")
sys.meta_path.insert(0, Pretend())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {imports}
for warning in caught:
    print(warning.message)
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


def installed_entry_points() -> bool:
    return any(entry.value.startswith("tvm_megcc.") for entry in entry_points(group="tvm.backends"))


needs_tvm = pytest.mark.skipif(not importlib.util.find_spec("tvm"), reason="TVM is not installed")
needs_entry_point = pytest.mark.skipif(not installed_entry_points(), reason="tvm_megcc was installed without its entry "
                                       "point for TVM: pip install -e .")


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


@needs_tvm
@needs_entry_point
@pytest.mark.slow
@pytest.mark.parametrize("imports", ["import tvm", "import tvm_megcc; from tvm import relax; import tvm",
                                     "import tvm, tvm_megcc", "import tvm_megcc, tvm",
                                     "from tvm_megcc.frontends.relax import report; import tvm"])
def test_every_order_registers(imports):
    """By the entry point: nothing hooks into imports, and nothing warns."""
    assert python("import warnings; warnings.simplefilter('error', UserWarning)\n" + imports + CHECK + """
import sys
assert not any("megcc" in type(finder).__module__ and "editable" not in type(finder).__module__
               for finder in sys.meta_path), sys.meta_path
""") == ""


@needs_tvm
@needs_entry_point
@pytest.mark.slow
def test_import_of_tvm_imports_little():
    """Operators, kernels and templates come when they are first used."""
    out = python("""
import sys, tvm
tvm.target.Target("megcc-arm64")
tvm.relax.get_pipeline("megcc")
print(sorted({"tvm_megcc.ops", "tvm_megcc.kernels", "tvm_megcc.codegen", "jinja2", "onnx", "flatbuffers"}
             & set(sys.modules)))
""")
    assert out == "[]\n"


@needs_tvm
@needs_entry_point
@pytest.mark.slow
def test_switched_off():
    """TVM's own switch; who imports us as well wants us."""
    python("""
import os
os.environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "0"
import tvm
assert "megcc" not in tvm.relax.pipeline.PIPELINE_MAP
import tvm_megcc
""" + CHECK)


@pytest.mark.parametrize("imports", ["import tvm, tvm_megcc", "import tvm_megcc, tvm"])
@pytest.mark.parametrize("version", ["0.21.0", "0.24.0"])
def test_a_tvm_that_is_too_old_is_a_sentence(version, imports):
    out = python(OF_VERSION.format(version=version, imports=imports))
    assert out == (f"tvm_megcc does not work with TVM {version} (supported: 0.25 to 0.27, or 0.9 to 0.19): "
                   "it is older\n")


def test_a_tvm_that_is_too_new_is_a_sentence():
    out = python(OF_VERSION.format(version="0.99.dev0", imports="import tvm, tvm_megcc"))
    assert out.startswith("tvm_megcc does not work with TVM 0.99.dev0 (supported: 0.25 to 0.27, or 0.9 to 0.19): ")
    assert out.count("\n") == 1
