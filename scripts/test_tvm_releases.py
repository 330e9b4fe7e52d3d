#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of tests/relax on every supported release of TVM, each in a virtual environment of its own that has
the package from its wheel.

    python3 scripts/test_tvm_releases.py FOLDER [RELEASE …] [-- OPTIONS OF PYTEST …]

FOLDER gets the wheel, the environments and a copy of the tests: where they run there are no sources of the package.
For each release it prints how much CPU `import tvm` takes, and how much of that is for this package.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Release -> requirements for pip. TVM 0.25 asks for any apache-tvm-ffi, and cannot be imported with a newer one.
RELEASES = {
    "0.25": ("apache-tvm==0.25.0.post1", "apache-tvm-ffi==0.1.12"),
    "0.26": ("apache-tvm==0.26.0",),
    "0.27": ("apache-tvm==0.27.0.post1",),
}
TESTS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "onnxruntime", "tornado", "psutil", "cloudpickle")


#: A test of the wheel's entry point: after `import tvm` alone, TVM has our targets and pipeline.
ALONE = """import sys, tvm
assert "tvm_megcc.kernels" not in sys.modules, "import tvm loads all of tvm_megcc"
assert str(tvm.target.Target("megcc-arm64").attrs["mtriple"]).startswith("aarch64")
assert tvm.relax.get_pipeline("megcc") is not None
import tvm_megcc
assert "site-packages" in tvm_megcc.__file__, tvm_megcc.__file__"""

#: Prints the seconds of CPU that our entry point takes, which TVM calls at the end of its import.
ENTRY_POINT = """import os, time
os.environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "0"
import tvm
begin = time.process_time()
from tvm_megcc.frontends._tvm import register
register()
print(time.process_time() - begin)"""


def wheel(folder: Path) -> Path:
    """Builds the wheel of the sources as they are."""
    built = folder / "dist"
    shutil.rmtree(built, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
                    "-w", str(built), str(ROOT)], check=True)
    (path,) = built.glob("*.whl")
    return path


def environment(folder: Path, packages: tuple[str, ...], package: Path) -> Path:
    """The Python of a virtual environment with this wheel and these packages."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages, *TESTS, str(package)], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(package)], check=True)
    return python


def entry_point_time(python: Path, folder: Path, environment: dict[str, str], turns: int = 9) -> str:
    """A sentence on the CPU time that our entry point adds to `import tvm`: the median of some processes."""
    times = [float(subprocess.run([python, "-c", ENTRY_POINT], cwd=folder, env=environment, check=True,
                                  capture_output=True, text=True).stdout) for _ in range(turns)]
    return f"tvm_megcc adds {1e3 * statistics.median(times):.0f} ms of CPU to import tvm"


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    (given, *releases), options = arguments[:split], arguments[split + 1:]
    folder = Path(given).absolute()
    package, run = wheel(folder), folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(ROOT / "tests", run / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", run)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    failed = []
    for release in releases or RELEASES:
        python = environment(folder / release, RELEASES[release], package)
        print(f"TVM {release}: {entry_point_time(python, run, clean)}", flush=True)
        tests = [str(python), "-m", "pytest", "-q", "-n", "auto", "--dist", "loadgroup", "-m", "not long"]
        commands = [str(python), "-c", ALONE], [*tests, "tests/relax", *options]
        if any([subprocess.run(command, cwd=run, env=clean, check=False).returncode for command in commands]):
            failed.append(release)
    if failed:
        print(f"fails on TVM {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
