# SPDX-License-Identifier: Apache-2.0
"""`megcc compile --config FILE`: several models and their options from one description, JSON or TOML.

The description has keys for all models and, in `models`, a table for each one, whose keys override those for all.
Options of the command line override both. Paths are relative to the file.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union

from .. import folders
from ..errors import MegccError
from ..foreign import printable
from ..options import CompileOptions, all_options

#: The kind of a value (`options.Option`), or the strings that it may be.
Kind = Union[str, tuple[str, ...]]
#: Key -> (name, kind of value), for keys of a model or of all models.
OPTIONS: dict[str, tuple[str, Kind]] = {option.key: (name, option.kind) for name, option in all_options()}
#: Further keys of a table in `models`.
OF_MODEL: dict[str, tuple[str, Kind]] = {"path": ("path", "path"), "name": ("name", "string")}
#: Further keys of the file.
OF_FILE: dict[str, tuple[str, Kind]] = {
    "output": ("output", "path"), "target": ("target", "string"), "embed": ("embed", "flag"),
    "weights": ("weights", ("file", "text", "incbin")), "force": ("force", "flag")}
#: The largest size of a description in bytes.
MOST_BYTES = 1 << 24
#: Characters that are possible in JSON, but not in file names or command lines.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


class Model(NamedTuple):
    """A model of a description. options: the fields of `CompileOptions` that the description gives for it."""

    path: str
    name: str
    options: dict[str, Any]


def read(path: str | Path) -> tuple[dict[str, Any], list[Model]]:
    """Reads a description. Returns the settings of the folder, by the names in `OF_FILE`, and the models.

    Raises:
        MegccError: if the file cannot be read, has an unknown key or an invalid value, or no models.
    """
    path = Path(path)
    found = parsed(path)
    rows = found.pop("models", None) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise MegccError(f"{path} has no 'models': a list of objects, each with a 'path' at least")
    of_all = checked(found, {**OPTIONS, **OF_FILE}, str(path), path.parent)
    folder = {name: of_all.pop(name) for name in OF_FILE if name in of_all}
    models = []
    for index, row in enumerate(rows):
        where = f"{path}, models[{index}]"
        options = checked(row, {**OPTIONS, **OF_MODEL}, where, path.parent)
        if "path" not in options:
            raise MegccError(f"{where} has no 'path'")
        model = options.pop("path")
        models.append(Model(model, options.pop("name", Path(model).stem), {**of_all, **options}))
    return folder, models


def parsed(path: Path) -> Any:
    """Returns what is in a file of TOML, if it is called so, or JSON; MegccError if it cannot be read."""
    try:
        text = folders.read(path, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise MegccError(f"{path} cannot be read: {reason}") from None
    try:
        if path.suffix == ".toml":
            try:
                import tomllib
            except ImportError:
                raise MegccError(f"{path}: this Python reads no TOML (3.11 does); write it as JSON") from None
            return tomllib.loads(text)
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MegccError(f"{path} is no {'TOML' if path.suffix == '.toml' else 'JSON'}: {error}") from None


def require_key(key: str, keys: Iterable[str], where: str) -> None:
    """Raises MegccError if a key is none of these."""
    if key not in (known := list(keys)):
        similar = difflib.get_close_matches(key, known, 1)
        raise MegccError(f"{where}: '{printable(key)}' is no key" + (f", did you mean '{similar[0]}'?" if similar else
                                                                    f"; there are {', '.join(known)}"))


def checked(row: Mapping[str, Any], keys: Mapping[str, tuple[str, Kind]], where: str, base: Path) -> dict[str, Any]:
    """Checks keys and values of a table. Returns the values by name.

    Args:
        row: the table. keys: the keys that it may have.
        where: the table's place in the file, for error messages.
        base: the folder that paths are relative to.

    Raises:
        MegccError: for an unknown key or an invalid value.
    """
    values: dict[str, Any] = {}
    for key, value in row.items():
        require_key(key, keys, where)
        name, kind = keys[key]
        values[name] = _value(value, kind, f"{where}: '{key}'", base)
        if key in OPTIONS:
            try:
                CompileOptions(**{name: values[name]})
            except MegccError as error:
                raise MegccError(f"{where}: {error}") from None
    return values


def _value(value: Any, kind: Kind, where: str, base: Path) -> Any:
    """Returns a value of this kind, paths joined with `base`. Raises MegccError if it is of another kind."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and _UNUSABLE.search(text):
            raise MegccError(f"{where} has a character that no name can have: U+0000, or half of a character (a "
                             "surrogate)")
    if isinstance(kind, tuple):
        if value in kind:
            return value
        raise MegccError(f"{where} is {' or '.join(kind)}")
    if kind in ("strings", "paths"):
        value = [value] if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(text, str) for text in value):
            return [str(base / text) for text in value] if kind == "paths" else value
        raise MegccError(f"{where} is a string or a list of strings")
    if kind == "flag":
        fits, expected = isinstance(value, bool), "true or false"
    elif kind in ("count", "bytes"):
        fits = isinstance(value, (int, str)) and not isinstance(value, bool)
        expected = "a number of at least 1" if kind == "count" else 'a number of bytes, such as 4096, "256K" or "100M"'
    else:
        fits, expected = isinstance(value, str), "a string"
    if not fits or (kind == "count" and value == 0):
        raise MegccError(f"{where} is {expected}")
    return str(base / value) if kind == "path" else value


def page() -> str:
    """Returns the table of docs/command.md."""
    expected = {"string": "string", "path": "path", "strings": "string or list", "paths": "path or list",
            "flag": "true or false", "count": "number", "bytes": "number or string"}
    rows = [(key, kind, "the folder") for key, (_, kind) in OF_FILE.items()]
    rows += [(key, kind, "a model") for key, (_, kind) in OF_MODEL.items()]
    rows += [(key, kind, "a model, or all of them") for key, (_, kind) in OPTIONS.items()]
    return "\n".join(["| key | value | of |", "|---|---|---|",
                      *(f"| `{key}` | {expected.get(kind) if isinstance(kind, str) else ' or '.join(kind)} | {of} |"
                        for key, kind, of in rows)])
