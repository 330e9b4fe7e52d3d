# SPDX-License-Identifier: Apache-2.0
"""Which tests `make check` leaves out: those that compile much C, but for one of each kind. Which `make test` leaves
out too: more of what it has already. And which run together, and what they share."""

import os

import pytest

from tests import compiled_once
from tvm_megcc.runtime import build

#: File -> part of the test's name that stays quick; all other tests of the file are slow. "" keeps none.
QUICK_PART = {
    "cc/test_runtime_fuzz.py": "corpus[indexed]",
    "models/test_compiled.py": "mnist8-native-speed",
    "models/test_builds.py": "",
    "models/test_streaming.py": "dtln_stage1-native",
}

#: File -> tests that `make test-all` runs alone, by how their names end.
LONG = {
    "models/test_compiled.py": tuple(f"[light_{name}{rest}]" for name in (
        "vgg19", "zfnet512", "bvlc_alexnet", "densenet121", "inception_v2")
        for rest in ("", "-native-speed", "-arm64-speed")),
    "models/test_builds.py": ("[ultraface_rfb320]",),
    "models/test_dynamic.py": ("find_nothing[minilm_l1_f32]", "find_nothing[vespa_tiny_transformer]"),
    "relax/test_random.py": tuple(f"[{seed}]" for seed in range(20, 100)),
}

#: Files whose tests share what a fixture compiled for a network, by the name of the parameter that is its name: those
#: of one network run in one process.
SHARED = {"models/test_compiled.py": "name", "models/test_builds.py": "name", "models/test_dynamic.py": "model"}


def pytest_collection_modifyitems(items):
    for item in items:
        file = "/".join(item.path.parts[-2:])
        if file in SHARED and hasattr(item, "callspec") and SHARED[file] in item.callspec.params:
            item.add_marker(pytest.mark.xdist_group(f"{file} {item.callspec.params[SHARED[file]]}"))
        part = QUICK_PART.get(file)
        if part is not None and not (part and part in item.name) and hasattr(item, "callspec"):
            item.add_marker(pytest.mark.slow)
        if item.name.endswith(LONG.get(file, ())):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def shared(tmp_path_factory):
    """A cache for each process, and object files that all processes share."""
    own = tmp_path_factory.getbasetemp()
    store = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "objects"
    store.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGCC_CACHE", str(own / "cache"))
        patch.setattr(build.Objects, "compile", compiled_once.sharing(store))
        yield


@pytest.fixture
def unshared(monkeypatch):
    """For tests about building: every folder compiles its own."""
    monkeypatch.setattr(build.Objects, "compile", compiled_once.ALONE)
