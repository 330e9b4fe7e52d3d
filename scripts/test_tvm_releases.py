#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of tests/relax on every supported release of TVM, each in a virtual environment of its own.

    python3 scripts/test_tvm_releases.py FOLDER [RELEASE …] [-- OPTIONS OF PYTEST …]
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What to install for a release.
RELEASES = {
    "0.26": ("apache-tvm==0.26.0",),
    "0.27": ("apache-tvm==0.27.0.post1",),
}
TESTS = ("pytest", "pytest-xdist", "hypothesis", "onnxruntime", "tornado", "psutil", "cloudpickle")


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """The Python of a virtual environment with this package and these."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages, *TESTS, "-e", str(ROOT)], check=True)
    return python


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    (folder, *releases), options = arguments[:split], arguments[split + 1:]
    failed = []
    for release in releases or RELEASES:
        python = environment(Path(folder).absolute() / release, RELEASES[release])
        print(f"TVM {release}", flush=True)
        command = [str(python), "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup", "-m", "not long"]
        if subprocess.run([*command, "tests/relax", *options], cwd=ROOT, check=False).returncode:
            failed.append(release)
    if failed:
        print(f"fails on TVM {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
