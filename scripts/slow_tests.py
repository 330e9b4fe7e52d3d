#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tests that take more than 0.5 seconds of CPU, of a log that `pytest --cpu LOG` wrote.

    python scripts/slow_tests.py LOG > tests/slow.txt

Some stay, however long they take: one test of each kind, and those of words, types and pages, which any change can
break (`KEPT`). Two of these are left out, because they take over 20 seconds (`LEFT_OUT`).
"""

import collections
import sys
from pathlib import Path

SECONDS = 0.5
#: How names begin. The whole way from a model to results: on this machine, in emulators, on a board, in packages.
KEPT = (
    "unit/project/",
    "compiled/boards/test_cortex_m.py::test_digits", "compiled/runtime/test_runtime_fuzz.py::test_kept_corpus[indexed]",
    "models/test_compiled.py::test_network[mnist8-native-speed]",
    "models/test_streaming.py::test_sequence[dtln_stage1-native]",
)
LEFT_OUT = ("unit/project/test_docs.py::test_the_site_is_built_without_a_warning",
            "unit/project/test_typing.py::test_a_program_with_types")


def main() -> int:
    seconds: dict[str, float] = collections.defaultdict(float)
    for line in Path(sys.argv[1]).read_text().splitlines():
        spent, name = line.split(maxsplit=1)
        seconds[name] = max(seconds[name], float(spent))
    for name in sorted(seconds):
        if seconds[name] > SECONDS and (name in LEFT_OUT or not name.startswith(KEPT)):
            print(f"{seconds[name]:.1f} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
