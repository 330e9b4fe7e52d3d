# SPDX-License-Identifier: Apache-2.0
"""Chooses the kernel candidate that realises an operator: of those that accept it, the cheapest. The pass that chooses
layouts (passes/layout/choose.py) compares candidates in all layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..context import Context
from ..errors import InternalError
from ..ir.graph import Attrs, Op
from ..ir.types import PLAIN, Layout, TensorType
from ..tuning_log import call_text, layouts_text
from .base import Kernel
from .site import Site
from .support import OTHER_LAYOUTS, candidates, placements, refusal


@dataclass(frozen=True)
class Choice:
    """The candidate that realises an operator.

    cost: estimated cycles, or nanoseconds where there is a tuning log.
    refused: the candidates that cannot realise the operator, with the reasons.
    """

    kernel: Kernel
    cost: float = 0.0
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """A candidate with the layouts that it reads and writes."""

    site: Site
    kernel: Kernel
    cost: float

    @property
    def inputs(self) -> tuple[Layout, ...]:
        """The layouts of all operands; absent operands count as plain."""
        return tuple(t.layout if t else PLAIN for t in self.site.types)

    @property
    def outputs(self) -> tuple[Layout, ...]:
        return tuple(t.layout for t in self.site.outputs)

    def to_choice(self, accepted: Sequence[Option], refused: Refused) -> Choice:
        """Returns this option as the choice, with the reasons why other candidates do not work in its layouts."""
        accepting = {option.kernel.name for option in accepted if option.site.layouts == self.site.layouts}
        reason_of = {kernel.name: refused.get(kernel.name, {}).get(self.site.layouts, OTHER_LAYOUTS)
                     for kernel in candidates(self.site.kind) if kernel.name not in accepting}
        return Choice(self.kernel, self.cost, reason_of)


Refused = Mapping[str, Mapping[tuple, str]]
"""Why candidates cannot realise an operator: name -> layouts -> reason."""


def options(site: Site, here: bool = False) -> tuple[list[Option], Refused]:
    """Returns the candidates that can realise the operator, and the refusals of the others. here: only in the layouts
    that the operands have now; else in all that candidates support."""
    found: list[Option] = []
    refused: dict[str, dict[tuple, str]] = {}
    for kernel in candidates(site.kind):
        for placed in (site,) if here else placements(site, kernel):
            reason = refusal(placed, kernel)
            if reason is not None:
                refused.setdefault(kernel.name, {})[placed.layouts] = reason
                continue
            variant, cost = min(variant_costs(placed, kernel), key=lambda variant_and_cost: variant_and_cost[1])
            found.append(Option(placed, variant, cost))
    return found, refused


def reasons(refused: Refused) -> dict[str, str]:
    """Returns one reason for each candidate: that for the last layouts that were tried."""
    return {name: list(by_layouts.values())[-1] for name, by_layouts in refused.items()}


def choose(site: Site) -> Choice:
    """Returns the cheapest candidate for an operator whose operands have their final layouts.

    Raises:
        InternalError: if no candidate accepts; passes ask before they create such an operator.
    """
    found, refused = options(site, here=True)
    if not found:
        detail = "; ".join(f"{name}: {reason}" for name, reason in reasons(refused).items()) or "it has no kernels"
        raise InternalError(f"no kernel for {site.kind} '{site.op.origin}': {detail}")
    return min(found, key=lambda option: option.cost).to_choice(found, refused)


def variant_costs(site: Site, kernel: Kernel) -> Iterator[tuple[Kernel, float]]:
    """Yields the candidate with its cost, then each of its other tiles that was measured, with its cost.

    A cost is the time that was measured on the target, in nanoseconds, else the estimate of the cost model. Costs
    compare only within one context. Unknown extents have their likely values. The candidate must accept the operator.
    """
    site, times = site.likely, site.context.times
    guess = kernel.cost(site)
    if times is None:
        yield kernel, guess
        return
    call, layouts = call_text(site.op, site.types, site.outputs, site.constants), layouts_text(site.types, site.outputs)
    time = times.time(call, kernel.name, kernel.tile, layouts)
    # Where no time was measured, the estimate is converted to nanoseconds.
    yield kernel, times.scaled(call, guess) if time is None else time
    for other in kernel.other_tiles(site):
        time = times.time(call, other.name, other.tile, layouts)
        if time is not None:
            yield other, time


#: A relayout as `choose_layouts` inserts it, to look up its time in a tuning log.
RELAYOUT = Op("relayout", Attrs(), ("x",), ("y",), origin="relayout")


def measured_relayout_cost(type_: TensorType, source: Layout, wanted: Layout, context: Context, guess: float) -> float:
    """Returns the cost of copying a tensor into another layout: the shortest measured time, else `guess`, the estimate
    of the cost model."""
    if context.times is None:
        return guess
    x, y = type_.with_layout(source), type_.with_layout(wanted)
    call = call_text(RELAYOUT, (x,), (y,))
    time = context.times.best(call, layouts_text((x,), (y,)))
    return context.times.scaled(call, guess) if time is None else time
