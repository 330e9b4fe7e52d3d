# SPDX-License-Identifier: Apache-2.0
"""The warnings that all C of the project is free of, as strict people have them, under gcc and clang."""

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wvla", "-Wcast-qual", "-Wredundant-decls",
            "-Wmissing-prototypes", "-Wmissing-declarations", "-Wstrict-prototypes", "-Wold-style-definition",
            "-Wnested-externs", "-Wundef", "-Wwrite-strings", "-Wpointer-arith", "-Wformat=2", "-Werror")
