# SPDX-License-Identifier: Apache-2.0
"""Containers made by hand that ask for what they must not have, each with the field that is to be named; and some that
are unusual, and open."""

from __future__ import annotations

from dataclasses import replace

from tvm_megcc.codegen.container import (
    Bound,
    CallSlot,
    ContainerModel,
    DeviceModel,
    DType,
    Instruction,
    LayoutKind,
    Opcode,
    Program,
    State,
    Storage,
    Tensor,
    TensorSlot,
)

from .runtime_models import half_model, pair_model, regions_model, tensor, unbounded_model, wide_model

#: In place of a field that is named.
OPENS = "opens"
MOST_OPERANDS = 61
MOVE = replace(half_model().programs[0].instructions[0], opcode=Opcode.move, inputs=2, outputs=0)


def changed(model: ContainerModel, **fields) -> ContainerModel:
    return replace(model, programs=(replace(model.programs[0], **fields),))


def half(kernel: int, more: tuple[Tensor, ...] = (), slots: tuple[TensorSlot, ...] = (), y: int = 96, **fields):
    """x and y of `half_model`, and other tensors, with another kernel in front of other instructions."""
    program: Program = half_model().programs[0]
    calls = (CallSlot(kernel, 240), CallSlot(0, 0))[:len(fields.get("instructions", (0,)))]
    memory = DeviceModel((), (TensorSlot(0, 96), TensorSlot(y, 48), *slots), calls, 240)
    return changed(half_model(), **{"tensors": (*program.tensors, *more), "device_models": (memory,), **fields})


def both(at: int) -> ContainerModel:
    """A kernel with two results, the second one there."""
    return half(2, (tensor(Storage.arena, 1, 1),), (TensorSlot(at, 48),), operands=(0, 1, 2),
                instructions=(Instruction(Opcode.call, 1, 2, 0, 0, 0),))


def copied(source: int, target: int, inputs: int = 2, at: int = 96) -> ContainerModel:
    """x [24] and y [12] copied to tensors of 12 floats and one number; the first of these lies there."""
    more = (tensor(Storage.arena, 1, 1), tensor(Storage.arena, 1, 2, dtype=DType.int64))
    return half(0, more, (TensorSlot(at, 48), TensorSlot(192, 8)), y=144, extents=(24, 12, 1),
                operands=(0, 1, source, target, 3), instructions=(
                    half_model().programs[0].instructions[0], replace(MOVE, inputs=inputs, operands=2)))


def many() -> ContainerModel:
    """A kernel of more operands than there may be."""
    program = wide_model().programs[0]
    return changed(wide_model(), operands=(0,) * MOST_OPERANDS + (1,), device_models=(
        replace(program.device_models[0], calls=(CallSlot(1, 192),)),), instructions=(
            Instruction(Opcode.call, MOST_OPERANDS, 1, 0, 0, 0),))


def three_gigabytes() -> ContainerModel:
    """In an arena that is as large."""
    size = 3 << 30
    memory = DeviceModel((), (TensorSlot(0, 96), TensorSlot(96, 48), TensorSlot(256, size)), (CallSlot(0, 0),),
                         size + 256)
    return changed(half(0, (tensor(Storage.arena, 2, 1),)), extents=(24, 12, 1 << 26), device_models=(memory,))


def from_the_caller() -> ContainerModel:
    tensors = half_model().programs[0].tensors
    memory = DeviceModel((), (TensorSlot(0, 0), TensorSlot(0, 48)), (CallSlot(0, 48),), 48)
    return changed(half_model(), tensors=(replace(tensors[0], storage=Storage.caller), tensors[1]),
                   device_models=(memory,))


def sum_with_weights() -> ContainerModel:
    """Where workspace is allocated, and one operand is constant."""
    model = unbounded_model()
    program = model.programs[0]
    memory = program.device_models[0]
    weight = tensor(Storage.weight, 1, len(program.extents), bytes=96)
    return replace(changed(
        model, tensors=(*program.tensors, weight), extents=(*program.extents, 24),
        operands=(0, 4, 4, len(program.tensors), 5, 6, 2, 1, 3),
        device_models=(replace(memory, tensors=(*memory.tensors, TensorSlot(0, 0))),)), weights=bytes(96))


def kept() -> ContainerModel:
    """Of `pair_model`, where the second input is a state that the second result becomes."""
    program = pair_model().programs[0]
    tensors = (program.tensors[0], replace(program.tensors[1], storage=Storage.state), *program.tensors[2:])
    slots = tuple(TensorSlot(at, 64) for at in (64, 0, 128, 192))
    memory = replace(program.device_models[0], bounds=(Bound(1, 16),) * 2, tensors=slots, arena_bytes=256)
    return changed(pair_model(), tensors=tensors, states=(State(1, 1),), device_models=(memory,))


def begun_in_a_region() -> ContainerModel:
    """A state that begins with the weight that is copied there."""
    tensors = regions_model().programs[0].tensors
    return changed(regions_model(), tensors=(tensors[0], replace(tensors[1], root=4), *tensors[2:]))


def extra(rank: int, layout: LayoutKind = LayoutKind.plain) -> ContainerModel:
    """A tensor of one element that no call reads."""
    return half(0, (tensor(Storage.arena, rank, 2, layout=layout),), (TensorSlot(192, 4),), extents=(24, 12) + (1,) * 9)


#: Name -> module, model, the field that is to be named or `OPENS`. The module "copies" is the static one, of which a
#: runtime without dynamic shapes opens none of these.
HOSTILE = {
    "place_of_another_size": ("static", half(1, y=0), "TensorSlot.offset"),
    "place_of_its_own": ("static", half(1), OPENS),
    "results_apart": ("static", both(144), OPENS),
    "results_overlap": ("static", both(96), "TensorSlot.offset"),
    "results_overlap_in_part": ("static", both(128), "TensorSlot.offset"),
    "too_many_operands": ("static", many(), "Instruction.first_extent"),
    "three_gigabytes": ("static", three_gigabytes(), "Tensor.dims"),
    "from_the_caller": ("static", from_the_caller(), OPENS),
    "copy": ("copies", copied(1, 2), OPENS),
    "copy_of_one": ("copies", copied(1, 2, 3), OPENS),
    "copy_of_more": ("copies", copied(0, 2), "Tensor.dims"),
    "copy_of_more_than_one": ("copies", copied(0, 2, 3), OPENS),
    "copy_onto_itself": ("copies", copied(1, 2, at=128), "TensorSlot.offset"),
    "copy_of_other_numbers": ("copies", copied(3, 2), "Tensor.dtype"),
    "copy_into_an_input": ("copies", copied(1, 0), "Program.operands"),
    "sum_with_weights": ("dynamic", sum_with_weights(), OPENS),
    "kept": ("dynamic", kept(), OPENS),
    "nine_axes": ("static", extra(rank=9), "Tensor.rank"),
    "three_axes_of_nhwc": ("static", extra(rank=3, layout=LayoutKind.nhwc), "Tensor.rank"),
    "begun_in_a_region": ("static", begun_in_a_region(), OPENS),
}
