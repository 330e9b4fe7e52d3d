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
from .description import Feature, Image, Network, Operator, State, Step
from .features import SETTINGS as FEATURES
from .images import SETTINGS as IMAGES
from .kinds import KINDS

_TABLE = "a table"


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
    lines = _lines_of_steps(path, len(found["step"]))
    steps = [replace(_step(row, f"{path}: {f'line {line}: ' if line else ''}step {index + 1}", models), line=line)
             for index, (row, line) in enumerate(zip(found["step"], lines, strict=True))]
    return {"name": found.get("name", identifier(path.stem)), "inputs": _strings(found["inputs"], f"{path}: [inputs]"),
            "outputs": _names(found["outputs"], f"{path}: 'outputs'"), "states": states, "steps": steps,
            "sample_rates": found.get("sample-rates", {})}


def _lines_of_steps(path: Path, count: int) -> list[int]:
    """Returns the line of each [[step]]; zeros if the file is no TOML or has them in another way."""
    lines = [index + 1 for index, line in enumerate(path.read_text("utf-8").split("\n"))
             if re.match(r"\s*\[\[\s*step\s*\]\]", line)]
    return lines if len(lines) == count else [0] * count


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
        raise MegccError(f"{where} has one of the keys {', '.join(_STEPS)}, a string")
    name = row.get("name", "")
    if not isinstance(name, str):
        raise MegccError(f"{where}: 'name' is a string")
    rest = {key: value for key, value in row.items() if key not in ("name", kinds[0])}
    return _STEPS[kinds[0]](row[kinds[0]], name, rest, where, models)


def _network(path: str, name: str, row: dict[str, Any], where: str, models: Path) -> Step:
    settings_of_step = {key: value for key, value in row.items() if key not in ("inputs", "outputs")}
    options = checked(settings_of_step, OPTIONS, where, models)
    return Network(str(models / path), _strings(row.get("inputs"), f"{where}: 'inputs'"),
                   _strings(row.get("outputs"), f"{where}: 'outputs'"), options, name=name)


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


_STEPS: dict[str, Callable[..., Step]] = {"network": _network, "operator": _operator,
                                          "image": _of_function(Image, IMAGES),
                                          "feature": _of_function(Feature, FEATURES),
                                          **{kind: _of_names(kind) for kind in KINDS}}
