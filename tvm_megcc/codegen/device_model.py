# SPDX-License-Identifier: Apache-2.0
"""Converts a kernel plan and its memory plans to the rows of the container: `assemble` makes the container of a model.
`container.py` writes it."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from ..errors import MegccError, ModelError
from ..ir import limits
from ..ir.dims import Dim
from ..ir.shapes import UnbackedSymbol
from ..ir.types import TensorType
from ..target import TARGETS
from . import container
from .container import Image
from .flow import Iteration, Jump, Mark, Move
from .memory.planner import PlannedMemory
from .memory.weights import Weights
from .plan import KernelPlan, Step
from .quantised import Quantisation
from .shapefn import ShapeTable
from .states import compact_initial_value
from .table import KernelTable, model_id


class _Rows:
    """The tensors, extents and names of a program under construction, and the tensors' slots for each bucket.

    store: the weights of the container, which the program's weights are added to.
    index: the row of each value and weight in `tensors`.
    """

    def __init__(self, plan: KernelPlan, buckets: Sequence[PlannedMemory], shapes: ShapeTable, store: Weights,
                 quantised: Mapping[str, Quantisation]):
        self.plan, self.buckets, self.shapes, self.store = plan, buckets, shapes, store
        self.quantised = {name: meaning for name, meaning in quantised.items() if name in plan.locations}
        self.unbounded = plan.unbounded([planned.bucket for planned in buckets])
        self.tensors: list[container.Tensor] = []
        self.slots: list[list[container.TensorSlot]] = [[] for _ in buckets]
        self.extents: list[int] = []
        self.names: list[str] = []
        self.index: dict[str, int] = {}

    def name(self, text: str) -> int:
        """Returns 1 + the index of a name in the list of names; 0 stands for none."""
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text) + 1

    def first_extent(self, dims: Sequence[Dim]) -> int:
        """Returns the index of the first of these extents in the list of extents; an equal sequence is reused."""
        values = list(self.shapes.references(dims))
        for start in range(len(self.extents) - len(values) + 1):
            if self.extents[start:start + len(values)] == values:
                return start
        self.extents += values
        return len(self.extents) - len(values)

    def tensor(self, name: str) -> int:
        """Returns the row of a value or weight."""
        if name not in self.index:
            # The row is made first: a view adds its root's row before its own.
            row = self._value(name) if name in self.plan.locations else self._weight(name)
            self.index[name] = len(self.tensors)
            self.tensors.append(row)
            is_view = row.storage == container.Storage.view
            for slots, planned in zip(self.slots, self.buckets, strict=True):
                has_offset = name in planned.offsets and not is_view
                slots.append(container.TensorSlot(planned.offsets[name], planned.sizes[name]) if has_offset
                             else container.TensorSlot(0, 0))
        return self.index[name]

    def _value(self, name: str) -> container.Tensor:
        type_, location = self.plan.graph.types[name], self.plan.locations[name]
        public = name in self.plan.graph.inputs or name in self.plan.graph.outputs
        label = self.name(self.plan.graph.label(name)) if public else 0
        if location.root != name:
            root = self.tensor(location.root)
            # A view of symbolic size extends to the end of its root; its dims tell how much kernels access.
            size = type_.bytes if isinstance(type_.bytes, int) else 0
            return _tensor_row(type_, container.Storage.view, self.first_extent(type_.shape), label, root=root,
                               data=location.offset, size=size, quant=self._quant(name))
        storage = container.Storage.unbounded if name in self.unbounded else container.Storage.arena
        is_state = any(name == state for _, state in self.plan.graph.states)
        if is_state or name in self.buckets[0].updated:  # an output that is computed in place of a state
            storage = container.Storage.state
        elif name in self.plan.caller_ports:
            storage = container.Storage.caller
        return _tensor_row(type_, storage, self.first_extent(type_.shape), label, quant=self._quant(name))

    def add_initial_value(self, state: str, value: np.ndarray) -> None:
        """Adds the initial value of a state as a weight, to which the state's row refers."""
        data = compact_initial_value(value)
        row = self._constant(data, data.tobytes())
        self.tensors[self.index[state]] = replace(self.tensors[self.index[state]], root=len(self.tensors))
        self.tensors.append(row)
        for slots in self.slots:
            slots.append(container.TensorSlot(0, 0))

    def _quant(self, name: str) -> int:
        """Returns 1 + the row of a value's scale and zero point; 0 if it is not quantised."""
        return 1 + list(self.quantised).index(name) if name in self.quantised else 0

    def quants(self) -> tuple[tuple[container.Quant, ...], tuple[int, ...]]:
        """Returns a row for each quantised input and output, and the data that the rows point to: bits of scales, zero
        points."""
        rows = tuple(container.Quant(axis=-1, count=1, first=2 * index) for index in range(len(self.quantised)))
        words = (struct.unpack("<2I", struct.pack("<fi", *meaning)) for meaning in self.quantised.values())
        return rows, tuple(chain.from_iterable(words))

    def _weight(self, name: str) -> container.Tensor:
        weight = self.plan.weights[name]
        return self._constant(weight.data, weight.content, weight.digest)

    def _constant(self, data: np.ndarray, *content) -> container.Tensor:
        """Adds a constant to the weights and returns its row. content: its bytes and, if known, their digest."""
        dtype = "bool" if data.dtype == bool else str(data.dtype)
        type_ = TensorType(dtype, (data.size,))
        return _tensor_row(type_, container.Storage.weight, self.first_extent(type_.shape), 0,
                           data=self.store.add(*content), size=data.nbytes)


def _tensor_row(type_: TensorType, storage, dims: int, name: int, root: int = 0, data: int = 0, size: int = 0,
                quant: int = 0):
    layout = type_.layout
    return container.Tensor(
        dtype=container.DType[type_.dtype], layout=container.LayoutKind[layout.kind], storage=storage,
        rank=type_.rank, block=layout.block, region=0, name=name, dims=dims, root=root, data=data, bytes=size,
        quant=quant)


def require_limits(name: str, plan: KernelPlan) -> None:
    """Raises ModelError for calls that exceed limits of the runtime, with an explanation."""
    found = []
    for step in plan.steps:
        counts = [("operands and results", len(step.inputs) + len(step.outputs), limits.MAX_OPERANDS),
                  ("extents given at run time", len(step.bound.extents), limits.MAX_EXTENTS)]
        found += [f"{step.op.kind} '{step.op.origin}' has {count} {what}, a kernel has at most {limit}"
                  for what, count, limit in counts if count > limit]
    if found:
        raise ModelError(name, found, "Split the operator before the model is exported, or give the inputs shapes.")


def _marks(plan: KernelPlan, releases: Mapping[int, Sequence[str]]) -> dict[str, int]:
    """Returns the index of the instruction at each jump target. It counts in the order in which `_Instructions` adds
    them."""
    found, instruction = {}, 0
    for index in range(len(plan.steps) + 1):
        for item in plan.before.get(index, ()):
            if isinstance(item, Mark):
                found[item.name] = instruction
            else:
                instruction += 1
        instruction += len(releases.get(index - 1, ())) + 1
    return found


class _Instructions:
    """The instructions of a program, their operands, and for each bucket a slot for each instruction (`calls`)."""

    def __init__(self, plan: KernelPlan, table: KernelTable, rows: _Rows, buckets: int):
        self._plan, self._shapes, self._rows = plan, table.shapes, rows
        self._releases = plan.releases(rows.unbounded)
        self._marks = _marks(plan, self._releases)
        self._kernel_id = {spec: index for index, spec in enumerate(table.specs)}
        self.operands: list[int] = []
        self.instructions: list[container.Instruction] = []
        self.calls: list[list[container.CallSlot]] = [[] for _ in range(buckets)]

    def add_all(self, buckets: Sequence[PlannedMemory]) -> None:
        """Adds the steps of the plan in order: the control flow before a step, the call, the control flow before the
        next one, then the releases of what no later step reads."""
        self._add_control(0)
        for index, step in enumerate(self._plan.steps):
            self._add_call(step, [planned.workspaces[index] for planned in buckets])
            self._add_control(index + 1)
            for name in self._releases.get(index, ()):
                self._add(container.Opcode.release, operands=self._rows.tensor(name))

    def _add(self, opcode: container.Opcode, operands: int, inputs: int = 0, first_extent: int = 0) -> None:
        """Adds an instruction that calls no kernel: its slots are empty. schema/megcc.fbs tells what the fields of each
        opcode mean."""
        self.instructions.append(container.Instruction(opcode, inputs, outputs=0, extents=0, operands=operands,
                                                       first_extent=first_extent))
        for slots in self.calls:
            slots.append(container.CallSlot(0, 0))

    def _add_call(self, step: Step, workspaces: Sequence[int | None]) -> None:
        operands = [self._rows.tensor(name) for name in (*step.inputs, *step.outputs)]
        extents = step.bound.extents
        self.instructions.append(container.Instruction(
            opcode=container.Opcode.call, inputs=len(step.inputs), outputs=len(step.outputs), extents=len(extents),
            operands=len(self.operands), first_extent=self._rows.first_extent(extents) if extents else 0))
        self.operands += operands
        for slots, workspace in zip(self.calls, workspaces, strict=True):
            slots.append(container.CallSlot(self._kernel_id[step.spec],
                                            container.ALLOCATED if workspace is None else workspace))

    def _add_control(self, index: int) -> None:
        """Adds the control flow before a step: jumps, loops, moves, and symbols that the run has computed."""
        for item in self._plan.before.get(index, ()):
            if isinstance(item, Mark):
                continue
            if isinstance(item, UnbackedSymbol):
                symbol = self._shapes.index(item.symbol)
                self._add(container.Opcode.extent, operands=self._rows.tensor(item.value), inputs=item.element,
                          first_extent=symbol)
                continue
            values = [self._rows.tensor(value) for value in item.values]
            if isinstance(item, Move):
                self._add(container.Opcode.move, operands=len(self.operands), inputs=len(values))
            elif isinstance(item, Jump):
                self._add(container.Opcode.branch, operands=len(self.operands), inputs=int(item.when),
                          first_extent=self._marks[item.mark])
            elif isinstance(item, Iteration):
                values = values[:3]  # the iteration, the trip count and the condition; the runtime needs no others
                self._add(container.Opcode.loop, operands=len(self.operands), inputs=int(not item.first),
                          first_extent=self._marks[item.mark])
            self.operands.extend(values)


def program(plan: KernelPlan, buckets: Sequence[PlannedMemory], table: KernelTable, store: Weights,
            quantised: Mapping[str, Quantisation]) -> container.Program:
    """Returns the program of one target, with a device model for each bucket."""
    rows = _Rows(plan, buckets, table.shapes, store, quantised)
    inputs = tuple(rows.tensor(name) for name in plan.graph.inputs)
    outputs = tuple(rows.tensor(name) for name in plan.graph.outputs)
    instructions = _Instructions(plan, table, rows, len(buckets))
    instructions.add_all(buckets)
    for state, value in plan.graph.initial_states.items():
        rows.add_initial_value(state, value)
    states = tuple(container.State(plan.graph.outputs.index(source), plan.graph.inputs.index(target))
                   for source, target in plan.graph.states)
    device_models = tuple(
        container.DeviceModel(
            bounds=tuple(container.Bound(lower, -1 if upper is None else upper)
                         for _, lower, upper in planned.bucket.bounds),
            tensors=tuple(tensors), calls=tuple(slots), arena_bytes=planned.plan.arena_bytes,
            regions=planned.plan.regions)
        for planned, tensors, slots in zip(buckets, rows.slots, instructions.calls, strict=True))
    quants, quant_data = rows.quants()
    return container.Program(
        isa=plan.target.isa.code, code_id=table.id, alignment=plan.target.isa.alignment, workers=plan.workers,
        symbols=len(table.shapes.symbols), values=len(table.shapes.values), tensors=tuple(rows.tensors),
        extents=tuple(rows.extents), operands=tuple(instructions.operands),
        instructions=tuple(instructions.instructions),
        inputs=inputs, outputs=outputs, states=states, quants=quants, quant_data=quant_data, names=tuple(rows.names),
        device_models=device_models)


#: MEGCC_ISA_* of CPUs without caches -> alignment of their weights in bytes: that of a vector, since flash is small and
#: there are no cache lines.
_WITHOUT_CACHES = {target.isa.code: target.isa.alignment for target in TARGETS.values() if target.bare_metal}


def _weight_alignment(codes: Collection[int]) -> int:
    """Returns bytes that weights for these CPUs (MEGCC_ISA_*) are aligned to."""
    if set(codes) <= set(_WITHOUT_CACHES):
        return max(_WITHOUT_CACHES[code] for code in codes)
    return container.WEIGHTS_ALIGNMENT


def assemble(name: str, plans: Sequence[tuple[KernelPlan, Sequence[PlannedMemory]]], tables: Sequence[KernelTable],
             quantised: Mapping[str, Quantisation]) -> Image:
    """Returns the container of a model: one program for each target, with shared weights.

    Args:
        plans: for each target, its kernels and the memory of each bucket.
        tables: for each target, its kernel table.
        quantised: the quantisation of inputs and outputs, by name.

    Raises:
        ModelError: for calls that exceed limits of the runtime.
        MegccError: for more than 2 GB of weights on a target with addresses of 32 bits.
    """
    for plan, _ in plans:
        require_limits(name, plan)
    store = Weights(_weight_alignment([plan.target.isa.code for plan, _ in plans]))
    programs = tuple(program(plan, buckets, table, store, quantised)
                     for (plan, buckets), table in zip(plans, tables, strict=True))
    if container.is_large(store):
        for plan, _ in plans:
            if plan.target.pointer_bytes < 8:
                raise MegccError(f"{name} has {len(store):,} bytes of weights, and {plan.target} has addresses of 32 "
                                 "bits, which do not reach beyond 2 GB of a file")
    return Image(container.ContainerModel(name=name, model_id=model_id(tables), programs=programs, weights=store))


def container_part(data: bytes, codes: Collection[int]) -> bytes:
    """Returns a container with the programs for these CPUs (MEGCC_ISA_*) only, and the weights that they read."""
    model = container.read(data)
    part = part_of(model, codes)
    return data if part is model else container.write(part)


def part_of(model: container.ContainerModel, codes: Collection[int]) -> container.ContainerModel:
    """Returns the same as `container_part` for a container as values: `model` itself if no program is dropped."""
    programs = [row for row in model.programs if row.isa in codes]
    if len(programs) == len(model.programs):
        return model
    store = Weights(_weight_alignment(codes))
    programs = [replace(row, tensors=tuple(
        replace(tensor, data=store.add(model.weights[tensor.data:tensor.data + tensor.bytes]))
        if tensor.storage == container.Storage.weight else tensor for tensor in row.tensors)) for row in programs]
    return replace(model, programs=tuple(programs), weights=store)


def container_text(image: Image) -> str:
    """Returns the rows of a container as text, one line for each."""
    model = image.model
    lines = [f"container {model.name}: {len(image)} bytes, model {model.model_id:016x}, "
             f"weights {len(model.weights)} bytes"]
    for row in model.programs:
        lines.append(f"program for ISA {row.isa:#010x}, code {row.code_id:016x}, alignment {row.alignment}, "
                     f"inputs {row.inputs}, outputs {row.outputs}, states {row.states}")
        lines += [f"  {index:4d} {tensor}" for index, tensor in enumerate(row.tensors)]
        lines += [f"  {index:4d} {instruction}" for index, instruction in enumerate(row.instructions)]
        lines += [f"  device model: arena {d.arena_bytes} bytes, bounds {d.bounds}, {d.tensors}, {d.calls}"
                  for d in row.device_models]
    return "\n".join(lines) + "\n"
