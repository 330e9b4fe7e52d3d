# SPDX-License-Identifier: Apache-2.0
"""A generated folder as a session: in this process, in an engine for WebAssembly, or in an emulator."""

from __future__ import annotations

from pathlib import Path

from ..codegen.manifest import read_manifest
from ..target import Target
from .build import build, generated_folder, model_of, target_of
from .emulated import EmulatedSession
from .native import NativeSession
from .session import Session
from .toolchain import find_emulator
from .web import WebSession


def load(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
         model: str | None = None) -> Session:
    """A session on a generated folder, built first where that has not been done.

    Args:
        folder: as `megcc compile` and `Artifact.save` write it, or the .megcc file in it.
        target: one of those the folder was made for; by default one that this machine runs.
        model: which one, of a folder with several; a .megcc file says it by its name.

    Raises:
        MegccError: if the folder is none of ours, was made for other targets, or has other models.
        ToolError: if a compiler or emulator is missing.
    """
    folder, named = generated_folder(Path(folder))
    manifest = read_manifest(folder)
    target, name = target_of(manifest, target, folder), model_of(manifest, model or named, folder)["name"]
    emulator = find_emulator(target)
    built = build(folder, target, cc, model=name)
    if target.machine == "wasm32":
        return WebSession(built, emulator)
    return EmulatedSession(built, emulator) if emulator else NativeSession(built)
