# SPDX-License-Identifier: Apache-2.0
"""Prints a library of image operators in C for one CPU: resizing, rotating, flipping, cropping, warping, colour
conversion and Gaussian blur (`templates/cv/`). `megcc cv` and programs of several networks use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ... import paths
from ...target import Target
from ...version import VERSION
from ..c_source.render import environment
from ..headers import INCLUDE, without_unneeded

#: Element types as (suffix of functions, C type).
TYPES = (("u8", "uint8_t"), ("f32", "float"))
#: Headers of the C runtime that the files include for some CPU, directly or indirectly.
HEADERS = ("megcc_simd.h", "megcc_math.h", "megcc_double.h", "megcc_small.h", "megcc_integer.h", "simd/*.h")


class ImageVariables(TypedDict):
    """The context of the templates in `templates/cv/`, which `files` renders.

    version: version of tvm_megcc, such as "1.4.0".
    target: the CPU that the files are for, such as "cortex-m7".
    isa: the suffix of the macro MGC_ISA_… that chooses its SIMD header, such as "AVX2".
    guard: the preprocessor condition that is true if the compiler's target is this CPU.
    types: (suffix of functions, C type) of each element type: ("u8", "uint8_t"), ("f32", "float").
    flags: compiler flags for the CPU, each with a space after it.
    """

    version: str
    target: str
    isa: str
    guard: str
    types: Sequence[tuple[str, str]]
    flags: str


def files(target: Target) -> dict[str, bytes]:
    """Returns path -> content: C files, their header, and the headers that they need in `include/`."""
    isa, templates = target.isa, environment()
    facts: ImageVariables = {
        "version": VERSION, "target": target.name, "isa": isa.name.upper(), "guard": isa.guard, "types": TYPES,
        "flags": "".join(f"{flag} " for flag in target.cflags)}
    rendered = {name.removeprefix("cv/").removesuffix(".j2"): templates.get_template(name).render(facts).encode()
                for name in templates.list_templates(filter_func=lambda path: path.startswith("cv/"))}
    root = paths.c_runtime() / "include"
    for pattern in HEADERS:
        for path in sorted(root.glob(pattern)):
            rendered[f"{INCLUDE}{path.relative_to(root).as_posix()}"] = path.read_bytes()
    return {name.replace(INCLUDE, "include/"): data for name, data in without_unneeded(rendered, [isa]).items()}
