# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of a report with Bokeh: bars of the slowest layers, and memory over time. It imports Bokeh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bokeh.models import (
    AdaptiveTicker,
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    PlainText,
)
from bokeh.plotting import figure

from ...codegen.memory_report import COLOURS
from ...foreign import printable

FONT = "system-ui, sans-serif"
BAR = 22  # pixels


def slowest(calls: Sequence[Mapping], colours: Mapping[str, str], unit: str):
    """Returns a bar chart of calls, in their order from the top."""
    bars = [{"label": row["name"], "kind": row["kind"], "kernel": row["kernel"], "time": row["time"],
             "share": row["share"], "colour": colours[row["kind"]], "type": ", ".join(row["types"])} for row in calls]
    positions = [-index for index in range(len(bars))]
    columns = {key: [bar[key] for bar in bars] for key in ("label", "kind", "kernel", "type", "colour", "time")}
    data = ColumnDataSource({**columns, "y": positions, "percent": [100 * bar["share"] for bar in bars]})
    plot = _figure(height=60 + BAR * max(len(bars), 1), x_axis_label=unit, tools="", toolbar_location=None,
                   x_range=(0, 1.05 * max((bar["time"] for bar in bars), default=1.0) or 1.0),
                   y_range=(-len(bars) + 0.4, 0.6))
    drawn = plot.hbar(y="y", right="time", height=0.72, color="colour", source=data, border_radius=2)
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=[
        ("operator", "@label"), ("kind", "@kind"), ("result", "@type"), ("kernel", "@kernel"),
        ("time", f"@time{{0.0000}} {unit}" if unit == "ms" else f"@time{{0,0}} {unit}"), ("share", "@percent{0.0} %")]))
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[000]a")
    plot.yaxis.ticker = FixedTicker(ticks=positions)
    plot.yaxis.major_label_overrides = {
        position: PlainText(printable(bar["label"], 42)) for position, bar in zip(positions, bars, strict=True)}
    plot.yaxis.major_tick_line_color = None
    plot.ygrid.grid_line_color = None
    return plot


def memory(facts: Mapping, names: Sequence[str]):
    """Returns a picture of the arena: calls to the right, addresses upwards, a rectangle for each buffer, and a line
    for the bytes alive."""
    last = max([len(names) - 1, *(buffer["last"] for buffer in facts["buffers"])])
    plot = _figure(height=420, x_axis_label="call", y_axis_label="address", tools="pan,wheel_zoom,box_zoom,reset",
                   x_range=(-0.5, last + 0.5), y_range=(0, 1.04 * max(facts["arena"], 1)))
    plot.toolbar.logo = None
    for kind, colour in COLOURS.items():
        buffers = [buffer for buffer in facts["buffers"] if buffer["kind"] == kind]
        if not buffers:
            continue
        source = ColumnDataSource({
            "name": [buffer["name"] for buffer in buffers],
            "span": [_span(buffer, names) for buffer in buffers],
            "bytes": [buffer["bytes"] for buffer in buffers],
            "left": [buffer["first"] - 0.5 for buffer in buffers],
            "right": [buffer["last"] + 0.5 for buffer in buffers],
            "bottom": [buffer["offset"] for buffer in buffers],
            "top": [buffer["offset"] + buffer["bytes"] for buffer in buffers]})
        drawn = plot.quad("left", "right", "top", "bottom", source=source, fill_color=colour, line_color="#52606d",
                          line_width=0.5, legend_label=kind)
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=[
            (kind, "@name"), ("bytes", "@bytes{0,0}"), ("address", "@bottom{0,0}"), ("alive", "@span")]))
    plot.step(list(range(len(facts["live"]))), facts["live"], mode="center", color="#1f2933", line_width=1.5,
              legend_label="bytes alive")
    plot.line([-0.5, last + 0.5], [facts["lower_bound"]] * 2, color="#c00000", line_dash="dashed",
              legend_label="peak (lower bound)")
    plot.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=[2.0**power for power in range(10)], min_interval=1)
    plot.yaxis.formatter = NumeralTickFormatter(format="0.[0] ib")
    plot.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    plot.legend.orientation = "horizontal"
    plot.legend.label_text_font = FONT
    plot.legend.label_text_font_size = "12px"
    plot.legend.border_line_color = None
    plot.add_layout(plot.legend[0], "above")
    return plot


def _span(buffer: Mapping, names: Sequence[str]) -> str:
    first, last = buffer["first"], buffer["last"]
    text = f"calls {first} to {last}" if first != last else f"call {first}"
    return text + (f": {names[first]}" if first < len(names) else "")


def _figure(**options):
    plot = figure(sizing_mode="stretch_width", background_fill_color="#ffffff", **options)
    plot.outline_line_color = None
    plot.grid.grid_line_color = "#e4e7eb"
    for axis in plot.axis:
        axis.axis_line_color = axis.major_tick_line_color = "#9aa5b1"
        axis.minor_tick_line_color = None
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "12px"
    return plot
