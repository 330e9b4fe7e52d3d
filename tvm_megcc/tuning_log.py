# SPDX-License-Identifier: Apache-2.0
"""Measured times of kernel candidates: the log that `megcc tune` writes and kernel selection reads.

A line of the log is a JSON object: the time of one candidate of one call on one target. A *call* is an operator with
its attributes, the types of its operands without layouts, which of them are constant, and its epilogue. A *candidate*
is a kernel, a tile and the layouts of the operands. If two lines have the same key, the later one counts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
import warnings
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from . import folders
from .errors import MegccError, MegccWarning, refused_by_system
from .ir.graph import Op
from .ir.types import PLAIN, TensorType

#: The format of a log.
FORMAT = 1
#: The largest size of a log, in bytes.
MAX_LOG_BYTES = 1 << 28
#: The upper limit of a time in nanoseconds, and of a cost.
_MAX_NUMBER = 1e30
#: Kernels that were renamed: (kind of the operator, old name) -> new name. Logs with old names stay valid.
RENAMED_KERNELS = {
    ("attention", "lines"): "few_queries",
    ("cast", "half_blocks"): "float16_blocks",
    ("dequantize_linear", "lines"): "per_axis",
    ("dynamic_quantize", "whole"): "per_tensor",
    ("quantize_linear", "lines"): "per_axis",
    ("reduce_sum_integer", "lines"): "vectors",
}


@dataclass(frozen=True)
class Row:
    """A measured candidate: a line of the log.

    call, layouts: the results of `call_text` and `layouts_text`.
    tile: the tile of the candidate; "": the tile that the kernel chooses.
    ns: nanoseconds of the fastest of several repeats, on one thread; None if the candidate failed with `error`.
    cost: the estimate of the cost model.
    code: digest of the kernel's C.
    device: the CPU that ran it.
    network_bytes: bytes of weights that were read between two timed calls, so that the caches hold what they would
        hold inside the network; None in logs of old versions, which measured with the weights in the caches.
    """

    target: str
    optimize: str
    call: str
    kernel: str
    tile: str
    layouts: str
    ns: float | None
    cost: float
    code: str
    error: str = ""
    device: str = ""
    network_bytes: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.target, self.optimize, self.call, self.kernel, self.tile, self.layouts

    @property
    def kind(self) -> str:
        """The kind of the operator."""
        return self.call.partition("(")[0]

    def line(self) -> str:
        values = {name: value for name, value in asdict(self).items()
                  if value != "" and (value is not None or name == "ns")}
        return json.dumps({"format": FORMAT, **values}, ensure_ascii=False) + "\n"


def call_text(op: Op, inputs: Iterable[TensorType | None], outputs: Iterable[TensorType],
              constants: Container[int] = ()) -> str:
    """Returns the text of a call, such as
    `conv2d(float32[1,3,8,8], const float32[16,3,3,3]) -> float32[1,16,8,8] {…} then max(x, 0) from 2`: the attributes
    are in braces; the epilogue follows, with the number of operands before those that only it reads.

    Args:
        constants: the positions of constant operands.
    """
    def text(position: int, type_: TensorType | None) -> str:
        return "-" if type_ is None else ("const " if position in constants else "") + str(type_.with_layout(PLAIN))

    operands = ", ".join(text(position, type_) for position, type_ in enumerate(inputs))
    results = ", ".join(str(type_.with_layout(PLAIN)) for type_ in outputs)
    tail = f" then {op.epilogue} from {op.epilogue_start}" if op.epilogue is not None else ""
    return f"{op.kind}({operands}) -> {results} {{{op.attrs!r}}}{tail}"


def layouts_text(inputs: Iterable[TensorType | None], outputs: Iterable[TensorType]) -> str:
    """Returns the layouts of operands and results, such as `nchw16c plain -> nchw16c`."""
    return " -> ".join(" ".join("-" if t is None else str(t.layout) for t in types) for types in (inputs, outputs))


class TuningLog:
    """The rows of a log, by key; the last of rows with one key."""

    def __init__(self, rows: Iterable[Row] = ()):
        self.rows: dict[tuple[str, ...], Row] = {}
        for row in rows:
            self.rows.pop(row.key, None)
            self.rows[row.key] = row

    @staticmethod
    def parse(text: str, source: str) -> TuningLog:
        """Parses the text of a log. A last line that was cut short is ignored, with a warning.

        Raises:
            MegccError: for any other line that is not a row; the message names `source` and the line.
        """
        rows, lines = [], text.split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(_row(json.loads(line)))
            except MegccError as error:
                raise _corrupt(source, number, str(error)) from None
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    warnings.warn(f"{source}:{number}: the last line was cut short and is ignored", MegccWarning,
                                  stacklevel=3)
                    continue
                where = f" from column {error.colno} on" if isinstance(error, json.JSONDecodeError) else ""
                raise _corrupt(source, number, f"no JSON{where}") from None
        return TuningLog(rows)

    @staticmethod
    def read(path: str | Path) -> TuningLog:
        """Returns the log in a file.

        Raises:
            MegccError: for a file that cannot be read, and for a line that is not a row.
        """
        try:
            data = folders.read(path, MAX_LOG_BYTES)
        except OSError as error:
            raise refused_by_system(error, f"cannot read the tuning log {path}") from None
        return TuningLog.parse(data.decode("utf-8", errors="replace"), str(path))

    def times(self, target: str, optimize: str) -> Measured | None:
        """Returns the times that were measured on a target with this value of `optimize`; None if there are none."""
        rows = [row for row in self.rows.values() if (row.target, row.optimize) == (target, optimize)]
        return Measured(rows) if rows else None

    def text(self) -> str:
        """Returns the rows as a log, in an order that does not depend on when they were measured."""
        return "".join(self.rows[key].line() for key in sorted(self.rows))

    def __len__(self) -> int:
        return len(self.rows)


def _corrupt(source: str, number: int, why: str) -> MegccError:
    return MegccError(f"{source}:{number}: no line of a tuning log: {why}\n  Take the line out, or give another log; "
                      "what else the log holds stays as it is.")


def _row(values: object) -> Row:
    """Returns the row of a decoded line. Raises MegccError for a missing, unknown or invalid field."""
    if not isinstance(values, dict):
        raise MegccError("not a JSON object")
    if values.pop("format", None) != FORMAT:
        raise MegccError(f"its format is not {FORMAT}")
    fields = Row.__dataclass_fields__
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise MegccError(f"unknown field '{unknown[0]}'")
    values = {"tile": "", **values}
    for name in ("target", "optimize", "call", "kernel", "layouts", "ns", "cost", "code"):
        if name not in values:
            raise MegccError(f"field '{name}' is missing")
    for name, value in values.items():
        if name == "network_bytes":
            if type(value) is not int or value < 0:
                raise MegccError(f"field '{name}' is no number of bytes: {value!r}")
            continue
        is_number = name in ("ns", "cost")
        is_failed = name == "ns" and value is None and values.get("error")
        if is_number and not is_failed and not (isinstance(value, (int, float)) and 0 <= value < _MAX_NUMBER):
            raise MegccError(f"field '{name}' is no time or cost: {value!r}")
        if not is_number and not isinstance(value, str):
            raise MegccError(f"field '{name}' is no string: {value!r}")
    row = Row(**values)
    return replace(row, kernel=RENAMED_KERNELS.get((row.kind, row.kernel), row.kernel))


class LogWriter:
    """Appends rows to a log. It first removes an incomplete last line, which a killed process may have left, or ends a
    last line that lacks only its newline."""

    def __init__(self, path: str | Path):
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise refused_by_system(error, f"cannot write the tuning log {path}") from None
        data = folders.read(path, MAX_LOG_BYTES)
        tail = data[data.rfind(b"\n") + 1:]
        if tail:
            try:
                json.loads(tail)
                os.write(self._file, b"\n")
            except (ValueError, RecursionError):
                os.ftruncate(self._file, len(data) - len(tail))

    def write(self, row: Row) -> None:
        """Appends a row, in one write, because several processes may append to the same log."""
        os.write(self._file, row.line().encode())

    def close(self) -> None:
        os.close(self._file)


class Measured:
    """The measured times on one target.

    For a candidate without a time, `scaled` converts the estimate of the cost model to nanoseconds: by the ratio of
    time to cost of other candidates of the same call, else of the same kind of operator, else of all rows.
    """

    def __init__(self, rows: Iterable[Row]):
        self.rows = tuple(rows)
        self._times: dict[tuple[str, str, str, str], float] = {}
        self._best: dict[tuple[str, str], float] = {}
        for row in self.rows:
            time = math.inf if row.ns is None else row.ns
            self._times[row.call, row.kernel, row.tile, row.layouts] = time
            self._best[row.call, row.layouts] = min(time, self._best.get((row.call, row.layouts), math.inf))

    def time(self, call: str, kernel: str, tile: str, layouts: str) -> float | None:
        """Returns nanoseconds; infinity for a candidate that failed; None for one that was not measured."""
        return self._times.get((call, kernel, tile, layouts))

    def best(self, call: str, layouts: str) -> float | None:
        """Returns the nanoseconds of the fastest candidate of a call in these layouts; None if none was measured."""
        return self._best.get((call, layouts))

    def scaled(self, call: str, cost: float) -> float:
        """Returns an estimate of the cost model, converted to nanoseconds."""
        return cost * self._scales.get(call, self._scales.get(call.partition("(")[0], self._scales.get("", 1.0)))

    @property
    def digest(self) -> str:
        """Hash of the rows, in whichever order they were measured."""
        return hashlib.sha256("".join(sorted(row.line() for row in self.rows)).encode()).hexdigest()

    @cached_property
    def _scales(self) -> Mapping[str, float]:
        """The median ratio of nanoseconds to cost: by call, by kind of operator, and "" for all rows."""
        ratios: dict[str, list[float]] = {}
        for row in self.rows:
            if row.ns is not None and row.cost > 0:
                for group in (row.call, row.kind, ""):
                    ratios.setdefault(group, []).append(row.ns / row.cost)
        return {group: statistics.median(values) for group, values in ratios.items()}
