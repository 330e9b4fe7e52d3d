# SPDX-License-Identifier: Apache-2.0
"""Reports memory plans: as text (report.txt), and as a picture of time and addresses (memory.svg)."""

from __future__ import annotations

from collections.abc import Sequence

from ..foreign import printable
from .memory.offsets import Buffer, MemoryPlan, live_bytes
from .memory.planner import PlannedMemory, own_bytes
from .plan import KernelPlan

#: Fill colour of each kind of buffer, in the order of the legend.
COLOURS = {
    "input": "#7fb3d5",
    "activation": "#a9d18e",
    "output": "#f4b183",
    "state": "#c9a6d6",
    "workspace": "#bfbfbf",
    "constant": "#f2e394",
}

#: Size and margins of the plot, in pixels.
WIDTH, HEIGHT = 1100, 520
LEFT, TOP, BOTTOM = 90, 64, 56


def plans_text(plan: KernelPlan, memories: Sequence[PlannedMemory], unordered: int) -> str:
    """Returns the memory plans of one target as text. unordered: the most bytes of activations that are alive at once
    if operators run in the model's own order."""
    steps = [step.spec.symbol for step in plan.steps]
    parts = "".join((f"bucket: {printable(planned.bucket)}\n" if planned.bucket.bounds else "")
                   + text(planned.buffers, planned.plan, steps) for planned in memories)
    parts += "".join(regions_text(plan, planned) for planned in memories if planned.plan.regions)
    if memories[0].updated:
        parts += f"updated in place: {', '.join(map(printable, memories[0].updated.values()))}\n"
    return f"{plan.target}\n{parts}in the model's own order activations peak at {unordered:,} bytes\n"


def regions_text(plan: KernelPlan, planned: PlannedMemory) -> str:
    """Describes the contents of each memory region, a line for each, including the session in the first, and constants.
    """
    assert plan.context.regions is not None
    lines: list[str] = []
    begin = 0
    for (name, size), used in zip(plan.context.regions.ram, planned.plan.regions, strict=True):
        constants = [b.bytes for b in planned.buffers
                     if b.kind == "constant" and begin <= planned.plan.offsets[b.name] < begin + used]
        session_bytes = 0 if lines else own_bytes(plan)  # the session is in the first region
        begin += used
        session = f", {session_bytes:,} the session itself" if session_bytes else ""
        lines.append(f"region {name:12} {session_bytes + used:12,} of {size:,} bytes, {sum(constants):,} of them "
                     f"{len(constants)} constants{session}\n")
    return "".join(lines)


def plan_picture(name: str, plan: KernelPlan, planned: PlannedMemory) -> str:
    """Returns the memory of one program as a picture."""
    return svg(planned.buffers, planned.plan, f"{name}, {plan.target}", [step.op.origin for step in plan.steps])


def text(buffers: Sequence[Buffer], plan: MemoryPlan, steps: Sequence[str] = ()) -> str:
    """Describes the arena, its lower bound, and the buffers alive at the peak.

    Args:
        steps: a name for each instruction.
    """
    lines = [f"arena        {plan.arena_bytes:>12,} bytes ({plan.algorithm}, alignment {plan.alignment})",
             f"lower bound  {plan.lower_bound:>12,} bytes (largest live set; ratio {plan.ratio:.3f})"]
    live = live_bytes(buffers, plan.alignment)
    if live:
        peak = live.index(max(live))
        where = f" {steps[peak]}" if peak < len(steps) else ""
        lines.append(f"fullest at instruction {peak}{where}:")
        alive = [b for b in buffers if b.first <= peak <= b.last and b.bytes and b.kind != "constant"]
        for b in sorted(alive, key=lambda b: plan.offsets[b.name]):
            begin = plan.offsets[b.name]
            lines.append(f"  [{begin:>10}, {begin + b.bytes:>10})  {b.bytes:>12,}  {b.kind:<10}  {printable(b.name)}")
    return "\n".join(lines) + "\n"


def svg(buffers: Sequence[Buffer], plan: MemoryPlan, title: str = "", steps: Sequence[str] = ()) -> str:
    """Returns the picture as SVG: instructions to the right, addresses upwards, a rectangle for each buffer, whose
    tooltip names it. steps: a name for each instruction."""
    last = max((b.last for b in buffers), default=0)
    dx = WIDTH / (last + 1)
    dy = HEIGHT / max(plan.arena_bytes, 1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{TOP + HEIGHT + BOTTOM}" '
           f'font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="16">{printable(title or "arena")}: {plan.arena_bytes:,} bytes, '
           f'lower bound {plan.lower_bound:,} ({plan.ratio:.3f}), {printable(plan.algorithm)}</text>']
    out += _legend([kind for kind in COLOURS if any(b.kind == kind for b in buffers)])
    out += _axes(plan.arena_bytes, last, dx, dy)
    for b in buffers:
        if b.bytes:
            out += _rectangle(b, plan.offsets[b.name], dx, dy, steps)
    out += _live_line(live_bytes(buffers, plan.alignment), dx, dy)
    y = TOP + HEIGHT - plan.lower_bound * dy
    out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#c00000" '
               f'stroke-dasharray="6 3"><title>peak: {plan.lower_bound:,} bytes</title></line>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _legend(kinds: Sequence[str]) -> list[str]:
    out, x = [], LEFT
    for kind in kinds:
        out.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{COLOURS[kind]}" stroke="#555"/>'
                   f'<text x="{x + 17}" y="46">{kind}</text>')
        x += 32 + 8 * len(kind)
    out.append(f'<line x1="{x}" y1="42" x2="{x + 22}" y2="42" stroke="#222" stroke-width="1.5"/>'
               f'<text x="{x + 28}" y="46">bytes alive</text>')
    x += 115
    out.append(f'<line x1="{x}" y1="42" x2="{x + 22}" y2="42" stroke="#c00000" stroke-dasharray="6 3"/>'
               f'<text x="{x + 28}" y="46">peak (lower bound)</text>')
    return out


def _axes(arena: int, last: int, dx: float, dy: float) -> list[str]:
    bottom = TOP + HEIGHT
    out = [f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="#fafafa" stroke="#555"/>']
    for tick in range(0, arena + 1, _tick(arena, 8)):
        y = bottom - tick * dy
        out.append(f'<line x1="{LEFT - 5}" y1="{y:.1f}" x2="{LEFT}" y2="{y:.1f}" stroke="#555"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_size(tick)}</text>')
    for tick in range(0, last + 1, _tick(last + 1, 12)):
        x = LEFT + (tick + 0.5) * dx
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 40}" text-anchor="middle">instruction</text>')
    return out


def _rectangle(b: Buffer, offset: int, dx: float, dy: float, steps: Sequence[str]) -> list[str]:
    x, width = LEFT + b.first * dx, (b.last - b.first + 1) * dx
    y, height = TOP + HEIGHT - (offset + b.bytes) * dy, b.bytes * dy
    span = f"instructions {b.first} to {b.last}"
    if b.last < len(steps):
        span += f" ({printable(steps[b.first])} to {printable(steps[b.last])})"
    out = [f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" stroke="#555" '
           f'stroke-width="0.5" fill="{COLOURS.get(b.kind, "#ffffff")}">'
           f'<title>{printable(b.name)} ({b.kind}): {b.bytes:,} bytes at {offset:,}, {span}</title></rect>']
    label = printable(b.name, 24)
    if height >= 13 and width >= 7 * len(label):
        out.append(f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle" '
                   f'font-size="11" pointer-events="none">{label}</text>')
    return out


def _live_line(live: Sequence[int], dx: float, dy: float) -> list[str]:
    points = [f"{LEFT + step * dx:.1f},{TOP + HEIGHT - total * dy:.1f}"
              for i, total in enumerate(live) for step in (i, i + 1)]
    return [f'<polyline points="{" ".join(points)}" fill="none" stroke="#222" stroke-width="1.5" '
            'pointer-events="none"/>']


def _tick(extent: int, max_ticks: int) -> int:
    """Returns the step between at most `max_ticks` ticks on an axis: 1, 2 or 5 times a power of ten or, for extents
    above 1024, 1 KB times a power of two."""
    if extent > 1024:
        step = 1024
        while extent / step > max_ticks:
            step *= 2
        return step
    step = 1
    for factor in (2, 2.5, 2) * 4:
        if extent / step <= max_ticks:
            break
        step = int(step * factor)
    return step


def _size(count: int) -> str:
    """Returns bytes as text in a unit that fits."""
    if count >= 1 << 20 and count % (1 << 18) == 0:
        return f"{count / (1 << 20):g} MB"
    return f"{count / 1024:g} KB" if count >= 1024 else f"{count} B"
