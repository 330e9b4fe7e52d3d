# SPDX-License-Identifier: Apache-2.0
"""The results of a compilation, in memory: the container, the C code, and facts about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..target import Target
from .container import Image


@dataclass(frozen=True, repr=False)
class Compiled:
    """A compiled model, from which the generated folder is written.

    name: a C identifier; prefix of everything this model adds to a program.
    image: the .megcc file in pieces; `container` is all of it, a copy.
    sources: file name below the generated folder -> text: `kernels/<symbol>.c` and `kernels.c`, which defines
        `const megcc_module <name>_module`; they include `kernels/kernels.h`, which all models of a folder share.
    manifest: facts about the model, for the generated folder, reports and the command:
        model: file name and SHA-256 of the source model; options: the options that it was compiled with;
        inputs, outputs: [{name, dtype, shape}], a dimension is an int or the text of an expression; quantised ones
        have quant: {scale, zero_point};
            an input whose shape changes also has `least`, its shape where every symbol is least;
        alignment: that of container and memory, in bytes;
        programs: [{target, tensors, instructions, workers, arena_bytes, lower_bound, weight_bytes, unpacked_bytes,
        calls: [{kernel, kind, origin, output, macs}]}], a row for each target (all of it in facts.py);
        weights: [{targets, bytes, weights}], what is stored, by the targets that read it.
    report: a text for people that says how the model was compiled.
    memory: a picture of the arena, an SVG.
    """

    name: str
    targets: tuple[Target, ...]
    image: Image
    sources: Mapping[str, str]
    manifest: Mapping[str, Any]
    report: str
    memory: str

    @property
    def container(self) -> bytes:
        """The bytes of the .megcc file."""
        return bytes(self.image)
