# SPDX-License-Identifier: Apache-2.0
"""Containers made by hand for the kernels in c_runtime/tests/kernels.c."""

from __future__ import annotations

import struct
from dataclasses import replace

from tvm_megcc.codegen import container
from tvm_megcc.codegen.container import (
    ALLOCATED,
    Bound,
    CallSlot,
    ContainerModel,
    DeviceModel,
    DType,
    Instruction,
    LayoutKind,
    Opcode,
    Program,
    Quant,
    State,
    Storage,
    Tensor,
    TensorSlot,
)

ISA_C, ISA_X86_64_V4 = 0x00000000, 0x00010004
WEIGHT = tuple(0.5 * i for i in range(24))


def tensor(storage: Storage, rank: int, dims: int, **fields) -> Tensor:
    row = Tensor(DType.float32, LayoutKind.plain, storage, rank, 0, 0, 0, dims, 0, 0, 0, 0)
    return replace(row, **fields)


def static_program() -> Program:
    """t0 = x * w; t1 = t0 + h, in place; y = check(t1); h' = t1, kept for the next run."""
    tensors = (
        tensor(Storage.arena, 2, 0, name=1),                       # 0 x
        tensor(Storage.state, 2, 0, name=2),                       # 1 h
        tensor(Storage.arena, 1, 2, name=3),                       # 2 y
        tensor(Storage.arena, 2, 0, name=4),                       # 3 h'
        tensor(Storage.weight, 4, 3, data=64, bytes=96, quant=1, layout=LayoutKind.nhwc),  # 4 w
        tensor(Storage.arena, 2, 0),                               # 5 t0
        tensor(Storage.arena, 2, 0, layout=LayoutKind.nchwc, block=3),  # 6 t1, where t0 is
        tensor(Storage.view, 1, 2, root=6, data=0, bytes=96),      # 7 t1 as a vector
    )
    slots = tuple(TensorSlot(offset, size) for offset, size in (
        (96, 96), (0, 96), (288, 96), (384, 96), (0, 0), (192, 96), (192, 96), (0, 0)))
    return Program(
        isa=ISA_C, code_id=1, alignment=16, workers=4, symbols=0, values=0, tensors=tensors,
        extents=(4, 6, 24, 1, 2, 3, 4), operands=(0, 4, 5, 5, 1, 6, 7, 2, 6, 3),
        instructions=tuple(Instruction(Opcode.call, *row) for row in (
            (2, 1, 0, 0, 0), (2, 1, 0, 3, 0), (1, 1, 0, 6, 0), (1, 1, 0, 8, 0))),
        inputs=(0, 1), outputs=(2, 3), states=(State(1, 1),), quants=(Quant(1, 2, 0), Quant(-1, 1, 2)),
        quant_data=struct.unpack("<4I", struct.pack("<fifi", 0.5, 3, 0.25, -3)), names=("x", "h", "y", "h_out"),
        device_models=(DeviceModel((), slots, (CallSlot(0, 96), CallSlot(1, 480), CallSlot(2, 96), CallSlot(3, 96)),
                                   480 + 64 + 4 * 64),))


def static_model() -> ContainerModel:
    """Also a program for a better CPU whose code is not there, and unused words in front of the weight."""
    other = replace(static_program(), isa=ISA_X86_64_V4, code_id=99, alignment=64, workers=1,
                    device_models=(DeviceModel((), tuple(
                        TensorSlot({0: 128, 1: 0}.get(i, 128 * i), 96)
                        if t.storage in (Storage.arena, Storage.state) else TensorSlot(0, 0)
                        for i, t in enumerate(static_program().tensors)), (CallSlot(7, 128),) * 4, 1024),))
    return ContainerModel("static", 11, (other, static_program()),
                          bytes(64) + struct.pack("<24f", *WEIGHT))


def regions_model() -> ContainerModel:
    """As static, with workspace and a copy of the weight in a block of memory of their own."""
    program = static_program()
    memory = program.device_models[0]
    slots = tuple(TensorSlot(800, 96) if t.storage == Storage.weight else slot
                  for t, slot in zip(program.tensors, memory.tensors, strict=True))
    memory = replace(memory, tensors=slots, arena_bytes=896, regions=(480, 416))
    return replace(static_model(), programs=(replace(program, device_models=(memory,)),))


N, TWICE = -1, -2


def dynamic_program() -> Program:
    """a[n,3], b[2n] -> t = double(a); u = t + t with allocated or planned workspace; y[n,3] = check(u); z = double(b).

    Two buckets are planned, [1, 4] and [5, 16]; above that everything lies outside of the arena.
    """
    def bucket(lo: int, hi: int) -> DeviceModel:
        a, b = 12 * hi, 8 * hi
        a, b = -(-a // 16) * 16, -(-b // 16) * 16
        offsets = (0, a, a + b, 2 * a + b, 2 * a + 2 * b, 3 * a + 2 * b, 0)
        sizes = (12 * hi, 8 * hi, 12 * hi, 8 * hi, 12 * hi, 12 * hi, 0)
        slots = tuple(TensorSlot(o, s) for o, s in zip(offsets, sizes, strict=True))
        work = 4 * a + 2 * b
        return DeviceModel((Bound(lo, hi),), slots,
                           (CallSlot(0, 0), CallSlot(1, work), CallSlot(2, 0), CallSlot(0, 0)), work + 512)

    tensors = (
        tensor(Storage.arena, 2, 0, name=1),            # 0 a
        tensor(Storage.arena, 1, 2, name=2),            # 1 b
        tensor(Storage.arena, 2, 0, name=3),            # 2 y
        tensor(Storage.arena, 1, 2, name=4),            # 3 z
        tensor(Storage.arena, 2, 0),                    # 4 t
        tensor(Storage.arena, 2, 0),                    # 5 u
        tensor(Storage.view, 1, 3, root=5),             # 6 u as a vector
    )
    return Program(
        isa=ISA_C, code_id=2, alignment=16, workers=4, symbols=1, values=2, tensors=tensors,
        extents=(N, 3, TWICE, -3), operands=(0, 4, 4, 4, 5, 6, 2, 1, 3),
        instructions=tuple(Instruction(Opcode.call, *row) for row in (
            (1, 1, 1, 0, 3), (2, 1, 1, 2, 3), (1, 1, 1, 5, 3), (1, 1, 1, 7, 2))),
        inputs=(0, 1), outputs=(2, 3), states=(), quants=(), quant_data=(), names=("a", "b", "y", "z"),
        device_models=(bucket(1, 4), bucket(5, 16)))


def dynamic_model() -> ContainerModel:
    return ContainerModel("dynamic", 12, (dynamic_program(),), b"")


def unbounded_model() -> ContainerModel:
    """The same without bounds; t and u are released."""
    p = dynamic_program()
    tensors = tuple(replace(t, storage=Storage.unbounded) if t.storage == Storage.arena else t for t in p.tensors)
    calls = p.instructions
    release = [Instruction(Opcode.release, 0, 0, 0, t, 0) for t in (4, 5)]
    instructions = (calls[0], calls[1], release[0], calls[2], release[1], calls[3])
    slots = (CallSlot(0, 0), CallSlot(1, ALLOCATED), CallSlot(0, 0), CallSlot(2, 0), CallSlot(0, 0), CallSlot(0, 0))
    bucket = DeviceModel((Bound(0, -1),), (TensorSlot(0, 0),) * len(tensors), slots, 0)
    return ContainerModel("unbounded", 13, (replace(p, code_id=3, tensors=tensors, instructions=instructions,
                                                    device_models=(bucket,)),), b"")


def copying_model() -> ContainerModel:
    """As unbounded, but z = b, by an instruction `move`."""
    model = unbounded_model()
    program = model.programs[0]
    move = Instruction(Opcode.move, inputs=2, outputs=0, extents=0, operands=7, first_extent=0)
    return replace(model, name="copying", programs=(replace(program, instructions=(*program.instructions[:-1], move)),))


def pair_model() -> ContainerModel:
    """y = double(a), z = double(b), of lengths that do not depend on each other: both up to 4, or both from 5 to 16."""
    def bucket(lo: int, hi: int) -> DeviceModel:
        slots = tuple(TensorSlot(64 * i, 4 * hi) for i in range(4))
        return DeviceModel((Bound(lo, hi), Bound(lo, hi)), slots, (CallSlot(0, 256), CallSlot(0, 256)), 256)

    tensors = tuple(tensor(Storage.arena, 1, i % 2, name=1 + i) for i in range(4))
    return ContainerModel("pair", 15, (Program(
        isa=ISA_C, code_id=5, alignment=16, workers=1, symbols=2, values=0, tensors=tensors, extents=(-1, -2),
        operands=(0, 2, 1, 3), instructions=(Instruction(Opcode.call, 1, 1, 1, 0, 0),
                                             Instruction(Opcode.call, 1, 1, 1, 2, 1)),
        inputs=(0, 1), outputs=(2, 3), states=(), quants=(), quant_data=(), names=("a", "b", "y", "z"),
        device_models=(bucket(1, 4), bucket(5, 16))),), b"")


def wide_model() -> ContainerModel:
    """y = x, of a kernel with forty operands."""
    tensors = (tensor(Storage.arena, 1, 0, name=1), tensor(Storage.arena, 1, 0, name=2))
    return ContainerModel("wide", 14, (Program(
        isa=ISA_C, code_id=4, alignment=16, workers=1, symbols=0, values=0, tensors=tensors, extents=(24,),
        operands=(0,) * 40 + (1,), instructions=(Instruction(Opcode.call, 40, 1, 1, 0, 0),), inputs=(0,), outputs=(1,),
        states=(), quants=(), quant_data=(), names=("x", "y"), device_models=(
            DeviceModel((), (TensorSlot(0, 96), TensorSlot(96, 96)), (CallSlot(0, 192),), 192),)),), b"")


def half_model() -> ContainerModel:
    """y = every other element of x, where x is."""
    tensors = (tensor(Storage.arena, 1, 0, name=1), tensor(Storage.arena, 1, 1, name=2))
    return ContainerModel("half", 16, (Program(
        isa=ISA_C, code_id=6, alignment=16, workers=1, symbols=0, values=0, tensors=tensors, extents=(24, 12),
        operands=(0, 1), instructions=(Instruction(Opcode.call, 1, 1, 0, 0, 0),), inputs=(0,), outputs=(1,),
        states=(), quants=(), quant_data=(), names=("x", "y"), device_models=(
            DeviceModel((), (TensorSlot(0, 96), TensorSlot(0, 48)), (CallSlot(0, 144),), 144),)),), b"")


def large_model() -> ContainerModel:
    """As static, with its weights behind everything else."""
    return container.read(container.write(replace(static_model(), weights_begin=64)))


MODELS = {"static": static_model, "dynamic": dynamic_model, "unbounded": unbounded_model,
          "copying": copying_model, "wide": wide_model,
          "pair": pair_model, "half": half_model, "regions": regions_model, "large": large_model}
#: The module in c_runtime/tests/kernels.c that has the code of a model.
MODULES = {name: "static_module" if name in ("static", "wide", "half", "regions", "large") else "dynamic_module"
           for name in MODELS}
