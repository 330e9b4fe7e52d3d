# SPDX-License-Identifier: Apache-2.0
"""A description of a generated folder, or of a build of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...codegen.bundle import read_manifest
from ...errors import shortened
from ...ir.streams import Streamed
from ...runtime.build import Build
from ...runtime.emulator import firmware


def folder(path: Path) -> dict:
    """Returns the models of the folder's manifest, and how many of its files and kernels there are."""
    manifest = read_manifest(path)
    files = [name for name in manifest["files"] if (path / name).exists()]
    return {
        "folder": str(path),
        "models": manifest["models"],
        "kernels": sum(name.startswith("kernels/") and name.endswith(".c") for name in files),
        "files": len(files),
    }


def _begin(state: dict) -> str:
    """Returns a text on the initial value of a state; "" for zeros."""
    first = state.get("begins", ())
    return f", {first[0]} at first" if len(first) == 1 else ", at first as the model says" if first else ""


def folder_text(report: dict) -> str:
    lines = [f"{report['folder']}: {report['kernels']} kernels, {report['files']} files"]
    for model in report["models"]:
        lines.append(f"model {model['name']}, {model['container_bytes']:,} bytes")
        lines += [f"  in   {_port(port)}" for port in model["inputs"]]
        lines += [f"  out  {_port(port)}" for port in model["outputs"]]
        lines += [f"  state {row['output']} becomes {row['input']}"
                  f"{', how many rows there are' * _is_row_count(model, row)}{_begin(row)}" for row in model["states"]]
        lines += _stream(model["stream"]) if "stream" in model else []
        for program in model["programs"]:
            macs = sum(call["macs"] for call in program["calls"])
            ratio = program["arena_bytes"] / program["lower_bound"] if program["lower_bound"] else 1.0
            lines.append(f"  {program['target']}: {program['instructions']} calls, {macs / 1e6:,.2f} M multiply-adds, "
                         f"weights {program['weight_bytes']:,} bytes{_unpacked(program)}, "
                         f"arena {program['arena_bytes']:,} bytes ({ratio:.3f} of the lower bound)")
            lines += [f"    {row['bytes']:,} bytes of the arena in {row['name']}" for row in program.get("regions", ())]
            lines += [f"    {rows['strips']} strips of rows from {shortened(rows['first'])} to "
                      f"{shortened(rows['last'])}: {rows['macs']:,} multiply-adds are done twice, "
                      f"{rows['kept']:,} bytes are kept between strips"
                      for rows in program.get("rows", ())]
        if len(model["programs"]) > 1:
            lines += [f"  stored once: {_weights(row, len(model['programs']))}" for row in model["weights"]]
    return "\n".join(lines) + "\n"


def _is_row_count(model: dict, state: dict) -> bool:
    return state["input"] in model.get("counters", ())


def _stream(row: dict) -> list[str]:
    return [f"  {line}" for line in Streamed.of(row).text().splitlines()]


def _unpacked(program: dict) -> str:
    """Returns a text on the bytes that packing adds to the weights; "" for less than a tenth."""
    adds_tenth = program["weight_bytes"] > 1.1 * program.get("unpacked_bytes", program["weight_bytes"])
    return f" ({program['unpacked_bytes']:,} in the model: -O size keeps them so)" if adds_tenth else ""


def _weights(row: dict, programs: int) -> str:
    """Describes the weights that some programs read. Weights that not all programs share are named, since each further
    layout costs bytes."""
    if len(row["targets"]) == programs:
        return f"{row['bytes']:,} bytes of weights that all targets read"
    names = ", ".join(map(shortened, row["weights"][:4])) + (", …" if len(row["weights"]) > 4 else "")
    only = " and ".join(row["targets"])
    return f"{row['bytes']:,} bytes that only {only} read{'s' * (len(row['targets']) == 1)}: {names}"


def build(builds: Sequence[Build]) -> dict:
    """Describes a build of a folder: a library or program for each model, or one firmware."""
    first = builds[0]
    products = [path for built in builds for path in (built.library, built.program) if path is not None]
    report = {"folder": str(first.folder), "target": str(first.target), "compiler": str(first.compiler),
              "products": [{"path": str(path), "bytes": path.stat().st_size} for path in products]}
    if first.target.bare_metal:
        report["firmware"] = firmware.sizes(first.program)
    return report


def build_text(report: dict) -> str:
    lines = [f"{report['folder']} for {report['target']}, {report['compiler']}"]
    lines += [f"  {product['path']}  {product['bytes']:,} bytes" for product in report["products"]]
    if "firmware" in report:
        needs = report["firmware"]
        lines.append(f"  flash {needs['flash']:,} bytes, {firmware.needs_text(needs)}")
    return "\n".join(lines) + "\n"


def _port(port: dict) -> str:
    """Returns a port's type, and the meaning of its elements if the type does not tell."""
    text = f"{port['name']}  {port['dtype']}[{','.join(map(str, port['shape']))}]"
    if port.get("text"):
        text += ", strings: indices in the table of the model"
    if "filled" in port:
        filled = port["filled"]
        text += f", of which {filled['past']} + {filled['new']} along axis {filled['axis']} count"
    return text
