# SPDX-License-Identifier: Apache-2.0
"""`megcc compile --config FILE`: several models and their options from one description, JSON or TOML.

The description has keys for all models and, in `models`, a row for each, whose keys go before those for all. What
the command line says goes before both. Paths are relative to the file.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from .. import folders
from ..errors import MegccError
from ..foreign import printable

#: Key -> name in the parsed command line, what it takes: "text", "path", "texts" (one or a list), "paths", "flag",
#: "count" or the words that it may be. Those of a model and of all models.
OPTIONS: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "input-shapes": ("input_shapes", "text"), "dispatch": ("dispatch", "text"), "dim": ("dim", "texts"),
    "input": ("input", "texts"),
    "output-names": ("output_names", "texts"), "constant": ("constant", "texts"), "bound": ("bound", "texts"),
    "state": ("state", "texts"), "signature": ("signature", "text"),
    "extern": ("extern", "paths"), "log": ("log", "path"), "optimize": ("optimize", ("speed", "size")),
    "threads": ("threads", "count"), "keep-inputs": ("keep_inputs", "flag"),
    "ram": ("ram", "count"), "flash": ("flash", "count"), "caller-inputs": ("caller_inputs", "flag"),
    "region": ("region", "text"), "reproducible": ("reproducible", "flag"),
    "half": ("half", "flag"),
    "stream": ("stream", "text")}
#: Those of a row of `models` besides.
OF_MODEL: dict[str, tuple[str, str | tuple[str, ...]]] = {"path": ("path", "path"), "name": ("name", "text")}
#: Those of the file besides.
OF_FILE: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "output": ("output", "path"), "target": ("target", "text"), "embed": ("embed", "flag"), "force": ("force", "flag")}


def read(path: str | Path, options: argparse.Namespace, given: Collection[str]
         ) -> tuple[argparse.Namespace, list[argparse.Namespace]]:
    """The options of the command line with what the file says: for the folder, and for each model with its `path`
    and `name`.

    Args:
        given: names of options that the command line has.

    Raises:
        MegccError: if the file cannot be read, has a key that is none or a value that does not fit it, or no models.
    """
    path = Path(path)
    found = _parsed(path)
    rows = found.pop("models", None) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise MegccError(f"{path} has no 'models': a list of objects, each with a 'path' at least")
    said = {name: getattr(options, name) for name in given}
    every = _checked(found, {**OPTIONS, **OF_FILE}, str(path), path.parent)
    models = []
    for index, row in enumerate(rows):
        where = f"{path}, models[{index}]"
        own = _checked(row, {**OPTIONS, **OF_MODEL}, where, path.parent)
        if "path" not in own:
            raise MegccError(f"{where} has no 'path'")
        own.setdefault("name", Path(own["path"]).stem)
        models.append(argparse.Namespace(**{**vars(options), **every, **own, **said}))
    return argparse.Namespace(**{**vars(options), **every, **said}), models


def _parsed(path: Path) -> Any:
    try:
        text = folders.read(path, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MegccError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
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


def _checked(row: Mapping[str, Any], keys: Mapping[str, tuple[str, str | tuple[str, ...]]], where: str,
             base: Path) -> dict[str, Any]:
    """The values by their names in the parsed command line."""
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            raise MegccError(f"{where}: '{printable(key)}' is no key" + (f", did you mean '{near[0]}'?" if near else
                                                                        f"; there are {', '.join(keys)}"))
        name, kind = keys[key]
        values[name] = _value(value, kind, f"{where}: '{key}'", base)
    return values


#: Of a description.
MOST_BYTES = 1 << 24
#: What JSON can spell, and no file, name or command line has.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


def _value(value: Any, kind: str | tuple[str, ...], where: str, base: Path) -> Any:
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and _UNUSABLE.search(text):
            raise MegccError(f"{where} has a character that no name can have: U+0000, or half of a character (a "
                             "surrogate)")
    if isinstance(kind, tuple):
        if value in kind:
            return value
        raise MegccError(f"{where} is {' or '.join(kind)}")
    if kind in ("texts", "paths"):
        value = [value] if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(text, str) for text in value):
            return [str(base / text) for text in value] if kind == "paths" else value
        raise MegccError(f"{where} is a text or a list of texts")
    wanted, said = {"text": (str, "a text"), "path": (str, "a text"), "flag": (bool, "true or false"),
                    "count": (int, "a number of at least 1")}[kind]
    if not isinstance(value, wanted) or (kind == "count" and (isinstance(value, bool) or value < 1)):
        raise MegccError(f"{where} is {said}")
    return str(base / value) if kind == "path" else value


def page() -> str:
    """The table of docs/command.md."""
    said = {"text": "text", "path": "path", "texts": "text or list", "paths": "path or list", "flag": "true or false",
            "count": "number"}
    rows = [(key, kind, "the folder") for key, (_, kind) in OF_FILE.items()]
    rows += [(key, kind, "a model") for key, (_, kind) in OF_MODEL.items()]
    rows += [(key, kind, "a model, or all of them") for key, (_, kind) in OPTIONS.items()]
    return "\n".join(["| key | value | of |", "|---|---|---|",
                      *(f"| `{key}` | {said.get(kind) if isinstance(kind, str) else ' or '.join(kind)} | {of} |"
                        for key, kind, of in rows)])
