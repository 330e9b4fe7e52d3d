# SPDX-License-Identifier: Apache-2.0
"""Joins the containers of several networks that run one after the other: equal weights are stored once, and the
sessions share a block of memory.

A container is a flatbuffer whose last vector is the weights. A joined file has the other parts of all containers in
order, and after them one vector with the weights of all. Each part refers to this vector. So the bytes from the
beginning of a part to the end of the file are a valid container.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import MegccError
from . import container
from .container import ContainerModel, DeviceModel, Image, Program, Storage
from .memory.weights import Weights


@dataclass(frozen=True)
class Joined:
    """Containers in one file.

    begins: byte offset of each network, in their order; multiples of `container.WEIGHTS_ALIGNMENT`.
    weight_bytes: bytes of the weights, equal ones counted once.
    """

    data: bytes
    begins: tuple[int, ...]
    weight_bytes: int


def join(models: Sequence[ContainerModel]) -> Joined:
    """Returns one file with these containers, which store equal weights once.

    Raises:
        MegccError: for more weights than a flatbuffer can have.
    """
    store = Weights(container.WEIGHTS_ALIGNMENT)
    with_store = [replace(model, weights=store, weights_begin=0, programs=tuple(
        replace(program, tensors=tuple(
            replace(row, data=store.add(model.weights[row.data:row.data + row.bytes]))
            if row.storage == Storage.weight else row for row in program.tensors)) for program in model.programs))
        for model in models]
    if container.is_large(store):
        raise MegccError(f"the networks have {len(store):,} bytes of weights together; one container holds at most "
                         f"{container.MAX_INNER_WEIGHTS:,}")
    # The first piece of a container is everything before its weights.
    heads = [bytes(next(Image(model).pieces())) for model in with_store]
    begins = [sum(map(len, heads[:index])) for index in range(len(heads))]
    weights_begin = sum(map(len, heads))
    # Between the end of a head and the weights are the heads of the later containers.
    moved = [container.with_weights_moved(head, weights_begin - (begin + len(head)))
             for head, begin in zip(heads, begins, strict=True)]
    size = len(store)
    return Joined(b"".join([*moved, *store.pieces(), bytes(-size % container.WEIGHTS_ALIGNMENT)]), tuple(begins), size)


def with_shared_memory(model: ContainerModel) -> ContainerModel:
    """Returns the model with two regions of memory. The first one, the session's own, has the states. The second one
    has everything that is dead between two runs, so that sessions that run one after the other can share it. A model
    with symbolic extents, such as the rows of a KV cache, remains as it is: its session keeps all its memory.

    Raises:
        MegccError: if the model has regions already.
    """
    return replace(model, programs=tuple(replace(program, device_models=tuple(
        _with_regions(model.name, program, device) for device in program.device_models)) for program in model.programs))


def shared_bytes(program: Program) -> int:
    """Returns the bytes of the second region of a model that `with_shared_memory` made."""
    return max((device.regions[1] for device in program.device_models if device.regions), default=0)


def _with_regions(name: str, program: Program, device: DeviceModel) -> DeviceModel:
    if device.regions:
        raise MegccError(f"{name}: it has memory regions; a network of a program has none")
    if program.symbols or program.values:
        return device
    states = max((slot.offset + slot.bytes for row, slot in zip(program.tensors, device.tensors, strict=True)
                  if row.storage == Storage.state), default=0)
    states += -states % program.alignment
    rest = device.arena_bytes - states
    return replace(device, regions=(states, rest)) if rest else device
