# SPDX-License-Identifier: Apache-2.0
"""What a compilation results in, all in memory: the container, the C code, and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..target import Target


@dataclass(frozen=True)
class Artifact:
    """A compiled model.

    name: a C identifier; prefix of everything this model adds to a program.
    container: the .megcc file.
    sources: file name below the generated folder -> text: `kernels/<symbol>.c` and `kernels.c`, which defines
        `const megcc_module <name>_module`.
    manifest: facts about the model that are no code. Read by the generated folder, reports and the command:
        model: file name and SHA-256 of what was compiled; options: what it was compiled with;
        inputs, outputs: [{name, dtype, shape}], a dimension is an int or the text of an expression;
        alignment: bytes, of container and memory;
        programs: [{target, tensors, instructions, workers, arena_bytes, lower_bound, weight_bytes, unpacked_bytes,
        calls: [{kernel, kind, origin, output, macs}]}], a row a target;
        weights: [{targets, bytes, weights}], what is stored, by the targets that read it.
    report: for people: what became of the model. memory: picture of the arena, an SVG.
    """

    name: str
    targets: tuple[Target, ...]
    container: bytes
    sources: Mapping[str, str]
    manifest: Mapping
    report: str
    memory: str

    def save(self, folder: str | Path, embed: bool = False, force: bool = False) -> Path:
        """Writes the generated folder; see `bundle.write`."""
        from .bundle import write
        return write((self,), folder, embed=embed, force=force)
