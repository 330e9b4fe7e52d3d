# SPDX-License-Identifier: Apache-2.0
"""Implements the verbs. Each imports only what it needs, so that `megcc list` need not wait for the compiler."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from ..errors import MegccError, MegccWarning, report_text

#: The exit status if a model or a request is refused, or results differ.
REFUSED = 1
#: The seconds after which the command prints what it is doing.
PATIENCE = 2.0


def demo_(args: argparse.Namespace) -> int:
    from ..tools import demo

    with _progress(args, "compiling and building the demo"):
        report = demo.demo(args.target, args.output)
    _print(args, report, demo.text)
    return 0 if demo.right(report) else REFUSED


def compile_(args: argparse.Namespace) -> int:
    from .. import api, folders
    from ..codegen import bundle
    from ..context import SAFETY
    from ..tools import source

    args, models = source.described(args.config, args) if args.config else (args, source.each_model(args))
    if args.weights == "file" and any(options.profile == SAFETY for _, _, options in models):
        raise MegccError(f"--profile {SAFETY} has no files: leave out --weights file")
    if args.output:  # refuse it now, because compiling takes time
        folders.refuse_precious(Path(args.output), [model for model, *_ in models])
        if not args.force:
            bundle.require_replaceable(Path(args.output))
    artifacts = []
    for model, name, options in models:
        with _progress(args, f"compiling {model}"):
            artifacts.append(api.compile(model, args.target, options, name=name, dump=args.dump))
    embed = _embedding(args)
    if args.same_code_as:
        _require_same_code(bundle.contents(artifacts, embed), args.same_code_as)
    folder = bundle.write(artifacts, args.output or "_".join(artifact.name for artifact in artifacts) + "_megcc",
                          embed=embed, force=args.force)
    from ..tools.report import describe
    _print(args, describe.folder(folder), describe.folder_text)
    return 0


def _embedding(args: argparse.Namespace) -> bool | str:
    """Returns --embed and --weights, which exclude each other, as the argument `embed` of `bundle.write`."""
    if args.weights is None:
        return bool(args.embed)
    return False if args.weights == "file" else str(args.weights)


def _require_same_code(files: Mapping[str, bytes], folder: str) -> None:
    """Raises MegccError if C files other than those with the weights differ from those of the folder."""
    from ..codegen import bundle

    def code_of(manifest: dict) -> dict[str, str]:
        return {name: digest for name, digest in manifest["files"].items()
                if name.endswith((".c", ".h")) and not name.endswith("_data.c")}

    old, new = code_of(bundle.read_manifest(Path(folder))), code_of(json.loads(files[bundle.MANIFEST]))
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if changed:
        others = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise MegccError(f"the code is not that of {folder}: {', '.join(changed[:5])}{others} "
                         "would change; the firmware has to be built again")


def build_(args: argparse.Namespace) -> int:
    from ..runtime.build import build, build_all
    from ..tools import source
    from ..tools.report import describe

    folder = source.folder_of(args.path, args)
    with _progress(args, f"building {folder}"):
        limits = {name: size for name in ("flash", "ram") if (size := getattr(args, f"board_{name}")) is not None}
        model = source.model_of(args.path, args)
        built = [build(folder, args.target or None, args.cc, limits=limits, model=model)] if model else \
            build_all(folder, args.target or None, args.cc, limits)
    _print(args, describe.build(built), describe.build_text)
    return 0


def _preparing(path: str) -> str:
    """Returns the progress line for preparing a session on a model or a compiled folder."""
    return f"building {path}" if path.endswith(".megcc") or Path(path).is_dir() else f"compiling and building {path}"


def run_(args: argparse.Namespace) -> int:
    from ..option_values import parse_shapes
    from ..tools import run, source

    with _progress(args, _preparing(args.path)):
        session = source.remote_session_of(args.path, args) if args.rpc else source.session_of(args.path, args)
    report = run.run(session, args.inputs, args.outputs, repeat=args.repeat, seed=args.seed, profile=args.times,
                     shapes=parse_shapes(args.shape or ""), sequence=args.sequence, real=args.as_float)
    _print(args, report, run.text)
    return 0


def bench_(args: argparse.Namespace) -> int:
    if args.trace and (args.against or args.blocks):
        raise MegccError("--trace shows the calls of one model: leave out --against and --blocks")
    if args.against:
        return _bench_against(args)
    from ..option_values import parse_shapes
    from ..tools import source
    from ..tools.bench import bench
    from ..tools.board import instructions

    if len(args.path) > 1:
        raise MegccError("several models are for --against; without it, bench one at a time")
    path = args.path[0]
    with _progress(args, _preparing(path)):
        session = source.remote_session_of(path, args) if args.rpc else source.timed_session_of(path, args)
    if session.target.bare_metal:
        report = instructions.bench(session, args.inputs, args.seed, args.chip, args.fast_code)
        _write_trace(args, report)
        _print(args, report, instructions.text)
        return 0
    if args.chip or args.fast_code:
        raise MegccError(f"--chip and --fast-code are for microcontrollers, and this is code for {session.target}")
    if args.blocks:
        from ..runtime.device import DeviceSession
        from ..tools.bench import realtime

        if args.rpc or not isinstance(session, DeviceSession):
            raise MegccError("--blocks measures threads of this machine: leave out --rpc, and choose a target that "
                             "runs here")
        _print(args, realtime.realtime(session, args.blocks, args.processor, args.inputs, args.seed), realtime.text)
        return 0
    report = bench.bench(session, args.inputs, repeat=args.repeat, seed=args.seed,
                         shapes=parse_shapes(args.shape or ""))
    _write_trace(args, report)
    _print(args, report, bench.text)
    return 0


def _write_trace(args: argparse.Namespace, report: dict) -> None:
    if args.trace:
        from ..tools.bench.trace import trace

        Path(args.trace).write_text(json.dumps(trace(report), indent=1) + "\n")


def _bench_against(args: argparse.Namespace) -> int:
    from ..tools.bench import against, against_report

    if args.rpc:
        raise MegccError("--against times engines of this machine: leave out --rpc")

    with nullcontext() if args.quiet or args.verbose else logged(against.logger, logging.INFO):
        report = against.against(args.path, args)
    _print(args, report, against_report.text)
    return 0


def tune_(args: argparse.Namespace) -> int:
    from ..target import parse_targets
    from ..tools.bench import tune

    models = [tune.graph_of(model, args.options) for model in args.model]
    report = tune.tune(models, parse_targets(args.target), args.options.log or "tune.jsonl",
                       optimize=args.options.optimize,
                       trials=args.trials, runner=tune.runner_of(args.rpc, args.key), cc=args.cc,
                       progress=tune.progress_bar(args.quiet))
    _print(args, report, tune.text)
    return 0


def compare_(args: argparse.Namespace) -> int:
    from ..tools import compare

    with _progress(args, f"comparing {args.path}"):
        report = compare.compare(args.path, args)
    _print(args, report, compare.text)
    return 0 if report["equal"] and (args.allow or compare.says_something(report)) else REFUSED


def verify_(args: argparse.Namespace) -> int:
    from ..target import parse_targets
    from ..tools import source, verify

    with _progress(args, f"running {args.path}"):
        folder = source.folder_of(args.path, args)
        report = verify.verify(folder, parse_targets(args.target) if args.target else (), args.cc,
                               model=source.model_of(args.path, args), record=args.record)
    _print(args, report, verify.text)
    return 0 if report["equal"] else REFUSED


def inspect_(args: argparse.Namespace) -> int:
    from ..tools import source
    from ..tools.report import describe

    folder = source.folder_of(args.path, args)
    if args.size:
        from ..tools.report import size
        with _progress(args, f"building {folder}"):
            report = size.size(folder, args.target or None, args.cc)
        _print(args, report, size.text)
    else:
        _print(args, describe.folder(folder), describe.folder_text)
    return 0


def evidence_(args: argparse.Namespace) -> int:
    from .. import folders
    from ..errors import MissingTool

    folders.refuse_precious(Path(args.output), [args.path])
    try:
        from ..tools.evidence import evidence, page
    except ModuleNotFoundError as error:
        if error.name != "pycparser":
            raise
        raise MissingTool("loops are read with pycparser, which is not installed: pip install 'tvm_megcc[evidence]'") \
            from None

    with _progress(args, f"building and measuring {args.path}"):
        report = evidence.evidence(Path(args.path), args.target or None, args.cc, args.model_name, args.runs,
                                   args.value_analysis, lambda line: print(line, file=sys.stderr))
    folders.write_new(Path(args.output), page.files(report), args.force)
    _print(args, report, page.text)
    return 0 if evidence.complete(report) else REFUSED


def explain_(args: argparse.Namespace) -> int:
    from ..tools.report import explain

    report = explain.explain(args.path, args.target or "native", args.options)
    _print(args, report, explain.text)
    return 0 if report["supported"] else REFUSED


def report_(args: argparse.Namespace) -> int:
    from .. import folders
    from ..frontends import formats
    from ..tools.report import page, report

    output = Path(args.output or f"{Path(args.path).stem}_report.html")
    _require_writable(output)
    folders.require_other_file(output, args.path)
    formats.require_model_file(args.path)
    page.require_bokeh()
    with _progress(args, f"compiling, building and timing {args.path}"):
        facts = report.report(args.path, args)
    try:
        output.write_text(page.page(facts), encoding="utf-8")
    except OSError as error:
        raise MegccError(f"cannot write {output}: {error.strerror}") from None
    _print(args, facts, lambda facts: f"{output}: {facts['model']} on {facts['target']}, "
                                      f"{output.stat().st_size:,} bytes\n")
    return 0


def _require_writable(file: Path) -> None:
    """Raises MegccError if a file cannot be written, before its contents are computed, which takes time."""
    if file.is_dir():
        raise MegccError(f"{file} is a folder: -o names the file to write")
    if not file.parent.is_dir():
        raise MegccError(f"{file} cannot be written: there is no folder {file.parent}")


def quantize_(args: argparse.Namespace) -> int:
    from ..option_values import parse_dims, parse_inputs
    from ..tools.quantize import quantize

    def say(what: str) -> None:
        if not args.quiet:
            print(f"megcc: {what} …", file=sys.stderr, flush=True)

    output = args.output or f"{Path(args.path).stem}_int8.onnx"
    _require_writable(Path(output))
    float_names = [name for names in args.keep_float for name in names.split(",")]
    report = quantize.quantize(args.path, args.calibrate, output,
                               method=args.method, keep_float=float_names, min_snr=args.min_snr,
                               inputs=parse_inputs(args.input), evaluate=args.evaluate, max_samples=args.samples,
                               target=args.target, time=not args.no_time, dims=parse_dims(args.dim), say=say)
    _print(args, report, quantize.text)
    return 0


def export_(args: argparse.Namespace) -> int:
    from .. import folders
    from ..tools import source
    from ..tools.export import packages

    if args.output:
        folders.refuse_precious(Path(args.output), [args.path])
    with _progress(args, f"compiling {args.path}"):
        args.target = args.target or packages.default_target(args.system)
        folder = source.folder_of(args.path, args, embed=not args.separate_weights and packages.embedding(
            args.system, args.weights), name=args.name)
        report = packages.export(folder, args.system, args.output, version=args.package_version, url=args.url,
                               force=args.force, name=args.name, cc=args.cc)
    _print(args, report, packages.text)
    return 0


def keygen_(args: argparse.Namespace) -> int:
    from ..tools.export import signed

    _print(args, signed.keygen(args.name), signed.keygen_text)
    return 0


def pack_(args: argparse.Namespace) -> int:
    from ..tools.export import signed

    report = signed.pack(args.path, args.key, args.counter, output=args.output, product=args.product,
                         model=args.model_name)
    _print(args, report, signed.text)
    return 0


def unpack_(args: argparse.Namespace) -> int:
    from ..tools.export import signed

    _print(args, signed.unpack(args.path, args.key, output=args.output, product=args.product), signed.text)
    return 0


def cv_(args: argparse.Namespace) -> int:
    from ..tools.export import cv

    _print(args, cv.write(args.target, args.output, force=args.force), cv.text)
    return 0


def list_(args: argparse.Namespace) -> int:
    from ..tools.report import listing

    what = {"operators": "ops"}.get(args.what, args.what)
    if args.op is None:
        given = [f"--{name}" for name in ("shape", "weight", "attrs", "tiles", "time", "network")
                 if getattr(args, name)]
        if given:
            raise MegccError(f"{', '.join(given)}: of which operator? megcc list kernels --op conv2d {given[0]} …")
        _print(args, listing.TABLES[what](), listing.text)
        return 0
    if what != "kernels":
        raise MegccError(f"--op is for 'megcc list kernels', not for 'megcc list {what}'")
    from ..tools.bench import candidates

    with _progress(args, f"building candidates of {args.op}"):
        report = candidates.candidates(
            args.op, args.shape, args.weight, args.attrs, target=args.target, optimize=args.optimize, tiles=args.tiles,
            time=args.time, cc=args.cc, network=args.network)
    _print(args, report, candidates.text)
    return 0


def _print(args: argparse.Namespace, report, text: Callable[[dict], str]) -> None:
    if args.json:
        print(json.dumps(report, indent=1))
    elif not args.quiet:
        print(report_text(report, text), end="")


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Shows our warnings as messages of the command; those of libraries are shown as usual."""
    before = warnings.showwarning

    def show(message, category, *where, **options) -> None:
        if issubclass(category, MegccWarning):
            print(f"megcc: {message}", file=sys.stderr, flush=True)
        else:
            before(message, category, *where, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("always", MegccWarning)
        warnings.showwarning = show
        yield


@contextmanager
def logged(logger: logging.Logger, level: int) -> Iterator[None]:
    """Shows log records of the library, from this level on, as messages of the command."""
    handler, before = logging.StreamHandler(), logger.level
    handler.setFormatter(logging.Formatter("megcc: %(message)s …"))
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def _progress(args: argparse.Namespace, what: str) -> Iterator[None]:
    """Prints what is being done if it takes longer than `PATIENCE`."""
    timer = threading.Timer(PATIENCE, lambda: print(f"megcc: {what} …", file=sys.stderr, flush=True))
    timer.daemon = True
    if not args.quiet:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
