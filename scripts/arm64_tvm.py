#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a Python for arm64 that has TVM, and runs on this machine in qemu: tests/relax/test_arm64.py uses it.

    python3 scripts/arm64_tvm.py build/arm64 [apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.15]

The interpreter is Debian's, TVM is the wheel for arm64; nothing is installed on this machine. FOLDER/python is the
command. It needs apt-get, pip and qemu-aarch64.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

DEBIAN = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6",
          "zlib1g", "libexpat1", "libssl3", "libffi8", "liblzma5", "libbz2-1.0", "libuuid1")
TVM = ("apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.15")
NEEDED = ("numpy", "ml_dtypes", "typing_extensions", "tornado", "psutil", "cloudpickle")
SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n"
LAUNCHER = """#!/bin/sh
here={root}
export PYTHONHOME=$here/usr PYTHONPATH=$here/site${{PYTHONPATH:+:$PYTHONPATH}}
exec qemu-aarch64 -L $here $here/usr/bin/python3.11 "$@"
"""


def unpack_debian(folder: Path, root: Path) -> None:
    """Debian's packages for arm64, unpacked; apt-get has a state of its own in the folder."""
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(SOURCE)
    (apt / "status").touch()
    options = {"APT::Architecture": "arm64", "APT::Architectures": "arm64",
               "Dir::Etc::sourcelist": apt / "sources.list", "Dir::Etc::sourceparts": "/dev/null",
               "Dir::State": apt, "Dir::State::status": apt / "status", "Dir::Cache": apt / "cache"}
    command = ["apt-get", "-q", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    subprocess.run([*command, "update"], check=True)
    subprocess.run([*command, "download", *DEBIAN], check=True, cwd=apt)
    for package in sorted(apt.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)


def unpack_wheels(folder: Path, site: Path, packages: tuple[str, ...]) -> None:
    platforms = [f"--platform={name}_aarch64" for name in ("manylinux_2_28", "manylinux_2_27", "manylinux2014")]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "--python-version=3.11",
                    "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none", *platforms,
                    "-d", folder / "wheels", *packages, *NEEDED], check=True)
    for wheel in sorted((folder / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]).absolute()
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    unpack_debian(folder, root)
    unpack_wheels(folder, root / "site", tuple(arguments[1:]) or TVM)
    python = folder / "python"
    python.write_text(LAUNCHER.format(root=root))
    python.chmod(0o755)
    return subprocess.run([python, "-c", "import tvm, platform; print('TVM', tvm.__version__, platform.machine())"],
                          check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
