# SPDX-License-Identifier: Apache-2.0
"""How many branches of the runtime its own tests take, with every allocation failing in turn."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import tvm_megcc
from fuzz import run

from ..shapes.test_counts import counting, expanding, nested, turning
from .test_runtime import FLAGS, SOURCES, TEST_SOURCES, call, write_containers

#: File of the runtime -> share of its branches.
LEAST = {"verify.c": 0.95, "signature.c": 0.95, "shape.c": 0.95, "session.c": 0.90, "place.c": 0.90,
         "memory.c": 0.90, "control.c": 0.70, "vm.c": 0.90}


def branches(folder: Path) -> dict[str, dict[tuple[int, int], int]]:
    """File -> (line, number of the branch there) -> how often it was taken."""
    taken: dict[str, dict[tuple[int, int], int]] = {name: {} for name in LEAST}
    for notes in sorted(folder.rglob("*.gcno")):
        command = ["gcov", "-b", "-j", "-t", notes.name]
        raw = subprocess.run(command, cwd=notes.parent, check=True, capture_output=True).stdout
        report = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
        for file in report["files"]:
            counts = taken.get(Path(file["file"]).name, {})
            for line in file["lines"]:
                for index, branch in enumerate(line["branches"]):
                    key = line["line_number"], index
                    counts[key] = counts.get(key, 0) + branch["count"]
    return taken


@pytest.mark.long
def test_branches(tmp_path: Path, monkeypatch):
    """Of the runtime's own tests, and of damaged containers with what those of the tests do not have: counts, loops."""
    if not (shutil.which("gcc") and shutil.which("gcov")):
        pytest.skip("gcc and gcov are not installed")
    write_containers(tmp_path)
    flags = [*FLAGS, "-O0", "--coverage", "-lm", "-pthread"]
    call(["gcc", *SOURCES, *TEST_SOURCES, *flags, "-o", "test"], cwd=tmp_path)
    call([tmp_path / "test", tmp_path, "all"])
    monkeypatch.setattr(run, "SANITIZE", ("--coverage", "-O0"))
    for name, source, bounds in (("counts", counting(), {"b": 5}), ("open", counting(), {}),
                                 ("expanding", expanding(), {}), ("loops", nested(), {"last": 8}),
                                 ("turning", turning(), {})):
        folder = tvm_megcc.compile(source, "native", bounds=bounds, name=name).save(tmp_path / name)
        assert run.blind(run.generated(folder, tmp_path)[0], 8000, 3, "gcc", tmp_path)
    for name, counts in branches(tmp_path).items():
        missed = sorted({line for (line, _), count in counts.items() if count == 0})
        taken = sum(count > 0 for count in counts.values())
        print(f"{name}: {taken} of {len(counts)} branches, not all in lines {missed}")
        assert taken >= LEAST[name] * len(counts), f"{name}: {taken} of {len(counts)}; not all in lines {missed}"
