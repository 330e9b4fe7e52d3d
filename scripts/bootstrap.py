#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets up what `make demo` needs, or everything that `make test` needs; needs nothing but Python itself.

    python3 scripts/bootstrap.py VENV [--all]

Makes a virtual environment with this package; zig from PyPI replaces a missing C compiler. --all adds test requirements
and TVM, and cross compilers, emulators and a browser if they are missing: as root or in CI from the system's packages,
else from PyPI (zig). A tool that cannot be installed is named in one line, and the tests that need it are skipped by
name. Before each installation it prints what is installed, and its size.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)
# Bytes on the disk, as found with Python 3.11 in November 2026.
SMALL, LARGE, ZIG = "140 MB", "1.7 GB", "410 MB"

# (purpose, commands of which one suffices, whether zig can replace them, Debian packages).
TOOLS = (
    ("C for this machine", ("cc", "gcc", "clang"), True, ("gcc", "libc6-dev")),
    ("C for arm64", ("aarch64-linux-gnu-gcc", "aarch64-linux-musl-gcc"), True,
     ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")),
    ("C for 32-bit Arm", ("arm-linux-gnueabihf-gcc", "arm-linux-musleabihf-gcc"), True,
     ("gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross")),
    ("C for RISC-V", ("riscv64-linux-gnu-gcc", "riscv64-linux-musl-gcc"), True,
     ("gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross")),
    ("running programs for Arm and RISC-V", ("qemu-aarch64",), False, ("qemu-user",)),
    ("C for Cortex-M", ("arm-none-eabi-gcc",), False, ("gcc-arm-none-eabi", "libnewlib-arm-none-eabi")),
    ("running Cortex-M programs", ("qemu-system-arm",), False, ("qemu-system-arm",)),
    ("C for RISC-V microcontrollers", ("riscv64-unknown-elf-gcc",), False, ("gcc-riscv64-unknown-elf",)),
    ("running programs of RISC-V microcontrollers", ("qemu-system-riscv32",), False, ("qemu-system-misc",)),
    ("C for WebAssembly", ("wasm-ld",), True, ("clang", "lld", "llvm", "wasi-libc", "libclang-rt-dev-wasm32")),
    ("C for RISC-V with vectors", tuple(f"clang-{version}" for version in range(25, 17, -1)), True, ()),
    ("running WebAssembly", ("node",), False, ("nodejs",)),
    ("comparing C compilers", ("clang", "clang-19", "clang-18", "clang-16", "clang-14"), False, ("clang",)),
    ("the generated CMake build", ("cmake",), False, ("cmake",)),
    ("the Meson package", ("meson",), False, ("meson",)),
    ("checking the rules of MISRA C", ("cppcheck",), False, ("cppcheck",)),
    ("showing that kernels have no undefined behaviour", ("frama-c",), False, ("frama-c-base",)),
    ("looking at reports as a person does", ("chromium", "chromium-browser", "google-chrome"), False, ("chromium",)),
)


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def run(*command: str, check: bool = True, quiet: bool = False) -> bool:
    output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if quiet else {"stdout": sys.stderr}
    result = subprocess.run(command, stdin=subprocess.DEVNULL, check=False, **output)
    if check and result.returncode:
        sys.exit(f"setup: '{' '.join(command)}' failed")
    return result.returncode == 0


def apt_install(packages: list[str]) -> bool:
    """Installs Debian packages where that is allowed; whether it worked."""
    if not shutil.which("apt-get"):
        return False
    prefix: list[str] = []
    if os.geteuid() != 0:
        if not os.environ.get("CI") or not shutil.which("sudo"):
            return False
        prefix = ["sudo", "-n"]
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    install = (*prefix, "apt-get", "install", "-q", "--no-install-recommends")
    if not run(*prefix, "apt-get", "update", "-q", check=False):
        return False
    say(f"will install packages of the system: {' '.join(packages)}{apt_amount(*install, '--print-uris', *packages)}")
    return run(*install, "-y", *packages, check=False)


def apt_amount(*command: str) -> str:
    """Returns apt's lines on the packages that an installation adds, the download and the disk space."""
    output = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    return "".join(f"; {line.strip()}" for line in output.splitlines()
                   if line.startswith(("Need to get", "After this operation")) or " newly installed" in line)


def python_new_enough() -> str:
    """A Python that is new enough: this one, or another on the path."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in range(14, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    sys.exit(f"setup: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {sys.version.split()[0]}")


def make_environment(folder: Path) -> str:
    """The virtual environment's Python; made if it is missing or broken."""
    python = folder / "bin" / "python"
    if python.exists() and run(str(python), "-m", "pip", "--version", check=False):
        return str(python)
    base = python_new_enough()
    make = (base, "-m", "venv", "--clear", str(folder))
    if not run(*make, check=False):
        version = f"python3.{sys.version_info.minor}-venv"
        if not (apt_install([version]) and run(*make, check=False)):
            sys.exit(f"setup: this Python cannot make virtual environments; 'apt-get install {version}'")
    return str(python)


def install(python: str, everything: bool) -> None:
    """This package; with everything, what its tests need, and TVM where there is a wheel of it for this Python."""
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-e")
    if not everything:
        run(*pip, str(ROOT))
    elif not run(*pip, f"{ROOT}[test,tvm]", check=False, quiet=True):
        say("no TVM for this Python: the tests in tests/relax and the notebook about TVM are skipped")
        run(*pip, f"{ROOT}[test]")


def find_compiler(python: str) -> None:
    """A C compiler for this machine: that of the system, else zig."""
    purpose, commands, _, packages = TOOLS[0]
    if any(map(shutil.which, commands)):
        return
    say(f"no C compiler: will install ziglang from PyPI ({ZIG}) into the virtual environment")
    if not run(python, "-m", "pip", "install", "-q", "ziglang", check=False):
        say(f"no {purpose}: 'apt-get install {' '.join(packages)}'")


def find_tools(python: str) -> None:
    missing = [tool for tool in TOOLS if not any(map(shutil.which, tool[1]))]
    packages = [package for *_, packages in missing for package in packages]
    if packages and apt_install(packages):
        missing = [tool for tool in missing if not any(map(shutil.which, tool[1]))]
    if any(zig for _, _, zig, _ in missing):
        say(f"will install ziglang from PyPI ({ZIG}), which stands in for the C compilers that are missing: "
            + ", ".join(purpose for purpose, _, zig, _ in missing if zig))
        if run(python, "-m", "pip", "install", "-q", "ziglang", check=False):
            missing = [tool for tool in missing if not tool[2]]
    for purpose, commands, _, packages in missing:
        say(f"no {commands[0]}: {purpose} is skipped; 'apt-get install {' '.join(packages)}'")


def find_fuzzer(python: str) -> None:
    """libFuzzer's library for the clang that is there: a package of its own."""
    has_fuzzer = (python, "-c", "import sys; from fuzz.run import guided_compiler; sys.exit(not guided_compiler())")
    clang = next(filter(shutil.which, ("clang", "clang-19", "clang-18", "clang-16", "clang-14")), None)
    if clang is None or run(*has_fuzzer, check=False, quiet=True):
        return
    version = subprocess.run([clang, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    package = f"libclang-rt-{version.split('.')[0]}-dev"
    if not (apt_install([package]) and run(*has_fuzzer, check=False, quiet=True)):
        say(f"no libFuzzer: fuzzing guided by coverage is skipped; 'apt-get install {package}'")


def main() -> None:
    folder, everything = sys.argv[1:2], sys.argv[2:] == ["--all"]
    if not folder or folder[0].startswith("-") or (sys.argv[2:] and not everything):
        sys.exit(f"{__doc__}\nusage: bootstrap.py FOLDER [--all]")
    what = f"this package, its test requirements and TVM ({LARGE})" if everything else f"this package ({SMALL})"
    say(f"will install {what} from PyPI into the virtual environment {folder[0]}"
        + (", and compilers, emulators and a browser that are missing" if everything else ""))
    python = make_environment(Path(folder[0]).absolute())
    os.chdir(ROOT)
    install(python, everything)
    if everything:
        find_tools(python)
        find_fuzzer(python)
    else:
        find_compiler(python)


if __name__ == "__main__":
    main()
