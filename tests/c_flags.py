# SPDX-License-Identifier: Apache-2.0
"""Compiler options of the tests: the warnings that all generated C is free of under gcc and clang, and poison."""

import subprocess

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Wcast-qual", "-Wredundant-decls",
            "-Wmissing-prototypes", "-Wmissing-declarations", "-Wstrict-prototypes", "-Wold-style-definition",
            "-Wnested-externs", "-Wundef", "-Wwrite-strings", "-Wpointer-arith", "-Wformat=2", "-Werror")


def poison(compiler: list[str]) -> list[str]:
    """Returns the option that fills uninitialised local variables with a pattern, so that a program that reads one
    fails each time; an empty list for compilers without such an option (gcc before 12)."""
    option = "-ftrivial-auto-var-init=pattern"
    tried = subprocess.run([*compiler, option, "-E", "-x", "c", "-"], input="", capture_output=True, text=True)
    return [] if tried.returncode else [option]
