# SPDX-License-Identifier: Apache-2.0
"""The verbs of `megcc program`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def compile_(args: argparse.Namespace) -> int:
    from ..codegen.manifest import read_manifest
    from ..tools.program.program import Program
    from .verbs import _print, _progress

    with _progress(args, f"compiling {args.description}"):
        program = Program.read(args.description, args.models)
        folder = program.compile(args.output or f"{program.name}_megcc", args.target, args.force)
    _print(args, {"folder": str(folder), **read_manifest(folder)["program"]}, _compile_text)
    return 0


def _compile_text(report: dict[str, Any]) -> str:
    unshared = report["unshared"]
    return (f"{report['folder']}: {len(report['steps'])} steps; weights {report['weight_bytes']:,} bytes of "
            f"{unshared['weight_bytes']:,}, block {report['block_bytes']:,} bytes of {unshared['block_bytes']:,} "
            f"without sharing; {report['name']}.h says how to call it\n")


def run_(args: argparse.Namespace) -> int:
    """Runs a program and reports its results, as `megcc run` does of a model."""
    from ..codegen.manifest import read_manifest
    from ..errors import MegccError
    from ..runtime.program import ProgramSession
    from ..tools import run
    from .verbs import _print, _progress

    folder = Path(args.path)
    if "program" not in read_manifest(folder):
        raise MegccError(f"{folder} is no program: 'megcc run' runs models")
    with _progress(args, f"building {folder}"):
        session = ProgramSession(folder, args.target or None, args.cc)
    report = run.run(session, args.inputs, args.outputs, repeat=args.repeat, seed=args.seed, sequence=args.sequence)
    _print(args, report, run.text)
    return 0


def list_(args: argparse.Namespace) -> int:
    from ..tools.program.program import shipped
    from .verbs import _print

    _print(args, {"programs": [{"name": name, "what": what} for name, what in shipped().items()]}, _list_text)
    return 0


def _list_text(report: dict[str, Any]) -> str:
    rows = report["programs"]
    width = max(len(row["name"]) for row in rows)
    return "".join(f"{row['name']:{width}}  {row['what']}\n" for row in rows)
