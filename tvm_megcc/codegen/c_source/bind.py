# SPDX-License-Identifier: Apache-2.0
"""Binds an operator and its chosen candidate to a kernel call (`Bound`), and identifies the kernel (`KernelSpec`).

plan.py puts the calls in order; render.py prints the kernel of each distinct specification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...ir.dims import Dim, Symbol, round_up, substitute
from ...ir.expr import Expr
from ...ir.graph import Op
from ...ir.types import DTYPES
from ...kernels.base import Lowered, Operand
from ...kernels.choice import Choice
from ...kernels.parameters import Parameters
from ...kernels.site import Site
from ...kernels.support import operand_class
from ...ops.base import operator
from ...target import Isa
from .symbols import expression_name

#: The extent that the generator adds for per-channel operands of an epilogue.
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
    """The identity of one C function; equal specs are the same kernel.

    template: the path of its template below `kernels/`, without the ISA and `.c.j2`.
    params: the variables of the template.
    extents: (name, value) in order; the value is None if the extent is an argument of the call ("run-time extent").
    tasks: the number of tasks, over the run-time extents.
    shared, scratch: bytes of workspace for all workers together and for each worker, over the run-time extents.
    in_place: (output, operand) pairs that may share memory.
    takes_over: (output, operand) pairs in which an output of another size may overwrite the operand.
    operation, algorithm: what the kernel computes and how, as parts of its name.
    compact: compiled at `-O size`, where constants may only remove code: loops are not unrolled.
    reproducible: the results have the same bits on every CPU; the file defines MEGCC_REPRODUCIBLE.
    checked: the kernel checks its arguments before it reads them, as the safety profile requires.
    lane_kind: the element type of the vectors that the epilogue works on: "f" or "i" (`Kernel.lane_kind`).
    half: floats are computed in float16 (megcc_float16_math.h).
    """

    template: str
    params: Parameters
    extents: tuple[tuple[str, int | None], ...]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    tasks: Dim
    shared: Dim
    scratch: Dim
    in_place: tuple[tuple[int, int], ...]
    takes_over: tuple[tuple[int, int], ...]
    epilogue: Expr | None
    isa: Isa
    operation: str
    algorithm: str
    compact: bool = False
    reproducible: bool = False
    lane_kind: str = "f"
    half: bool = False
    checked: bool = False

    @cached_property
    def symbol(self) -> str:
        """The name of the C function, as symbols.py and docs/kernel-names.md describe it."""
        dtypes = dict.fromkeys(DTYPES[p.dtype].short for p in (*self.inputs, *self.outputs))
        parts = [self.operation, self._extents_text, "".join(dtypes)]
        if self.epilogue is not None:
            kinds = "".join(p.kind[0] for p in self.inputs if p.kind not in ("own", "full"))
            parts.append(expression_name(self.epilogue) + (f"_{kinds}" if kinds else ""))
        return "_".join(filter(None, parts)) + (
            f"__{self.algorithm}{'_small' * self.compact}{'_reproducible' * self.reproducible}_{self.isa.name}")

    @property
    def _extents_text(self) -> str:
        """The extents in the name, such as `m64n32kx`; an x stands for an extent that is known only at run time.

        Known extents of 1 are left out unless all extents are 1. If all are known only at run time, there are none.
        """
        values = {value for _, value in self.extents}
        omitted = () if values == {1} else (None,) if values == {None} else (1,)
        return "".join(f"{name.lower()}{'x' if value is None else value}" for name, value in self.extents
                       if value not in omitted)

    @property
    def runtime_extents(self) -> tuple[str, ...]:
        """The names of the extents that a call passes, in order."""
        return tuple(name for name, value in self.extents if value is None)


@dataclass(frozen=True)
class Bound:
    """An operator as a call of its chosen kernel.

    inputs: for each input parameter of the spec, the operand of the operator that it reads and its packing.
    outputs: for each output parameter, the result of the operator that it writes.
    extents: the values of the run-time extents.
    no_takeover: outputs must not take over the memory of inputs, even if the kernel allows it.
    """

    op: Op
    choice: Choice
    spec: KernelSpec
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    extents: tuple[Dim, ...]
    no_takeover: bool = False


def bind(site: Site, choice: Choice, for_several_calls: bool = False) -> Bound:
    """Returns the operator at `site` lowered to a call of the chosen candidate.

    Known extents become constants in the kernel's code. If several calls may have the same kernel (`for_several_calls`,
    and always at `-O size`), all extents stay arguments, and the caller passes all calls to `with_equal_constants`.
    """
    lowered = choice.kernel.lower(site)
    extents = dict(lowered.extents)
    extra, extra_kinds = _epilogue_operands(site, lowered, extents)
    operands = (*lowered.inputs, *extra)
    kinds = ("own",) * len(lowered.inputs) + extra_kinds
    spec = KernelSpec(
        template=lowered.template,
        params=lowered.params,
        extents=tuple((name, None) for name in extents),
        inputs=tuple(Parameter(o.name, o.dtype or site.types[o.index].dtype, o.size, kind)
                     for o, kind in zip(operands, kinds, strict=True)),
        outputs=tuple(Parameter(o.name, o.dtype or site.outputs[o.index].dtype, o.size) for o in lowered.outputs),
        tasks=lowered.tasks,
        shared=lowered.shared,
        scratch=lowered.scratch,
        in_place=_in_place(lowered, kinds),
        takes_over=lowered.takes_over,
        epilogue=site.op.epilogue,
        isa=site.isa,
        operation=lowered.operation,
        algorithm=lowered.algorithm,
        compact=site.compact,
        reproducible=site.context.reproducible,
        checked=site.context.safe,
        lane_kind=choice.kernel.lane_kind,
        half=site.is_half and choice.kernel.float16)
    bound = Bound(site.op, choice, spec, operands, lowered.outputs, tuple(extents.values()), lowered.no_takeover)
    return bound if site.compact or for_several_calls else with_constants(bound, _known_extents(bound))


def with_constants(bound: Bound, known: Mapping[str, int]) -> Bound:
    """Returns the call with these of its run-time extents as constants in the kernel's code."""
    spec = bound.spec

    def sized(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
        return tuple(replace(p, size=substitute(p.size, known)) for p in parameters)

    remaining = tuple(value for name, value in zip(spec.runtime_extents, bound.extents, strict=True)
                      if name not in known)
    spec = replace(spec, extents=tuple((name, known.get(name, value)) for name, value in spec.extents),
                   inputs=sized(spec.inputs), outputs=sized(spec.outputs), tasks=substitute(spec.tasks, known),
                   shared=substitute(spec.shared, known), scratch=substitute(spec.scratch, known))
    return replace(bound, spec=spec, extents=remaining)


def with_equal_constants(calls: Sequence[Bound]) -> list[Bound]:
    """Returns the calls with the extents that are equal in all calls of a kernel as constants of its code.

    The number of kernels stays the same, and each has fewer arguments.

    Args:
        calls: all calls of a program at `-O size`, or those of one operator's parts.
    """
    equal: dict[KernelSpec, dict[str, int]] = {}
    for call in calls:
        known = _known_extents(call)
        equal_so_far = equal.get(call.spec, known)
        equal[call.spec] = {name: value for name, value in known.items() if equal_so_far.get(name) == value}
    return [with_constants(call, equal[call.spec]) for call in calls]


def _known_extents(bound: Bound) -> dict[str, int]:
    """Returns the run-time extents of a call whose values are known."""
    named = zip(bound.spec.runtime_extents, bound.extents, strict=True)
    return {name: value for name, value in named if isinstance(value, int)}


def _epilogue_operands(site: Site, lowered: Lowered, extents: dict[str, Dim]) \
        -> tuple[tuple[Operand, ...], tuple[str, ...]]:
    """Returns the operands of the epilogue, which follow the kernel's own, and their kinds (`Parameter.kind`). Adds the
    extent EPILOGUE_CHANNELS to `extents` if an operand is per channel and the kernel has no extent for channels."""
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
    """Returns the in-place pairs (output, operand) of a kernel. An epilogue operand may share the memory of output 0,
    since each of its elements is read just before the same element of the output is written."""
    if not lowered.epilogue_in_place:
        return lowered.in_place
    return lowered.in_place + tuple((0, i) for i, kind in enumerate(kinds) if kind == "full")
