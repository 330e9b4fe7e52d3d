# SPDX-License-Identifier: Apache-2.0
"""Dimensions by their names in the model: `--dim batch=1 --dim sequence=1..128`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Union

from .dispatch import RULES, Dispatcher, Interval, Intervals, Shape, axis_name, parse_rule, require_first
from .errors import MegccError

#: The value of a dimension: a size, ranges as a string or as half-open intervals, or a range.
Size = Union[int, str, range, Sequence[Interval]]
#: The largest number of names that a message lists.
_MAX_NAMES = 20


def parse_dims(given: str | Sequence[str] | Mapping[str, Size]) -> dict[str, int | list[Interval]]:
    """Parses `["batch=1", "sequence=1..128"]`, or a dictionary of sizes by name, as sizes and half-open intervals.

    Raises:
        MegccError: for a value that is neither a size nor a range, and for a name that is given twice.
    """
    if isinstance(given, Mapping):
        return {name: _size(name, size) for name, size in given.items()}
    found: dict[str, int | list[Interval]] = {}
    for text in (part for line in ([given] if isinstance(given, str) else given) for part in line.split(";")):
        name, equals, size = (part.strip() for part in text.rpartition("="))  # a name may contain "="
        if not text.strip():
            continue
        if not (name and equals and size):
            raise MegccError(f"dimension '{text}': expected NAME=SIZE or NAME=RANGES, such as batch=1 or "
                             "sequence=1..128")
        require_first(f"dimension '{text}'", name, found)
        found[name] = _size(name, size)
    return found


def _size(name: str, size: Size) -> int | list[Interval]:
    """Returns the value of the dimension `name` as a size or as half-open intervals.

    Raises:
        MegccError: for a value that is neither.
    """
    if isinstance(size, str) and size.strip().isdecimal():
        size = int(size)
    elif isinstance(size, Integral) and not isinstance(size, bool):     # numpy's as well
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, (int, str, range, list, tuple)):
        raise MegccError(f"dimension '{name}': {type(size).__name__} is no size, no range and no list of ranges")
    if isinstance(size, int):
        if size < 0:
            raise MegccError(f"dimension '{name}': {size} is no size; sizes are 0 or more")
        return size
    if isinstance(size, str):
        found = parse_rule(size.strip())
        if found is None:
            raise MegccError(f"dimension '{name}={size}': expected a size, such as 1, or {RULES}")
        return found
    if isinstance(size, range):
        if size.step != 1:
            raise MegccError(f"dimension '{name}': {size} is no range of step 1")
        return [(size.start, size.stop)]
    is_one_pair = len(size) == 2 and all(isinstance(end, (Integral, type(None))) for end in size)
    pairs: list[Any] = [size] if is_one_pair else list(size)
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], Integral)
               and isinstance(pair[1], (Integral, type(None))) for pair in pairs):
        raise MegccError(f"dimension '{name}': {size!r} is no list of half-open ranges (low, high)")
    return [(int(start), None if stop is None else int(stop)) for start, stop in pairs]


def with_dims(inputs: Mapping[str, Shape], sets: Sequence[Mapping[str, Shape]],
              dispatch: Dispatcher | Intervals | None, dims: Mapping[str, int | list[Interval]]
              ) -> tuple[Sequence[Mapping[str, Shape]], Dispatcher | Intervals | None]:
    """Adds sizes and ranges of named dimensions to sets of input shapes and to a dispatch.

    Args:
        inputs: shapes of the model's inputs: an extent, the name of a dimension, or None for an axis without a name.
        sets, dispatch: as `dispatch.buckets_of` takes them.
        dims: sizes or half-open intervals by the name of a dimension, as `parse_dims` returns them.

    Returns:
        Sets and a dispatch that also have the sizes and intervals of `dims`, by input and axis.

    Raises:
        MegccError: for a name that no axis has, listing the names, and for an axis that is given two extents.
    """
    if not dims:
        return sets, dispatch
    if len(sets) > 1:
        raise MegccError("several sets of input shapes say all extents: leave out the dimensions, or give ranges")
    axes = axes_of(inputs)
    unknown = [name for name in dims if name not in axes]
    if unknown:
        # The user may have written "a=1,b=2", which is a dimension "a=1,b".
        several = "; several sizes are separated by ';'" if "=" in unknown[0] else ""
        raise MegccError(f"the model has no dimension '{unknown[0]}'; {_joined(axes)}{several}")
    shapes = {name: list(shape) for name, shape in (sets[0] if sets else {}).items()}
    ranges: dict[str, dict[int, Sequence[Interval]]] = {}
    for name, size in dims.items():
        for input_, axis in axes[name]:
            if not isinstance(size, int):
                ranges.setdefault(input_, {})[axis] = size
                continue
            # A given shape may have too few axes, which is reported later; then the slice appends.
            shape = shapes.setdefault(input_, [None] * len(inputs[input_]))
            if axis < len(shape) and shape[axis] not in (None, size):
                raise MegccError(f"axis {axis} of input '{input_}' is '{name}', which is given as {size} and as "
                                 f"{shape[axis]}")
            shape[axis:axis + 1] = [size]
    if callable(dispatch):
        known = {name: shapes.get(name, shape) for name, shape in inputs.items()}
        dispatch = dispatch(known)
    for input_, rules in (dispatch or {}).items():
        for axis, cells in rules.items():
            ranges.setdefault(input_, {}).setdefault(axis, cells)
    return [shapes] if shapes else sets, ranges or None


def axes_of(inputs: Mapping[str, Shape]) -> dict[str, list[tuple[str, int]]]:
    """Returns the open dimensions: name -> (input, axis) of each axis that has it."""
    found: dict[str, list[tuple[str, int]]] = {}
    for input_, shape in inputs.items():
        for axis, dim in enumerate(shape):
            if dim is None or isinstance(dim, str):  # other dimensions are numbers
                found.setdefault(axis_name(inputs, input_, axis), []).append((input_, axis))
    return found


def _joined(names: Sequence[str] | Mapping[str, object]) -> str:
    if not names:
        return "all its inputs have fixed shapes"
    others = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"there are {', '.join(list(names)[:_MAX_NAMES])}{others}"
