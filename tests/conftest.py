# SPDX-License-Identifier: Apache-2.0
"""Which tests `make check` leaves out: those that compile much C, but for one of each kind."""

import pytest

#: File -> part of the test's name that stays quick; all other tests of the file are slow. "" keeps none.
QUICK_PART = {
    "cc/test_kernels.py": "-c-size]",
    "cc/test_runtime_fuzz.py": "",
    "models/test_compiled.py": "mnist8-native-speed",
    "models/test_builds.py": "",
    "models/test_streaming.py": "dtln_stage1-native",
}


def pytest_collection_modifyitems(items):
    for item in items:
        part = QUICK_PART.get("/".join(item.path.parts[-2:]))
        if part is not None and not (part and part in item.name) and hasattr(item, "callspec"):
            item.add_marker(pytest.mark.slow)
