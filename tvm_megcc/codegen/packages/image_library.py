# SPDX-License-Identifier: Apache-2.0
"""Prints a library of image operators in C for one CPU: resizing, rotating, flipping, cropping, warping, colour
conversion and Gaussian blur (`templates/cv/`). `megcc cv` and programs of several networks use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Shuffles:
    """A move of 16 pixels of bytes by shuffles of vectors of 16 bytes.

    name: the name of its function in C.
    bytes: the bytes of a pixel, and the number of vectors that are read and written.
    reads_rows: whether each vector that is read has a pointer of its own; else they are neighbours.
    writes_rows: the same of vectors that are written.
    sources: for each vector that is written, the 16 bytes that it gets, by their places in what is read.
    """

    name: str
    bytes: int
    reads_rows: bool
    writes_rows: bool
    sources: tuple[tuple[int, ...], ...]


_LANES = 16


def _rows_of(size: int, sources: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sources[vector * _LANES:(vector + 1) * _LANES]) for vector in range(size))


def _split(size: int) -> Shuffles:
    """Pixels into rows of channels."""
    return Shuffles(f"split_{size}", size, False, True, _rows_of(
        size, [size * lane + channel for channel in range(size) for lane in range(_LANES)]))


def _join(size: int) -> Shuffles:
    """Rows of channels into pixels."""
    return Shuffles(f"join_{size}", size, True, False, _rows_of(
        size, [_LANES * channel + lane for lane in range(_LANES) for channel in range(size)]))


def _mirror(size: int) -> Shuffles:
    """Pixels in the opposite order."""
    return Shuffles(f"mirror_{size}", size, False, False, _rows_of(
        size, [size * lane + byte for lane in reversed(range(_LANES)) for byte in range(size)]))


SHUFFLES = (_split(3), _split(4), _join(3), _join(4), _mirror(1), _mirror(3), _mirror(4))


class ImageVariables(TypedDict):
    """The context of the templates in `templates/cv/`, which `files` renders.

    version: version of tvm_megcc, such as "1.4.0".
    target: the CPU that the files are for, such as "cortex-m7".
    isa: the suffix of the macro MGC_ISA_… that chooses its SIMD header, such as "AVX2".
    guard: the preprocessor condition that is true if the compiler's target is this CPU.
    types: (suffix of functions, C type) of each element type: ("u8", "uint8_t"), ("f32", "float").
    flags: compiler flags for the CPU, each with a space after it.
    shuffles: the moves by shuffles of 16 bytes; none for CPUs that shuffle bytes one by one.
    """

    version: str
    target: str
    isa: str
    guard: str
    types: Sequence[tuple[str, str]]
    flags: str
    shuffles: Sequence[Shuffles]


def files(target: Target) -> dict[str, bytes]:
    """Returns path -> content: C files, their header, and the headers that they need in `include/`."""
    isa, templates = target.isa, environment()
    facts: ImageVariables = {
        "version": VERSION, "target": target.name, "isa": isa.name.upper(), "guard": isa.guard, "types": TYPES,
        "flags": "".join(f"{flag} " for flag in target.cflags),
        # SSE2 has no PSHUFB. No compiler is known to make few instructions of a constant shuffle on RISC-V and Helium.
        "shuffles": () if isa.lanes == 1 or isa.wide or isa.helium or isa.name == "sse2" else SHUFFLES}
    rendered = {name.removeprefix("cv/").removesuffix(".j2"): templates.get_template(name).render(facts).encode()
                for name in templates.list_templates(filter_func=lambda path: path.startswith("cv/"))}
    root = paths.c_runtime() / "include"
    for pattern in HEADERS:
        for path in sorted(root.glob(pattern)):
            rendered[f"{INCLUDE}{path.relative_to(root).as_posix()}"] = path.read_bytes()
    return {name.replace(INCLUDE, "include/"): data for name, data in without_unneeded(rendered, [isa]).items()}
