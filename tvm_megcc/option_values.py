# SPDX-License-Identifier: Apache-2.0
"""The parsers of the values of compile options, as the command has them (strings) and as Python has them (objects).

`options.py` refers to the functions of this module by name: `takes_…` returns whether Python may give a value that is
no string; `parse_…` returns the value of the option.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Union

import numpy as np

from .context import Regions, bytes_of
from .dispatch import parse_run_shapes, require_first
from .errors import MegccError
from .ir.limits import MAX_WORKERS
from .ir.streams import Stream
from .ir.types import ORDINARY
from .named_dims import parse_dims
from .passes.canonicalize.preprocess import LAYOUTS, Input
from .tuning_log import TuningLog

Inputs = Mapping[str, Union[Input, str]]
Shapes = Mapping[str, Sequence[int]]

__all__ = ["Inputs", "Shapes", "parse_bounds", "parse_constants", "parse_dims", "parse_inputs", "parse_output_names",
           "parse_bytes", "parse_regions", "parse_shapes", "parse_states", "parse_stream", "parse_threads",
           "takes_dispatch", "takes_externs", "takes_inputs", "takes_log", "takes_named", "takes_regions",
           "takes_shapes", "takes_states", "takes_stream", "takes_strings"]


def takes_strings(value: object) -> bool:
    """Returns whether the value is a list of strings."""
    return isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)


def _is_named(value: object) -> bool:
    """Returns whether the value is a dictionary by names."""
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def takes_named(value: object) -> bool:
    """Returns whether the value is a dictionary by names or a list of strings. The parser checks the dictionary's
    values."""
    return _is_named(value) or takes_strings(value)


def _is_named_values(value: object, *kinds: type) -> bool:
    """Returns whether the value is a dictionary from names to values of these types."""
    return isinstance(value, Mapping) and _is_named(value) and all(isinstance(item, kinds) for item in value.values())


def takes_inputs(value: object) -> bool:
    """Returns whether the value is a dictionary of `Input` or strings by input, or a list of strings."""
    return _is_named_values(value, str, Input) or takes_strings(value)


def takes_states(value: object) -> bool:
    """Returns whether the value is a dictionary from outputs to inputs, or a list of strings."""
    return _is_named_values(value, str) or takes_strings(value)


def takes_shapes(value: object) -> bool:
    """Returns whether the value is a dictionary of shapes by input, or a list. For a list of shapes without names,
    `frontends.models` raises an error that says how names are given."""
    if isinstance(value, (list, tuple)):
        return all(_is_named_values(shapes, Iterable) for shapes in value if isinstance(shapes, Mapping))
    return _is_named_values(value, Iterable)


def takes_externs(value: object) -> bool:
    """Returns whether the value is a path, an `extern.Operator`, or several. (This module may not import `extern`, so
    it looks for the attribute `domain`.)"""
    externs = value if isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes)) else [value]
    return all(isinstance(extern, (str, Path)) or hasattr(extern, "domain") for extern in externs)


def takes_dispatch(value: object) -> bool:
    """Returns whether the value is a dispatcher, or intervals by input."""
    return callable(value) or _is_named(value)


def takes_log(value: object) -> bool:
    """Returns whether the value is a tuning log, or a path."""
    return isinstance(value, (Path, TuningLog))


def takes_stream(value: object) -> bool:
    """Returns whether the value is a stream."""
    return isinstance(value, Stream)


def takes_regions(value: object) -> bool:
    """Returns whether the value is memory regions."""
    return isinstance(value, Regions)


def parse_threads(given: int | str) -> int:
    """Returns a number of workers, given as a number or as a string of digits. Raises MegccError for anything else, and
    for more than the runtime supports."""
    count = int(given) if isinstance(given, str) and re.fullmatch(r"\s*\d{1,9}\s*", given, re.ASCII) else given
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= MAX_WORKERS:
        raise MegccError(f"threads: {given!r} is no number between 1 and {MAX_WORKERS}")
    return int(count)


def parse_sinks(given: int | str) -> int:
    """Returns a number of attention sinks, 0 for none, given as a number or as a string of digits. Raises MegccError
    for anything else."""
    count = int(given) if isinstance(given, str) and re.fullmatch(r"\s*\d{1,9}\s*", given, re.ASCII) else given
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
        raise MegccError(f"sinks: {given!r} is no number of tokens")
    return int(count)


def parse_bytes(name: str, given: int | str) -> int:
    """Returns a number of bytes, given as a number or as a string such as "64K".

    Raises:
        MegccError: naming the option, for anything else.
    """
    count = bytes_of(given) if isinstance(given, str) else given
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
        raise MegccError(f"{name}: {given!r} is no number of bytes, such as 4096, 256K or 100M")
    return int(count)


def parse_regions(given: str | Regions | None) -> Regions | None:
    """Returns memory regions; a string is parsed. Raises MegccError as `Regions.parse`."""
    return Regions.parse(given) if isinstance(given, str) else given


def parse_stream(given: str | Stream | None) -> Stream | None:
    """Returns a stream; a string is parsed. Raises MegccError as `Stream.parse`."""
    return Stream.parse(given) if isinstance(given, str) else given


def _pairs(strings: str | Sequence[str]) -> Iterator[str]:
    """Yields the pairs "NAME=VALUE" in strings; ";" separates pairs. A string is not split if a part of it has no "=":
    names in TFLite files may contain ";"."""
    for text in [strings] if isinstance(strings, str) else strings:
        parts = [part for part in text.split(";") if part.strip()]
        yield from parts if parts and all("=" in part for part in parts) else [text]


def parse_states(strings: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Parses `["h_out=h_in"]` as a dictionary; a dictionary is copied.

    Raises:
        MegccError: for a string that is not such a pair, and for an output in two of them.
    """
    if isinstance(strings, Mapping):
        return dict(strings)
    states: dict[str, str] = {}
    for text in _pairs(strings):
        output, equals, target = (part.strip() for part in text.partition("="))
        if not (output and equals and target):
            raise MegccError(f"state '{text}': expected OUTPUT=INPUT, such as h_out=h_in")
        if output in states:
            raise MegccError(f"state '{text}': output '{output}' is in another state too")
        states[output] = target
    return states


def parse_constants(strings: str | Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    """Parses `["sr=16000", "scales=1,0.5"]` as a dictionary of numbers and lists of numbers; a dictionary is copied.

    Raises:
        MegccError: for a string that is not such a pair, and for an input in two of them.
    """
    if isinstance(strings, Mapping):
        return dict(strings)
    constants: dict[str, object] = {}
    for text in _pairs(strings):
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            numbers = [_number(part.strip()) for part in value.split(",")]
        except ValueError:
            raise MegccError(f"constant '{text}': expected INPUT=NUMBER or INPUT=NUMBER,NUMBER") from None
        require_first(f"constant '{text}'", name, constants)
        constants[name] = numbers if "," in value else numbers[0]
    return constants


def parse_bounds(strings: str | Sequence[str] | Mapping[str, int]) -> dict[str, int]:
    """Parses `["boxes=1000"]` as a dictionary; a dictionary is checked.

    Raises:
        MegccError: for a string that is not such a pair, a name in two of them, and a bound that is not an extent.
    """
    if isinstance(strings, Mapping):
        for name, bound in strings.items():
            if isinstance(bound, bool) or not isinstance(bound, (int, np.integer)) or not 0 <= bound < 2**31:
                raise MegccError(f"bound of '{name}': {bound!r} is no number from 0 to 2^31 - 1")
        return {name: int(bound) for name, bound in strings.items()}
    bounds: dict[str, int] = {}
    for text in _pairs(strings):
        name, _, value = (part.strip() for part in text.rpartition("="))  # a value's name may contain "="
        if not name or not re.fullmatch(r"\d{1,10}", value, re.ASCII) or int(value) >= 2**31:
            raise MegccError(f"bound '{text}': expected NAME=NUMBER, such as boxes=1000")
        require_first(f"bound '{text}'", name, bounds)
        bounds[name] = int(value)
    return bounds


def _number(text: str) -> float | int | bool:
    """Returns the number, or "true" or "false", in a string. Raises ValueError for anything else."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


#: The rest of an error text about an option `inputs`.
INPUT_GRAMMAR = (f"expected INPUT=WORD,… of: an element type ({', '.join(ORDINARY)}); NHWC or NCHW; BGR; mean=M, "
                 "std=S or scale=S with one number or one a channel (1:2:3); network=NHWC or NCHW; for example "
                 "data=uint8,NHWC,mean=123.7:116.3:103.5,std=58.4:57.1:57.4")
#: Words without "=" -> the attribute of `Input` that they set, and the attributes that are set by KEY=VALUE.
_INPUT_WORDS = {**dict.fromkeys(ORDINARY, "dtype"), **dict.fromkeys(LAYOUTS, "layout"), "BGR": "order"}
_INPUT_KEYS = ("mean", "std", "scale", "network")


def parse_inputs(strings: str | Sequence[str] | Inputs) -> dict[str, Input]:
    """Parses `["data=uint8,NHWC,mean=127.5;mask=uint8"]` as a dictionary; ";" separates inputs in one string. The
    values of a given dictionary may be `Input` objects, or the strings after the "=".

    Raises:
        MegccError: for a string that does not follow the grammar, and for an input in two of them.
    """
    if isinstance(strings, Mapping):
        return {name: given if isinstance(given, Input) else parse_input(given) for name, given in strings.items()}
    strings = [strings] if isinstance(strings, str) else strings
    inputs: dict[str, Input] = {}
    for text in (part.strip() for line in strings for part in line.split(";")):
        name, equals, words = (part.strip() for part in text.partition("="))
        if not text:
            continue
        if not (name and equals and words):
            raise MegccError(f"input '{text}': {INPUT_GRAMMAR}")
        require_first(f"input '{text}'", name, inputs)
        inputs[name] = parse_input(words, text)
    return inputs


def parse_input(words: str, text: str = "") -> Input:
    """Parses `"uint8,NHWC,mean=127.5"` as an `Input`. text: the whole string, for messages."""
    attributes: dict[str, Any] = {}   # fields of `Input`, by name
    for word in (word.strip() for word in words.split(",")):
        key, equals, value = (part.strip() for part in word.partition("="))
        attribute = key if equals else _INPUT_WORDS.get(word)
        if attribute is None or (equals and key not in _INPUT_KEYS):
            raise MegccError(f"input '{text or words}': '{word}' is not understood; {INPUT_GRAMMAR}")
        if attribute in attributes:
            raise MegccError(f"input '{text or words}': '{word}' is a second {attribute}; {INPUT_GRAMMAR}")
        try:
            if not equals:
                attributes[attribute] = word
            elif key == "network":
                attributes[attribute] = value
            else:
                attributes[attribute] = tuple(float(number) for number in value.split(":"))
        except ValueError:
            raise MegccError(f"input '{text or words}': '{word}' is no number, or several with ':' between them; "
                             f"{INPUT_GRAMMAR}") from None
    try:
        return Input(**attributes)
    except MegccError as error:
        raise MegccError(f"input '{text or words}': {error}") from None


def parse_output_names(strings: str | Sequence[str]) -> list[str]:
    """Parses `["a,b", "c"]` as a list of names without duplicates."""
    names = (name.strip() for text in ([strings] if isinstance(strings, str) else strings) for name in text.split(","))
    return list(dict.fromkeys(filter(None, names)))


def parse_shapes(text: str | Mapping[str, Sequence[int] | int]) -> dict[str, tuple[int, ...] | int]:
    """Parses `"data=(1,3,224,224);ids:[1,128];past=3"` as a dictionary: shapes by input, and sizes by dimension. A
    dictionary is copied.

    Raises:
        MegccError: showing the part that is neither a shape nor a size, or whose name is given twice.
    """
    if isinstance(text, Mapping):
        return {name: int(size) if isinstance(size, (int, Integral)) else tuple(size) for name, size in text.items()}
    return parse_run_shapes(text)
