# SPDX-License-Identifier: Apache-2.0
"""Text from a language model on an emulated microcontroller: tokenizer, network and sampler are the firmware's C."""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...codegen.manifest import BUILD, read_manifest
from ...errors import MegccError
from ...foreign import c_name
from ...target import Target
from ..build import CFLAGS, building_in, firmware_image, model_of, target_of
from ..objects import Objects
from ..toolchain import find_compiler, find_emulator
from . import firmware

#: `settings` of c_runtime/ports/mps2/text.c.
_SETTINGS = struct.Struct("<3I4f2I")


@dataclass(frozen=True)
class Generated:
    """A generated text.

    tokens: the numbers of its tokens.
    stack_bytes: the largest stack.
    """

    text: str
    tokens: tuple[int, ...]
    stack_bytes: int


def build(folder: str | Path, target: Target | str | None = None, limits: Mapping[str, int] | None = None) -> Path:
    """Builds the firmware of a language model, which continues a text, and returns the image. Arguments and errors are
    those of `runtime.build.build`."""
    folder = Path(folder)
    with building_in(folder):
        manifest = read_manifest(folder)
        target = target_of(manifest, target, folder)
        name = c_name(model_of(manifest, None, folder)["name"])
        if not target.bare_metal or not (folder / f"{name}_lm.h").exists():
            raise MegccError(f"{folder} has no language model for {target}")
        output = folder / BUILD / target.name
        defines = (f"-DMODEL(x)={name}##x", f'-DMODEL_HEADER="{name}_lm.h"',
                   f"-DMODEL_VOCABULARY={name.upper()}_LM_VOCABULARY")
        objects = Objects(folder, output / "objects", find_compiler(target))
        return firmware_image(folder, [name], target, objects, (*CFLAGS, *target.cflags), output / "text.elf",
                              limits or {}, "text.c", defines)


def generate(folder: str | Path, prompt: str, max_tokens: int = 0, sampling: Mapping[str, float] | None = None,
             target: Target | str | None = None) -> Generated:
    """Continues a text on the emulated board.

    Args:
        max_tokens: the most tokens; 0: until the model ends the text or the context is full.
        sampling: numbers by the names of `Sampling`; others are 0, which is none.

    Raises:
        MegccError: if the prompt is too long for the context, and as `build`.
    """
    folder = Path(folder)
    target = target_of(read_manifest(folder), target, folder)
    image = build(folder, target).resolve()
    given, text = dict(sampling or {}), prompt.encode("utf-8", "surrogateescape")
    seed = int(given.get("seed", 0))
    settings = _SETTINGS.pack(
        len(text), max_tokens, int(given.get("top_k", 0)),
        *(float(given.get(name, 0)) for name in ("temperature", "top_p", "min_p", "repetition_penalty")),
        seed & 0xffffffff, seed >> 32)
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "options.bin").write_bytes(settings)
        (Path(place) / "prompt.txt").write_bytes(text)
        command = firmware.emulation(find_emulator(target)[0], target, image)
        result = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False,
                                stdin=subprocess.DEVNULL)
        if result.returncode:
            raise MegccError(f"{folder} on {target}: {(result.stderr or result.stdout).strip()[-500:]}")
        tokens = np.fromfile(Path(place) / "tokens.bin", np.uint32)
        return Generated((Path(place) / "text.txt").read_bytes().decode("utf-8", "replace"), tuple(tokens.tolist()),
                         int(np.fromfile(Path(place) / "stack.bin", np.uint32)[0]))
