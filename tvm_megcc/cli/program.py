# SPDX-License-Identifier: Apache-2.0
"""The verbs of `megcc program`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..runtime.program import ProgramSession
    from ..runtime.session import Array


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
    feeds, sources, in_blocks = _files(session, args)
    report = run.run(session, feeds or args.inputs, args.outputs, repeat=args.repeat, seed=args.seed,
                     sequence=args.sequence or in_blocks)
    for row in report["inputs"]:
        row["source"] = sources.get(row["name"], row["source"])
    _print(args, report, run.text)
    return 0


def _files(session: ProgramSession, args: argparse.Namespace) -> tuple[dict[str, Array], dict[str, str], bool]:
    """Returns the inputs from --wav and --picture, all others at random; the text on the source of each; and whether
    arrays have the blocks of a sound along a first axis."""
    from ..errors import MegccError
    from ..tools.program import media
    from ..tools.run import seeded

    if not (args.wav or args.picture):
        return {}, {}, False
    if args.inputs or args.sequence:
        raise MegccError("--wav and --picture go without --inputs and --sequence")
    feeds, sources = dict[str, Any](), dict[str, str]()
    runs = 1  # blocks of a sound: one for each run, in which all other inputs are the same
    for given in args.wav:
        port, path = media.port_of(session.inputs, given, "sound")
        samples, rate = media.sound(path, session.sample_rates.get(port.name))
        feeds[port.name] = media.blocks(samples, port)
        sources[port.name] = f"{path}, {len(samples) / rate:.2f} s"
        if len(feeds) > 1 and len(feeds[port.name]) != runs:
            raise MegccError(f"sounds are equally long: '{path}' has {len(feeds[port.name])} blocks, another {runs}")
        runs = len(feeds[port.name])
    for given in args.picture:
        port, path = media.port_of(session.inputs, given, "picture")
        feeds[port.name], sources[port.name] = np.stack([media.picture(path, port)] * runs), str(path)
    others = seeded([port for port in session.inputs if port.name not in feeds], args.seed)
    feeds |= {name: np.stack([array] * runs) for name, array in others.items()}
    sources |= dict.fromkeys(others, f"seed {args.seed}")
    return feeds if runs > 1 else {name: array[0] for name, array in feeds.items()}, sources, runs > 1


def list_(args: argparse.Namespace) -> int:
    from ..tools.program.program import shipped
    from .verbs import _print

    _print(args, {"programs": [{"name": name, "what": what} for name, what in shipped().items()]}, _list_text)
    return 0


def _list_text(report: dict[str, Any]) -> str:
    rows = report["programs"]
    width = max(len(row["name"]) for row in rows)
    return "".join(f"{row['name']:{width}}  {row['what']}\n" for row in rows)
