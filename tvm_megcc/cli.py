# SPDX-License-Identifier: Apache-2.0
"""The command `megcc`: results on stdout, progress and errors on stderr.

Exit codes: 0 done; 1 the model, the folder or a tool is not right, or a comparison failed; 2 wrong usage; 70 a bug
of ours.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress

from .errors import InternalError, MegccError, readable, refused_by_system
from .version import VERSION

REFUSED, USAGE, BUG = 1, 2, 70
#: Seconds after which the command says what it is doing.
PATIENCE = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    parser = _parser()
    _complete(parser)
    args = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream of a program that calls this
            stream.reconfigure(errors="backslashreplace")
    try:
        with _logged(logging.getLogger(__package__), logging.DEBUG) if args.verbose else nullcontext():
            code = args.run(args) or 0
        sys.stdout.flush()
        return code
    except InternalError as error:
        return _bug(args, str(error))
    except MegccError as error:
        return _refused(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _leave_stdout()
        return 0
    except MemoryError:
        return _refused(MegccError("there is not enough memory for this; use smaller shapes, or a machine with more"))
    except OSError as error:
        if error.filename is None:  # not a file that we opened: the report
            _leave_stdout()
        return _refused(refused_by_system(error))
    except Exception as error:
        if args.verbose:
            traceback.print_exc()
        return _bug(args, f"{type(error).__name__}: {error}")


def _refused(error: MegccError) -> int:
    print(f"megcc: {error}", file=sys.stderr)
    return REFUSED


def _leave_stdout() -> None:
    """What is still to be written goes nowhere: Python would try again when it ends, and complain."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """A command line as the tools take it."""
    return _parser().parse_args(argv)


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answers a shell that asks how a line may go on, and ends the process then; argcomplete is optional."""
    if "_ARGCOMPLETE" in os.environ:
        with suppress(ImportError):
            import argcomplete
            argcomplete.autocomplete(parser)


def _bug(args: argparse.Namespace, message: str) -> int:
    advice = "" if args.verbose else ", with -v for where it happened"
    print(f"megcc: this is a bug of ours: {message}\n"
          f"  Please report it with the folder that 'megcc compile … --dump DIR' writes{advice}.", file=sys.stderr)
    return BUG


# The verbs. Each imports what it needs: `megcc list` must not wait for the compiler.


def _compile(args: argparse.Namespace) -> int:
    from . import api
    from .codegen import bundle
    from .tools import source

    artifacts = []
    for model, name, arguments in source.each_model(args):
        with _progress(args, f"compiling {model}"):
            artifacts.append(api.compile(model, args.target, name=name, dump=args.dump, **arguments))
    if args.same_code_as:
        _require_same_code(bundle.contents(artifacts, args.embed), args.same_code_as)
    folder = bundle.write(artifacts, args.output or "_".join(a.name for a in artifacts) + "_megcc",
                          embed=args.embed, force=args.force)
    from .tools import describe
    _print(args, describe.folder(folder), describe.folder_text)
    return 0


def _require_same_code(files: Mapping[str, bytes], folder: str) -> None:
    from pathlib import Path

    from .codegen import bundle

    def code_of(manifest: dict) -> dict[str, str]:
        return {name: digest for name, digest in manifest["files"].items()
                if name.endswith((".c", ".h")) and not name.endswith("_data.c")}

    old, new = code_of(bundle.read_manifest(Path(folder))), code_of(json.loads(files[bundle.MANIFEST]))
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise MegccError(f"the code is not that of {folder}: {', '.join(changed[:5])}{more} "
                         "would change; the firmware has to be built again")


def _build(args: argparse.Namespace) -> int:
    from .runtime.build import build, build_all
    from .tools import describe, source

    folder = source.folder_of(args.path, args)
    with _progress(args, f"building {folder}"):
        limits = {name: size for name in ("flash", "ram") if (size := getattr(args, name)) is not None}
        model = source.model_of(args.path, args)
        built = [build(folder, args.target or None, args.cc, limits=limits, model=model)] if model else \
            build_all(folder, args.target or None, args.cc, limits)
    _print(args, describe.build(built), describe.build_text)
    return 0


def _run(args: argparse.Namespace) -> int:
    from .api import parse_shapes
    from .tools import run, source

    with _progress(args, f"compiling and building {args.path}"):
        session = source.remote_session_of(args.path, args) if args.rpc else source.session_of(args.path, args)
    report = run.run(session, args.inputs, args.outputs, repeat=args.repeat, seed=args.seed, profile=args.profile,
                     shapes=parse_shapes(args.shape or ""), sequence=args.sequence)
    _print(args, report, run.text)
    return 0


def _bench(args: argparse.Namespace) -> int:
    if args.against:
        return _bench_against(args)
    from .tools import bench, source

    if len(args.path) > 1:
        raise MegccError("several models are for --against; without it, bench one at a time")
    path = args.path[0]
    with _progress(args, f"compiling and building {path}"):
        session = source.remote_session_of(path, args) if args.rpc else source.timed_session_of(path, args)
    report = bench.bench(session, args.inputs, repeat=args.repeat, seed=args.seed)
    _print(args, report, bench.text)
    return 0


def _bench_against(args: argparse.Namespace) -> int:
    from .tools import against, against_report

    if args.rpc:
        raise MegccError("--against times engines of this machine: leave out --rpc")

    with nullcontext() if args.quiet or args.verbose else _logged(against.logger, logging.INFO):
        report = against.against(args.path, args)
    _print(args, report, against_report.text)
    return 0


def _tune(args: argparse.Namespace) -> int:
    from .target import parse_targets
    from .tools import tune

    with _warnings_on_stderr():
        models = [tune.graph_of(model, args) for model in args.model]
        report = tune.tune(models, parse_targets(args.target), args.log or "tune.jsonl", optimize=args.optimize,
                           trials=args.trials, runner=tune.runner_of(args.rpc, args.key), cc=args.cc,
                           progress=tune.progress_bar(args.quiet))
    _print(args, report, tune.text)
    return 0


def _compare(args: argparse.Namespace) -> int:
    from .tools import compare

    with _progress(args, f"comparing {args.path}"):
        report = compare.compare(args.path, args)
    _print(args, report, compare.text)
    return 0 if report["equal"] else REFUSED


def _inspect(args: argparse.Namespace) -> int:
    from .tools import describe, source

    folder = source.folder_of(args.path, args)
    if args.size:
        from .tools import size
        with _progress(args, f"building {folder}"):
            report = size.size(folder, args.target or None, args.cc)
        _print(args, report, size.text)
    else:
        _print(args, describe.folder(folder), describe.folder_text)
    return 0


def _explain(args: argparse.Namespace) -> int:
    from .api import parse_inputs
    from .tools import explain, source

    report = explain.explain(args.path, args.target or "native", args.optimize, args.log, parse_inputs(args.input),
                             **source.graph_arguments(args))
    _print(args, report, explain.text)
    return 0 if report["supported"] else REFUSED


def _report(args: argparse.Namespace) -> int:
    from pathlib import Path

    from .tools import report, report_page

    report_page.require_bokeh()
    with _progress(args, f"compiling, building and timing {args.path}"):
        facts = report.report(args.path, args)
    output = Path(args.output or f"{Path(args.path).stem}_report.html")
    try:
        output.write_text(report_page.page(facts), encoding="utf-8")
    except OSError as error:
        raise MegccError(f"cannot write {output}: {error.strerror}") from None
    _print(args, facts, lambda facts: f"{output}: {facts['model']} on {facts['target']}, "
                                      f"{output.stat().st_size:,} bytes\n")
    return 0


def _list(args: argparse.Namespace) -> int:
    from .tools import listing

    if args.op is None:
        given = [f"--{name}" for name in ("shape", "weight", "attrs", "tiles", "time", "network")
                 if getattr(args, name)]
        if given:
            raise MegccError(f"{', '.join(given)}: of which operator? megcc list kernels --op conv2d {given[0]} …")
        _print(args, listing.TABLES[args.what](), listing.text)
        return 0
    if args.what != "kernels":
        raise MegccError(f"--op is for 'megcc list kernels', not for 'megcc list {args.what}'")
    from .tools import candidates

    with _progress(args, f"building candidates of {args.op}"):
        report = candidates.candidates(args.op, args.shape, args.weight, args.attrs, args.target, args.optimize,
                                       args.tiles, args.time, args.cc, args.network)
    _print(args, report, candidates.text)
    return 0


def _print(args: argparse.Namespace, report, text: Callable[[dict], str]) -> None:
    if args.json:
        print(json.dumps(report, indent=1))
    elif not args.quiet:
        print(readable(text(report)), end="")


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """Warnings as messages of the command."""
    def show(message, *_where, **_options) -> None:
        print(f"megcc: {message}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@contextmanager
def _logged(logger: logging.Logger, level: int) -> Iterator[None]:
    """What the library logs of what it does, from this level on, as messages of the command."""
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
    """Says what is being done if it takes longer than `PATIENCE`."""
    timer = threading.Timer(PATIENCE, lambda: print(f"megcc: {what} …", file=sys.stderr, flush=True))
    timer.daemon = True
    if not args.quiet:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# The command line.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="megcc", description="Neural networks to C: a model in, a folder of C out.",
        epilog="MODEL is an ONNX file or, through TVM, a TFLite file (.tflite) or a saved program of torch.export "
               "(.pt2). PATH is a model, a folder that 'megcc compile' wrote, or the .megcc file in it.")
    parser.add_argument("--version", action="version", version=f"megcc {VERSION}")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = _verb(verbs, "compile", _compile, "compile models into a folder of C")
    verb.add_argument("model", nargs="+", metavar="MODEL",
                      help="several models share one folder, runtime and kernels")
    verb.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: NAME_megcc)")
    verb.add_argument("--name", metavar="A,B",
                      help="prefix of everything generated, one a model (default: the file's name)")
    verb.add_argument("--embed", action="store_true", help="the model as a constant array in C, not as a file")
    verb.add_argument("--force", action="store_true", help="replace the folder whatever is in it")
    verb.add_argument("--dump", metavar="DIR", help="write every stage of the compiler as text")
    verb.add_argument("--same-code-as", metavar="DIR", help="fail if the C code is not that of this folder")
    _target_option(verb, "CPUs to compile for, such as native,arm64 ('megcc list targets')", "native")
    _compile_options(verb)

    verb = _verb(verbs, "build", _build, "build a generated folder with a C compiler")
    verb.add_argument("path", metavar="PATH")
    _model_option(verb)
    _target_option(verb, "which of the folder's targets (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler, with arguments (default: found by its usual names)")
    verb.add_argument("--flash", type=_bytes, metavar="SIZE", help="flash of a microcontroller, such as 256K")
    verb.add_argument("--ram", type=_bytes, metavar="SIZE", help="RAM of a microcontroller, such as 64K")
    _compile_options(verb)

    verb = _verb(verbs, "run", _run, "run a model, here or in an emulator")
    verb.add_argument("path", metavar="PATH")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--outputs", metavar="NPZ", help="write the outputs")
    verb.add_argument("--shape", metavar="SHAPES", help='of inputs whose shape may change: "data=(1,3,224,224)"')
    verb.add_argument("--sequence", action="store_true",
                      help="the arrays of both files have the steps of a stream along a first axis of their own")
    verb.add_argument("--repeat", type=int, default=10, metavar="N", help="runs to time (default: 10)")
    verb.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    verb.add_argument("--profile", action="store_true", help="time of each kernel call")
    _model_option(verb)
    _target_option(verb, "which target (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler")
    _rpc_options(verb)
    _compile_options(verb)

    verb = _verb(verbs, "bench", _bench, "how long a model takes, in all and by operator, here or on a device; or "
                                         "beside other inference engines")
    verb.add_argument("path", metavar="PATH", nargs="+", help="one; with --against any number of ONNX files")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--repeat", type=_count, metavar="N", help="runs to time (default: about a second of them)")
    verb.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    group = verb.add_argument_group("beside other engines (docs/tuning.md)")
    group.add_argument("--against", metavar="A,B", help="of onnxruntime, openvino, litert, ncnn, mnn, tvm: all in turn "
                       "in one run, --threads N each; a table of times, errors, memory, start-up")
    group.add_argument("--rounds", type=_count, default=9, metavar="N",
                       help="bursts of each engine; medians count (default: 9)")
    group.add_argument("--processor", type=int, metavar="N",
                       help="the first one that engines are bound to (default: the first there is)")
    group.add_argument("--python", metavar="[ENGINE=]PATH", action="append",
                       help="what has the engines, or one of them (default: $MEGCC_BENCH_PYTHON, else this)")
    _model_option(verb)
    _target_option(verb, "which target (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler")
    _rpc_options(verb)
    _compile_options(verb)

    verb = _verb(verbs, "tune", _tune, "time the kernels that a model could have, here or on devices, into a log")
    verb.add_argument("model", nargs="+", metavar="MODEL", help="models")
    verb.add_argument("--trials", type=_count, metavar="N",
                      help="at most N candidates of a call, the most promising ones first (default: all)")
    _target_option(verb, "which CPUs the code is for (default: native)", "native")
    verb.add_argument("--cc", help="the C compiler")
    _rpc_options(verb)
    _compile_options(verb)

    verb = _verb(verbs, "compare", _compare, "compare the built C with ONNX Runtime or the numpy reference")
    verb.add_argument("path", metavar="MODEL", help="a model")
    verb.add_argument("--folder", metavar="DIR", help="what it was compiled to (default: it is compiled now)")
    _model_option(verb)
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--shape", metavar="SHAPES", help='of inputs whose shape may change: "data=(1,3,224,224)"')
    verb.add_argument("--layers", action="store_true", help="find the first layer that differs")
    verb.add_argument("--reference", choices=("onnxruntime", "numpy"),
                      help="what to compare with (default: onnxruntime where it is installed)")
    verb.add_argument("--tolerance", type=float, default=1e-4, metavar="T",
                      help="largest difference, relative to the output's largest magnitude (default: 1e-4)")
    verb.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    _target_option(verb, "which target (default: native)", "native")
    verb.add_argument("--cc", help="the C compiler")
    _compile_options(verb)

    verb = _verb(verbs, "inspect", _inspect, "what is in a generated folder")
    verb.add_argument("path", metavar="PATH")
    verb.add_argument("--size", action="store_true", help="bytes of code and constants, built for the target")
    _target_option(verb, "which target, for --size (default: one that runs here)")
    verb.add_argument("--cc", help="the C compiler, for --size")
    _compile_options(verb)

    verb = _verb(verbs, "explain", _explain, "which kernel realises each operator, and why")
    verb.add_argument("path", metavar="MODEL", help="a model")
    _target_option(verb, "for which CPU (default: native)", "native")
    _compile_options(verb)

    verb = _verb(verbs, "report", _report, "one self-contained page: sizes, time, memory, graph, kernels and why")
    verb.add_argument("path", metavar="MODEL", help="a model")
    verb.add_argument("-o", "--output", metavar="HTML", help="the page to write (default: NAME_report.html)")
    verb.add_argument("--inputs", metavar="NPZ", help="arrays by input name (default: seeded random numbers)")
    verb.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    _target_option(verb, "for which CPU (default: native)", "native")
    verb.add_argument("--cc", help="the C compiler")
    _compile_options(verb)

    verb = _verb(verbs, "list", _list, "targets, kernels or operators")
    verb.add_argument("what", choices=("targets", "kernels", "ops"))
    group = verb.add_argument_group("megcc list kernels --op OP: the candidates of one operator")
    group.add_argument("--op", help="the operator ('megcc list ops')")
    group.add_argument("--shape", action="append", default=[], metavar="SHAPE",
                       help="of an operand, such as 1x64x56x56 or int64:4; once for each, in their order")
    group.add_argument("--weight", action="append", default=[], metavar="SHAPE",
                       help="of an operand behind those that the compiler knows, such as 64x64x3x3")
    group.add_argument("--attrs", default="", metavar="A=V;…", help='attributes, such as "pads=1,1,1,1; strides=2,2"')
    group.add_argument("-O", dest="optimize", choices=("speed", "size"), default="speed", help="(default: speed)")
    group.add_argument("--tiles", action="store_true", help="also the register tiles that only tuning takes")
    group.add_argument("--time", action="store_true", help="measure each on this machine, checked against numpy")
    group.add_argument("--network", type=_bytes, metavar="BYTES",
                       help="weights of the network around it, such as 14M: they decide where it finds its own "
                            "(default: as large as puts weights beyond the second cache into memory)")
    group.add_argument("--cc", help="the C compiler")
    _target_option(group, "for which CPU (default: native)", "native")
    return parser


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def _bytes(text: str) -> int:
    """`256K` as a number of bytes."""
    found = re.fullmatch(r"(\d+)([KM]?)", text, re.ASCII | re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes, such as 4096, 256K or 100M")
    return int(found[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[found[2].upper()]


def _verb(verbs, name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=about, description=about[0].upper() + about[1:] + ".")
    verb.set_defaults(run=run)
    verb.add_argument("--json", action="store_true", help="print the report as JSON")
    verb.add_argument("-q", "--quiet", action="store_true", help="no report and no progress")
    verb.add_argument("-v", "--verbose", action="store_true", help="every step, and where an unexpected error happened")
    return verb


def _target_option(verb: argparse.ArgumentParser, about: str, default: str = "") -> None:
    verb.add_argument("--target", default=default, help=about)


def _model_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--model", metavar="NAME", dest="which", help="which model, of a folder with several")


def _rpc_options(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("on a device")
    group.add_argument("--rpc", metavar="HOST:PORT", help="TVM's RPC tracker that the device is registered at")
    group.add_argument("--key", metavar="KEY", help="name under which it is registered")


def _compile_options(verb: argparse.ArgumentParser) -> None:
    """What changes the generated code; used wherever a model may be given."""
    group = verb.add_argument_group("compiling")
    group.add_argument("-O", dest="optimize", choices=("speed", "size"), default="speed",
                       help="known extents as constants, or kernels shared between layers (default: speed)")
    group.add_argument("--input-shapes", metavar="SHAPES",
                       help='such as "data=(1,3,224,224)"; several inputs with ";", several sets of shapes with ":"; '
                            'of one model of several "NAME:data=(1,3,224,224)"')
    group.add_argument("--input", metavar="INPUT=WORD,…", action="append", default=[],
                       help="what is given as an input, which the model converts itself: an element type, NHWC or "
                            "NCHW, BGR, mean=M, std=S or scale=S with one number or one a channel, such as "
                            '"data=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4" for (x - mean) / std; '
                            "may be given several times")
    group.add_argument("--output-names", metavar="A,B", action="append", default=[],
                       help="values to compute instead of the model's outputs; what they do not need is left out")
    group.add_argument("--dispatch", metavar="RANGES",
                       help='shapes that change, such as "data[0]=log(1,64);data[2,3]=uniform(64,64,512)"')
    group.add_argument("--log", metavar="FILE",
                       help="tuning log, which 'megcc tune' writes: kernels are chosen by the times in it")
    group.add_argument("--threads", type=int, default=1, metavar="N", help="plan workspace for N workers (default: 1)")
    group.add_argument("--keep-inputs", action="store_true", help="inputs keep their values during a run")
    group.add_argument("--constant", metavar="INPUT=VALUE", action="append", default=[],
                       help="fixes an input to a number, or to numbers with ',' between them")
    group.add_argument("--extern", metavar="FILE", action="append", default=[],
                       help="Python file that declares operators of your own, with their C (docs/extern.md); may be "
                            "given several times")
    group.add_argument("--state", metavar="OUTPUT=INPUT", action="append", default=[],
                       help="the session keeps this output as this input of the next run; may be given several times")


if __name__ == "__main__":
    sys.exit(main())
