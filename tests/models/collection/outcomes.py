# SPDX-License-Identifier: Apache-2.0
"""One model through the command, in a process of its own with limits of time and memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tvm_megcc.tools import judge

from . import Row

CHECKOUT = Path(__file__).resolve().parents[3]
#: Seconds and bytes of address space for one model.
SECONDS, MEMORY = 600, 12 << 30
#: Verdicts; the first two are those that a list can expect.
RIGHT, REFUSED, DIFFERENT, NOTHING, CRASH, ENDLESS = (
    "right", "refused", "different", "says nothing", "crash", "too long")


@dataclass(frozen=True)
class Outcome:
    """verdict: one of the above. text: the largest difference, or the message."""

    verdict: str
    text: str

    def as_expected(self, row: Row) -> bool:
        """Is it what the list says? A model that is refused has to be refused with the same message."""
        if row.refused:
            return self.verdict == REFUSED and row.refused in self.text
        return self.verdict == RIGHT


def outcome(row: Row, file: Path, objects: Path, plan: bool = False, seconds: float = SECONDS,
            memory: int = MEMORY) -> Outcome:
    """Compiles a model for this machine and compares it with ONNX Runtime or LiteRT.

    objects: a folder of object files that models share; made where it is not there.
    plan: the C is written and not compiled, and nothing is compared.
    """
    with tempfile.TemporaryDirectory(prefix="megcc-collection-") as folder:
        run = ["compile", str(file.resolve()), "-o", str(Path(folder) / "c"), *row.options, "--quiet"] if plan else \
            ["compare", str(file.resolve()), "--json", "--quiet", *row.options, *row.compare]
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.one", str(objects.resolve()), *run], cwd=CHECKOUT,
            env=os.environ | {"MEGCC_CACHE": str(Path(folder) / "cache")}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)))
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the C compilers that it started
            process.communicate()
            return Outcome(ENDLESS, f"more than {seconds:g} s")
    return _outcome(process.returncode, stdout, stderr, plan)


def _outcome(code: int, stdout: str, stderr: str, plan: bool) -> Outcome:
    if code not in (0, 1):
        return Outcome(CRASH, f"exit code {code}: {stderr.strip()}")
    if code == 1 and not stdout.strip():
        return Outcome(REFUSED, stderr.strip())
    if plan:
        return Outcome(RIGHT, "")
    report = json.loads(stdout)
    rows = [row for row in report["outputs"] if code == 0 or not row["equal"] or report["equal"]]
    text = f"{report['reference']}: {'; '.join(map(_difference, rows))}"
    return Outcome(RIGHT if code == 0 else NOTHING if report["equal"] else DIFFERENT, text)


def _difference(row: dict) -> str:
    said = row.get("uninformative") or judge.text(row)
    itself = row.get("reference_itself")
    return f"{row['name']} {said}{f' (the reference from itself: {judge.text(itself)})' if itself else ''}"
