# SPDX-License-Identifier: Apache-2.0
"""The smallest model that still fails: fewer nodes, attributes and operands, smaller extents, plainer values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from .cases import Case
from .draw import element_type


def shrunk(case: Case, fails: Callable[[Case], bool], seconds: float = 60) -> Case:
    """Takes the first smaller case that fails until none does, or the time is up.

    Args:
        fails: whether a case has the same kind of failure. It is asked for models that are not valid, too.
    """
    ends = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for smaller in candidates(case):
            if time.monotonic() > ends:
                return case
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Cases that are smaller by one thing, the largest steps first."""
    yield from _fewer_nodes(case)
    for at, node in enumerate(case.model.graph.node):
        for name in [each.name for each in node.attribute]:
            model = _copy(case)
            kept = [each for each in model.graph.node[at].attribute if each.name != name]
            del model.graph.node[at].attribute[:]
            model.graph.node[at].attribute.extend(kept)
            yield replace(case, model=model)
        if len(node.input) > 1:
            model = _copy(case)
            del model.graph.node[at].input[-1]
            yield _pruned(replace(case, model=model))
    yield from _smaller_extents(case)
    for name, array in arrays_of(case).items():
        for plain in _plainer(array):
            yield with_arrays(case, {name: plain})


def arrays_of(case: Case) -> dict[str, np.ndarray]:
    """What is fed, and initializers."""
    return case.feeds | {each.name: numpy_helper.to_array(each) for each in case.model.graph.initializer}


def with_arrays(case: Case, changed: Mapping[str, np.ndarray]) -> Case:
    """The case with other operands; outputs have no types then, for these may be others."""
    model = _copy(case)
    for tensor in model.graph.initializer:
        if tensor.name in changed:
            tensor.CopyFrom(numpy_helper.from_array(changed[tensor.name], tensor.name))
    for value in model.graph.input:
        if value.name in changed:
            array = changed[value.name]
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, element_type(array), array.shape))
    for value in model.graph.output:
        value.ClearField("type")
    del model.graph.value_info[:]
    return replace(case, model=model, feeds=case.feeds | {name: changed[name] for name in case.feeds
                                                          if name in changed})


def _copy(case: Case) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    return model


def _fewer_nodes(case: Case) -> Iterator[Case]:
    """Without what follows a node: its results are the outputs."""
    for count in range(1, len(case.model.graph.node)):
        model = _copy(case)
        del model.graph.node[count:]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in model.graph.node[-1].output if name)
        yield _pruned(replace(case, model=model))


def _pruned(case: Case) -> Case:
    """Without operands and nodes that no output needs."""
    model = case.model
    needed, kept = {value.name for value in model.graph.output}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.insert(0, node)
    for field, values in (("node", kept),
                          ("input", [each for each in model.graph.input if each.name in needed]),
                          ("initializer", [each for each in model.graph.initializer if each.name in needed])):
        values = [type(each).FromString(each.SerializeToString()) for each in values]
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(values)
    return replace(case, model=model, feeds={name: array for name, array in case.feeds.items() if name in needed})


def _smaller_extents(case: Case) -> Iterator[Case]:
    """Every axis of one extent shorter at once, then one axis alone: the first elements are left, or the last."""
    arrays = arrays_of(case)
    for extent in sorted({each for array in arrays.values() for each in array.shape if each > 1}, reverse=True):
        for shorter in dict.fromkeys((1, extent // 2, extent - 1)):
            places = [(name, axis) for name, array in arrays.items()
                      for axis, each in enumerate(array.shape) if each == extent]
            for chosen in (places, *([place] for place in places if len(places) > 1)):
                for first in (0, extent - shorter):
                    changed = {}
                    for name, axis in chosen:
                        part = changed.get(name, arrays[name]).take(range(first, first + shorter), axis)
                        changed[name] = part
                    yield with_arrays(case, changed)


def _plainer(array: np.ndarray) -> Iterator[np.ndarray]:
    """Zeros, ones, whole numbers: none that is as it was."""
    if array.dtype.kind not in "fiu" or not array.size:
        return
    with np.errstate(all="ignore"):
        for plain in (np.zeros_like(array), np.ones_like(array), np.rint(array).astype(array.dtype)):
            if not np.array_equal(plain, array, equal_nan=array.dtype.kind == "f"):
                weight = np.count_nonzero(plain != np.rint(plain)), np.count_nonzero(plain), np.abs(plain).sum()
                own = np.count_nonzero(array != np.rint(array)), np.count_nonzero(array), np.abs(array).sum()
                if weight < own:
                    yield plain
