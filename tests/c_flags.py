# SPDX-License-Identifier: Apache-2.0
"""The C compiler of the tests, and its options: the warnings that all generated C is free of, and poison."""

import subprocess

import pytest

from tvm_megcc.errors import MissingTool
from tvm_megcc.runtime.toolchain import Compiler, find_compiler
from tvm_megcc.target import native

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Wcast-qual", "-Wredundant-decls",
            "-Wmissing-prototypes", "-Wmissing-declarations", "-Wstrict-prototypes", "-Wold-style-definition",
            "-Wnested-externs", "-Wundef", "-Wwrite-strings", "-Wpointer-arith", "-Wformat=2", "-Werror")


def poison(compiler: list[str]) -> list[str]:
    """Returns the option that fills uninitialised local variables with a pattern, so that a program that reads one
    fails each time; an empty list for compilers without such an option (gcc before 12)."""
    option = "-ftrivial-auto-var-init=pattern"
    tried = subprocess.run([*compiler, option, "-E", "-x", "c", "-"], input="", capture_output=True, text=True)
    return [] if tried.returncode else [option]


def native_compiler() -> Compiler:
    """Returns the compiler of this machine. Without one, the test is skipped."""
    try:
        return find_compiler(native())
    except MissingTool as missing:
        pytest.skip(str(missing))
