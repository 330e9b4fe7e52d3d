# SPDX-License-Identifier: Apache-2.0
"""The verbs of `megcc program`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..runtime.program import ProgramSession
    from ..runtime.session import Array, Port


def compile_(args: argparse.Namespace) -> int:
    from ..codegen.manifest import read_manifest
    from ..tools.program.program import Program
    from .verbs import _print, _progress

    with _progress(args, f"compiling {args.description}"):
        program = Program.read(args.description, args.models)
        folder = program.compile(args.output or f"{program.name}_megcc", args.target, args.force, args.threads)
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
    """Returns the inputs from --wav, --picture and --text, all others at random; the text on the source of each; and
    whether arrays have a first axis of runs: a sound of several blocks has one for each run, in which all other inputs
    are the same."""
    from ..errors import MegccError
    from ..tools.program import media
    from ..tools.run import seeded

    if not (args.wav or args.picture or args.text):
        return {}, {}, False
    if args.inputs or args.sequence:
        raise MegccError("--wav, --picture and --text go without --inputs and --sequence")
    feeds, sources = dict[str, Any](), dict[str, str]()
    runs = 1
    for port, path in _ports_and_paths(session, args.wav, "sound"):
        samples, rate = media.sound(path, session.sample_rates.get(port.name))
        blocks = media.blocks(samples, port)
        if feeds and len(blocks) != runs:
            raise MegccError(f"sounds are equally long: '{path}' has {len(blocks)} blocks, another {runs}")
        runs = len(blocks)
        feeds[port.name], sources[port.name] = blocks, f"{path}, {len(samples) / rate:.2f} s"
    for port, path in _ports_and_paths(session, args.picture, "picture"):
        feeds[port.name], sources[port.name] = np.stack([media.picture(path, *map(int, port.shape))] * runs), str(path)
    for name, strings in _strings(session, args.text).items():
        feeds[name], sources[name] = np.stack([session.bytes_of(name, strings)] * runs), "text"
    others = seeded([port for port in session.inputs if port.name not in feeds], args.seed)
    feeds |= {name: np.stack([array] * runs) for name, array in others.items()}
    sources |= dict.fromkeys(others, f"seed {args.seed}")
    return feeds if runs > 1 else {name: array[0] for name, array in feeds.items()}, sources, runs > 1


def _strings(session: ProgramSession, given: Sequence[str]) -> dict[str, list[str]]:
    """Returns the strings of each input, of [INPUT=]STRING.

    Raises:
        MegccError: if the program has no input for a text, or several and none of them is named.
    """
    from ..errors import MegccError

    found: dict[str, list[str]] = {}
    for each in given:
        name, equals, string = each.partition("=")
        if not equals or name not in session.strings:
            if len(session.strings) != 1:
                raise MegccError(f"the program has {len(session.strings) or 'no'} inputs for a text"
                                 + (f": {', '.join(session.strings)}; write INPUT={each}" if session.strings else ""))
            name, string = session.strings[0], each
        found.setdefault(name, []).append(string)
    return found


def _ports_and_paths(session: ProgramSession, given: Sequence[str], takes: str) -> list[tuple[Port, Path]]:
    """Returns the input and the path of each [INPUT=]FILE. takes: as for `media.port_of`.

    Raises:
        MegccError: as `media.port_of`, and for two files for one input.
    """
    from ..errors import MegccError, quoted
    from ..tools.program import media

    found = [media.port_of(session.inputs, each, takes) for each in given]
    names = [port.name for port, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise MegccError(f"two files are given for the input {quoted(name)}")
    return found


def list_(args: argparse.Namespace) -> int:
    from ..tools.program.program import shipped
    from .verbs import _print

    _print(args, {"programs": [{"name": name, "what": what} for name, what in shipped().items()]}, _list_text)
    return 0


def _list_text(report: dict[str, Any]) -> str:
    rows = report["programs"]
    width = max(len(row["name"]) for row in rows)
    return "".join(f"{row['name']:{width}}  {row['what']}\n" for row in rows)
