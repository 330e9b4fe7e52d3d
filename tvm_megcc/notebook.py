# SPDX-License-Identifier: Apache-2.0
"""Views of reports and compiled models in a notebook: HTML without scripts. All text is escaped; a picture is embedded
as an image, in which no script runs."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import shortened

#: The largest number of rows of a table, and of characters of a cell.
MAX_ROWS, MAX_CELL = 200, 160


def page(title: str, *parts: str) -> str:
    """Returns parts, each a piece of HTML, under a heading."""
    return "\n".join((f"<div><h4>{escaped(title)}</h4>", *parts, "</div>"))


def escaped(value: object) -> str:
    return html.escape(shortened(str(value), MAX_CELL))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table. Numbers are right-aligned; integers have commas, fractions four significant digits."""
    def cell(value: object) -> str:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            shown = f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{value:,.4g}"
            return f'<td style="text-align:right">{shown}</td>'
        return f'<td style="text-align:left">{escaped(value)}</td>'

    head = "".join(f"<th>{escaped(column)}</th>" for column in columns)
    body = "\n".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def picture(svg: str, about: str) -> str:
    """Returns an image. svg: its text. about: its alternative text."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escaped(about)}" style="max-width:100%" src="data:image/svg+xml;base64,{data}"/>'


def folded(summary: str, *parts: str) -> str:
    """Returns a section that opens on a click."""
    return "\n".join((f"<details><summary>{escaped(summary)}</summary>", *parts, "</details>"))


def report(facts: Mapping[str, Any], text: str) -> str:
    """Returns the view of a report of the command: its facts as tables, and its text, which opens on a click."""
    first, *rest = text.split("\n")
    full_text = [folded("as the command prints it", f"<pre>{html.escape(text)}</pre>")] if rest else []
    return page(first, *_facts(facts), *full_text)


def _facts(facts: Mapping[str, Any]) -> list[str]:
    """Returns a table of the facts that are single values, and a table for each fact that is a list of mappings."""
    single: list[tuple[str, object]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            single += [(f"{name} {key}", _cell(part)) for key, part in value.items()]
        elif not _is_rows(value):
            single.append((name, _cell(value)))
    parts = [table(("", ""), single)] if single else []
    for name, value in facts.items():
        if _is_rows(value):
            parts += [f"<h5>{escaped(name)}</h5>", *_rows(value)]
    return parts


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a table of rows; rows inside them have tables of their own, which open on a click."""
    shown = rows[:MAX_ROWS]
    columns = list(dict.fromkeys(name for row in shown for name, value in row.items() if not _is_rows(value)))
    parts = [table(columns, ([_cell(row.get(name)) for name in columns] for row in shown))] if columns else []
    if len(rows) > len(shown):
        parts.append(f"<p>… and {len(rows) - len(shown):,} more</p>")
    for index, row in enumerate(shown):
        parts += [folded(f"{name} of {row.get('name', row.get('target', index))}", *_rows(value))
                  for name, value in row.items() if _is_rows(value)]
    return parts


def _is_rows(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _cell(value: object) -> object:
    """Returns a number as it is, and anything else as text."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_cell(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(_cell(part)) for part in value)
    return value if isinstance(value, (int, float)) else str(value)


def model(title: str, facts: Mapping[str, Any], memory: str, target: str) -> str:
    """Returns the view of a compiled model.

    Args:
        title: heading of the view.
        facts: the contents of the manifest.
        memory: picture of the arena, an SVG, or "".
        target: the target whose kernel calls are listed.
    """
    ports = [(kind, port["name"], f"{port['dtype']}[{','.join(map(str, port['shape']))}]")
             for kind in ("inputs", "outputs") for port in facts[kind]]
    sizes = [(program["target"], len(program["calls"]),
              round(sum(call["macs"] for call in program["calls"]) / 1e6, 3),
              program["weight_bytes"], program["arena_bytes"], program["lower_bound"]) for program in facts["programs"]]
    calls = next(program["calls"] for program in facts["programs"] if program["target"] == target)
    plan = folded("memory: time to the right, addresses upwards", picture(memory, "memory plan")) if memory else ""
    left_out = [f"<p>… and {len(calls) - MAX_ROWS:,} more</p>"] if len(calls) > MAX_ROWS else []
    return page(
        title,
        table(("", "name", "type"), ((kind[:-1], *port) for kind, *port in ports)),
        table(("target", "kernel calls", "M multiply-adds", "bytes of weights", "bytes of arena", "lower bound"),
              sizes),
        plan,
        folded(f"{len(calls):,} kernel calls for {target}", table(
            ("", "operator", "origin", "kernel", "result", "multiply-adds"),
            ((index, call["kind"], call["origin"] or call["output"], call["kernel"], call["type"], call["macs"])
             for index, call in enumerate(calls[:MAX_ROWS]))), *left_out))
