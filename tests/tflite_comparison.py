# SPDX-License-Identifier: Apache-2.0
"""Compares random TFLite files with LiteRT's reference kernels: `python -m tests.tflite_comparison 0 2000`.

Files are checked in subprocesses, since LiteRT aborts on some of them.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import tvm_megcc
from tests.differential.result import Result, brief, from_processes, report, summary
from tests.tflite_case_moves import ROUND, spec_of
from tests.tflite_cases import Spec, merged
from tests.tflite_files import OPTIMISED, litert
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.tflite import import_tflite
from tvm_megcc.runtime import reference

#: Element types for which LiteRT's reference kernel of SUM is wrong: it reads their bytes as uint8.
_SUMS = {"int8", "int16"}
#: Operators whose float32 results are equal to LiteRT's bit for bit: they move elements or compute one operation.
EXACT_KINDS = {"ABS", "NEG", "ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "RELU", "RELU6", "RELU_N1_TO_1", "FLOOR",
               "CEIL", "ROUND", "SQUARE", "SQRT", "RESHAPE", "TRANSPOSE", "GATHER", "STRIDED_SLICE", "SLICE", "PAD",
               "PADV2", "MIRROR_PAD", "CONCATENATION", "MAX_POOL_2D", "SELECT", "SELECT_V2", "DEQUANTIZE", "TILE"}


def asked(spec: Spec) -> dict[str, np.ndarray]:
    """Returns the results that LiteRT computes."""
    x = spec.tensors[next(name for name in spec.operators[0][3] if name)]
    own = spec.kind == "SUM" and str(getattr(x, "dtype", "")) in _SUMS
    return litert(spec.data, spec.feeds, optimised=own or spec.kind in OPTIMISED)


def checked(number: int, folder: Path) -> Result:
    """Compares our numpy reference with LiteRT on one random file."""
    spec = spec_of(number)
    try:
        expected = asked(spec)
    except (RuntimeError, ValueError) as error:
        return Result(number, spec.label, "no reference", brief(error))
    spec = spec.with_shapes(expected)
    path = folder / "one.tflite"
    path.write_bytes(spec.data)
    try:
        graph = import_tflite(path)
        found = reference.run(graph, spec.feeds)
    except MegccError as error:
        return Result(number, spec.label, "refused", brief(error))
    except Exception as error:
        return Result(number, spec.label, "crash", f"{type(error).__name__}: {brief(error)}")
    reason = next(filter(None, (differs(spec, found[name], wanted) for name, wanted in expected.items())), "")
    return Result(number, spec.label, "wrong" if reason else "right", reason)


def compiled(numbers: Iterable[int], target: str, folder: Path) -> Iterator[Result]:
    """Compiles all files, merged into one, to C, and compares the results with LiteRT's. The files must be right in
    numpy."""
    specs, wanted = [], []
    for number in numbers:
        spec = spec_of(number)
        with contextlib.suppress(RuntimeError, ValueError):
            expected = asked(spec)
            if 0 not in {extent for array in (*expected.values(), *spec.feeds.values()) for extent in array.shape}:
                specs.append(spec.with_shapes(expected))
                wanted.append(expected)
    whole, path = merged(specs), folder / "merged.tflite"
    path.write_bytes(whole.data)
    tvm_megcc.compile(path, target).save(folder / target, force=True)
    found = tvm_megcc.load(folder / target, target).run(whole.feeds)
    for place, (spec, expected) in enumerate(zip(specs, wanted, strict=True)):
        reason = next(filter(None, (differs(spec, found[f"{place}.{name}"], array)
                                    for name, array in expected.items())), "")
        yield Result(int(spec.label.split(":")[0]), spec.label, "wrong" if reason else "right", reason)


def differs(spec: Spec, found: np.ndarray, wanted: np.ndarray) -> str:
    """Returns how a result differs from the expected one, "" if it does not."""
    if spec.kind in ("SELECT", "SELECT_V2") and wanted.size == 1:  # LiteRT makes scalars of what has one element
        wanted = wanted.reshape(found.shape)
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        where = found != wanted
        most = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)
    else:
        limit = 0.0 if spec.kind in EXACT_KINDS else 2e-5 * max(np.abs(wanted[np.isfinite(wanted)]).max(initial=0), 1)
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0, np.abs(found.astype(np.float64) - wanted))
        where, most = ~(apart <= limit), apart.max(initial=0)
    return f"{int(where.sum())} of {where.size} differ, by up to {most:.4g}" if where.any() else ""


def results(numbers: Iterable[int]) -> Iterator[Result]:
    """Yields the results of `checked` for the files of these numbers."""
    return from_processes("tests.tflite_comparison", ["--each"], numbers, lambda number: spec_of(number).label,
                          "no reference")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--each"]:
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            for number in map(int, arguments[1:]):
                with contextlib.redirect_stderr(io.StringIO()):
                    result = checked(number, Path(folder))
                report(result)
        return 0
    if arguments[:1] == ["--compiled"]:
        with tempfile.TemporaryDirectory() as folder:
            for result in compiled(map(int, arguments[2:]), arguments[1], Path(folder)):
                report(result)
        return 0
    first, last = map(int, arguments)
    text, bad = summary(results(range(first, last)))
    print(f"{last - first:,} files of {len(ROUND)} kinds: {text}")
    for result in bad:
        print(f"{result.outcome} {result.label}: {result.reason}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
