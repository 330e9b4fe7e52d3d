# SPDX-License-Identifier: Apache-2.0
"""Reads the description of a program from a TOML file. Whatever the file says ends in a description or a message that
names table and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import MegccError
from ...foreign import identifier
from ..config import OPTIONS, checked, parsed, require_key
from .features import SETTINGS as FEATURES
from .images import SETTINGS as IMAGES
from .kinds import KINDS
from .steps import Carried, Feature, Image, Loop, Network, Operator, State, Step, Tokenizer
from .tokenizers import KEYS as TOKENIZER_KEYS

_TABLE = "a table"
#: The largest number of loops, one inside the other.
_MOST_DEPTH = 3


def read(path: Path, models: Path) -> dict[str, Any]:
    """Returns the fields of a `Description` from a file.

    Args:
        path: a TOML file.
        models: the folder that paths of networks are relative to.

    Raises:
        MegccError: if the file cannot be read, has an unknown key or a value of another kind.
    """
    found = parsed(path)
    keys = {"name": str, "inputs": dict, "outputs": list, "states": dict, "sample-rates": dict, "step": list}
    _require_keys(found, keys, str(path))
    for key, kind in keys.items():
        if key in found and not isinstance(found[key], kind):
            raise MegccError(f"{path}: '{key}' is {_kind(kind)}")
    for key in ("inputs", "outputs", "step"):
        if not found.get(key):
            raise MegccError(f"{path} has no '{key}'" + (": at least one table [[step]]" if key == "step" else ""))
    states = {name: _state(row, f"{path}: [states.{name}]") for name, row in found.get("states", {}).items()}
    steps = _steps(found["step"], _lines_of_steps(path, found["step"]), str(path), models)
    return {"name": found.get("name", identifier(path.stem)), "inputs": _strings(found["inputs"], f"{path}: [inputs]"),
            "outputs": _names(found["outputs"], f"{path}: 'outputs'"), "states": states, "steps": steps,
            "sample_rates": found.get("sample-rates", {})}


def _lines_of_steps(path: Path, rows: list[Any]) -> dict[str, int]:
    """Returns the line of each [[step]] by its number, "3", and of each [[step.step]], "3.2"; nothing if the
    file has them in another way, such as `step = [{…}]`."""
    lines: dict[str, int] = {}
    counts: list[int] = []
    for index, line in enumerate(path.read_text("utf-8").split("\n")):
        if found := re.match(r"\s*\[\[\s*step((?:\s*\.\s*step)*)\s*\]\]", line):
            depth = found[1].count("step") + 1
            counts = (counts + [0] * depth)[:depth]
            counts[-1] += 1
            lines[".".join(map(str, counts))] = index + 1
    return lines if len(lines) == _number_of(rows) else {}


def _number_of(rows: object) -> int:
    """Returns the number of steps, with those in loops."""
    if not isinstance(rows, list):
        return 0
    return sum(1 + (_number_of(row.get("step")) if isinstance(row, dict) else 0) for row in rows)


def _steps(rows: list[Any], lines: Mapping[str, int], path: str, models: Path, prefix: str = "") -> list[Step]:
    """Returns the steps of a file, or of the loop whose number is the prefix, "3."."""
    steps = []
    for index, row in enumerate(rows):
        number = f"{prefix}{index + 1}"
        line = lines.get(number, 0)
        where = f"{path}: {f'line {line}: ' if line else ''}step {number}"
        step = _loop(row, where, number, lines, path, models) if isinstance(row, dict) and "loop" in row \
            else _step(row, where, models)
        steps.append(replace(step, line=line))
    return steps


def _loop(row: dict[str, Any], where: str, number: str, lines: Mapping[str, int], path: str, models: Path) -> Step:
    strings, tables = ("name", "count", "until", "index", "trip_count"), ("for_each", "outputs", "final")
    _require_keys(row, ("loop", "step", "max_trip_count", "carried", *strings, *tables), where)
    for key in ("loop", *strings):
        if not isinstance(row.get(key, ""), str):
            raise MegccError(f"{where}: '{key}' is a string")
    if not isinstance(row.get("step"), list) or not row["step"]:
        raise MegccError(f"{where} is a loop without steps: at least one table [[step.step]]")
    if number.count(".") >= _MOST_DEPTH:
        raise MegccError(f"{where}: there are more than {_MOST_DEPTH} loops, one inside the other")
    if not isinstance(row.get("max_trip_count"), int):
        raise MegccError(f"{where}: 'max_trip_count' is a number")
    carried = row.get("carried", {})
    if not isinstance(carried, dict):
        raise MegccError(f"{where}: 'carried' is {_TABLE}")
    given: dict[str, Any] = {key: row[key] for key in strings if key in row}
    given |= {key: _strings(row[key], f"{where}: '{key}'") for key in tables if key in row}
    return Loop(row["loop"], _steps(row["step"], lines, path, models, f"{number}."), row["max_trip_count"],
                carried={name: _carried(value, f"{where}: carried.{name}") for name, value in carried.items()}, **given)


def _carried(row: object, where: str) -> Carried:
    if not isinstance(row, dict) or set(row) not in ({"next", "initial"}, {"next", "type"}) or not all(
            isinstance(text, str) and text for text in row.values()):
        raise MegccError(f"{where} has 'next', and 'initial' or 'type': two strings")
    return Carried(**row)


def _require_keys(row: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    for key in row:
        require_key(key, keys, where)


def _kind(kind: type) -> str:
    return {str: "a string", dict: _TABLE, list: "a list", bool: "true or false", int: "a number"}[kind]


def _strings(row: object, where: str) -> dict[str, str]:
    if not isinstance(row, dict) or not all(isinstance(text, str) for text in row.values()):
        raise MegccError(f"{where} is a table of strings")
    return dict(row)


def _names(row: object, where: str) -> list[str]:
    if not isinstance(row, list) or not all(isinstance(text, str) for text in row):
        raise MegccError(f"{where} is a list of strings")
    return list(row)


def _state(row: object, where: str) -> State:
    if not isinstance(row, dict) or set(row) != {"type", "next"} or not all(
            isinstance(text, str) for text in row.values()):
        raise MegccError(f"{where} has 'type' and 'next', two strings")
    return State(row["type"], row["next"])


def _step(row: object, where: str, models: Path) -> Step:
    if not isinstance(row, dict):
        raise MegccError(f"{where} is {_TABLE}")
    kinds = [key for key in _STEPS if key in row]
    if len(kinds) != 1 or not isinstance(row[kinds[0]], str):
        raise MegccError(f"{where} has one of the keys {', '.join(_STEPS)}, loop, a string")
    name = row.get("name", "")
    if not isinstance(name, str):
        raise MegccError(f"{where}: 'name' is a string")
    rest = {key: value for key, value in row.items() if key not in ("name", kinds[0])}
    return _STEPS[kinds[0]](row[kinds[0]], name, rest, where, models)


def _network(path: str, name: str, row: dict[str, Any], where: str, models: Path) -> Step:
    settings_of_step = {key: value for key, value in row.items() if key not in ("inputs", "outputs", "reorder")}
    if not isinstance(row.get("reorder", ""), str):
        raise MegccError(f"{where}: 'reorder' is a string, the name of a value")
    options = checked(settings_of_step, OPTIONS, where, models)
    return Network(str(models / path), _strings(row.get("inputs"), f"{where}: 'inputs'"),
                   _strings(row.get("outputs"), f"{where}: 'outputs'"), options, row.get("reorder", ""), name=name)


def _operator(operator: str, name: str, row: dict[str, Any], where: str, models: Path) -> Step:
    _require_keys(row, ("inputs", "outputs", "attributes", "extern"), where)
    if not isinstance(row.get("inputs"), list):
        raise MegccError(f"{where}: 'inputs' is a list of values and numbers")
    attributes, extern = row.get("attributes", {}), row.get("extern", "")
    if not isinstance(attributes, dict) or not isinstance(extern, str):
        raise MegccError(f"{where}: 'attributes' is {_TABLE}, 'extern' a string")
    return Operator(operator, row["inputs"], _names(row.get("outputs"), f"{where}: 'outputs'"), attributes,
                    str(models / extern) if extern else "", name=name)


def _of_function(kind: type[Image | Feature], settings: Mapping[str, Any]) -> Callable[..., Step]:
    """Returns the reader of steps with one input and one output. settings: the keys of each function."""
    def read_step(function: str, name: str, row: dict[str, Any], where: str, models: Path) -> Step:
        if function not in settings:
            raise MegccError(f"{where}: there is no {kind.kind} function '{function}'; there are {', '.join(settings)}")
        _require_keys(row, ("input", "output", *settings[function]), where)
        for key in ("input", "output"):
            if not isinstance(row.get(key), str):
                raise MegccError(f"{where}: '{key}' is a string, the name of a value")
        settings_of_step = {key: value for key, value in row.items() if key in settings[function]}
        return kind(function, row["input"], row["output"], settings_of_step, name=name)
    return read_step


def _of_names(kind: str) -> Callable[..., Step]:
    """Returns the reader of steps whose inputs and outputs have names of their own."""
    step, functions = KINDS[kind]

    def read_step(function: str, name: str, row: dict[str, Any], where: str, models: Path) -> Step:
        if function not in functions:
            raise MegccError(f"{where}: there is no {kind} function '{function}'; there are {', '.join(functions)}")
        keys = functions[function].keys
        _require_keys(row, ("inputs", "outputs", *keys), where)
        settings_of_step = {key: value for key, value in row.items() if key in keys}
        for key in functions[function].paths:
            if key in settings_of_step:
                if not isinstance(settings_of_step[key], str):
                    raise MegccError(f"{where}: '{key}' is a string, a path")
                settings_of_step[key] = str(models / settings_of_step[key])
        return step(function, _strings(row.get("inputs"), f"{where}: 'inputs'"),
                    _strings(row.get("outputs"), f"{where}: 'outputs'"), settings_of_step, name=name)
    return read_step


def _tokenizer(path: str, name: str, row: dict[str, Any], where: str, models: Path) -> Step:
    _require_keys(row, ("inputs", "outputs", *TOKENIZER_KEYS), where)
    return Tokenizer(str(models / path), _strings(row.get("inputs"), f"{where}: 'inputs'"),
                     _strings(row.get("outputs"), f"{where}: 'outputs'"),
                     {key: value for key, value in row.items() if key in TOKENIZER_KEYS}, name=name)


_STEPS: dict[str, Callable[..., Step]] = {"network": _network, "operator": _operator,
                                          "image": _of_function(Image, IMAGES),
                                          "feature": _of_function(Feature, FEATURES),
                                          "tokenizer": _tokenizer,
                                          **{kind: _of_names(kind) for kind in KINDS}}
