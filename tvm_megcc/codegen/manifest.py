# SPDX-License-Identifier: Apache-2.0
"""Reads the manifest of a generated folder (manifest.json, whose facts `facts.py` collects) and validates it. The file
is not trusted: anybody may have edited it."""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import folders
from ..errors import MegccError
from ..ir.types import DTYPES, ORDINARY
from ..target import TARGETS

MANIFEST = "manifest.json"
#: The subfolder with the results of a build, which is kept when the folder is replaced.
BUILD = "build"

# A form says what a JSON value must look like: it is a type, a tuple of types, a list with the form of its elements, or
# a dictionary with the forms of the required keys. Further keys are allowed. `facts.manifest` writes for some only:
#   of a port: `least`, the smallest shape; `limits`, the smallest and the largest value of each extent; `quant`, scale
#     and zero point; `range`, the lowest and highest valid value;
#     `text`, whether its elements are codes of strings; `filled`, how much of it a run reads (`ir.graph.CacheInput`);
#   of a state: `begins`, its initial value, a number for each element or one for all;
#   of a model: `counters`, the states that hold the number of rows in a KV cache; `texts`, its strings; `stream`.
# Others add to a model `embedded_bytes`, the size of its container for each machine (bundle.py), and `digests`, a
# SHA-256 of its outputs for each target (tools/verify.py).
_PORT = {"name": str, "dtype": str, "shape": [(int, str)]}
_CACHE_INPUT = {"axis": int, "past": str, "new": (int, str)}
_QUANT = {"scale": float, "zero_point": int}
_CALL = {"kernel": str, "kind": str, "origin": str, "output": str, "type": str, "instruction": int, "macs": int}
_PROGRAM = {"target": str, "tensors": int, "instructions": int, "workers": int, "arena_bytes": int, "lower_bound": int,
            "weight_bytes": int, "unpacked_bytes": int, "calls": [_CALL]}
_MODEL = {"name": str, "targets": [str], "container_bytes": int, "inputs": [_PORT], "outputs": [_PORT],
          "states": [{"output": str, "input": str}], "alignment": int, "buckets": [dict], "programs": [_PROGRAM],
          "weights": [{"targets": [str], "bytes": int, "weights": [str]}]}
_STREAM = {"axis": int, "block": int, "inputs": [str], "states": int, "state_bytes": int, "copied_bytes": int,
           "outputs": [{"name": str, "axis": int, "block": int, "latency": int,
                        "receptive_field": (int, type(None))}]}
_NETWORKS_PROGRAM = {"name": str, "inputs": [_PORT], "outputs": [_PORT], "texts": [str], "strings": [str],
                     "states": [str], "container_bytes": int, "block_bytes": int}
_MANIFEST = {"generator": str, "models": [_MODEL], "files": dict}


def read_manifest(folder: Path) -> dict:
    """Returns the manifest of a generated folder. Callers share it and must not change it.

    Raises:
        MegccError: for a path that does not exist or is a file, a folder that is not a generated one, and a damaged
            manifest.
    """
    folders.require_folder(folder)
    try:
        data = folders.read(folder / MANIFEST)
        manifest = _parsed(data)
        ours = manifest["generator"].startswith("tvm_megcc ")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        ours = False
    if not ours:
        raise MegccError(f"{folder} was not made by 'megcc compile': it has no {MANIFEST} of ours")
    if reason := _damage(data):
        raise MegccError(f"{folder / MANIFEST} is damaged: {reason}; compile the model again")
    return manifest


@lru_cache(maxsize=16)
def _parsed(data: bytes) -> dict:
    """Returns the JSON value of a manifest. Cached, since a process reads it several times."""
    return json.loads(data)


@lru_cache(maxsize=16)
def _damage(data: bytes) -> str:
    """Returns what is wrong with the text of a manifest; "" for nothing."""
    manifest = _parsed(data)
    return _deviation(manifest, _MANIFEST, "") or _deviation(manifest.get("others", []), [str], "others.") \
        or _contradiction(manifest) or _program_damage(manifest.get("program"))


def _program_damage(facts: Any) -> str:
    """Returns what is wrong with a manifest's facts about a program of several networks; "" for nothing."""
    if facts is None:
        return ""
    if reason := _deviation(facts, _NETWORKS_PROGRAM, "program."):
        return reason
    ports = [*facts["inputs"], *facts["outputs"]]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", facts["name"], re.ASCII) or any(
            port["dtype"] not in ORDINARY or not all(type(extent) is int and extent > 0 for extent in port["shape"])
            or not re.fullmatch(r"[a-z][a-z0-9_]*", port["name"], re.ASCII)
            or type(port.get("sample_rate", 1)) is not int for port in ports):
        return "the description of a program is invalid"
    return ""


def _deviation(value: Any, form: Any, where: str) -> str:
    """Returns where a value deviates from a form, as text; "" if it has the form. where: the path to the value."""
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return f"{where.strip('.') or 'it'} is no object"
        missing = next((key for key in form if key not in value), None)
        if missing is not None:
            return f"{where}{missing} is missing"
        return next(filter(None, (_deviation(value[key], part, f"{where}{key}.") for key, part in form.items())), "")
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where.strip('.')} is no list"
        if isinstance(form[0], dict) and _are_of_types(value, form[0]):
            return ""
        return next(filter(None, (_deviation(item, form[0], f"{where.strip('.')}[{index}].")
                                  for index, item in enumerate(value))), "")
    return "" if isinstance(value, form) and not isinstance(value, bool) else f"{where.strip('.')} is of another type"


def _are_of_types(values: list, form: dict) -> bool:
    """Returns whether all values have a form of types alone. The list of calls is long, and `_deviation` slow."""
    parts = list(form.items())
    return all(isinstance(part, type) for _, part in parts) and all(
        type(value) is dict and all(type(value.get(key)) is part for key, part in parts) for value in values)


def _is_initial_value(value: Any, port: dict | None) -> bool:
    """Whether `value` is an initial value of a state: as many numbers of its dtype as it has elements, or one for
    all. port: the state's input; None if the model has no such input."""
    if port is None or not isinstance(value, list) or not {type(number) for number in value} <= {int, float, bool}:
        return False
    extents = port["shape"]
    try:
        np.array(value, np.dtype(port["dtype"]))
    except (ValueError, OverflowError, TypeError):
        return False
    return len(value) == 1 or (all(isinstance(extent, int) for extent in extents) and len(value) == math.prod(extents))


def _contradiction(manifest: dict) -> str:
    """Returns a contradiction in a manifest of the right form; "" if there is none: names that refer to nothing, or
    that this version does not know."""
    if not manifest["models"]:
        return "it has no models"
    if any(re.search(r"[\\:\0]", name) or not {"", ".", ".."}.isdisjoint(name.split("/"))
           for name in manifest["files"]):
        return "a file is not below the folder"
    return next(filter(None, (check(model) for model in manifest["models"] for check in
                              (_optional_damage, _target_damage, _port_damage, _state_damage, _range_damage))), "")


def _optional_damage(model: dict) -> str:
    """Returns what is wrong with facts that only some models have."""
    if "stream" in model and _deviation(model["stream"], _STREAM, ""):
        return "the description of the stream is invalid"
    if _deviation(model.get("embedded_bytes", []), [int], ""):
        return "embedded_bytes is no list of numbers"
    if _deviation(model.get("texts", []), [str], "") or ("texts" not in model and any(
            "text" in port for port in _ports(model))):
        return "its strings are invalid"
    digests = [model.get("digests", {}), model.get("fused_digests", {})]
    if not all(isinstance(digest_of, dict) for digest_of in digests) or not all(
            isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value, re.ASCII)
            for digest_of in digests for value in digest_of.values()):
        return "the hash of outputs is invalid"
    return ""


def _target_damage(model: dict) -> str:
    """Returns what is wrong with the name, the targets and the programs of a model."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", model["name"], re.ASCII):
        return "the name of a model is no identifier"
    unknown = [name for name in model["targets"] if name not in TARGETS]
    if unknown or not model["targets"]:
        return f"'{unknown[0]}' is no target of this version" if unknown else "a model has no targets"
    if [program["target"] for program in model["programs"]] != model["targets"]:
        return "programs and targets differ"
    return ""


def _port_damage(model: dict) -> str:
    """Returns what is wrong with the inputs and outputs of a model."""
    ports = _ports(model)
    if any(port["dtype"] not in DTYPES for port in ports):
        return "an element type is unknown"
    if any(isinstance(extent, int) and extent < 0 for port in ports for extent in port["shape"]):
        return "a shape has an extent below 0"
    if any(_deviation(port["least"], [int], "") or len(port["least"]) != len(port["shape"]) or min(port["least"]) < 0
           for port in ports if "least" in port):
        return "the smallest shape of an input is invalid"
    if any(_deviation(port["quant"], _QUANT, "") or not 0 < port["quant"]["scale"] < math.inf
           for port in ports if "quant" in port):
        return "a scale or zero point is invalid"
    return ""


def _state_damage(model: dict) -> str:
    """Returns what is wrong with the states of a model."""
    states = {row["input"] for row in model["states"]}
    if _deviation(model.get("counters", []), [str], "") or not states.issuperset(model.get("counters", [])) or any(
            _deviation(port["filled"], _CACHE_INPUT, "") or port["filled"]["past"] not in states
            or not 0 <= port["filled"]["axis"] < len(port["shape"]) for port in _ports(model) if "filled" in port):
        return "the description of a KV cache is invalid"
    inputs = {port["name"]: port for port in model["inputs"]}
    if not all(_is_initial_value(row["begins"], inputs.get(row["input"])) for row in model["states"]
               if "begins" in row):
        return "the initial value of a state is invalid"
    return ""


def _range_damage(model: dict) -> str:
    """Returns what is wrong with the ranges of a model's values and shapes."""
    if any(_deviation(port["range"], [int], "") or len(port["range"]) != 2 for port in _ports(model)
           if "range" in port):
        return "the range of an input is invalid"
    if any(not isinstance(limits, list) or [type(limit) for limit in limits] not in ([int, int], [int, type(None)])
           for bucket in model["buckets"] for limits in bucket.values()):
        return "a range of shapes is invalid"
    return ""


def _ports(model: dict) -> list[dict]:
    return [*model["inputs"], *model["outputs"]]
