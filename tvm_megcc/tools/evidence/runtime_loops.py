# SPDX-License-Identifier: Apache-2.0
"""The most iterations of every loop of the runtime in a folder, with the counts of its container.

Loops of the runtime go over vectors of the container: tensors, instructions, operands. So their bounds follow from the
C text (loops.py) and the lengths of these vectors. They hold for the container that the compiler wrote. In a damaged
one, a vector has at most as many bytes as the container (c_runtime/src/fb.h), and the first wrong value ends the check.
The bounds of two loops are argued: the text alone does not tell them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from ...codegen import container
from ...ir.dims import round_up
from ...ir.types import DTYPES
from .loops import Loop, loops
from .ranges import Range
from .sources import Sources

#: A string of C, in one piece or several.
_STRING = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
_MARKER = re.compile(r"^# .*", re.MULTILINE)


@dataclass(frozen=True)
class RuntimeLoop:
    """A loop of the runtime.

    loop: its place, text and most iterations.
    reason: why that is the most, if it does not follow from the text.
    """

    loop: Loop
    reason: str = ""


def runtime_loops(sources: Sources, entries: list[str], model: container.ContainerModel, program: container.Program,
                  codes: int) -> list[RuntimeLoop]:
    """Returns the loops that functions of the C API reach, but for those of kernels.

    Args:
        entries: the names of the functions.
        model: the folder's container.
        program: its program for the target.
        codes: the number of programs that the folder has code for.
    """
    text = "".join(text for source, text in sources.preprocessed.items() if source.startswith("runtime/"))
    argued = _argued(program, text)
    return [RuntimeLoop(replace(loop, at_most=argued[loop.function][0]), argued[loop.function][1])
            if loop.at_most is None and loop.function in argued else RuntimeLoop(loop)
            for loop in loops(text, entries, {}, members(model, program, codes))]


def _argued(program: container.Program, text: str) -> dict[str, tuple[int, str]]:
    """Returns function -> the most iterations of its loop, and the reason. text: the preprocessed runtime."""
    longest = max(len(found[0]) - 2 for found in _STRING.finditer(_MARKER.sub("", text)))
    return {
        "megcc_session_run": (len(program.instructions),
                              "each step executes an instruction, and the profile has none that jumps"),
        "put": (longest, "texts of errors are constants of the runtime; this is the longest one"),
    }


def members(model: container.ContainerModel, program: container.Program, codes: int) -> Mapping[str, Range]:
    """Returns the ranges of the counts that the runtime reads from a container, by the end of the C expression. The
    arguments are those of `runtime_loops`."""
    def most(numbers: Iterable[int]) -> Range:
        return 0, max(numbers, default=0)

    vectors = {row.name: len(getattr(program, row.name)) for row in fields(program)
               if isinstance(getattr(program, row.name), tuple)}
    ranges: dict[str, Range] = {f"rows[MEGCC_{name.upper()}].count": (count, count) for name, count in vectors.items()}
    bucket = program.device_models[0]
    for owner in ("bucket", "session.bucket"):
        ranges |= {f"{owner}.{name}.count": (len(rows), len(rows)) for name, rows in (
            ("bounds", bucket.bounds), ("tensors", bucket.tensors), ("calls", bucket.calls),
            ("regions", bucket.regions))}
    ranks = most(row.rank for row in program.tensors)
    inputs, outputs = (most(row.inputs for row in program.instructions),
                       most(row.outputs for row in program.instructions))
    ranges |= {"row.rank": ranks, "t.rank": ranks, "row.inputs": inputs, "kernel.inputs": inputs,
               "row.outputs": outputs, "kernel.outputs": outputs,
               "rows[list].count": (0, max(vectors["inputs"], vectors["outputs"])),
               "model.weights_bytes": (0, len(model.weights)), "programs.count": (0, len(model.programs)),
               "module.codes": (0, codes),
               "megcc_tensor_bytes()": most(_tensor_bytes(program, row) for row in program.tensors)}
    return ranges


def _tensor_bytes(program: container.Program, row: container.Tensor) -> int:
    """Returns the bytes of a tensor by its extents, with the pads of blocks."""
    extents = list(program.extents[row.dims:row.dims + row.rank])
    if row.block and row.rank > 1:
        extents[1] = round_up(extents[1], row.block)
    return math.prod(extents) * DTYPES[row.dtype.name].bytes
