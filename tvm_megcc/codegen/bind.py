# SPDX-License-Identifier: Apache-2.0
"""An operator and the candidate that was chosen for it, as a call; and the identity of the kernel that is called."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..ir.dims import Dim, Symbol, round_up, substitute
from ..ir.expr import Expr
from ..ir.graph import Attrs, Op
from ..ir.types import DTYPES
from ..kernels.base import Lowered, Operand
from ..kernels.choice import Choice
from ..kernels.parameters import Parameters
from ..kernels.site import Site
from ..kernels.support import operand_class
from ..ops.base import operator
from ..target import Isa
from .symbols import expression_name

#: Extent that the generator adds for per-channel operands of an epilogue.
EPILOGUE_CHANNELS = "EPILOGUE_CHANNELS"


@dataclass(frozen=True)
class Parameter:
    """An operand of a kernel: its C name, element type, number of elements it needs, and how it is read.

    kind: "own" for the kernel's own operands, else the epilogue class "full", "channel" or "scalar".
    size: elements, over the kernel's run-time extents (an int where all are known).
    """

    name: str
    dtype: str
    size: Dim
    kind: str = "own"


@dataclass(frozen=True)
class KernelSpec:
    """What one C function is; equal specs are the same kernel.

    extents: (name, value) in order; the value is None where the extent is an argument of the call.
    tasks, shared, scratch: over the run-time extents.
    """

    template: str
    params: Attrs | Parameters
    extents: tuple[tuple[str, int | None], ...]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    tasks: Dim
    shared: Dim
    scratch: Dim
    in_place: tuple[tuple[int, int], ...]
    epilogue: Expr | None
    isa: Isa
    operation: str
    algorithm: str

    @cached_property
    def symbol(self) -> str:
        # Of known extents those of 1 need not be named unless all are 1, of run-time extents none if all are of the
        # call; where both meet each is named.
        values = [value for _, value in self.extents]
        silent = (None,) if all(value is None for value in values) else () if None in values or set(values) == {1} \
            else (1,)
        known = [f"{name.lower()}{'x' if value is None else value}" for name, value in self.extents
                 if value not in silent]
        dtypes = dict.fromkeys(DTYPES[p.dtype].short for p in (*self.inputs, *self.outputs))
        parts = [self.operation, "".join(known), "".join(dtypes)]
        if self.epilogue is not None:
            kinds = "".join(p.kind[0] for p in self.inputs if p.kind not in ("own", "full"))
            parts.append(expression_name(self.epilogue) + (f"_{kinds}" if kinds else ""))
        return "_".join(filter(None, parts)) + f"__{self.algorithm}_{self.isa.name}"

    @property
    def runtime_extents(self) -> tuple[str, ...]:
        """Names of the extents that a call passes, in order."""
        return tuple(name for name, value in self.extents if value is None)


@dataclass(frozen=True)
class Bound:
    """An operator as a call of the kernel that was chosen for it.

    inputs: for each input parameter of the spec, the operand of the operator it reads and how it is packed.
    extents: values of the run-time extents.
    """

    op: Op
    choice: Choice
    spec: KernelSpec
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    extents: tuple[Dim, ...]


def bind(site: Site, choice: Choice) -> Bound:
    """The operator lowered to a call of this candidate."""
    lowered = choice.kernel.lower(site)
    extents = dict(lowered.extents)
    extra, extra_kinds = _epilogue_operands(site, lowered, extents)

    known = {name: value for name, value in extents.items() if not site.compact and isinstance(value, int)}
    operands = (*lowered.inputs, *extra)
    kinds = ("own",) * len(lowered.inputs) + extra_kinds
    spec = KernelSpec(
        template=lowered.template,
        params=lowered.params,
        extents=tuple((name, known.get(name)) for name in extents),
        inputs=tuple(Parameter(o.name, o.dtype or site.types[o.index].dtype, substitute(o.size, known), kind)
                     for o, kind in zip(operands, kinds, strict=True)),
        outputs=tuple(Parameter(o.name, o.dtype or site.outputs[o.index].dtype, substitute(o.size, known))
                      for o in lowered.outputs),
        tasks=substitute(lowered.tasks, known),
        shared=substitute(lowered.shared, known),
        scratch=substitute(lowered.scratch, known),
        in_place=_in_place(lowered, kinds),
        epilogue=site.op.epilogue,
        isa=site.isa,
        operation=lowered.operation,
        algorithm=lowered.algorithm)
    values = tuple(extents[name] for name in spec.runtime_extents)
    return Bound(site.op, choice, spec, operands, lowered.outputs, values)


def _epilogue_operands(site: Site, lowered: Lowered, extents: dict[str, Dim]) \
        -> tuple[tuple[Operand, ...], tuple[str, ...]]:
    """Parameters for the operands of the epilogue, after the kernel's own."""
    if site.op.epilogue is None:
        return (), ()
    axis, lanes = operator(site.kind).channel_axis, site.isa.lanes
    operands, kinds = [], []
    for position in range(site.op.epilogue_start, len(site.types)):
        kind = operand_class(site.types[position], site.y, axis)
        size: Dim = 1
        pack: tuple = ()
        if kind == "full":
            size = lowered.outputs[0].size
        elif kind == "channel":
            if lowered.channels is None:
                extents.setdefault(EPILOGUE_CHANNELS, round_up(site.y.shape[axis], lanes))
            size = Symbol(EPILOGUE_CHANNELS) if lowered.channels is None else lowered.channels
            pack = ("channel", lanes)
        operands.append(Operand(f"e{position - site.op.epilogue_start + 1}", position, size, pack))
        kinds.append(kind)
    return tuple(operands), tuple(kinds)


def _in_place(lowered: Lowered, kinds: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """A full operand of an epilogue is read just before the same place of output 0 is written."""
    if not lowered.epilogue_in_place:
        return lowered.in_place
    return lowered.in_place + tuple((0, i) for i, kind in enumerate(kinds) if kind == "full")
