# SPDX-License-Identifier: Apache-2.0
"""`megcc list`: the tables of targets, kernels and operators, read from their declarations."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import MissingTool
from ...ops.base import OPERATORS
from ...runtime.toolchain import find_compiler, find_emulator
from ...target import TARGETS, native
from ..columns import aligned


def targets() -> dict:
    """Returns every target, with whether this machine can build for it, and how it runs it."""
    rows = []
    for target in TARGETS.values():
        rows.append({"name": target.name, "isa": target.isa.name, "description": target.description,
                     "native": target == native(), "compiler": _or_none(lambda t=target: str(find_compiler(t))),
                     "runs": _or_none(lambda t=target: " ".join(find_emulator(t)) or "here")})
    return {"title": "targets", "columns": ["name", "isa", "description", "runs", "compiler"], "rows": rows}


def kernels() -> dict:
    """Returns every candidate kernel of every operator."""
    rows = [{"operator": kind, "kernel": kernel.name, "fuses epilogue": "yes" if kernel.fuses_epilogue else "",
             "about": (type(kernel).__doc__ or "").strip().splitlines()[0] if type(kernel).__doc__ else ""}
            for kind, declaration in sorted(OPERATORS.items()) for kernel in declaration.kernels]
    return {"title": "kernels", "columns": ["operator", "kernel", "fuses epilogue", "about"], "rows": rows}


def ops() -> dict:
    """Returns every operator with the names it is imported from."""
    rows = [{"operator": kind, "operands": ", ".join(declaration.operands), "onnx": ", ".join(declaration.onnx),
             "relax": ", ".join(declaration.relax), "kernels": len(declaration.kernels)}
            for kind, declaration in sorted(OPERATORS.items())]
    return {"title": "operators", "columns": ["operator", "operands", "onnx", "kernels"], "rows": rows}


def text(table: dict) -> str:
    """Returns a table with aligned columns, the native target marked."""
    rows = [[_cell(row.get(column)) for column in table["columns"]] for row in table["rows"]]
    for cells, row in zip(rows, table["rows"], strict=True):
        if row.get("native"):
            cells[0] += " (native)"
    return "\n".join(aligned((table["columns"], *rows), range(len(table["columns"])))) + "\n"


def _cell(value) -> str:
    return "-" if value is None else str(value)


def _or_none(ask: Callable[[], str]) -> str | None:
    try:
        return ask()
    except MissingTool:
        return None


TABLES = {"targets": targets, "kernels": kernels, "ops": ops}
