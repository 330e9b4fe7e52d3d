# SPDX-License-Identifier: Apache-2.0
"""Loads a generated folder as a session: in this process, in a WebAssembly engine, or in an emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..codegen.manifest import read_manifest
from ..errors import MegccError
from ..target import Target
from .build import build, generated_folder, model_of, target_of
from .native import NativeSession
from .session import Session
from .toolchain import find_emulator


def load(folder: str | Path, target: Target | str | None = None, cc: str | None = None,
         model: str | None = None, threads: int | None = None) -> Session:
    """Returns a session on a generated folder, which is built first if necessary.

    Args:
        folder: a folder that `megcc compile` or `Artifact.save` wrote, or the .megcc file in it.
        target: one of the folder's targets; by default one that this machine runs, else the first, in an emulator.
        cc: the C compiler; by default the one that the target names.
        model: the name of the model, if the folder has several; a .megcc file has it in its name.
        threads: workers of a run, at most as many as the model was compiled for; None: that number.

    Raises:
        MegccError: if it is no generated folder, or has other targets, models or fewer threads.
        ToolError: if a compiler or emulator is missing.
    """
    folder, named = generated_folder(Path(folder))
    manifest = read_manifest(folder)
    if "program" in manifest:
        _require_program(manifest["program"], model or named, threads, folder)
        from .program import ProgramSession

        return ProgramSession(folder, target, cc, threads)
    target, name = target_of(manifest, target, folder), model_of(manifest, model or named, folder)["name"]
    emulator = find_emulator(target)
    if threads is not None:
        _require_threads(threads, folder, model_of(manifest, name, folder), target, bool(emulator))
    built = build(folder, target, cc, model=name)
    if target.machine == "wasm32":
        from .wasm.engine import WebSession

        return WebSession(built, emulator)
    if emulator:
        from .emulator.run import EmulatedSession

        return EmulatedSession(built, emulator)
    return NativeSession(built, threads)


def _require_program(program: dict[str, Any], model: str | None, threads: int | None, folder: Path) -> None:
    """Raises MegccError for a single network of a program, and for a number of threads that it cannot have."""
    if model not in (None, program["name"]):
        raise MegccError(f"{folder} is the program '{program['name']}': its networks run as its steps, not '{model}' "
                         "alone")
    if threads is not None:
        most = program.get("threads", 1)
        _require_number(threads, most, f"{folder} was compiled for {most}")


def _require_threads(threads: int, folder: Path, model: dict[str, Any], target: Target, emulated: bool) -> None:
    """Raises MegccError for a number of threads that a session cannot have."""
    max_threads = 1 if emulated else next(row["workers"] for row in model["programs"] if row["target"] == target.name)
    _require_number(threads, max_threads, f"{target} runs in an emulator, on one" if emulated else
                    f"{folder} was compiled for {max_threads}")


def _require_number(threads: int, most: int, why: str) -> None:
    """Raises MegccError for a number of threads below 1 or above `most`, with the reason for that limit."""
    is_int = isinstance(threads, int) and not isinstance(threads, bool)
    if not is_int or not 1 <= threads <= most:
        needed = threads if is_int and threads > most else most + 1
        again = f"; compile it again with --threads {needed} for more" if "compiled" in why else ""
        raise MegccError(f"threads: {threads} is no number from 1 to {most}: {why}{again}")
