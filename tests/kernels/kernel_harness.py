# SPDX-License-Identifier: Apache-2.0
"""Every kernel candidate × case × layout × ISA, compiled and compared with the operator's numpy meaning."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

from tests.c_flags import WARNINGS
from tests.opened import opened
from tvm_megcc import ops, paths  # noqa: F401  (ops registers the operators)
from tvm_megcc.codegen.c_source.bind import Bound, KernelSpec, bind, with_equal_constants
from tvm_megcc.codegen.c_source.render import render_kernel
from tvm_megcc.codegen.headers import kernels_header
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError
from tvm_megcc.ir import dims, lanes
from tvm_megcc.ir.expr import Expr, X, arg, call, clip, evaluate, maximum
from tvm_megcc.ir.graph import Attrs, Op
from tvm_megcc.ir.shapes import likely_type, likely_types
from tvm_megcc.ir.types import DTYPES, ORDINARY, TensorType, from_layout, to_layout
from tvm_megcc.kernels import packing as pack
from tvm_megcc.kernels.choice import Choice
from tvm_megcc.kernels.site import Site
from tvm_megcc.kernels.support import placements, refusal
from tvm_megcc.ops.base import Case, operator
from tvm_megcc.ops.cache_rows import numbers_shape, stored_rows, widened_rows
from tvm_megcc.runtime.objects import Objects
from tvm_megcc.runtime.toolchain import Compiler
from tvm_megcc.target import Target

from .joined import joined

HERE = Path(__file__).parent
C_RUNTIME = paths.c_runtime()

#: Goes with the process.
_shared = tempfile.TemporaryDirectory(prefix="megcc-harness-")

@dataclass(frozen=True)
class Tail:
    """What a kernel that fuses an epilogue is tested with.

    operands: class, element type and range of each; "" as result: the element type of the operator.
    """

    expression: Expr | None = None
    operands: tuple[tuple[str, str, tuple[int, int]], ...] = ()
    result: str = ""


_ANY = ("float32", (0, 1))
#: Used in turn, by the kind of the lanes that the kernel's epilogue gets.
TAILS = {
    "f": (Tail(), Tail(X * call("sigmoid", X)),
          Tail(maximum(X * arg(1) + arg(2), 0), (("channel", *_ANY), ("full", *_ANY)))),
    "i": (Tail(clip(call("rescale_fixed", X, arg(1), arg(2)) + arg(3) * 2 - 3, -100, 127),
               (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int32", (-20, 2)),
                ("full", "int8", (-128, 127))), "int8"),
          Tail(call("nearest", call("real", X) * arg(1) + call("real", arg(2)) * 0.37) + 128,
               (("channel", *_ANY), ("full", "int8", (-128, 127))), "uint8"),
          Tail(call("sigmoid", call("real", X) * 1e-4) * arg(1), (("channel", *_ANY),), "float32"),
          Tail(), Tail(X * 3 + arg(1), (("full", "uint8", (0, 255)),), "int16"),
          # What kernels that know all numbers do with fewer instructions.
          Tail(clip(call("rescale_down", X, arg(1), arg(2)) - 7, -128, 127),
               (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int8", (-19, -1))), "int8"),
          Tail(call("rescale_once", X, arg(1), arg(2)) + 100,
               (("channel", "int32", (2**30, 2**31 - 1)), ("channel", "int32", (-19, -2))), "uint8"),
          Tail(clip(call("shift_down", clip(X, -150, 200) * 5_000_001 + (arg(1) - 7) * -3_000_001, 22), -99, 135) - 8,
               (("full", "int8", (-128, 127)),), "int8")),
}


@dataclass
class Job:
    """One call of one kernel, and what it should give."""

    title: str
    bound: Bound
    inputs: list[np.ndarray]
    output_types: tuple[TensorType, ...]
    expected: list[np.ndarray]
    tolerance: float


def random_operand(shape, dtype: str, generator) -> np.ndarray:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    if kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    return generator.integers(0, 10, shape).astype(dtype)


#: Modes of half precision.
HALVES = ("half", "half-size")


def _as_half(type_: TensorType) -> TensorType:
    return replace(type_, dtype="float16") if type_.dtype == "float32" else type_


def _as_halves(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16) if array.dtype == np.float32 else array


def _widened(array: np.ndarray | None) -> np.ndarray | None:
    """Halves as floats, which operators are computed in to compare with."""
    return array.astype(np.float32) if array is not None and array.dtype == np.float16 else array


#: Which axes of run-time operands have extents that are known at run time only, in the mode "open".
OPEN_AXES = {"batch": lambda axis: axis == 0, "inner": lambda axis: axis >= 2, "all": lambda axis: True}


def jobs_of(kind: str, case: Case, index: int, target: Target, optimize: str, tail: Tail | None = None,
            without: Collection[str] = ()) -> Iterator[Job]:
    """All calls that realise one case of an operator on one target. tail: of all kernels that fuse one; None: one of
    `TAILS` by the index. without: names of kernels that are left out.

    optimize: "speed" and "size" as the compiler has them, "size" for a kernel that other calls share or for one that
        none does, "shared-size" for the former; "open": speed, with extents known at run time only, those of
        the case and others that the shape rule's conditions let through; "reproducible": speed, and the same bits on
        every CPU; "half" and "half-size": in half precision, what of the case is float32, by the kernels that do so.
    """
    declaration = operator(kind)
    generator = np.random.default_rng(index)
    types = [None if spec is None else TensorType(spec[1], tuple(spec[0])) for spec in case.inputs]
    attrs = Attrs(case.attrs)
    if optimize in HALVES and kind != "cast":
        types = [type_ and _as_half(type_) for type_ in types]
    arrays = _operands(case, types, generator)
    try:
        output_types = declaration.infer(attrs, *types)
    except MegccError:
        assert optimize in HALVES  # of integers and reals
        return
    results = declaration.compute(attrs, *(map(_widened, arrays) if optimize in HALVES else arrays))
    called = [(types, output_types)]
    if optimize == "open":
        called = _opened(declaration, case, attrs, types, output_types)
        for drawn_types, drawn_results in _drawn(kind, case, index):
            operands = _operands(case, likely_types(drawn_types), generator)
            try:
                expected = declaration.compute(attrs, *operands)
            except (MegccError, IndexError, ValueError):
                continue  # indices of the case that are off a shorter axis
            yield from _kernel_jobs(kind, case, index, declaration, attrs, [(drawn_types, drawn_results)], operands,
                                    expected, generator, target, optimize, tail, without)
    yield from _kernel_jobs(kind, case, index, declaration, attrs, called, arrays, results, generator, target, optimize,
                            tail, without)


def _operands(case: Case, types: Sequence[TensorType | None], generator) -> list[np.ndarray | None]:
    """Values for operands of these known types: those of the case, repeated or cut where the type is another."""
    arrays: list[np.ndarray | None] = []
    for position, type_ in enumerate(types):
        if type_ is not None and position in case.values:
            with np.errstate(over="ignore"):
                given = np.asarray(case.values[position]).astype(np.dtype(type_.dtype))
            arrays.append(_resized(given, type_.shape, "k_axes" in case.attrs and type_.dtype == "int8"))
        else:
            arrays.append(None if type_ is None else random_operand(type_.shape, type_.dtype, generator))
    return arrays


def _resized(given: np.ndarray, shape: Sequence[int], is_cache: bool) -> np.ndarray:
    """Values repeated or cut to a shape. is_cache: each row of the array ends with its scale, which has to stay one."""
    if given.size == np.prod(shape):
        return given.reshape(shape)
    if is_cache:
        return stored_rows(np.resize(widened_rows(given), numbers_shape(shape, "int8")), "int8")
    return np.resize(given, shape)


def _drawn(kind: str, case: Case, index: int) -> Iterator[tuple]:
    """Operand and result types over symbols, a symbol an axis, with likely values that the operator can have."""
    for some in opened(kind, case):
        right = (values for values in some.drawn(40, index) if some.accepts(values) and values != some.symbols)
        yield from map(some.likely, islice(right, 1))


def _kernel_jobs(kind, case, index, declaration, attrs, called, arrays, results, generator, target, optimize,
                 asked: Tail | None, without: Collection[str]):
    """The calls of every kernel. called: operand and result types."""
    output_types = likely_types(called[0][1]) if called else ()
    for kernel in declaration.kernels if called else ():
        if kernel.name in without or (optimize in HALVES and not kernel.float16 and kind != "cast"):
            continue
        tails = TAILS[kernel.lane_kind]
        tail = (asked or tails[index % len(tails)]) if kernel.fuses_epilogue else Tail()
        epilogue, classes = tail.expression, tuple(kind for kind, *_ in tail.operands)
        if "channel" not in classes or declaration.channel_axis is not None:
            names = [f"i{n}" if a is not None else "" for n, a in enumerate(arrays)]
            extra = [_epilogue_operand(*spec, output_types[0], declaration.channel_axis, generator)
                     for spec in tail.operands]
            extra_names = [f"e{n + 1}" for n in range(len(extra))]
            op = Op(kind, attrs, tuple(names + extra_names), tuple(f"o{n}" for n in range(len(output_types))),
                    epilogue, len(names) if epilogue is not None else -1, "case")
            expected = list(results)
            if epilogue is not None:
                extra = [_as_halves(array) if optimize in HALVES else array for array in extra]
                expected[0] = _evaluated(tail, [results[0], *(map(_widened, extra) if optimize in HALVES else extra)])
            for some_types, some_outputs in called:
                if tail.result:
                    some_outputs = [replace(some_outputs[0], dtype=tail.result), *some_outputs[1:]]
                yield from _layout_jobs(op, kernel, some_types, some_outputs, arrays, extra, classes, expected, case,
                                        target, optimize, f"{kind}[{index}] {kernel.name} {epilogue or ''}")


def _opened(declaration, case: Case, attrs: Attrs, types, output_types):
    """Operand and result types with symbols; extents that are equal in the case are the same symbol."""
    found = []
    for is_open in OPEN_AXES.values():
        def opened(position, type_, is_open=is_open):
            if type_ is None or position in case.constant:
                return type_
            return type_.with_shape(dims.Symbol(f"n{extent}", extent) if is_open(axis) and extent > 1 else extent
                                    for axis, extent in enumerate(type_.shape))

        changed = [opened(position, type_) for position, type_ in enumerate(types)]
        try:
            results = declaration.infer(attrs, *changed)
        except MegccError:
            continue  # an extent that the operator has to know
        same = all(likely_type(a) == b for a, b in zip(results, output_types, strict=True))
        if same and changed not in [pair[0] for pair in found] and changed != types:
            found.append((changed, results))
    return found


def _evaluated(tail: Tail, operands: list[np.ndarray]) -> np.ndarray:
    """A tail over what the operator gave."""
    return lanes.evaluate(tail.expression, operands, tail.result) if tail.result \
        else evaluate(tail.expression, operands)


def _epilogue_operand(kind: str, dtype: str, limits: tuple[int, int], output: TensorType, axis: int | None,
                      generator) -> np.ndarray:
    """A full operand, or one value a channel; integers within limits, both included."""
    shape = output.shape
    if kind == "channel":
        shape = tuple(d if n == axis % output.rank else 1 for n, d in enumerate(output.shape))
    if dtype == "float32":
        return generator.standard_normal(shape).astype(np.float32)
    return generator.integers(limits[0], limits[1] + 1, shape).astype(dtype)


def _layout_jobs(op, kernel, types, output_types, arrays, extra, classes, expected, case, target, optimize, title):
    number = 0
    first = True  # other tiles differ in nothing that depends on layouts
    tail = tuple(replace(output_types[0], dtype=a.dtype.name) if c == "full" else TensorType(a.dtype.name, a.shape)
                 for a, c in zip(extra, classes, strict=True))
    constant = {*case.constant, *(len(arrays) + i for i, c in enumerate(classes) if c == "channel")}
    context = Context(target, "size" if optimize.endswith("size") else "speed",
                      reproducible=optimize == "reproducible", half=optimize in HALVES)
    values = [*arrays, *extra]
    known = {index: values[index] for index in constant if index < len(values) and values[index] is not None}
    for site in placements(Site(op, (*types, *tail), tuple(output_types), context, frozenset(constant), known), kernel):
        if refusal(site, kernel) is not None:
            continue
        tiled = kernel.other_tiles(site) if first and optimize == "speed" else ()
        first = False
        layouts = ",".join(str(t.layout) if t else "plain" for t in (*site.inputs, *site.outputs))
        for variant in (kernel, *tiled):
            shared = bind(site, Choice(variant))
            data = []
            for operand in shared.inputs:
                value = values[operand.index]
                if operand.pack:
                    data.append(pack.pack(operand.pack, value, *(values[other] for other in operand.also),
                                          dtype=operand.dtype))
                else:
                    data.append(to_layout(value, site.types[operand.index].layout))
            bounds = list({bound.spec: bound for bound in (shared, *with_equal_constants([shared]))}.values())
            number += 1
            # At -O size extents are arguments, or constants where all calls have the same: either way on the portable
            # target, by turns on the others.
            if optimize == "shared-size":
                bounds = bounds[:1]
            for bound in bounds if target.name == "c" else bounds[number % len(bounds):][:1]:
                bound = replace(bound, extents=tuple(map(dims.likely, bound.extents)))
                yield Job(f"{title} {layouts} {optimize} {bound.spec.symbol}", bound, data, likely_types(site.outputs),
                          expected, 4e-3 if optimize in HALVES else 2e-5 if np.dtype(site.y.dtype).kind == "f" else 0.0)


def same_call(job: Job) -> tuple:
    """What a call is but for the CPU it is for: the kernel's text without comments, the symbol's suffix and the guard,
    and what it is called with. Equal calls of targets that share a header in c_runtime/include/simd do the same."""
    spec = job.bound.spec
    text = re.sub(r"/\*.*?\*/", "", render_kernel(spec), flags=re.DOTALL)
    text = text.replace(spec.symbol, spec.symbol.removesuffix(f"_{spec.isa.name}"))
    text = text.replace(f"#if {spec.isa.guard}\n#define MGC_ISA_{spec.isa.name.upper()}\n", "", 1)
    return (text, job.bound.extents, job.bound.inputs, job.bound.outputs, spec.tasks, spec.shared, spec.scratch,
            *(array.tobytes() for array in job.inputs))


def distinct_kernels(jobs: list[Job]) -> list[KernelSpec]:
    """The kernels of some jobs, each with a symbol of its own."""
    specs = list(dict.fromkeys(job.bound.spec for job in jobs))
    symbols: dict[str, KernelSpec] = {}
    for spec in specs:
        other = symbols.setdefault(spec.symbol, spec)
        assert other == spec, f"two kernels share the symbol {spec.symbol}:\n{other}\n{spec}"
    return specs


class Program:
    """The distinct kernels of some jobs, compiled into one executable."""

    def __init__(self, jobs: list[Job], folder: Path, compiler: Compiler, flags: list[str], runner: list[str]):
        self.jobs, self.folder, self.runner = jobs, folder, runner
        specs = distinct_kernels(jobs)
        self.index = {spec: i for i, spec in enumerate(specs)}
        folder.mkdir(parents=True, exist_ok=True)
        names = [spec.symbol for spec in specs]
        (folder / "kernels.h").write_text(kernels_header(names))
        table = folder / "kernels_under_test.c"
        table.write_text('#include "kernels.h"\nextern const megcc_kernel_fn kernels_under_test[];\n'
                         f"const megcc_kernel_fn kernels_under_test[] = {{ {', '.join(names)} }};\n")
        include = ["-I", str(C_RUNTIME / "include")]
        strict = [*flags, "-std=c99", "-ffp-contract=off", *WARNINGS]
        built = Objects(folder, folder / "objects", compiler)
        texts = [*joined(specs), *dict(file for spec in specs for file in spec.params.files).values()]
        # A name by the text: programs share the object files of equal sources.
        sources = [folder / f"k{hashlib.sha256(text.encode()).hexdigest()[:16]}.c" for text in texts]
        for source, text in zip(sources, texts, strict=True):
            source.write_text(text)
        objects = built.compile_all(sources, [*strict, f"-I{C_RUNTIME / 'include'}"])
        self.binary = folder / "harness"
        error = _compile([*compiler.command, *flags, *include, *self.linked(), str(table),
                          *self.harness(compiler, flags), *map(str, objects), "-o", str(self.binary)])
        assert not error, error

    def harness(self, compiler: Compiler, flags: list[str]) -> list[str]:
        """What calls the kernels."""
        return [_harness(compiler, tuple(flags))]

    def linked(self) -> list[str]:
        """What the program has besides the kernels and the harness, and how it is linked."""
        return []

    def answer(self, blob: bytes) -> tuple[bytes, str]:
        """What the program answers, and what it says about errors."""
        process = subprocess.run([*self.runner, str(self.binary)], input=blob, capture_output=True)
        return process.stdout, process.stderr.decode()

    def run(self, pieces: int = 1) -> list[str]:
        """Runs all jobs, each in so many pieces, of more than one on memory of its inputs where kernels can; returns a
        line for each that differs."""
        return [text for job, status, flats in self.results(pieces) for text in _failures(job, status, flats)]

    def run_poisoned(self) -> list[str]:
        """Runs all jobs in one piece and in three; returns a line for each that differs from what it should give, or
        from itself, by a bit: the memory that the kernels have to write first holds other patterns (harness.c)."""
        found = []
        for (job, *once), (_, *again) in zip(self.results(1), self.results(3), strict=False):
            failures = [*_failures(job, *once), *_failures(job, *again)]
            if not failures and any(from_layout(a, type_).tobytes() != from_layout(b, type_).tobytes()
                                    for a, b, type_ in zip(once[1], again[1], job.output_types, strict=True)):
                failures = [f"{job.title}: its result depends on what memory held before"]
            found += failures
        return found

    def results(self, pieces: int = 1) -> Iterator[tuple[Job, str, list[np.ndarray]]]:
        """Each job with what is wrong with its end, "" for nothing, and the memory of its results."""
        output, errors = self.answer(b"".join(self._encode(job, pieces) for job in self.jobs))
        position = 0
        for job in self.jobs:
            if position + 4 > len(output):
                yield job, f"died: {errors[-2000:]}", []
                break
            status = int(np.frombuffer(output, np.int32, 1, position)[0])
            position += 4
            flats = []
            for parameter, type_ in zip(job.bound.outputs, job.output_types, strict=True):
                count = self._size(job, job.bound.spec.outputs[parameter.index].size)
                flats.append(np.frombuffer(output, np.dtype(type_.dtype), count, position))
                position += count * type_.itemsize
            yield job, f"status {status}" if status else "", flats

    def _size(self, job: Job, size) -> int:
        spec = job.bound.spec
        return dims.substitute(size, dict(zip(spec.runtime_extents, job.bound.extents, strict=True)))

    def _encode(self, job: Job, pieces: int) -> bytes:
        bound, spec = job.bound, job.bound.spec
        shared, scratch, tasks = (self._size(job, s) for s in (spec.shared, spec.scratch, spec.tasks))
        head = [self.index[spec], len(bound.extents), len(job.inputs), len(job.output_types), shared, scratch, tasks,
                pieces, *bound.extents]
        parts = [np.array(head, np.int32).tobytes()]
        for parameter, array in zip(spec.inputs, job.inputs, strict=True):
            raw = array.tobytes()
            wanted = self._size(job, parameter.size) * DTYPES[parameter.dtype].bytes
            assert len(raw) >= wanted, f"{job.title}: {parameter.name} has {len(raw)} bytes, kernel wants {wanted}"
            parts += [np.int32(wanted).tobytes(), raw[:wanted]]
        sizes = [self._size(job, parameter.size) * DTYPES[parameter.dtype].bytes for parameter in spec.outputs]
        over = {} if bound.no_takeover else dict(spec.takes_over)
        over |= {o: i for o, i in spec.in_place if job.inputs[i].nbytes == sizes[o]}
        for index, size in enumerate(sizes):
            # As the planner has it where it can: an output on an input. The first output alone may lie on one of them.
            parts.append(np.array([size, over.get(index, -1) if pieces > 1 and not index else -1], np.int32).tobytes())
        return b"".join(parts)


@cache
def _harness(compiler: Compiler, flags: tuple[str, ...]) -> str:
    """harness.c as an object file, which all programs of these flags share."""
    path = str(Path(_shared.name) / f"{len(list(Path(_shared.name).iterdir()))}.o")
    error = _compile([*compiler.command, *flags, "-std=gnu11", "-I", str(C_RUNTIME / "include"), "-c",
                      str(HERE / "harness.c"), "-o", path])
    assert not error, error
    return path


def _compile(command: list[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True)
    return f"{' '.join(command)}\n{process.stderr[:4000]}" if process.returncode else ""


def _failures(job: Job, status: str, flats: list[np.ndarray]) -> Iterator[str]:
    """A line for each thing that is wrong with a result."""
    if status:
        yield f"{job.title}: {status}"
    for flat, type_, expected in zip(flats, job.output_types, job.expected, strict=not status):
        if text := _difference(flat, type_, expected, job):
            yield f"{job.title}: {text}"


def _difference(flat: np.ndarray, type_: TensorType, expected: np.ndarray, job: Job) -> str:
    if flat.size != type_.stored:
        return f"writes {flat.size} elements of {type_.stored}"
    actual = from_layout(flat, type_)
    if type_.dtype not in ORDINARY:  # NaN is a number like others
        actual, expected = (array.view(f"u{type_.itemsize}") for array in (actual, expected))
    if actual.dtype.kind != "f":
        wrong = int((actual != expected).sum())
        return f"{wrong} of {actual.size} elements differ" if wrong else ""
    if job.bound.spec.half:
        with np.errstate(over="ignore"):
            expected = expected.astype(np.float16).astype(np.float32)
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
    with np.errstate(invalid="ignore"):
        error = np.asarray(np.abs(actual.astype(np.float64) - expected))
    error[(actual == expected) | (np.isnan(actual) & np.isnan(expected))] = 0
    worst = float(np.nan_to_num(error, nan=np.inf).max(initial=0))
    return f"max error {worst:g}" if worst > job.tolerance * scale else ""
