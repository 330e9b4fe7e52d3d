# SPDX-License-Identifier: Apache-2.0
"""Steps that are functions with named inputs and outputs: each is a network of ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...errors import MegccError
from .nodes import Nodes
from .settings import Settings
from .steps import NamedFunction, ValueType

if TYPE_CHECKING:
    import onnx


class Function(NamedTuple):
    """A function of a step.

    Attributes:
        keys: its settings.
        inputs, outputs: their names.
        make: make(graph, settings, types) adds nodes that compute the outputs, named `out_` and their name, and returns
            the types of the outputs. The inputs have their own names, and `types` has their types.
        integers: the inputs that are int64; all others are float32.
        optional: the inputs that may be left out.
        paths: the keys that are paths; in a file they are relative to the folder of models.
    """

    keys: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    make: Callable[[Nodes, Settings, Mapping[str, ValueType]], dict[str, ValueType]]
    integers: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


def model(step: NamedFunction, functions: Mapping[str, Function], given: Mapping[str, ValueType]) -> onnx.ModelProto:
    """Returns a step as a model of ONNX, with the function's inputs, and its outputs after `out_`.

    Args:
        functions: those of the step's kind.
        given: the type of each input that it gets.

    Raises:
        MegccError: for inputs of other shapes, and a setting that is missing, of another kind, or impossible.
    """
    settings = Settings(step, {name: function.keys for name, function in functions.items()})
    function = functions[step.function]
    for direction, names, known in (("input", step.inputs, function.inputs), ("output", step.outputs,
                                                                               function.outputs)):
        for name in names:
            if name not in known:
                raise MegccError(f"{step.function} has no {direction} '{name}'; it has {', '.join(known)}")
    graph = Nodes()
    for name in function.inputs:
        if name not in given:
            if name in function.optional:
                continue
            raise MegccError(f"its input '{name}' gets no value")
        dtype = "int64" if name in function.integers else "float32"
        if given[name].dtype != dtype:
            raise MegccError(f"its input '{name}' is {dtype}, not {given[name]}")
        graph.input(name, given[name].shape, dtype)
    results = function.make(graph, settings, given)
    for name in step.outputs:
        graph.output(f"out_{name}", results[name].shape, results[name].dtype)
    return graph.model(step.function)
