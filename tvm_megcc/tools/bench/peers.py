# SPDX-License-Identifier: Apache-2.0
"""Adapters for other inference engines with a common interface, and the process in which one of them is measured.

    python peers.py convert JOB     makes the engine's own file of the model, where it has a format of its own
    python peers.py measure JOB     loads that, runs it once; then a burst for each line on stdin: seconds of it

JOB is a JSON object, as `against.py` writes it; a line of JSON on stdout answers each thing that was asked. The file is
run by the interpreter that has the engine, which needs numpy but not this package: nothing else of ours is imported.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np


class Absent(Exception):
    """Raised if the engine is not installed, or does not support the model; the message says why."""


class Engine:
    """One engine on one model, on `job.threads` threads.

    package: the name for pip.
    module: the name to import.
    limits: x86 level -> environment variables that limit the engine to it; at other levels it uses all features of the
        CPU.
    job: the measurement, with these fields:
        model: path of an ONNX file with static shapes.
        stem: path of the user's model without its suffix; files of other formats may be next to it.
        inputs: path of a .npz file, in the model's order.
        output: name of the model's first output.
        cache: path of the folder for conversions of this model.
        threads: the number of threads.
        level: x86 level to limit the engine to; "" for that of the machine.
    """

    package = module = ""
    limits: dict[str, dict[str, str]] = {}

    def __init__(self, job: SimpleNamespace):
        self.job = job
        self.version = self.installed()
        with np.load(job.inputs) as file:
            self.inputs = dict(file)
        configuration = f"{self.version} {job.level} {sys.platform}"
        self.folder = Path(job.cache) / f"{type(self).__name__.lower()}-{_digest(configuration.encode())}"

    def installed(self) -> str:
        """Returns the engine's version; Absent if there is none."""
        try:
            return importlib.metadata.version(self.package) if self.package else ""
        except importlib.metadata.PackageNotFoundError:
            raise Absent(f"not installed: pip install {self.package}") from None

    def is_limited(self) -> bool:
        """Whether the engine is limited to the requested x86 level."""
        return not self.job.level or self.job.level in self.limits

    def environment(self) -> dict[str, str]:
        """Returns the environment variables to set before the engine is imported."""
        return self.limits.get(self.job.level, {})

    def convert(self, folder: Path) -> None:
        """Writes the engine's own files into an empty folder, which is `self.folder` later."""

    def load(self) -> Callable[[], object]:
        """Loads the model and binds its inputs. Returns the function that runs it once."""
        raise NotImplementedError

    def output(self) -> np.ndarray:
        """Returns the first output of the last run."""
        raise NotImplementedError


class OnnxRuntime(Engine):
    package = module = "onnxruntime"
    optimised = True

    def load(self):
        library = importlib.import_module(self.module)
        options = library.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.job.threads, 1
        options.log_severity_level = 3
        level = library.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_ALL if self.optimised else level.ORT_DISABLE_ALL
        session = library.InferenceSession(self.job.model, options, providers=["CPUExecutionProvider"])
        self.binding = session.io_binding()
        for name, array in self.inputs.items():
            self.binding.bind_cpu_input(name, array)
        for output in session.get_outputs():
            self.binding.bind_output(output.name)
        return lambda: session.run_with_iobinding(self.binding)

    def output(self):
        return self.binding.copy_outputs_to_cpu()[0]


class Reference(OnnxRuntime):
    """ONNX Runtime without optimisation, the reference for results. With its optimiser it is not always right: it folds
    zero padding into max pools."""

    optimised = False


class OpenVino(Engine):
    package = module = "openvino"
    limits = {"x86-64-v3": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}

    def load(self):
        library = importlib.import_module(self.module)
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": self.job.threads, "NUM_STREAMS": 1,
                   "INFERENCE_PRECISION_HINT": "f32"}
        core = library.Core()
        self.request = core.compile_model(core.read_model(self.job.model), "CPU", options).create_infer_request()
        for index, array in enumerate(self.inputs.values()):
            self.request.set_input_tensor(index, library.Tensor(array, shared_memory=True))
        return self.request.infer

    def output(self):
        return self.request.get_output_tensor(0).data.copy()


class Ncnn(Engine):
    """ncnn, with the model converted by pnnx: from TorchScript, which it supports best, if a .pt file is next to the
    model; else from ONNX."""

    package = module = "ncnn"

    def convert(self, folder):
        script = Path(self.job.stem + ".pt")
        source = script if script.exists() else Path(self.job.model)
        (folder / f"model{source.suffix}").symlink_to(source.resolve())    # pnnx writes beside its input
        shapes = ",".join(f"[{','.join(map(str, array.shape))}]{array.dtype.kind}{8 * array.itemsize}"
                          for array in self.inputs.values())
        run_tool([program("pnnx"), f"model{source.suffix}", f"inputshape={shapes}", "fp16=0"], folder)
        if not (folder / "model.ncnn.bin").exists():
            raise Absent("pnnx writes no model.ncnn.bin")

    def load(self):
        if any(array.ndim > 1 and array.shape[0] != 1 for array in self.inputs.values()):
            raise Absent("ncnn has no batch axis")
        library = importlib.import_module(self.module)
        self.net = library.Net()
        options = self.net.opt
        options.num_threads = self.job.threads
        for name in dir(options):       # all computing is in float32
            if name.startswith(("use_fp16", "use_bf16", "use_int8", "use_vulkan")):
                setattr(options, name, False)
        if self.net.load_param(str(self.folder / "model.ncnn.param")) or \
                self.net.load_model(str(self.folder / "model.ncnn.bin")):
            raise Absent("ncnn does not load what pnnx made: an operator that it lacks")
        arrays = [array.astype(np.int32) if array.dtype == np.int64 else array for array in self.inputs.values()]
        inputs = list(zip(self.net.input_names(),
                          [library.Mat(array[0] if array.ndim > 1 else array).clone() for array in arrays],
                          strict=True))
        output = self.net.output_names()[0]

        def run() -> None:
            extractor = self.net.create_extractor()
            for name, mat in inputs:
                extractor.input(name, mat)
            status, self.result = extractor.extract(output)
            if status:
                raise Absent(f"ncnn ends with {status}")
        return run

    def output(self):
        return np.array(self.result)[None]


class LiteRt(Engine):
    """LiteRT. There is no light converter from ONNX, so the user's .tflite file next to the model is used."""

    package, module = "ai-edge-litert", "ai_edge_litert.interpreter"

    def load(self):
        path = Path(self.job.stem + ".tflite")
        if not path.exists():
            raise Absent(f"there is no {path.name} beside the model (litert-torch makes one of a torch module)")
        interpreter = self.interpreter = importlib.import_module(self.module).Interpreter(
            str(path), num_threads=self.job.threads)
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), self.inputs.values(), strict=True):
            channels_last = np.moveaxis(array, 1, -1) if array.ndim > 2 else array
            given = array if tuple(detail["shape"]) == array.shape else channels_last  # most converters move channels
            interpreter.set_tensor(detail["index"], np.ascontiguousarray(given, detail["dtype"]))
        return interpreter.invoke

    def output(self):
        return self.interpreter.get_tensor(self.interpreter.get_output_details()[0]["index"])


class Mnn(Engine):
    package = module = "MNN"
    limits = {"x86-64-v3": {}}        # its wheels have no code for AVX-512

    def convert(self, folder):
        # Not the command mnnconvert, which installs a telemetry package and reports conversions.
        run_tool([sys.executable, "-c", "import sys, _tools; _tools.mnnconvert(sys.argv)", "-f", "ONNX",
                  "--modelFile", str(Path(self.job.model).resolve()), "--MNNModel", "model.mnn", "--bizCode", "MNN"],
                 folder)
        if not (folder / "model.mnn").exists():
            raise Absent("its converter writes no file")

    def load(self):
        self.library = library = importlib.import_module(self.module)
        self.interpreter = interpreter = library.Interpreter(str(self.folder / "model.mnn"))
        self.session = session = interpreter.createSession(
            {"numThread": self.job.threads, "backend": "CPU", "precision": "high"})
        for name, array in self.inputs.items():
            interpreter.resizeTensor(interpreter.getSessionInputAll(session)[name], array.shape)
        interpreter.resizeSession(session)
        for name, array in self.inputs.items():
            kind, given = (library.Halide_Type_Int, array.astype(np.int32)) if array.dtype.kind == "i" \
                else (library.Halide_Type_Float, array)
            interpreter.getSessionInputAll(session)[name].copyFrom(
                library.Tensor(array.shape, kind, given, library.Tensor_DimensionType_Caffe))
        return lambda: interpreter.runSession(session)

    def output(self):
        value = self.interpreter.getSessionOutputAll(self.session)[self.job.output]
        host = self.library.Tensor(value.getShape(), self.library.Halide_Type_Float,
                                   np.zeros(value.getShape(), np.float32), self.library.Tensor_DimensionType_Caffe)
        value.copyToHostTensor(host)
        return np.array(host.getData(), np.float32).reshape(value.getShape())


class Tvm(Engine):
    """TVM's default build, without tuning."""

    package, module = "apache-tvm", "tvm"

    def is_limited(self):
        return True     # it is compiled for the level

    def environment(self):
        return {"TVM_NUM_THREADS": str(self.job.threads)}

    def convert(self, folder):
        onnx, tvm = importlib.import_module("onnx"), importlib.import_module(self.module)
        importer = importlib.import_module("tvm.relax.frontend.onnx")
        module = importer.from_onnx(onnx.load(self.job.model),
                                    shape_dict={name: list(array.shape) for name, array in self.inputs.items()},
                                    dtype_dict={name: str(array.dtype) for name, array in self.inputs.items()})
        cpu = self.job.level or tvm.target.codegen.llvm_get_system_cpu()
        target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": self.job.threads})
        tvm.compile(module, target=target).export_library(str(folder / "model.so"))

    def load(self):
        tvm = importlib.import_module(self.module)
        relax = importlib.import_module("tvm.relax")
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(self.folder / "model.so")), tvm.cpu())
        main, tensors = machine["main"], [tvm.runtime.tensor(array) for array in self.inputs.values()]

        def run() -> None:
            self.result = main(*tensors)
        return run

    def output(self):
        return (self.result if hasattr(self.result, "numpy") else self.result[0]).numpy()


class Megcc(Engine):
    """Our engine: the library `job.library` that was built from `job.folder` for `job.target`."""

    module = "tvm_megcc.runtime.native"

    def is_limited(self):
        return True     # it was compiled for the level

    def load(self):
        build, target = (importlib.import_module(f"tvm_megcc.{name}") for name in ("runtime.build", "target"))
        built = build.Build(Path(self.job.folder), target.TARGETS[self.job.target], program=None,
                            library=Path(self.job.library), compiler=None)
        self.session = importlib.import_module(self.module).NativeSession(built)
        self.bound = self.session.bind(self.inputs)
        return self.bound

    def output(self):
        return self.bound.outputs[self.session.outputs[0].name]


#: The engines of `--against`, in the order of the tables.
PEERS: dict[str, type[Engine]] = {"onnxruntime": OnnxRuntime, "openvino": OpenVino, "litert": LiteRt, "ncnn": Ncnn,
                                  "mnn": Mnn, "tvm": Tvm}
OURS, REFERENCE = "megcc", "reference"
ENGINES = {**PEERS, OURS: Megcc, REFERENCE: Reference}


def engine_class(name: str, file: str) -> type[Engine]:
    """Returns the engine of this name, or the class `Engine` of a user's file, which can import this module as
    `peers`."""
    if not file:
        return ENGINES[name]
    sys.modules["peers"] = sys.modules[__name__]
    spec = importlib.util.spec_from_file_location("own_engine", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Engine


def program(name: str) -> str:
    """Returns the path of a command, from this interpreter's environment or else from PATH."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if not found:
        raise Absent(f"there is no {name}: pip install {name}")
    return found


def run_tool(command: list[str], folder: Path) -> None:
    """Runs a converter. Its output goes to the log. Its exit status is ignored, since some crash after writing all
    files."""
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    print(f"{Path(command[0]).name} ended with {done.returncode}", file=sys.stderr, flush=True)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


# The process.


def convert(engine: Engine) -> dict:
    """Converts the model. The result is cached, since a conversion takes from a second to a minute."""
    if engine.folder.exists() or type(engine).convert is Engine.convert:
        return {"seconds": 0.0}
    started = time.perf_counter()
    aside = engine.folder.with_name(f"{engine.folder.name}.{os.getpid()}")
    aside.mkdir(parents=True)
    try:
        engine.convert(aside)
        aside.rename(engine.folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return {"seconds": time.perf_counter() - started}


def measure(engine: Engine) -> tuple[dict, Callable[[], object]]:
    """Returns load time, time to the first result, and memory in addition to the interpreter with the engine imported;
    and the function that runs the model."""
    importlib.import_module(engine.module or "numpy")
    bare = resident("VmRSS")
    started = time.perf_counter()
    run = engine.load()
    loaded = time.perf_counter()
    run()
    first = time.perf_counter()
    np.save(engine.job.result, engine.output())
    return {"version": engine.version, "load": loaded - started, "first": first - started, "bare": bare,
            "held": engine.is_limited()}, run


def resident(what: str) -> int | None:
    """Returns bytes of memory: VmRSS, the current ones, or VmHWM, the peak since the last query of VmRSS. None without
    /proc."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        if what == "VmRSS":
            Path("/proc/self/clear_refs").write_text("5")       # resets the peak (Linux, proc_pid_clear_refs(5))
    except OSError:
        return None
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def burst(run: Callable[[], object], seconds: float, most: int = 5000) -> list[float]:
    """Returns the seconds of each inference, after one warm-up: at least three, fewer if one takes very long."""
    times: list[float] = []
    clock = time.perf_counter
    begin = clock()
    run()
    least = 3 if clock() - begin < 5 * seconds else 1
    end = clock() + seconds
    while len(times) < most and (len(times) < least or clock() < end):
        start = clock()
        run()
        times.append(clock() - start)
    return times


@contextmanager
def undisturbed() -> Iterator[bool]:
    """Puts all threads of this process into a real-time scheduling class, which has priority over other programs.
    Yields whether that is permitted."""
    try:
        _schedule("SCHED_FIFO", 1)
    except (OSError, AttributeError):
        yield False
        return
    try:
        yield True
    finally:
        _schedule("SCHED_OTHER", 0)


def _schedule(policy: str, priority: int) -> None:
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(ProcessLookupError):      # it has ended
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(priority))


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)       # engines print: into the log

    def answer(**values) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    job = SimpleNamespace(**json.loads(sys.argv[2]))
    try:
        engine = engine_class(job.engine, job.file)(job)
        os.environ.update(engine.environment())
        if sys.argv[1] == "convert":
            return answer(**convert(engine))
        if job.processors:
            os.sched_setaffinity(0, job.processors)     # before the engine starts its threads
        figures, run = measure(engine)
        answer(**figures, peak=resident("VmHWM"))
        for line in sys.stdin:
            with undisturbed() as alone:
                times = burst(run, float(line))
            answer(times=times, alone=alone, peak=resident("VmHWM"))
    except Absent as reason:
        answer(absent=str(reason))
    except Exception as error:
        answer(absent=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


if __name__ == "__main__":
    main()
