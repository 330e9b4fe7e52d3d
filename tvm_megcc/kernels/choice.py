# SPDX-License-Identifier: Apache-2.0
"""Chooses the candidate that realises an operator. The pass that chooses layouts uses it."""

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

    def among(self, accepted: Sequence[Option], refused: Refused) -> Choice:
        """Returns this option as the choice, with the reasons why other candidates do not work in its layouts."""
        able = {option.kernel.name for option in accepted if option.site.layouts == self.site.layouts}
        why = {kernel.name: refused.get(kernel.name, {}).get(self.site.layouts, OTHER_LAYOUTS)
               for kernel in candidates(self.site.kind) if kernel.name not in able}
        return Choice(self.kernel, self.cost, why)


Refused = Mapping[str, Mapping[tuple, str]]
"""Why candidates cannot realise an operator: name -> layouts -> reason."""


def options(site: Site, here: bool = False) -> tuple[list[Option], Refused]:
    """Returns the candidates that can realise the operator, and the refusals of the others. here: only in the present
    layouts; else in any."""
    found: list[Option] = []
    refused: dict[str, dict[tuple, str]] = {}
    for kernel in candidates(site.kind):
        for placed in (site,) if here else placements(site, kernel):
            reason = refusal(placed, kernel)
            if reason is not None:
                refused.setdefault(kernel.name, {})[placed.layouts] = reason
                continue
            variant, cost = min(priced(placed, kernel), key=lambda option: option[1])
            found.append(Option(placed, variant, cost))
    return found, refused


def reasons(refused: Refused) -> dict[str, str]:
    """Returns one reason per candidate: that for the last layouts that were tried."""
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
    return min(found, key=lambda option: option.cost).among(found, refused)


def priced(site: Site, kernel: Kernel) -> Iterator[tuple[Kernel, float]]:
    """Yields the candidate with its cost: measured on the target if there is a time, else estimated. Then yields its
    other tiles that were measured.

    The candidate must realise the operator with these types. Costs compare only within one context. Unknown extents
    have their likely values.
    """
    site, times = site.likely, site.context.times
    guess = kernel.cost(site)
    if times is None:
        yield kernel, guess
        return
    call, layouts = call_text(site.op, site.types, site.outputs, site.constants), layouts_text(site.types, site.outputs)
    time = times.time(call, kernel.name, kernel.tile, layouts)
    yield kernel, times.scaled(call, guess) if time is None else time
    for other in kernel.tiled(site):
        time = times.time(call, other.name, other.tile, layouts)
        if time is not None:
            yield other, time


#: A stand-in for the relayouts that `choose_layouts` inserts, to price them.
RELAYOUT = Op("relayout", Attrs(), ("x",), ("y",), origin="relayout")


def priced_relayout(type_: TensorType, source: Layout, wanted: Layout, context: Context, guess: float) -> float:
    """Returns the cost of copying a tensor into another layout. guess: the cost model's estimate."""
    if context.times is None:
        return guess
    x, y = type_.with_layout(source), type_.with_layout(wanted)
    call = call_text(RELAYOUT, (x,), (y,))
    time = context.times.best(call, layouts_text((x,), (y,)))
    return context.times.scaled(call, guess) if time is None else time
