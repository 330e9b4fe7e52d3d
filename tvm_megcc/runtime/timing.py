# SPDX-License-Identifier: Apache-2.0
"""Times kernel candidates: builds a library of several kernels, runs a job for each, and checks the results.

measure.c runs the jobs. It is compiled as a shared library for RPC servers, and as a program for this machine, where
every job is a process, so that a crashing kernel does no harm.

In a network, the weights of a call are read once per run, with the weights of all other calls in between. So they come
from memory, or from a cache that is large enough for all weights. To reproduce that, a timed kernel reads another copy
of its weights in each call; all copies together are as large as the network's weights.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import paths
from ..codegen.c_source.bind import Bound, KernelSpec
from ..codegen.c_source.render import render_kernel
from ..codegen.headers import HEADER, kernels_header
from ..errors import MegccError, ToolError
from ..ir.dims import round_up, substitute
from ..ir.types import DTYPES, ORDINARY, TensorType, from_layout, to_layout
from ..kernels import packing as pack
from ..target import Target
from .build import CFLAGS
from .objects import JOBS, Objects, run_tool
from .toolchain import Compiler, find_compiler, runs_here

#: The parameters of a measurement: the number of repeats, the shortest repeat, the time after which no repeat is
#: started, and the time of the warm-up (the last-level cache needs some ten milliseconds to reach a steady state).
REPEATS, MIN_REPEAT_US, MAX_TOTAL_US, WARM_UP_US = 7, 1000, 200_000, 30_000
#: The seconds after which a measurement fails.
TIMEOUT_SECONDS = 60
#: The largest size of all copies of a call's weights together; last-level caches are smaller.
MAX_WEIGHT_COPY_BYTES = 128 << 20
#: The alignment of each copy in bytes, as in measure.c.
ALIGNMENT = 64
#: Largest difference from the numpy reference, relative to the result's largest magnitude.
TOLERANCE = 1e-4
#: Status of `measure` in measure.c -> error.
STATUS = {1: "the job is malformed", 2: "the device has not enough memory", 3: "the CPU does not run this target",
          4: "the kernel crashed"}
#: The structs `head` and `tail` of measure.c: the beginning of a job and of its result.
_HEAD, _TAIL = struct.Struct("<10i2q"), struct.Struct("<4i")
#: The numbers that the program reads before a job: bytes of the job, and of its result.
_SIZES = struct.Struct("<2q")


class Lost(Exception):
    """A device does not answer any more."""


@dataclass(frozen=True)
class Sample:
    """The result of a measurement. ns: nanoseconds of a call in each repeat. error: the reason why there are none."""

    ns: tuple[float, ...] = ()
    error: str = ""


def copies(weight_bytes: int, network_bytes: int) -> int:
    """Returns the number of copies of a call's weights that are as large as the network's weights; at least 1."""
    return -(-min(network_bytes, MAX_WEIGHT_COPY_BYTES) // weight_bytes) if 0 < weight_bytes < network_bytes else 1


@dataclass(frozen=True)
class Measurement:
    """A kernel call with its operands, which is to be timed.

    bound: the call.
    operands: arrays of the operator's inputs with axes in ONNX's order; None for absent ones.
    types, results: types of operands and results, with layouts.
    expected: the results of the numpy reference.
    constant: the indices of the operands that are weights.
    network_bytes: bytes of the weights that are read between two calls, those of this call included.
    """

    bound: Bound
    operands: Sequence[np.ndarray | None]
    types: Sequence[TensorType | None]
    results: Sequence[TensorType]
    expected: Sequence[np.ndarray]
    constant: Collection[int] = ()
    network_bytes: int = 0

    @property
    def spec(self) -> KernelSpec:
        return self.bound.spec

    def _size(self, size) -> int:
        return int(substitute(size, dict(zip(self.spec.runtime_extents, self.bound.extents, strict=True))))

    def _bytes(self, parameter) -> int:
        return self._size(parameter.size) * DTYPES[parameter.dtype].bytes

    def job(self, kernel: int) -> bytes:
        """Returns the job as bytes for measure.c, whose head describes the format. kernel: the kernel's index in the
        library."""
        spec, data = self.spec, []
        for operand, parameter in zip(self.bound.inputs, spec.inputs, strict=True):
            array = self.operands[operand.index]
            if operand.pack:
                flat = pack.pack(operand.pack, array, *(self.operands[index] for index in operand.also),
                                 dtype=operand.dtype)
            else:
                flat = to_layout(array, self.types[operand.index].layout)
            # The kernel may read as many bytes as it declares, which can be more than the array has.
            data.append(np.ascontiguousarray(flat).tobytes().ljust(self._bytes(parameter), b"\0"))
        sizes = [len(item) for item in data] + [self._bytes(parameter) for parameter in spec.outputs]
        weights = [operand.index in self.constant for operand in self.bound.inputs]
        copy_count = copies(sum(round_up(len(item), ALIGNMENT) * weight for item, weight
                             in zip(data, weights, strict=True)), self.network_bytes)
        head = _HEAD.pack(kernel, spec.isa.code, len(self.bound.extents), len(spec.inputs), len(spec.outputs),
                          self._size(spec.tasks), REPEATS, MIN_REPEAT_US, MAX_TOTAL_US, WARM_UP_US,
                          self._size(spec.shared), self._size(spec.scratch))
        return b"".join([head, np.array(self.bound.extents, np.int32).tobytes(), np.array(sizes, np.int64).tobytes(),
                         np.where(weights, copy_count, 1).astype(np.int32).tobytes(), *data])

    @property
    def result_bytes(self) -> int:
        return _TAIL.size + 8 * REPEATS + sum(map(self._bytes, self.spec.outputs))

    def sample(self, status: int, result: bytes) -> Sample:
        """Returns the measured sample, or the error if the outputs are wrong."""
        if status:
            return Sample(error=STATUS.get(status, f"status {status}"))
        kernel_status, repeats, overrun, _ = _TAIL.unpack_from(result)
        if kernel_status:
            return Sample(error=f"the kernel refused its operands (status 0x{kernel_status:x})")
        if overrun:
            return Sample(error="the kernel wrote outside its memory")
        position = _TAIL.size + 8 * REPEATS
        for operand, parameter in zip(self.bound.outputs, self.spec.outputs, strict=True):
            size, type_ = self._bytes(parameter), self.results[operand.index]
            flat = np.frombuffer(result, np.dtype(type_.dtype), type_.stored, position)
            position += size
            wrong = difference(from_layout(flat, type_), self.expected[operand.index])
            if wrong:
                return Sample(error=f"wrong result: {wrong}")
        return Sample(tuple(np.frombuffer(result, np.float64, repeats, _TAIL.size).tolist()))


def difference(actual: np.ndarray, expected: np.ndarray) -> str:
    """Describes the difference between a result and the expected one; "" if it is correct.

    8-bit integers may differ by one, because they are rounded from floats that kernels sum in another order.
    """
    if actual.dtype.name in DTYPES and actual.dtype.name not in ORDINARY:   # of ml_dtypes: compare the bits
        wrong = int((actual.view(f"u{actual.itemsize}") != expected.view(f"u{actual.itemsize}")).sum())
        return f"{wrong} of {actual.size} elements differ" if wrong else ""
    if actual.dtype.kind != "f":
        distance = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
        wrong = int((distance > (actual.dtype.itemsize == 1 and actual.dtype.kind != "b")).sum())
        return f"{wrong} of {actual.size} elements differ" if wrong else ""
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore"):
        error = np.abs(actual.astype(np.float64) - expected)
    error = np.where((actual == expected) | (np.isnan(actual) & np.isnan(expected)), 0.0, error)
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0))
    return f"off by {worst:.3g} where values reach {scale:.3g}" if worst > TOLERANCE * scale else ""


@dataclass(frozen=True)
class Library:
    """A library of compiled kernels. path: the file. index: kernel -> its index. failed: kernel -> compiler's error."""

    path: Path
    index: Mapping[KernelSpec, int]
    failed: Mapping[KernelSpec, str]


@contextmanager
def compiled_kernels(specs: Sequence[KernelSpec], target: Target, cc: str | None = None) \
        -> Iterator[tuple[Path, Objects, Mapping[KernelSpec, Path | str]]]:
    """Compiles each kernel. Yields a temporary folder, the builder of its object files, and kernel -> object file, or
    the compiler's error."""
    flags = (*CFLAGS, *target.cflags, "-fPIC")
    with tempfile.TemporaryDirectory(prefix="megcc-tune-") as name:
        folder = Path(name)
        (folder / "runtime").symlink_to(paths.c_runtime())
        header = folder / HEADER
        header.parent.mkdir()
        header.write_text(kernels_header(spec.symbol for spec in specs))
        objects = Objects(folder, paths.cache("tune") / target.name, library_compiler(target, cc))
        objects.cache.mkdir(parents=True, exist_ok=True)

        def compiled(item: tuple[int, KernelSpec]) -> Path | str:
            source = header.with_name(f"k{item[0]}.c")
            source.write_text(render_kernel(item[1]))
            try:
                return objects.compile(source, flags)
            except ToolError as error:
                return str(error)

        with ThreadPoolExecutor(JOBS) as pool:
            results = dict(zip(specs, pool.map(compiled, enumerate(specs)), strict=True))
        yield folder, objects, results


@contextmanager
def library(specs: Sequence[KernelSpec], target: Target, program: bool, cc: str | None = None) -> Iterator[Library]:
    """Compiles kernels into a shared library or a program, which exists as long as the context. program: which one, as
    the runner's attribute says."""
    with compiled_kernels(specs, target, cc) as (folder, objects, results):
        good = [spec for spec in specs if isinstance(results[spec], Path)]
        kernels = ", ".join(spec.symbol for spec in good) or "0"
        (folder / "kernels_to_measure.h").write_text(
            f'#include "{HEADER}"\n'
            f"static const megcc_kernel_fn kernels[] = {{ {kernels} }};\n")
        path = folder / ("measure" if program else "libmeasure.so")
        flags = (*CFLAGS, *target.cflags, "-fPIC")
        link_library(objects.compiler, [*flags, *objects.include, *(("-DMEGCC_MEASURE_PROGRAM",) if program else ()),
                                str(Path(__file__).with_name("measure.c")), str(paths.c_runtime() / "src" / "cpu.c"),
                                *(str(results[spec]) for spec in good)], path, shared=not program)
        yield Library(path, {spec: number for number, spec in enumerate(good)},
                      {spec: error for spec, error in results.items() if isinstance(error, str)})


def library_compiler(target: Target, cc: str | None = None) -> Compiler:
    """Returns the compiler for libraries that other processes load. Zig targets musl by default; here it targets glibc,
    with which nearly all RPC servers run."""
    compiler = find_compiler(target, cc)
    return replace(compiler, command=tuple(word.replace("-linux-musl", "-linux-gnu") for word in compiler.command))


def link_library(compiler: Compiler, arguments: Sequence[str], path: Path, shared: bool = True) -> None:
    """Compiles and links into a shared library, or into a program."""
    run_tool([*compiler.command, *arguments, *(("-shared",) if shared else ()), "-pthread", "-o", str(path)])


class LocalRunner:
    """The runner that measures on this machine.

    program: whether kernels are linked into a program, which runs once for each job, or into a shared library.
    devices: the number of devices that measure at the same time.
    """

    program = True
    devices = 1

    def require(self, target: Target) -> None:
        """Raises MegccError if this machine does not run the target's code."""
        if not runs_here(target):
            raise MegccError(f"this machine does not run code for {target}: times from an emulator would mean "
                             "nothing. Tune on a device with --rpc HOST:PORT --key KEY (docs/tuning.md)")

    @contextmanager
    def session(self, built: Library, _seconds: float) -> Iterator[LocalSession]:
        yield LocalSession(built.path)


class LocalSession:
    """A program of kernels on this machine."""

    device = "local"

    def __init__(self, path: Path):
        self._path = path

    def measure(self, measurement: Measurement, kernel: int) -> Sample:
        job, size = measurement.job(kernel), measurement.result_bytes
        try:
            process = subprocess.run([str(self._path)], input=_SIZES.pack(len(job), size) + job,
                                  capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return Sample(error=f"the kernel did not end within {TIMEOUT_SECONDS} s")
        if process.returncode or len(process.stdout) != 4 + size:   # the status as int32, and the result
            return Sample(error=f"the measurement ended with {process.returncode}: {process.stderr[-200:].decode()}")
        return measurement.sample(struct.unpack_from("<i", process.stdout)[0], process.stdout[4:])
