# SPDX-License-Identifier: Apache-2.0
"""Graph dispatch, after TVM's RFC #4118: the ranges of input shapes that a model is compiled for.

A *dispatcher* is a function from the shapes of the inputs, with None for axes that may change, to intervals of these
axes: `{input: {axis: [(lo, hi), …]}}`. Intervals are half open; hi is None where there is no limit. Every combination
of intervals is a bucket, which has one memory plan for all shapes in it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, Union

from .errors import MegccError
from .ir.shapes import EVERYTHING, Bucket

Shape = Sequence[Union[int, str, None]]
Interval = tuple[int, Union[int, None]]
Intervals = Mapping[str, Mapping[int, Sequence[Interval]]]
Dispatcher = Callable[[Mapping[str, Shape]], Intervals]

#: The largest number of buckets in the container's format.
MAX_BUCKETS = 4096
#: The number of intervals of a dispatcher without an upper limit. The last is open: from 256 for `log_dispatcher()`.
OPEN_INTERVALS = 9


def uniform_dispatcher(step: int, lo: int = 1, hi: int | None = None) -> Dispatcher:
    """Divides the extents of every axis that may change into intervals of `step`, from `lo` up to but without `hi`.

    Without `hi` there are `OPEN_INTERVALS`, the last without a limit.

    Raises:
        MegccError: for a step below 1, an empty range, or too many intervals.
    """
    if step < 1:
        raise MegccError(f"a uniform dispatcher has a step of at least 1, not {step}")
    return _on_open_axes(_cut(lo, hi, lambda start: start + step))


def log_dispatcher(base: int = 2, lo: int = 1, hi: int | None = None) -> Dispatcher:
    """Divides the extents of every axis that may change into intervals that grow by the factor `base`.

    They go from `lo` up to but without `hi`. Without `hi` there are `OPEN_INTERVALS`, the last without a limit.

    Raises:
        MegccError: for a base below 2, an empty range, or too many intervals.
    """
    if base < 2 or lo < 1:
        raise MegccError(f"a logarithmic dispatcher has a base of at least 2, not {base}" if base < 2 else
                         f"a logarithmic dispatcher begins at 1 or more, not {lo}; give a range of 0 by itself: 0,1..8")
    return _on_open_axes(_cut(lo, hi, lambda start: start * base))


def _cut(lo: int, hi: int | None, next_start: Callable[[int], int]) -> list[Interval]:
    """Divides [lo, hi) into intervals; `next_start` returns the start of the interval after the one that starts at its
    argument."""
    if lo < 0 or (hi is not None and hi <= lo):
        raise MegccError(f"extents are 0 or more and a range must not be empty: {lo} to {hi}")
    intervals: list[Interval] = []
    while (hi is None and len(intervals) < OPEN_INTERVALS - 1) or (hi is not None and lo < hi):
        end = next_start(lo)
        intervals.append((lo, end if hi is None else min(end, hi)))
        lo = end
        if len(intervals) > MAX_BUCKETS:
            raise MegccError(f"a range gives more than {MAX_BUCKETS} intervals; use a larger step or base")
    return intervals if hi is not None else [*intervals, (lo, None)]


def _on_open_axes(intervals: Sequence[Interval]) -> Dispatcher:
    """Returns a dispatcher that gives every axis without a fixed extent these intervals."""
    def dispatcher(shapes: Mapping[str, Shape]) -> Intervals:
        return {name: {axis: list(intervals) for axis, dim in enumerate(shape) if not isinstance(dim, int)}
                for name, shape in shapes.items()}
    return dispatcher


#: A part of `--dispatch`, such as "data[2,3]=uniform(64,64,512)"; its rule is a call or ranges.
_AXES = re.compile(r"\s*(?P<name>.+?)\s*\[(?P<axes>[\d\s,]+)\]\s*=\s*(?P<rule>.+?)\s*")
_CALL = re.compile(r"(?P<name>log|uniform)\s*\((?P<numbers>[\d\s,]*)\)")
_RANGE = re.compile(r"(?P<lo>\d+)(?:\s*\.\.\s*(?P<hi>\d+|\*))?")
#: The grammar of a rule, for messages.
RULES = "log(1,64), log(BASE,1,64), uniform(STEP,64,512) or 1..8,9..64,65..* ; ends are included, * is no limit"


def parse_dispatch(text: str) -> dict[str, dict[int, list[Interval]]]:
    """Parses `"data[0]=log(1,64);data[2,3]=uniform(64,64,512)"` as half-open intervals; in `text`, ends are included.

    Raises:
        MegccError: showing the part that is not a rule, or whose axis is given twice.
    """
    found: dict[str, dict[int, list[Interval]]] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _AXES.fullmatch(part)
        if match is None or (intervals := parse_rule(match["rule"])) is None:
            raise MegccError(f"dispatch '{part}': expected NAME[AXIS,…]={RULES}")
        rules = found.setdefault(match["name"], {})
        for axis in map(int, filter(None, (a.strip() for a in match["axes"].split(",")))):
            require_first(f"dispatch '{part}'", f"{match['name']}[{axis}]", [f"{match['name']}[{a}]" for a in rules])
            rules[axis] = intervals
    return found


def require_first(part: str, name: str, found: Container[str]) -> None:
    """Raises MegccError for a name among `found`, those that earlier parts of an option have given. part: the part that
    has the name, with its kind, such as "dimension 'batch=1'"."""
    if name in found:
        raise MegccError(f"{part}: '{name}' is given in another string too")


def parse_rule(rule: str) -> list[Interval] | None:
    """Returns the ranges of a rule such as "log(1,64)" or "1..8,9..64" as half-open intervals; None if the text is
    not a rule."""
    call = _CALL.fullmatch(rule)
    if call:
        numbers = [int(n) for n in filter(None, (n.strip() for n in call["numbers"].split(",")))]
        if call["name"] == "log" and len(numbers) == 2:
            numbers = [2, *numbers]
        if len(numbers) != 3:
            return None
        step, first, last = numbers
        dispatcher = log_dispatcher if call["name"] == "log" else uniform_dispatcher
        # The intervals that the dispatcher gives axis 0, which is open, of an input "".
        return list(dispatcher(step, first, last + 1)({"": (None,)})[""][0])
    items = rule.split(",")
    ranges = [found for item in items if (found := _RANGE.fullmatch(item.strip()))]
    if len(ranges) != len(items):
        return None
    return [(int(r["lo"]), None if r["hi"] == "*" else int(r["hi"] or r["lo"]) + 1) for r in ranges]


_SHAPE = re.compile(r"\s*(?P<name>.+?)\s*(?:=\s*\((?P<round>[^()]*)\)|:\s*\[(?P<square>[^\[\]]*)\])\s*")
#: Between two sets of shapes: a colon after a closing bracket.
_BETWEEN_SETS = re.compile(r"(?<=[)\]])\s*:")


def parse_shape_sets(text: str) -> list[dict[str, tuple[int | None, ...]]]:
    """Parses sets of input shapes: `"data=(1,3,224,224):data=(2,3,224,224)"` becomes a list of dictionaries.

    In the text, ";" separates the inputs of one set, `data:[1,3,224,224]` is another spelling of a shape, and "?" is an
    extent that stays as the model has it (None).

    Raises:
        MegccError: showing the part that is not a shape.
    """
    return [_parse_shapes(part) for part in _BETWEEN_SETS.split(text) if part.strip()]


def _parse_shapes(text: str) -> dict[str, tuple[int | None, ...]]:
    """Parses one set of input shapes; "?" becomes None."""
    shapes: dict[str, tuple[int | None, ...]] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        match = _SHAPE.fullmatch(part)
        try:
            if match is None:
                raise ValueError
            dims = match["round"] if match["round"] is not None else match["square"]
            shape = tuple(None if d == "?" else int(d) for d in filter(None, (d.strip() for d in dims.split(","))))
        except ValueError:
            raise MegccError(f"input shape '{part}': expected NAME=(1,3,224,224) or NAME:[1,3,224,224]") from None
        require_first(f"input shape '{part}'", match["name"], shapes)
        shapes[match["name"]] = shape
    return shapes


def parse_run_shapes(text: str) -> dict[str, tuple[int, ...] | int]:
    """Parses `text`, shapes of inputs and sizes of dimensions by name: `"ids=(1,8);past=3"`.

    Raises:
        MegccError: showing the part that is neither, or whose name is given twice.
    """
    if len(_BETWEEN_SETS.split(text)) > 1:
        raise MegccError(f"expected one set of input shapes, without ':': {text}")
    found: dict[str, tuple[int, ...] | int] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, _, size = (word.strip() for word in part.rpartition("="))
        sizes: Mapping[str, Any] = {name: int(size)} if name and size.isdecimal() else _parse_shapes(part)
        for name, value in sizes.items():
            if isinstance(value, tuple) and None in value:
                raise MegccError(f"shape '{part}': a run has extents that are known")
            require_first(f"shape '{part}'", name, found)
            found[name] = value
    return found


def shapes_by_model(sets: Sequence[Mapping[str, Shape]], inputs: Mapping[str, Collection[str]]) \
        -> dict[str, list[dict[str, Shape]]]:
    """Distributes sets of input shapes to several models.

    Args:
        sets: shapes by name. The name of an input gives the shape to every model that has such an input;
            "MODEL:NAME" gives it to one model.
        inputs: model -> names of its inputs.

    Returns:
        model -> its sets of shapes, without duplicates.

    Raises:
        MegccError: for a name that no model has.
    """
    found: dict[str, list[dict[str, Shape]]] = {model: [] for model in inputs}
    for shapes in sets:
        by_model: dict[str, dict[str, Shape]] = {model: {} for model in inputs}
        for name, shape in shapes.items():
            model, _, rest = (part.strip() for part in name.partition(":"))
            readers = {reader: name for reader, names in inputs.items() if name in names} or \
                ({model: rest} if rest in inputs.get(model, ()) else {})
            if not readers:
                have = "; ".join(f"'{model}' has {', '.join(names)}" for model, names in inputs.items())
                raise MegccError(f"input shape '{name}': no model has such an input: {have}. "
                                 "An input of one model is NAME=(…) or MODEL:NAME=(…)")
            for reader, its_name in readers.items():
                by_model[reader][its_name] = shape
        for model, its_shapes in by_model.items():
            if its_shapes not in found[model]:
                found[model].append(its_shapes)
    return found


def buckets_of(inputs: Mapping[str, Shape], sets: Sequence[Mapping[str, Shape]] = (),
               dispatch: Dispatcher | Intervals | None = None,
               constants: bool = True) -> tuple[dict[str, Shape], tuple[Bucket, ...]]:
    """Returns the shapes to import a model with, and the buckets to compile it for.

    Args:
        inputs: shapes of the model's inputs: an extent, the name of a symbol, or None for an unnamed open axis.
        sets: shapes that the model is compiled for, each a dictionary with the same inputs. One set fixes shapes;
            axes in which several differ become symbols, each set a bucket.
        dispatch: intervals of axes, or a dispatcher that gives them.
        constants: an axis with a range of one value is imported as that value; else it stays a symbol of the buckets.

    Raises:
        MegccError: for unknown inputs or axes, and for symbols that are given two meanings.
    """
    if len(sets) > 1:
        if dispatch:
            raise MegccError("give either several sets of input shapes or a dispatch, not both")
        return _exact_buckets(inputs, sets)
    shapes: dict[str, Shape] = {name: tuple(shape) for name, shape in (sets[0] if sets else {}).items()}
    if dispatch is None:
        return shapes, (EVERYTHING,)
    return _grid(inputs, shapes, dispatch, constants)


def possibly_empty(buckets: Sequence[Bucket]) -> frozenset[str]:
    """Returns the symbols that may be 0.

    Args:
        buckets: the ranges that a model is compiled for.
    """
    return frozenset(name for bucket in buckets for name, lower, _ in bucket.bounds if lower == 0)


def axis_name(inputs: Mapping[str, Shape], name: str, axis: int) -> str:
    """Returns the name of an open axis: the model's, or one made of the input's name and the axis.

    inputs: shapes of the inputs, by name.
    """
    dim = inputs[name][axis]
    return dim if isinstance(dim, str) else f"{name}_{axis}"


def _exact_buckets(inputs: Mapping[str, Shape], sets: Sequence[Mapping[str, Shape]]
                   ) -> tuple[dict[str, Shape], tuple[Bucket, ...]]:
    """Returns the result of `buckets_of` for several sets of shapes: a bucket for each set."""
    names = list(sets[0])
    for number, shapes in enumerate(sets):
        if set(shapes) != set(names) or any(len(shapes[name]) != len(sets[0][name]) for name in names):
            raise MegccError(f"set {number + 1} of input shapes names other inputs or ranks than the first: "
                             f"{dict(shapes)}")
    unknown = [name for name in names if name not in inputs]
    if unknown:
        raise MegccError(f"--input-shapes names {', '.join(unknown)}, but the inputs are: {', '.join(inputs)}")
    imported: dict[str, Shape] = {}
    bounds: list[dict[str, int]] = [{} for _ in sets]
    for name in names:
        shape: list[int | str | None] = []
        for axis, set_extents in enumerate(zip(*(shapes[name] for shapes in sets), strict=True)):
            model_extent = inputs[name][axis] if axis < len(inputs[name]) else None
            extents = {model_extent if extent is None else extent for extent in set_extents}
            if len(extents) == 1:
                shape.append(set_extents[0])
                continue
            symbol = axis_name(inputs, name, axis) if axis < len(inputs[name]) else f"{name}_{axis}"
            shape.append(symbol)
            for bound, set_extent in zip(bounds, set_extents, strict=True):
                extent = model_extent if set_extent is None else set_extent
                if not isinstance(extent, int):
                    raise MegccError(f"axis {axis} of input '{name}' is open in one set of input shapes, and a number "
                                     "in another; give a number in each, or --dispatch")
                if bound.setdefault(symbol, extent) != extent:
                    raise MegccError(f"axis {axis} of input '{name}' is '{symbol}', which one set of input shapes "
                                     f"gives as {bound[symbol]} and as {extent}")
        imported[name] = tuple(shape)
    buckets = tuple(Bucket(tuple((symbol, extent, extent) for symbol, extent in bound.items())) for bound in bounds)
    return imported, tuple(dict.fromkeys(buckets))


def _grid(inputs: Mapping[str, Shape], shapes: dict[str, Shape], dispatch: Dispatcher | Intervals, constants: bool
          ) -> tuple[dict[str, Shape], tuple[Bucket, ...]]:
    """Returns the result of `buckets_of` for a dispatch: a bucket for each combination of the intervals of its axes."""
    known_shapes = {name: shapes.get(name, shape) for name, shape in inputs.items()}
    intervals_by_axis = dispatch(known_shapes) if callable(dispatch) else dispatch
    imported = {name: list(shape) for name, shape in shapes.items()}
    axes: dict[str, tuple[Interval, ...]] = {}
    for name, rules in intervals_by_axis.items():
        if name not in inputs:
            raise MegccError(f"--dispatch names '{name}', but the inputs are: {', '.join(inputs)}")
        for axis, ranges in rules.items():
            if not 0 <= axis < len(inputs[name]):
                raise MegccError(f"--dispatch names axis {axis} of input '{name}', which has {len(inputs[name])} axes")
            if name in shapes and len(shapes[name]) != len(inputs[name]):
                raise MegccError(f"--input-shapes gives input '{name}' {len(shapes[name])} axes, and it has "
                                 f"{len(inputs[name])}")
            if name in shapes and isinstance(shapes[name][axis], int):
                raise MegccError(f"axis {axis} of input '{name}' is fixed by --input-shapes or --dim, and named by "
                                 "--dispatch")
            symbol = axis_name(inputs, name, axis)
            intervals = tuple((start, stop) for start, stop in ranges)
            _require_ranges(intervals, f"axis {axis} of input '{name}'")
            if axes.setdefault(symbol, intervals) != intervals:
                raise MegccError(f"axis {axis} of input '{name}' is '{symbol}', for which --dispatch gives other "
                                 "intervals elsewhere")
            imported.setdefault(name, [None] * len(inputs[name]))[axis] = symbol
    # A range of one value is a constant: when the model is imported, shapes may be compared with it.
    single = {symbol: start for symbol, [(start, stop), *others] in axes.items()
              if constants and not others and stop == start + 1}
    axes = {symbol: ranges for symbol, ranges in axes.items() if symbol not in single}
    count = math.prod(map(len, axes.values()))
    if count > MAX_BUCKETS:
        raise MegccError(f"--dispatch makes {count:,} buckets, and a container holds at most {MAX_BUCKETS}")
    buckets = tuple(
        Bucket(tuple((symbol, start, None if stop is None else stop - 1)
                     for symbol, (start, stop) in zip(axes, cell, strict=True)))
        for cell in itertools.product(*axes.values()))
    return {name: tuple(single.get(dim, dim) if isinstance(dim, str) else dim for dim in shape)
            for name, shape in imported.items()}, buckets


def _require_ranges(intervals: Sequence[Interval], subject: str) -> None:
    """Raises MegccError, naming the subject, if there is no interval, or one is empty or has a negative start."""
    invalid = [(start, stop) for start, stop in intervals if start < 0 or (stop is not None and stop <= start)]
    if invalid or not intervals:
        shown = " and ".join(f"{start}..{'*' if stop is None else stop - 1}" for start, stop in invalid) or "nothing"
        raise MegccError(f"{subject}: {shown} is no range of sizes; the first is at least 0, and the last no smaller")


def __getattr__(name: str) -> Any:
    """`Dispatch`, a pass for TVM's modules, is imported on first use: it needs TVM."""
    if name == "Dispatch":
        from .frontends import _tvm

        return _tvm.attribute(name, "dispatch")
    raise AttributeError(f"module 'tvm_megcc.dispatch' has no attribute '{name}'")
