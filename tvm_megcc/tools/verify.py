# SPDX-License-Identifier: Apache-2.0
"""`megcc verify`: computes a hash of a model's results on reproducible inputs, on every target of its folder.

Inputs do not depend on numpy's generators, so that a device can compute them too: element i of input k in run r is
computed from `mixed(i + 2^20 * k + 2^28 * r)`, see `test_input`. The hash is SHA-256 over the outputs of all runs, in
order, as little-endian bytes. Every NaN counts as numpy's (0x7fc00000 in float32), since CPUs differ in its bits.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..codegen.bundle import MANIFEST, read_manifest
from ..errors import MegccError, MissingTool
from ..ir.narrow import is_float
from ..runtime.build import building_in, model_of
from ..runtime.load import load
from ..runtime.session import Port, Session
from ..target import TARGETS, Target

#: The number of runs of a model with states, so that these affect the hash.
RUNS = 3


def mixed(index: np.ndarray) -> np.ndarray:
    """Hashes each index to 32 bits, by the finaliser of MurmurHash3."""
    x = index.astype(np.uint32)
    for shift, factor in ((16, 0x85ebca6b), (13, 0xc2b2ae35)):
        x = (x ^ x >> np.uint32(shift)) * np.uint32(factor)
    return x ^ x >> np.uint32(16)


def test_input(port: Port, input_index: int, run: int) -> np.ndarray:
    """Returns an input, computed from 32 hashed bits for each element: floats are multiples of 2^-7 in [-1, 1), from
    the upper 8 bits; bool is the lowest bit; integers are in the range that is known to be valid, else the upper 8 bits
    for 8-bit integers, and from 0 to 9 for wider ones.

    Raises:
        MegccError: if its shape changes from run to run.
    """
    if not all(isinstance(extent, int) for extent in port.shape):
        raise MegccError(f"input {port} has no fixed shape, so there is no one result: compile with --input-shapes")
    dtype = np.dtype(port.dtype)
    count = int(np.prod(port.shape, dtype=np.int64))
    bits = mixed(np.arange(count, dtype=np.uint64) + (input_index << 20) + (run << 28))
    if is_float(port.dtype):
        values = ((bits >> np.uint32(24)).astype(np.int32) - 128) / np.float32(128)
    elif port.range is not None:
        lower, upper = port.range
        values = lower + bits.astype(np.int64) % (upper - lower + 1)
    elif dtype.kind == "b":
        values = bits & np.uint32(1)
    elif dtype.itemsize == 1:
        values = (bits >> np.uint32(24)).astype(np.uint8).view(dtype)
    else:
        values = bits % np.uint32(10)
    return np.asarray(values).astype(dtype).reshape(port.shape)


def digest(session: Session) -> str:
    """Returns the hash of a session's results, starting from its initial states, to which it is reset afterwards."""
    found = hashlib.sha256()
    session.reset()
    for run in range(RUNS if session.state_of else 1):
        outputs = session.run({port.name: test_input(port, index, run) for index, port in enumerate(session.inputs)})
        for port in session.outputs:
            value = outputs[port.name]
            array = np.ascontiguousarray(port.strings.codes(value, {}) if port.strings else value)
            if is_float(array.dtype.name):
                array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
            found.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    session.reset()
    return found.hexdigest()


def verify(folder: Path, targets: Sequence[Target] = (), cc: str | None = None, model: str | None = None,
           record: bool = False) -> dict:
    """Runs a model on targets of its folder, and compares the hashes with those in its manifest.

    Args:
        targets: by default all of the folder's; those that cannot be built or run here are left out, by name.
        record: write the hashes into the manifest.

    Returns:
        A report with `equal`: whether each hash is the manifest's for this target or, for a model without floats or
        compiled to be reproducible, that of any target.

    Raises:
        MegccError: if it is not a generated folder, is not for a target, or the model's shapes are dynamic.
        MissingTool: if none of the targets runs here.
        ToolError: if a build fails.
    """
    row = model_of(read_manifest(folder), model, folder)
    name, asked = row["name"], targets or [TARGETS[target] for target in row["targets"]]
    rows, message = [], ""
    for target in asked:
        try:
            with load(folder, target, cc, name) as session:
                rows.append({"target": target.name, "sha256": digest(session)})
        except MissingTool as missing:
            message = str(missing)
            rows.append({"target": target.name, "missing": message.splitlines()[0]})
    found = {row["target"]: row["sha256"] for row in rows if "sha256" in row}
    if not found:
        raise MissingTool(f"none of the targets of {folder} runs here: {message}")
    floats = any(text.startswith(("float", "bfloat")) for text in (
        *(port["dtype"] for port in (*row["inputs"], *row["outputs"])),
        *(call["type"] for program in row["programs"] for call in program["calls"])))
    one_for_all = not floats or row["options"].get("reproducible", False)
    recorded = row.get("digests", {})
    # Where all targets have one result, it is that of any target in the manifest, else of the first one that ran.
    wanted = {target: recorded[target] for target in found if target in recorded}
    if one_for_all:
        one = next(iter(recorded.values()), next(iter(found.values())))
        wanted = dict.fromkeys(found, one) | wanted
    wrong = [target for target, value in wanted.items() if found[target] != value]
    if record and not wrong:
        _record(folder, name, found)
    for line in rows:
        if line["target"] in wanted:
            line["equal"] = line["target"] not in wrong
    return {"model": name, "floats": not one_for_all, "targets": rows, "recorded": recorded, "equal": not wrong,
            "written": record and not wrong}


def _record(folder: Path, name: str, found: Mapping[str, str]) -> None:
    with building_in(folder):
        manifest = copy.deepcopy(read_manifest(folder))
        row = next(row for row in manifest["models"] if row["name"] == name)
        row["digests"] = dict(sorted({**row.get("digests", {}), **found}.items()))
        (folder / MANIFEST).write_bytes((json.dumps(manifest, indent=1) + "\n").encode())


def text(report: dict) -> str:
    lines = [f"{report['model']}: SHA-256 of its outputs"]
    width = max(len(row["target"]) for row in report["targets"])
    for row in report["targets"]:
        cell = row["sha256"] if "sha256" in row else f"left out: {row['missing']}"
        verdict = ""
        if "equal" in row:
            same = "as recorded" if row["target"] in report["recorded"] else "the same"
            verdict = f"  {same if row['equal'] else 'OTHER BITS'}"
        lines.append(f"  {row['target']:{width}}  {cell}{verdict}")
    different = len({row["sha256"] for row in report["targets"] if "sha256" in row})
    if report["floats"] and different > 1:
        lines.append(f"  {different} results: floats may differ in their last digits from target to target "
                     "(docs/reproducible.md); compiled with --reproducible they have one")
    if report["written"]:
        lines.append("  written into manifest.json")
    return "\n".join(lines) + "\n"
