# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --against`: compares the speed of models with that of other inference engines.

Every engine has a process of its own on the same processors. A round is one burst of each, in rotating order, so that
other load of the machine affects all equally. Speeds are ratios within a round.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from ... import paths
from ...codegen.bundle import read_manifest
from ...errors import MegccError
from ...frontends.contents import kind_of
from ...frontends.formats import refuse_unreadable, require_model_file
from ...frontends.models import import_model
from ...frontends.tvm_common.support import macs
from ...options import option_of
from ...runtime.build import Build, build
from ...runtime.session import Port
from ...target import native
from .. import judge, run, source
from .against_report import standing
from .cpu import cpu_name
from .peers import ENGINES, OURS, PEERS, REFERENCE

logger = logging.getLogger(__name__)

#: The seconds of a burst, and the timeouts of a conversion and of the answer of a process in seconds.
BURST, CONVERSION, PATIENCE = 0.06, 900, 300
#: The largest error, relative to the largest magnitude, of a result that counts as right. It allows for quantised
#: models, which each engine rounds differently. The report states the errors.
TOLERANCE = 0.1
#: Starts peers.py without its folder on sys.path, since our modules have common names.
START = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
#: Options of the command line that change what a model computes, or its interface: peers run the model as it is.
OTHER_MODEL = ("dispatch", "inputs", "output_names", "constants", "states", "extern", "signature")


def against(models: Sequence[str | Path], args) -> dict:
    """Times models on our engine and on those of `args.against`.

    Args:
        args: those of the command line: against, rounds, processor, python, inputs, seed, target, cc, and `options` of
            compiling, whose `threads` applies to every engine.

    Returns:
        machine, target, optimize, threads, rounds, engines: the conditions; rows: for each model its name, `macs`, the
        best peer with our relative speed (`standing`), `absent` (engine -> reason), and `engines` with these figures:

        * conversion, load, first: seconds to convert the model, to load it, and until its first result.
        * rounds, seconds: the median seconds of an inference in each round, and their median.
        * bare, peak: bytes of resident memory before loading, with the engine imported, and at most.
        * error, share: the largest error relative to the largest magnitude; for integers the share that differs.
        * held: whether the engine is limited to the target's x86 level.
        * alone: whether all bursts ran in a real-time class, so that no other program interrupted them.

    Raises:
        MegccError: for an unknown engine, a model that is not an ONNX file, and options that peers lack. A failure of a
            single engine is not an error but a gap in the report, with its reason.
    """
    models = [Path(model) for model in models]
    engines = parse_engines(args.against)
    pythons = parse_pythons(args.python or [], engines)
    given = [option_of(row).flag for row in args.options.given() if row.name in OTHER_MODEL]
    if given:
        raise MegccError(f"other engines run the model as it is: leave out {', '.join(given)}, or --against")
    for model in models:
        require_model_file(model)
        if kind_of(model):
            raise MegccError(f"{model}: --against requires an ONNX file, the format that all engines read")
        refuse_unreadable(model)
    if args.inputs and len(models) > 1:
        raise MegccError("--inputs are those of one model; of several, each may have its own NAME.npz beside NAME.onnx")
    processors = processors_of(args)
    rows = []
    for model, name in zip(models, distinct_names(models), strict=True):
        with tempfile.TemporaryDirectory(prefix="megcc-bench-") as scratch:
            rows.append(Row(model, name, args, engines, pythons, processors, Path(scratch)).measure())
    return {"machine": cpu_name(), "target": level(args.target) or str(native()), "optimize": args.options.optimize,
            "threads": args.options.threads, "rounds": args.rounds, "engines": [OURS, *engines], "rows": rows}


def parse_engines(text: str) -> dict[str, str]:
    """Parses `"onnxruntime,mine=engine.py"` to the engine's name -> the file of a user's engine, "" for a known one.

    Raises:
        MegccError: for an unknown engine, listing the known ones.
    """
    engines: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, file = word.partition("=")
        if file and not Path(file).is_file():
            raise MegccError(f"--against {word}: there is no file {file}")
        if not file and name not in PEERS:
            raise MegccError(f"--against {name}: there is no such engine; there are {', '.join(PEERS)}, and "
                             "NAME=FILE.py for one of your own (docs/tuning.md)")
        if file and name in ENGINES:
            raise MegccError(f"--against {word}: there is an engine of the name {name} already; choose another name")
        engines[name] = str(Path(file).resolve()) if file else ""
    if not engines:
        raise MegccError(f"--against names no engine; there are {', '.join(PEERS)}")
    return engines


def parse_pythons(strings: Sequence[str], engines: Mapping[str, str]) -> dict[str, str]:
    """Parses `["PATH", "tvm=PATH"]` to the Python interpreter of each engine; by default this one.

    Raises:
        MegccError: for an engine that is not measured, and a path that is not a program.
    """
    usual = os.environ.get("MEGCC_BENCH_PYTHON") or sys.executable
    pythons: dict[str, str] = {}
    for text in strings:
        name, equals, path = text.rpartition("=")
        if equals and name not in engines:
            raise MegccError(f"--python {text}: '{name}' is not one of the engines {', '.join(engines)}")
        if equals:
            pythons[name] = path
        else:
            usual = path
    found = {name: pythons.get(name, usual) for name in (*engines, REFERENCE)}
    for path in found.values():
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise MegccError(f"--python {path}: this is not an executable file")
    return {name: os.path.abspath(path) for name, path in found.items()}


def processors_of(args) -> list[int]:
    """Returns the processors that the engines are bound to; [] if the system does not support that.

    Raises:
        MegccError: for a processor that this process must not use.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = os.sched_getaffinity(0)
    first = min(allowed) if args.processor is None else args.processor
    wanted = range(first, first + args.options.threads)
    if not allowed.issuperset(wanted):
        raise MegccError(f"--processor {first} --threads {args.options.threads} needs the processors {wanted[0]} to "
                         f"{wanted[-1]}; available are {', '.join(map(str, sorted(allowed)))}")
    return list(wanted)


class Row:
    """The measurement of one model: its files, the processes of its engines, and their results."""

    def __init__(self, model: Path, name: str, args, engines: Mapping[str, str], pythons: Mapping[str, str],
                 processors: Sequence[int], scratch: Path):
        self.model, self.name, self.args = model, name, args
        self.engines, self.pythons = engines, pythons
        self.processors, self.scratch = processors, scratch
        self.absent: dict[str, str] = {}
        self.found: dict[str, dict] = {}

    def measure(self) -> dict:
        """Returns the row of the report."""
        row = {"model": self.name, "macs": None, "engines": self.found, "absent": self.absent}
        logger.info("%s: compiling and building", self.model)
        try:
            built, row["macs"], ports = self.build_model()
            job = self.common_job(built, ports)
        except MegccError as error:
            self.absent[OURS] = " ".join(str(error).split())
            return {**row, **standing(self.found)}
        with contextlib.ExitStack() as processes:
            workers = self.start_engines(job, processes)
            logger.info("%s: timing", self.model)
            for number in range(self.args.rounds):
                self.round(workers, rotated(list(workers), number))
        for found in self.found.values():
            found["seconds"] = statistics.median(found["rounds"])
        return {**row, **standing(self.found)}

    def build_model(self) -> tuple[Build, int, list[Port]]:
        """Compiles and builds the model with our engine. Returns the library, the multiply-accumulates of the
        unoptimised model, and its inputs.

        Raises:
            MegccError: if the model cannot be compiled, or this machine does not run the target's code.
        """
        graph, _ = import_model(self.model, input_shapes=self.args.options.input_shapes,
                                dims=self.args.options.dims)
        folder = source.folder_of(self.model, self.args)
        model = read_manifest(folder)["models"][0]
        built = build(folder, self.args.target or None, self.args.cc)
        if built.library is None:
            raise MegccError(f"this machine does not run code for {built.target}")
        return built, int(macs(graph)), list(map(Port.of, model["inputs"]))

    def common_job(self, built: Build, ports: Sequence[Port]) -> dict:
        """Writes the inputs to a file. Returns the part of a job of peers.py that is the same for all engines: paths of
        the model, its inputs and a cache folder, the processors, and our build."""
        feeds = self.inputs(ports)
        np.savez(self.scratch / "inputs.npz", **feeds)
        stem = self.model.resolve().with_suffix("")
        key = [self.model.read_bytes(), repr([(name, a.shape) for name, a in feeds.items()]).encode()]
        script = stem.with_name(stem.name + ".pt")
        if script.exists():
            key.append(script.read_bytes())
        cache = paths.cache("bench") / f"{self.model.stem}-{hashlib.sha256(b''.join(key)).hexdigest()[:16]}"
        cache.mkdir(parents=True, exist_ok=True)
        proto = onnx.load(self.model, load_external_data=False)
        return {"model": str(with_static_inputs(self.model.resolve(), proto, feeds, cache)), "stem": str(stem),
                "inputs": str(self.scratch / "inputs.npz"), "output": proto.graph.output[0].name,
                "cache": str(cache.resolve()), "threads": self.args.options.threads,
                "processors": list(self.processors),
                "level": level(self.args.target), "target": built.target.name,
                "folder": str(built.folder.resolve()), "library": str(built.library.resolve())}

    def inputs(self, ports: Sequence[Port]) -> dict[str, np.ndarray]:
        """Returns the inputs of --inputs, else of the file next to the model, else random ones by the seed."""
        archive = self.model.with_suffix(".npz")
        return run.inputs_of(ports, self.args.inputs or (archive if archive.exists() else None), self.args.seed)

    def start_engines(self, job: dict, processes: contextlib.ExitStack) -> dict[str, Process]:
        """Starts the engines. Returns those that loaded the model and ran it once with the right result; results are
        compared with that of `REFERENCE`, if it runs the model."""
        expected, workers = None, {}
        for name in (REFERENCE, OURS, *self.engines):
            logger.info("%s: %s", self.model, name)
            try:
                process, found = self.start_engine(name, job, processes)
                result = np.load(self.scratch / f"{name}.npy")
                if name == REFERENCE:
                    expected = result
                    process.close()
                    continue
                found["error"] = None
                if expected is not None:
                    found |= errors(checked(result, expected))
                workers[name], self.found[name] = process, found
            except Gone as reason:
                self.absent[name] = str(reason)
        return workers

    def start_engine(self, name: str, job: dict, processes: contextlib.ExitStack) -> tuple[Process, dict]:
        """Converts the model for an engine, and starts a process that loads the model and runs it once. Returns the
        process and the engine's row of the report, without rounds yet. Raises Gone if the engine fails."""
        job = {**job, "engine": name, "file": self.engines.get(name, ""), "result": str(self.scratch / f"{name}.npy")}
        python = self.pythons.get(name, sys.executable)
        with contextlib.closing(Process(python, "convert", job, self.scratch)) as converter:
            converted = converter.answer(CONVERSION)
        process = processes.enter_context(contextlib.closing(Process(python, "measure", job, self.scratch)))
        found = {**process.answer(PATIENCE), "conversion": converted["seconds"], "rounds": [], "alone": True}
        return process, found

    def round(self, workers: dict[str, Process], order: Sequence[str]) -> None:
        """Runs one burst of each engine in the given order. An engine that fails becomes absent."""
        for name in order:
            try:
                answer = workers[name].ask(BURST)
            except Gone as reason:
                self.absent[name] = str(reason)
                del workers[name], self.found[name]
                continue
            found = self.found[name]
            found["rounds"].append(statistics.median(answer["times"]))
            found["peak"] = answer["peak"]
            found["alone"] = found["alone"] and answer["alone"]  # alone in all rounds


def checked(result: np.ndarray, right: np.ndarray) -> dict:
    """Returns `judge.difference` of a result. Raises Gone if it is not a result of the same model."""
    if result.shape != right.shape and result.ndim > 2:     # channels last
        result = np.moveaxis(result, -1, 1)
    if result.size != right.size:
        raise Gone(f"its output has {result.size} elements, not {right.size}")
    found = judge.difference(result.reshape(-1), right.reshape(-1), TOLERANCE)
    if not found["equal"]:
        raise Gone(f"its output differs: {judge.text(found)}")
    return found


def errors(found: Mapping) -> dict:
    """Returns the part of `judge.difference` for the report: the relative `error` or, for integers, `share`."""
    return {"error": found["relative"]} if found["kind"] == "real" else {"error": None, "share": found["share"]}


def distinct_names(models: Sequence[Path]) -> list[str]:
    """Returns the file names without suffixes, with as many parent folders as are needed to distinguish them."""
    resolved = [model.resolve().with_suffix("") for model in models]

    def name(path: Path, parts: int) -> str:
        return "/".join(path.parts[-parts:])

    names = []
    for number, path in enumerate(resolved):
        others = [other for other in resolved if other != path]
        parts = next((count for count in range(1, len(path.parts))
                      if all(name(path, count) != name(other, count) for other in others)), len(path.parts))
        before = resolved[:number].count(path)
        names.append(name(path, parts) + (f" ({before + 1})" if before else ""))
    return names


def rotated(names: Sequence[str], by: int) -> list[str]:
    by %= max(len(names), 1)
    return [*names[by:], *names[:by]]


def with_static_inputs(model: Path, proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], cache: Path) -> Path:
    """Returns a file of the model whose inputs have the static shapes of `feeds`, and whose weights are not listed as
    inputs. Files of old ONNX versions list them, which prevents constant folding. Returns `model` if it is such a file
    already; else writes `model.onnx` to the cache folder.

    proto: the model without external data.
    """
    weights = {value.name for value in proto.graph.initializer}
    weights |= {value.values.name for value in proto.graph.sparse_initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    are_static = all([dim.dim_value for dim in value.type.tensor_type.shape.dim] == list(feeds[value.name].shape)
                     for value in inputs if value.name in feeds)
    if are_static and len(inputs) == len(proto.graph.input):
        return model
    path = cache.resolve() / "model.onnx"
    proto = onnx.load(model)
    del proto.graph.input[:]
    for value in inputs:
        type_ = value.type.tensor_type
        proto.graph.input.append(onnx.helper.make_tensor_value_info(
            value.name, type_.elem_type, feeds[value.name].shape))
    proto.ir_version = max(proto.ir_version, 4)     # from here on weights need not be inputs
    onnx.save(proto, path)
    return path


def level(target: str) -> str:
    """Returns the x86 level that engines are limited to, "" if it is the machine's own."""
    return "" if target in ("", "native", str(native())) else target


class Gone(Exception):
    """Raised if the process of an engine ended or failed; the message says why."""


class Process:
    """The process of one engine, which runs `script`, by default peers.py. Its output goes to a log, whose end explains
    a crash."""

    def __init__(self, python: str, what: str, job: dict, scratch: Path,
                 script: Path | None = None):
        self.log = scratch / f"{job['engine']}.{what}.log"
        environment = dict(os.environ)
        if job["engine"] == OURS:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(paths.PACKAGE.parent),
                                                                      environment.get("PYTHONPATH"))))
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [python or sys.executable, "-c", START, str(script or Path(__file__).with_name("peers.py")), what,
                 json.dumps(job)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=scratch, env=environment)

    def ask(self, seconds: float, patience: float = PATIENCE) -> dict:
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass        # `answer` reports why
        return self.answer(patience)

    def answer(self, patience: float) -> dict:
        """Returns the next answer. Raises Gone with the engine's own reason, or with how the process ended."""
        late, begin = threading.Timer(patience, self._process.kill), time.monotonic()
        late.start()
        line = self._process.stdout.readline()
        late.cancel()
        if line:
            answer = json.loads(line)
            if "absent" in answer:
                raise Gone(answer["absent"])
            return answer
        if time.monotonic() - begin >= patience:
            raise Gone(f"no answer within {patience:g} s")
        words = self.log.read_text(errors="replace").strip().splitlines()
        raise Gone(f"crashed with status {self._process.wait()}" + (f": {words[-1][:160]}" if words else ""))

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
