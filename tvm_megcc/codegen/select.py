# SPDX-License-Identifier: Apache-2.0
"""Kernel choice: which candidate realises an operator, and the identity of the kernel that results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import InternalError
from ..ir.dims import Dim, Symbol, round_up, substitute
from ..ir.expr import Expr
from ..ir.graph import Attrs, Graph, Op
from ..ir.types import TensorType
from ..ops.base import Kernel, Lowered, Operand, operator
from ..ops.support import candidates, operand_class, refusal
from ..target import Isa, Target
from .symbols import expression_name, short_dtype
from .tuning_log import priced

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
    params: Attrs
    extents: tuple[tuple[str, int | None], ...]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    tasks: Dim
    shared: Dim
    scratch: Dim
    in_place: tuple[tuple[int, int], ...]
    epilogue: Expr | None
    isa: Isa
    what: str
    how: str

    @cached_property
    def symbol(self) -> str:
        # Of known extents those of 1 need not be named unless all are 1, of run-time extents none if all are of the
        # call; where both meet each is named.
        values = [value for _, value in self.extents]
        silent = (None,) if all(value is None for value in values) else () if None in values or set(values) == {1} \
            else (1,)
        known = [f"{name.lower()}{'x' if value is None else value}" for name, value in self.extents
                 if value not in silent]
        dtypes = dict.fromkeys(short_dtype(p.dtype) for p in (*self.inputs, *self.outputs))
        parts = [self.what, "".join(known), "".join(dtypes)]
        if self.epilogue is not None:
            kinds = "".join(p.kind[0] for p in self.inputs if p.kind not in ("own", "full"))
            parts.append(expression_name(self.epilogue) + (f"_{kinds}" if kinds else ""))
        return "_".join(filter(None, parts)) + f"__{self.how}_{self.isa.name}"

    @property
    def runtime_extents(self) -> tuple[str, ...]:
        """Names of the extents that a call passes, in order."""
        return tuple(name for name, value in self.extents if value is None)


@dataclass(frozen=True)
class Choice:
    """An operator with the candidate that realises it.

    operands: for each input parameter of the spec, the operand of the operator it reads and how it is packed.
    extents: values of the run-time extents.
    """

    op: Op
    kernel: Kernel
    spec: KernelSpec
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    extents: tuple[Dim, ...]
    cost: float
    refused: Mapping[str, str] = field(default_factory=dict)


def select(graph: Graph, op: Op, target: Target, optimize: str = "speed") -> Choice:
    """The cheapest candidate for an operator whose operands have their final layouts; the fastest, where the target
    has times from a tuning log.

    Raises:
        InternalError: if no candidate accepts; passes ask before they create such an operator.
    """
    inputs, outputs = graph.input_types(op), graph.output_types(op)
    refused: dict[str, str] = {}
    best: tuple[float, Kernel] | None = None
    for kernel in candidates(op.kind):
        reason = refusal(op, kernel, inputs, outputs, target, graph.constants)
        if reason is not None:
            refused[kernel.name] = reason
            continue
        for variant, cost in priced(op, kernel, inputs, outputs, target, graph.constants):
            if best is None or cost < best[0]:
                best = (cost, variant)
    if best is None:
        detail = "; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "it has no kernels"
        raise InternalError(f"no kernel for {op.kind} '{op.origin}': {detail}")
    return bind(graph, op, best[1], target, optimize, best[0], refused)


def bind(graph: Graph, op: Op, kernel: Kernel, target: Target, optimize: str = "speed",
         cost: float = 0.0, refused: Mapping[str, str] | None = None) -> Choice:
    """The operator lowered to a call of this candidate."""
    inputs, outputs = graph.input_types(op), graph.output_types(op)
    own = inputs[:op.epilogue_start] if op.epilogue is not None else inputs
    lowered = kernel.lower(op, own, outputs, target)
    extents = dict(lowered.extents)
    extra, extra_kinds = _epilogue_operands(op, inputs, outputs[0], lowered, extents, target)

    known = {name: value for name, value in extents.items()
             if optimize == "speed" and isinstance(value, int)}
    operands = (*lowered.inputs, *extra)
    kinds = ("own",) * len(lowered.inputs) + extra_kinds
    spec = KernelSpec(
        template=lowered.template,
        params=lowered.params,
        extents=tuple((name, known.get(name)) for name in extents),
        inputs=tuple(Parameter(o.name, o.dtype or inputs[o.index].dtype, substitute(o.size, known), kind)
                     for o, kind in zip(operands, kinds, strict=True)),
        outputs=tuple(Parameter(o.name, o.dtype or outputs[o.index].dtype, substitute(o.size, known))
                      for o in lowered.outputs),
        tasks=substitute(lowered.tasks, known),
        shared=substitute(lowered.shared, known),
        scratch=substitute(lowered.scratch, known),
        in_place=_in_place(lowered, kinds),
        epilogue=op.epilogue,
        isa=target.isa,
        what=lowered.what,
        how=lowered.how)
    values = tuple(extents[name] for name in spec.runtime_extents)
    return Choice(op, kernel, spec, operands, lowered.outputs, values, cost, dict(refused or {}))


def _epilogue_operands(op: Op, inputs, output: TensorType, lowered: Lowered, extents: dict[str, Dim],
                       target: Target) -> tuple[tuple[Operand, ...], tuple[str, ...]]:
    """Parameters for the operands of the epilogue, after the kernel's own."""
    if op.epilogue is None:
        return (), ()
    axis = operator(op.kind).channel_axis
    operands, kinds = [], []
    for position in range(op.epilogue_start, len(op.inputs)):
        kind = operand_class(inputs[position], output, axis)
        size: Dim = 1
        pack: tuple = ()
        if kind == "full":
            size = lowered.outputs[0].size
        elif kind == "channel":
            if lowered.channels is None:
                extents.setdefault(EPILOGUE_CHANNELS, round_up(output.shape[axis], target.isa.lanes))
            size = Symbol(EPILOGUE_CHANNELS) if lowered.channels is None else lowered.channels
            pack = ("channel", target.isa.lanes)
        operands.append(Operand(f"e{position - op.epilogue_start + 1}", position, size, pack))
        kinds.append(kind)
    return tuple(operands), tuple(kinds)


def _in_place(lowered: Lowered, kinds: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """A full operand of an epilogue is read just before the same place of output 0 is written."""
    if not lowered.epilogue_in_place:
        return lowered.in_place
    return lowered.in_place + tuple((0, i) for i, kind in enumerate(kinds) if kind == "full")
