# SPDX-License-Identifier: Apache-2.0
"""Which front end is active follows from the TVM that is installed, and the other one is not imported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from .relay_or_skip import HAS_RELAY, needs_relay

#: A package that passes for TVM, with these modules in it.
PRETENDED = """
import sys, types, importlib.machinery
class Pretend:
    def find_spec(self, name, path=None, target=None):
        if name == "tvm":
            return importlib.machinery.ModuleSpec(name, Pretend())
    def create_module(self, spec):
        return types.ModuleType(spec.name)
    def exec_module(self, module):
        module.__version__ = "0.0"
        for name in {modules!r}:
            setattr(module, name, types.ModuleType("tvm." + name))
sys.meta_path.insert(0, Pretend())
"""


def python(code: str) -> str:
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("modules", "expected"), [(("relay", "relax"), "relay"), (("relay",), "relay"),
                                                   (("relax",), "relax")])
def test_the_modules_of_tvm_decide(modules, expected):
    """TVM 0.19 has both; Relay goes first there, because its own tools speak Relay."""
    out = python(PRETENDED.format(modules=modules) + """
from tvm_megcc.frontends import _tvm
_tvm.register = lambda: None
print(_tvm.front_end())
""")
    assert out == f"{expected}\n"


def test_a_tvm_that_is_too_strange_stays_usable():
    out = python(PRETENDED.format(modules=("relay",)) + """
import warnings
import tvm_megcc
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import tvm
print(caught[0].message)
""")
    assert out.startswith("tvm_megcc does not work with TVM 0.0 (supported: 0.25 to 0.27, or 0.9 to 0.19): ")


def test_asking_whether_there_is_a_tvm_changes_nothing():
    """Many packages look for the module without importing it; who imports it later finds us registered, once."""
    out = python(PRETENDED.format(modules=("relay",)) + """
import importlib.util
import tvm_megcc
from tvm_megcc.frontends import _tvm
calls = []
finder = next(finder for finder in sys.meta_path if isinstance(finder, _tvm._ImportHook) and finder.name == "tvm")
finder.then = lambda: calls.append(sys.modules["tvm"].__version__)
assert importlib.util.find_spec("tvm") and importlib.util.find_spec("tvm") and not calls
import tvm
print(calls, finder in sys.meta_path)
""")
    assert out == "['0.0'] False\n"


def test_importers_need_no_tvm():
    """What Relay's spellings mean can be asked without TVM."""
    out = python("""
import sys
from tvm_megcc.frontends.relay import importer, ops, terms
from tvm_megcc.frontends.tvm_common import dispatch, pattern_converter, support
print(sorted({"tvm", "tvm_ffi"} & set(sys.modules)), ops.importer("nn.conv2d") is not None)
""")
    assert out == "[] True\n"


@pytest.mark.slow
@pytest.mark.skipif(HAS_RELAY or not importlib.util.find_spec("tvm"), reason="no TVM without Relay is installed")
def test_relax_brings_no_relay():
    out = python("""
import tvm, tvm_megcc, sys
tvm_megcc.partition_for_megcc
print([name for name in sys.modules if name.startswith("tvm_megcc.frontends.relay")])
""")
    assert out == "[]\n"


@needs_relay
@pytest.mark.parametrize("imports", ["import tvm_megcc, tvm", "import tvm, tvm_megcc"])
def test_both_orders_register(imports):
    out = python(imports + """
import sys
from tvm.relay.op.contrib import get_pattern_table
assert len(get_pattern_table("megcc")) == 6
assert str(tvm.target.Target("megcc-x86-64-v3").attrs["model"]) == "x86-64-v3"
assert tvm.get_global_func("relay.ext.megcc") and tvm.get_global_func("relay.ext.megcc.constant_updater")
from tvm.driver.tvmc.composite_target import REGISTERED_CODEGEN
assert "megcc" in REGISTERED_CODEGEN
from tvm_megcc.dispatch import Dispatch
print(Dispatch.__module__, [name for name in sys.modules if name.startswith("tvm_megcc.frontends.relax")])
""")
    assert out == "tvm_megcc.frontends.relay.dispatch []\n"


def test_what_is_for_relax_says_so():
    out = python(PRETENDED.format(modules=("relay", "relax")) + """
from tvm_megcc.frontends import _tvm
_tvm.register = lambda: None
try:
    _tvm.attribute("load", "files")
except ImportError as error:
    print(error)
""")
    assert out.startswith("load is for the TVM with Relax; this is TVM 0.0 ")
