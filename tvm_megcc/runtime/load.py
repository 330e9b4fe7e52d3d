# SPDX-License-Identifier: Apache-2.0
"""Loads a generated folder as a session: in this process, in a WebAssembly engine, or in an emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..codegen.manifest import read_manifest
from ..errors import MegccError
from ..target import Target
from .build import build, generated_folder, model_of, target_of
from .emulator.run import EmulatedSession
from .native import NativeSession
from .program import ProgramSession
from .session import Session
from .toolchain import find_emulator
from .wasm.browser import WebSession


def load(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
         model: str | None = None, threads: int | None = None) -> Session:
    """Returns a session on a generated folder, built first where that has not been done.

    Args:
        folder: as `megcc compile` and `Artifact.save` write it, or the .megcc file in it.
        target: one of those the folder was made for; by default one that this machine runs.
        model: which one, of a folder with several; a .megcc file says it by its name.
        threads: workers of a run, at most as many as it was compiled for; None: so many.

    Raises:
        MegccError: if the folder is none of ours, was made for other targets, or has other models.
        ToolError: if a compiler or emulator is missing.
    """
    folder, named = generated_folder(Path(folder))
    manifest = read_manifest(folder)
    if "program" in manifest:
        _require_program(manifest["program"]["name"], model or named, threads, folder)
        return ProgramSession(folder, target, cc)
    target, name = target_of(manifest, target, folder), model_of(manifest, model or named, folder)["name"]
    emulator = find_emulator(target)
    if threads is not None:
        _require_threads(threads, folder, model_of(manifest, name, folder), target, bool(emulator))
    built = build(folder, target, cc, model=name)
    if target.machine == "wasm32":
        return WebSession(built, emulator)
    return EmulatedSession(built, emulator) if emulator else NativeSession(built, threads)


def _require_program(name: str, model: str | None, threads: int | None, folder: Path) -> None:
    """Raises MegccError for a part of a program, and for more than one thread."""
    if model not in (None, name):
        raise MegccError(f"{folder} is the program '{name}': its networks run as its steps, not '{model}' alone")
    if threads not in (None, 1):
        raise MegccError(f"threads: a program runs on one, not on {threads}")


def _require_threads(threads: int, folder: Path, model: dict[str, Any], target: Target, emulated: bool) -> None:
    """Raises MegccError for a number of threads that a session cannot have."""
    most = 1 if emulated else next(row["workers"] for row in model["programs"] if row["target"] == target.name)
    known = isinstance(threads, int) and not isinstance(threads, bool)
    if not known or not 1 <= threads <= most:
        needed = threads if known and threads > most else most + 1
        raise MegccError(f"threads: {threads} is no number from 1 to {most}: " + (
            f"{target} runs in an emulator, on one" if emulated else
            f"{folder} was compiled for {most}; compile it again with --threads {needed} for more"))
