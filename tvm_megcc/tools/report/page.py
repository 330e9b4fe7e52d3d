# SPDX-License-Identifier: Apache-2.0
"""Writes the facts of `report` as one self-contained HTML page, with pictures by Bokeh, whose script is in the page.

Every text from a model is escaped by jinja2 or Bokeh. The page's Content-Security-Policy allows no other script and no
requests.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from ...codegen.memory_report import COLOURS
from ...errors import MissingTool, shortened
from .. import layers
from .graph_lanes import Lanes, lanes

#: The most bars in the chart of the slowest layers.
MOST_BARS = 24
#: Pixels of the table of the graph and the picture beside it: the height of a row, the distance of lanes, the radius of
#: a dot, and the distance of the outermost lanes from the edges.
ROW, LANE, DOT, MARGIN = 30, 16, 5, 14
#: Colours of kinds of operators, in the order of their time: the palette of Okabe and Ito, which is safe for the colour
#: blind.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c00", "#7f7f7f")


def page(report: Mapping) -> str:
    """Returns the page as HTML.

    Raises:
        ToolError: without Bokeh.
    """
    require_bokeh()
    from bokeh.embed import components
    from bokeh.resources import Resources

    from . import figures as report_figures

    rows = [{**row, "index": index} for index, row in enumerate(report["rows"])]
    calls = [row for row in rows if row["kernel"]]
    kinds = kinds_of(calls)
    colours = {total["kind"]: PALETTE[min(index, len(PALETTE) - 1)] for index, total in enumerate(kinds)}
    ordered = sorted(calls, key=lambda row: -row["time"])
    figures = {"time": report_figures.slowest(ordered[:MOST_BARS], colours, report["time"]["unit"]),
               "memory": report_figures.memory(report["memory"], [row["name"] for row in calls])}
    script, figures = components(figures, wrap_script=False)
    scripts = [*Resources(mode="inline", components=["bokeh"]).js_raw, script]
    nodes = [*(_port(port, "input") for port in report["inputs"]), *rows,
             *(_port(port, "output") for port in report["outputs"])]
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
                                     trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"short": shortened, "size": size_text, "count": count_text}
    return environment.get_template("report.html.j2").render(
        report=report, nodes=nodes, calls=calls, others=ordered[MOST_BARS:], kinds=kinds, colours=colours,
        largest=max([row["share"] for row in calls], default=0.0) or 1.0, figures=figures,
        graph=Markup(drawing(lanes([(row["reads"], row["makes"]) for row in nodes]), nodes, colours)),
        scripts=[Markup(text) for text in scripts], hashes=[_hash(text) for text in scripts],
        row_height=ROW, time_text=lambda time: time_text(time, report["time"]["unit"]))


def _port(port: Mapping, kind: str) -> dict:
    """Returns an input or output of the model as a row of the graph."""
    name = [port["name"]]
    return {"name": port["name"], "kind": kind, "types": [port["type"]], "kernel": "",
            "reads": name if kind == "output" else [], "makes": name if kind == "input" else []}


def require_bokeh() -> None:
    """Raises ToolError without Bokeh, saying what to install. Called before `report`, which takes a while."""
    if not importlib.util.find_spec("bokeh"):
        raise MissingTool("the report is drawn by Bokeh, which is not installed: pip install 'tvm_megcc[report]'")


def kinds_of(calls: Sequence[Mapping]) -> list[dict]:
    """Returns sums by kind of operator; `seconds` are in the report's unit."""
    return layers.kinds([{**row, "seconds": row["time"]} for row in calls])


def drawing(where: Lanes, nodes: Sequence[Mapping], colours: Mapping[str, str]) -> str:
    """Returns the picture of the graph next to its table: a dot for each row, and lines along lanes. It contains no
    text of the model."""
    def x(lane: int) -> int:
        return MARGIN + lane * LANE

    def y(row: int) -> int:
        return row * ROW + ROW // 2

    out = [f'<svg width="{2 * MARGIN + (where.width - 1) * LANE}" height="{len(nodes) * ROW}" '
           'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="the graph">',
           '<g fill="none" stroke="#9aa5b1" stroke-width="1.6">']
    # A line goes down in the lane of its source to the row above the reader, and then bends into the reader's lane.
    for source, begin, reader, end in where.edges:
        down, bend = y(reader - 1), ROW // 2
        out.append(f'<path d="M{x(begin)} {y(source)}V{down}C{x(begin)} {down + bend} {x(end)} {down + bend} '
                   f'{x(end)} {y(reader)}"/>')
    out.append("</g>")
    for index, (lane, node) in enumerate(zip(where.lane, nodes, strict=True)):
        fill = colours[node["kind"]] if node["kernel"] else COLOURS.get(node["kind"], "#fff")
        out.append(f'<circle cx="{x(lane)}" cy="{y(index)}" r="{DOT}" fill="{fill}" stroke="#52606d"/>')
    return "".join([*out, "</svg>"])


def size_text(count: int | None) -> str:
    """Formats a number of bytes for people."""
    if count is None:
        return "–"
    for unit, factor in (("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count} bytes"


def count_text(count: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,.0f}"


def time_text(time: float, unit: str) -> str:
    if unit != "ms":
        return f"{count_text(time)} {unit}"
    return f"{time:,.2f} ms" if time >= 1 else f"{1e3 * time:,.1f} µs"


def _hash(text: str) -> str:
    """Returns the hash by which the page's Content-Security-Policy allows a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
