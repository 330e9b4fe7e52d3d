# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --against`: models beside other inference engines, all of them in turn in one run.

Every engine has a process of its own on the same processors. A round is one burst of each, the first one another each
time, so that whatever else the machine does meets all alike; speeds are ratios inside a round.
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
from ...frontends.models import import_model
from ...frontends.tvm_common.questions import macs
from ...options import option_of
from ...runtime.build import Build, build
from ...runtime.session import Port
from ...target import native
from .. import judge, run, source
from .against_report import machine, standing
from .peers import ENGINES, OURS, PEERS, REFERENCE

logger = logging.getLogger(__name__)

#: Seconds of a burst; seconds after which a conversion, and the answer of a process, is given up.
BURST, CONVERSION, PATIENCE = 0.06, 900, 300
#: A result further off than this, relative to its largest magnitude, is no result of the same model. It leaves room for
#: quantised models, which round differently everywhere; what the error is stands in the report.
TOLERANCE = 0.1
#: Starts peers.py without its folder as the first place where modules are looked for: ours have common names.
START = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
#: Options of the command line that change what a model computes, or its interface: peers run the model as it is.
OTHER_MODEL = ("dispatch", "inputs", "output_names", "constants", "states", "extern", "signature")


def against(models: Sequence[str | Path], args) -> dict:
    """Times models on our engine and on those of `args.against`.

    Args:
        args: those of the command line: against, rounds, processor, python, inputs, seed, target, cc, and `options` of
            compiling, whose `threads` is meant for every engine.

    Raises:
        MegccError: for an engine that nobody knows, for what is no ONNX file, and for options that peers do not have.
            A failure of a single engine is no error but a gap with a reason.
    """
    models = [Path(model) for model in models]
    engines = parse_engines(args.against)
    pythons = parse_pythons(args.python or [], engines)
    given = [option_of(row).flag for row in args.options.given() if row.name in OTHER_MODEL]
    if given:
        raise MegccError(f"other engines run the model as it is: leave out {', '.join(given)}, or --against")
    for model in models:
        if not model.is_file() or kind_of(model) or model.suffix == ".megcc":
            raise MegccError(f"{model}: --against wants ONNX files, for that is what all the engines read")
    if args.inputs and len(models) > 1:
        raise MegccError("--inputs are those of one model; of several, each may have its own NAME.npz beside NAME.onnx")
    processors = processors_of(args)
    rows = []
    for model, name in zip(models, distinct_names(models), strict=True):
        with tempfile.TemporaryDirectory(prefix="megcc-bench-") as scratch:
            rows.append(Row(model, name, args, engines, pythons, processors, Path(scratch)).measure())
    return {"machine": machine(), "target": level(args.target) or str(native()), "optimize": args.options.optimize,
            "threads": args.options.threads, "rounds": args.rounds, "engines": [OURS, *engines], "rows": rows}


def parse_engines(text: str) -> dict[str, str]:
    """`"onnxruntime,mine=engine.py"` as {name: the file of an engine of one's own, else ""}.

    Raises:
        MegccError: for an engine that nobody knows, naming those there are.
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
            raise MegccError(f"--against {word}: {name} is the name of an engine that is there already")
        engines[name] = str(Path(file).resolve()) if file else ""
    if not engines:
        raise MegccError(f"--against wants engines: {', '.join(PEERS)}")
    return engines


def parse_pythons(strings: Sequence[str], engines: Mapping[str, str]) -> dict[str, str]:
    """`["PATH", "tvm=PATH"]` as the interpreter of each engine: this one, if nothing is said.

    Raises:
        MegccError: for an engine that is not asked for, and a path where no program is.
    """
    usual = os.environ.get("MEGCC_BENCH_PYTHON") or sys.executable
    own: dict[str, str] = {}
    for text in strings:
        name, equals, path = text.rpartition("=")
        if equals and name not in engines:
            raise MegccError(f"--python {text}: {name} is none of the engines {', '.join(engines)}")
        if equals:
            own[name] = path
        else:
            usual = path
    found = {name: own.get(name, usual) for name in (*engines, REFERENCE)}
    for path in found.values():
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise MegccError(f"--python {path}: there is no program")
    return {name: os.path.abspath(path) for name, path in found.items()}


def processors_of(args) -> list[int]:
    """Returns those that the engines are bound to; none where the system does not bind processes.

    Raises:
        MegccError: for one that this process must not use.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    allowed = os.sched_getaffinity(0)
    first = min(allowed) if args.processor is None else args.processor
    wanted = range(first, first + args.options.threads)
    if not allowed.issuperset(wanted):
        raise MegccError(f"--processor {first} --threads {args.options.threads} wants processors {wanted[0]} to "
                         f"{wanted[-1]}; there are {', '.join(map(str, sorted(allowed)))}")
    return list(wanted)


class Row:
    """One model: its files, the processes of its engines, what they found."""

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
            built, row["macs"], ports = self.compiled()
            job = self.job(built, ports)
        except MegccError as error:
            self.absent[OURS] = " ".join(str(error).split())
            return {**row, **standing(self.found)}
        with contextlib.ExitStack() as processes:
            workers = self.workers(job, processes)
            logger.info("%s: timing", self.model)
            for number in range(self.args.rounds):
                self.round(workers, rotated(list(workers), number))
        for found in self.found.values():
            found["seconds"] = statistics.median(found["rounds"])
        return {**row, **standing(self.found)}

    def compiled(self) -> tuple[Build, int, list[Port]]:
        """Our library of the model; the multiplications that the model has, whatever we make of it; its inputs."""
        graph, _ = import_model(self.model, input_shapes=self.args.options.input_shapes,
                                dims=self.args.options.dims)
        folder = source.folder_of(self.model, self.args)
        model = read_manifest(folder)["models"][0]
        built = build(folder, self.args.target or None, self.args.cc)
        if built.library is None:
            raise MegccError(f"this machine does not run code for {built.target}")
        return built, int(macs(graph)), list(map(Port.of, model["inputs"]))

    def job(self, built: Build, ports: Sequence[Port]) -> dict:
        """Makes the part of a job that is the same for all engines."""
        feeds = self.inputs(ports)
        np.savez(self.scratch / "inputs.npz", **feeds)
        beside = self.model.resolve().with_suffix("")
        key = [self.model.read_bytes(), repr([(name, a.shape) for name, a in feeds.items()]).encode()]
        script = beside.with_name(beside.name + ".pt")
        if script.exists():
            key.append(script.read_bytes())
        cache = paths.cache("bench") / f"{self.model.stem}-{hashlib.sha256(b''.join(key)).hexdigest()[:16]}"
        cache.mkdir(parents=True, exist_ok=True)
        proto = onnx.load(self.model, load_external_data=False)
        return {"model": str(plain(self.model.resolve(), proto, feeds, cache)), "beside": str(beside),
                "inputs": str(self.scratch / "inputs.npz"), "output": proto.graph.output[0].name,
                "cache": str(cache.resolve()), "threads": self.args.options.threads,
                "processors": list(self.processors),
                "level": level(self.args.target), "target": built.target.name,
                "folder": str(built.folder.resolve()), "library": str(built.library.resolve())}

    def inputs(self, ports: Sequence[Port]) -> dict[str, np.ndarray]:
        """Returns those of --inputs, of the file beside the model, else seeded ones."""
        beside = self.model.with_suffix(".npz")
        path = self.args.inputs or (beside if beside.exists() else None)
        if path:
            return run.read_npz(path, [port.name for port in ports])
        return run.seeded(ports, self.args.seed)

    def workers(self, job: dict, processes: contextlib.ExitStack) -> dict[str, Process]:
        """Returns the engines that have the model loaded and run once, with the right result."""
        right, workers = None, {}
        for name in (REFERENCE, OURS, *self.engines):
            logger.info("%s: %s", self.model, name)
            try:
                process, found = self.started(name, job, processes)
                result = np.load(self.scratch / f"{name}.npy")
                if name == REFERENCE:
                    right = result
                    process.close()
                    continue
                found |= {"error": None} if right is None else errors(checked(result, right))
                workers[name], self.found[name] = process, found
            except Gone as reason:
                self.absent[name] = str(reason)
        return workers

    def started(self, name: str, job: dict, processes: contextlib.ExitStack) -> tuple[Process, dict]:
        """Returns a process that has the model loaded and run once, and what it found."""
        job = {**job, "engine": name, "file": self.engines.get(name, ""), "result": str(self.scratch / f"{name}.npy")}
        python = self.pythons.get(name, sys.executable)
        with contextlib.closing(Process(python, "convert", job, self.scratch)) as converter:
            converted = converter.answer(CONVERSION)
        process = processes.enter_context(contextlib.closing(Process(python, "measure", job, self.scratch)))
        return process, {**process.answer(PATIENCE), "conversion": converted["seconds"], "rounds": [], "alone": True}

    def round(self, workers: dict[str, Process], order: Sequence[str]) -> None:
        """One burst of each engine."""
        for name in order:
            try:
                said = workers[name].ask(BURST)
            except Gone as reason:
                self.absent[name] = str(reason)
                del workers[name], self.found[name]
                continue
            found = self.found[name]
            found["rounds"].append(statistics.median(said["times"]))
            found["peak"], found["alone"] = said["peak"], found["alone"] and said["alone"]


def checked(result: np.ndarray, right: np.ndarray) -> dict:
    """Applies `judge.difference`. Gone if that is a result of something else."""
    if result.shape != right.shape and result.ndim > 2:     # channels last
        result = np.moveaxis(result, -1, 1)
    if result.size != right.size:
        raise Gone(f"its output has {result.size} elements, not {right.size}")
    found = judge.difference(result.reshape(-1), right.reshape(-1), TOLERANCE)
    if not found["equal"]:
        raise Gone(f"its output is another one: {judge.text(found)}")
    return found


def errors(found: Mapping) -> dict:
    """Summarises the findings of `judge.difference` for the report: `error` relative to the largest, of integers
    `share`."""
    return {"error": found["relative"]} if found["kind"] == "real" else {"error": None, "share": found["share"]}


def distinct_names(models: Sequence[Path]) -> list[str]:
    """Returns the file names without what they end in; with as much of the folders before them as tells the models
    apart."""
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


def plain(model: Path, proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], cache: Path) -> Path:
    """Returns the model as every engine reads it: extents of inputs known, and no weights among the inputs, where old
    files list them and nothing of them could be folded. The file itself, if it is like that."""
    weights = {value.name for value in proto.graph.initializer}
    weights |= {value.values.name for value in proto.graph.sparse_initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    known = all([dim.dim_value for dim in value.type.tensor_type.shape.dim] == list(feeds[value.name].shape)
                for value in inputs if value.name in feeds)
    if known and len(inputs) == len(proto.graph.input):
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
    """Returns the level that an engine has to be held to; "" where it is the machine's own."""
    return "" if target in ("", "native", str(native())) else target


class Gone(Exception):
    """A process that will not go on: why."""


class Process:
    """One engine in a process. Its output goes to a log, the end of which explains a crash."""

    def __init__(self, python: str, what: str, job: dict, scratch: Path):
        self.log = scratch / f"{job['engine']}.{what}.log"
        environment = dict(os.environ)
        if job["engine"] == OURS:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(paths.PACKAGE.parent),
                                                                      environment.get("PYTHONPATH"))))
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-c", START, str(Path(__file__).with_name("peers.py")), what, json.dumps(job)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=scratch, env=environment)

    def ask(self, seconds: float) -> dict:
        try:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass        # the answer says why
        return self.answer(PATIENCE)

    def answer(self, patience: float) -> dict:
        """Returns the next line. Raises Gone with the engine's own reason, or with how the process ended."""
        late, begin = threading.Timer(patience, self._process.kill), time.monotonic()
        late.start()
        line = self._process.stdout.readline()
        late.cancel()
        if line:
            said = json.loads(line)
            if "absent" in said:
                raise Gone(said["absent"])
            return said
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
