# SPDX-License-Identifier: Apache-2.0
"""Times kernel candidates: builds a library of some of them, runs a job for each and checks the results.

The C side is measure.c, which is compiled as a shared library for RPC servers, and as a program for this machine. There
every job is a process of its own, so that a crashing kernel does no harm.

A network reads all its weights before it reads one of them again, so they come from memory or from a cache that holds
all of them. Therefore a timed kernel reads another copy of its weights in each call; all copies together are as large
as the network's weights.
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

#: A measurement: its repeats, the least microseconds of a repeat, the microseconds after which no repeat is started,
#: and those of the warm-up: the last-level cache needs some ten milliseconds to reach a steady state.
REPEATS, LEAST_US, MOST_US, WARM_US = 7, 1000, 200_000, 30_000
#: Seconds after which a measurement is given up.
PATIENCE = 60
#: The most bytes of the copies of a call's weights; last-level caches are smaller.
MAX_WEIGHT_COPY_BYTES = 128 << 20
#: The alignment of each copy in bytes, as in measure.c.
ALIGNMENT = 64
#: Largest difference from the numpy reference, relative to the result's largest magnitude.
TOLERANCE = 1e-4
#: The errors that `measure` of measure.c returns.
STATUS = {1: "the job is malformed", 2: "the device has not enough memory", 3: "the CPU does not run this target",
          4: "the kernel crashed"}
_HEAD, _TAIL = struct.Struct("<10i2q"), struct.Struct("<4i")


class Lost(Exception):
    """Raised if a device does not answer any more."""


@dataclass(frozen=True)
class Sample:
    """The result of a measurement: nanoseconds of a call in each repeat, or the reason why there are none."""

    ns: tuple[float, ...] = ()
    error: str = ""


def copies(weight_bytes: int, network_bytes: int) -> int:
    """Returns the number of copies of a call's weights that are as large as the network's weights; at least 1."""
    return -(-min(network_bytes, MAX_WEIGHT_COPY_BYTES) // weight_bytes) if 0 < weight_bytes < network_bytes else 1


@dataclass(frozen=True)
class Measurement:
    """One call of one kernel with its operands.

    operands: arrays of the operator's inputs with ONNX's axes, None for absent ones.
    types: types of operands and results, with layouts.
    expected: the results by the numpy reference.
    constant: indices of the operands that are weights.
    network_bytes: of the weights that are read from one call to the next, this call's included.
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
        """Returns the job as bytes for measure.c. kernel: the kernel's index in the library."""
        spec, data = self.spec, []
        for operand, parameter in zip(self.bound.inputs, spec.inputs, strict=True):
            array = self.operands[operand.index]
            flat = pack.pack(operand.pack, array, *(self.operands[other] for other in operand.also)) if operand.pack \
                else to_layout(array, self.types[operand.index].layout)
            data.append(np.ascontiguousarray(flat).tobytes().ljust(self._bytes(parameter), b"\0"))
        sizes = [len(item) for item in data] + [self._bytes(parameter) for parameter in spec.outputs]
        weights = [operand.index in self.constant for operand in self.bound.inputs]
        several = copies(sum(round_up(len(item), ALIGNMENT) * weight for item, weight
                             in zip(data, weights, strict=True)), self.network_bytes)
        head = _HEAD.pack(kernel, spec.isa.code, len(self.bound.extents), len(spec.inputs), len(spec.outputs),
                          self._size(spec.tasks), REPEATS, LEAST_US, MOST_US, WARM_US,
                          self._size(spec.shared), self._size(spec.scratch))
        return b"".join([head, np.array(self.bound.extents, np.int32).tobytes(), np.array(sizes, np.int64).tobytes(),
                         np.where(weights, several, 1).astype(np.int32).tobytes(), *data])

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
    """Explains how a result differs from the expected one; "" if it is right.

    Small integers may be off by one, since they are rounded from floats, which kernels sum in another order.
    """
    if actual.dtype.name in DTYPES and actual.dtype.name not in ORDINARY:
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
    """A library of compiled kernels. index: kernel -> its index. failed: kernel -> the compiler's error."""

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
            signatures = dict(zip(specs, pool.map(compiled, enumerate(specs)), strict=True))
        yield folder, objects, signatures


@contextmanager
def library(specs: Sequence[KernelSpec], target: Target, program: bool, cc: str | None = None) -> Iterator[Library]:
    """Compiles kernels into a shared library or a program, which exists as long as the context."""
    with compiled_kernels(specs, target, cc) as (folder, objects, signatures):
        good = [spec for spec in specs if isinstance(signatures[spec], Path)]
        kernels = ", ".join(spec.symbol for spec in good) or "0"
        (folder / "kernels_to_measure.h").write_text(
            f'#include "{HEADER}"\n'
            f"static const megcc_kernel_fn kernels[] = {{ {kernels} }};\n")
        path = folder / ("measure" if program else "libmeasure.so")
        flags = (*CFLAGS, *target.cflags, "-fPIC")
        link_library(objects.compiler, [*flags, *objects.include, *(("-DMEGCC_MEASURE_PROGRAM",) if program else ()),
                                str(Path(__file__).with_name("measure.c")), str(paths.c_runtime() / "src" / "cpu.c"),
                                *(str(signatures[spec]) for spec in good)], path, shared=not program)
        yield Library(path, {spec: number for number, spec in enumerate(good)},
                      {spec: text for spec, text in signatures.items() if isinstance(text, str)})


def library_compiler(target: Target, cc: str | None = None) -> Compiler:
    """Returns the compiler for libraries that other processes load. Zig uses musl by default, but RPC servers nearly
    always run with glibc."""
    compiler = find_compiler(target, cc)
    return replace(compiler, command=tuple(word.replace("-linux-musl", "-linux-gnu") for word in compiler.command))


def link_library(compiler: Compiler, arguments: Sequence[str], path: Path, shared: bool = True) -> None:
    """Compiles and links into a shared library, or into a program."""
    run_tool([*compiler.command, *arguments, *(("-shared",) if shared else ()), "-pthread", "-o", str(path)])


class LocalRunner:
    """Measures on this machine."""

    device = "local"
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
    device = "local"

    def __init__(self, path: Path):
        self._path = path

    def measure(self, measurement: Measurement, kernel: int) -> Sample:
        job, size = measurement.job(kernel), measurement.result_bytes
        try:
            done = subprocess.run([str(self._path)], input=struct.pack("<2q", len(job), size) + job,
                                  capture_output=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return Sample(error=f"the kernel did not end within {PATIENCE} s")
        if done.returncode or len(done.stdout) != 4 + size:
            return Sample(error=f"the measurement ended with {done.returncode}: {done.stderr[-200:].decode()}")
        return measurement.sample(struct.unpack_from("<i", done.stdout)[0], done.stdout[4:])
