# SPDX-License-Identifier: Apache-2.0
"""The warnings that all C of the project is free of, as strict people have them, under gcc and clang; poison."""

import subprocess

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Wcast-qual", "-Wredundant-decls",
            "-Wmissing-prototypes", "-Wmissing-declarations", "-Wstrict-prototypes", "-Wold-style-definition",
            "-Wnested-externs", "-Wundef", "-Wwrite-strings", "-Wpointer-arith", "-Wformat=2", "-Werror")


def poison(compiler: list[str]) -> list[str]:
    """The option that fills local variables which nothing wrote, so that a program that reads one fails each time.

    It is empty for compilers that have none (gcc before 12).
    """
    option = "-ftrivial-auto-var-init=pattern"
    tried = subprocess.run([*compiler, option, "-E", "-x", "c", "-"], input="", capture_output=True, text=True)
    return [] if tried.returncode else [option]
