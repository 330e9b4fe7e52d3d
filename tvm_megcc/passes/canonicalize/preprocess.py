# SPDX-License-Identifier: Apache-2.0
"""Adds preprocessing to the graph: inputs get the dtype, layout and channel order of a camera or microphone, and the
graph converts and normalises them (mean, standard deviation)."""

from __future__ import annotations

import difflib
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

import numpy as np

from ...errors import MegccError, ModelError
from ...ir.dims import Dim
from ...ir.graph import Attrs, Graph, Op
from ...ir.types import ORDINARY, TensorType
from ..edit import Editor

LAYOUTS = ("NCHW", "NHWC")
_TO_CHANNELS_LAST, _TO_CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)

Numbers = Union[float, Sequence[float]]


@dataclass(frozen=True)
class Input:
    """The format in which a caller gives an input x; the network gets (x - mean) / std, or (x - mean) * scale.

    Attributes:
        dtype: element type of x; "": that of the network's input.
        layout: order of the axes of x, "NHWC" or "NCHW"; "": that of the network's input.
        order: "BGR": the channels of x are in the reverse order of the network's channels (the network has RGB and x
            BGR, or the network BGR and x RGB); "": they are in the network's order.
        mean, std, scale: a number, or one for each channel in the network's order of channels; () for none. Give std or
            scale, not both.
        network: order of the axes of the network's input; "": "NHWC" if the model begins with a transpose from that
            order, else "NCHW".

    Raises:
        MegccError: for invalid values.
    """

    dtype: str = ""
    layout: str = ""
    order: str = ""
    mean: Numbers = ()
    std: Numbers = ()
    scale: Numbers = ()
    network: str = ""

    def __post_init__(self):
        for name, allowed in (("dtype", ("", *ORDINARY)), ("layout", ("", *LAYOUTS)), ("order", ("", "BGR")),
                            ("network", ("", *LAYOUTS))):
            if getattr(self, name) not in allowed:
                raise MegccError(f"{name} '{getattr(self, name)}' of an input: "
                                 f"expected {' or '.join(filter(None, allowed))}")
        for name in ("mean", "std", "scale"):
            try:
                numbers = tuple(float(number) for number in np.atleast_1d(getattr(self, name)))
            except (TypeError, ValueError):
                raise MegccError(f"{name} of an input: expected numbers, not {getattr(self, name)!r}") from None
            if not all(math.isfinite(number) for number in numbers) or (name == "std" and 0 in numbers):
                raise MegccError(f"{name} of an input: {self._joined(numbers)} has a number that is not finite"
                                 + (" or is 0" if name == "std" else ""))
            object.__setattr__(self, name, numbers)
        if self.std and self.scale:
            raise MegccError("an input has both std and scale: it is divided by the one or multiplied by the other")

    def __str__(self) -> str:
        words = [self.dtype, self.layout, self.order]
        words += [f"{name}={self._joined(getattr(self, name))}" for name in ("mean", "std", "scale")
                  if getattr(self, name)]
        return ",".join([*filter(None, words), *([f"network={self.network}"] if self.network else [])])

    @staticmethod
    def _joined(numbers: Sequence[float]) -> str:
        return ":".join(repr(number).removesuffix(".0") for number in numbers)

    @property
    def computes(self) -> bool:
        """Whether there is arithmetic: a mean, std or scale."""
        return bool(self.mean or self.std or self.scale)

    @property
    def axes(self) -> str:
        """The order of the axes that the caller gives."""
        return self.layout or self.network

    def given_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Returns the shape that the caller gives. shape: that of the network's input."""
        return self._permuted(shape, self.network, self.axes)

    def network_shape(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """Returns the shape of the network's input. shape: that which the caller gives."""
        return self._permuted(shape, self.axes, self.network)

    @staticmethod
    def _permuted(shape: Sequence[Dim], source: str, result: str) -> tuple[Dim, ...]:
        if source == result:
            return tuple(shape)
        perm = _TO_CHANNELS_LAST if result == "NHWC" else _TO_CHANNELS_FIRST
        return tuple(shape[axis] for axis in perm)

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns mean and scale as float64 arrays of the same size: 1, or the number of channels."""
        mean, std = np.array(self.mean or (0.0,)), np.array(self.std or (1.0,))
        mean, scale = np.broadcast_arrays(mean, np.array(self.scale or 1 / std))
        return mean, scale

    def refusals(self, type_: TensorType) -> list[str]:
        """Returns the reasons why this format cannot be converted to a network's input of this type."""
        if type_.rank != 4 and (self.layout or self.order or self.network == "NHWC"):
            return [f"is {type_}; an order of axes or channels is for inputs of 4 axes"]
        counts = {len(numbers) for numbers in (self.mean, self.std, self.scale) if len(numbers) > 1}
        if not (counts or self.order):
            return []
        axis = 3 if self.network == "NHWC" else 1
        channels = type_.shape[axis] if type_.rank > 1 else 1
        if not isinstance(channels, int):
            return [f"is {type_}, with an unknown number of channels; give its shape with --input-shapes"]
        reasons = [f"has {channels} channels (axis {axis} of {type_}), not {count} as mean, std or scale"
                 for count in sorted(counts) if count != channels]
        if self.order and channels == 1:
            reasons.append("has one channel, which has no order")
        if reasons and type_.rank == 4:
            reasons[-1] += f"; network={'NCHW' if axis == 3 else 'NHWC'} if its channels are axis {4 - axis}"
        return reasons


def convert_inputs(graph: Graph, inputs: Mapping[str, Input]) -> Graph:
    """Returns the graph with inputs in the caller's formats, and with operators that convert them.

    Where possible (see `_folds`), the arithmetic is folded into the weights of the convolutions that read the input.
    Otherwise one operator does all conversions.

    Args:
        inputs: the caller's format, by the name of an input.

    Raises:
        ModelError: listing every input that is unknown or cannot be converted.
    """
    findings = []
    for name, given in inputs.items():
        if name not in graph.inputs:
            similar = difflib.get_close_matches(name, graph.inputs, 1)
            advice = f". Did you mean '{similar[0]}'?" if similar else ""
            findings.append(f"the model has no input '{name}'; its inputs are {', '.join(graph.inputs)}{advice}")
            continue
        if name in graph.string_ports:
            findings.append(f"input '{name}' has strings, which cannot be converted")
            continue
        findings += [f"input '{name}', given as {given}: it {reason}"
                     for reason in with_network(graph, name, given).refusals(graph.types[name])]
    if findings:
        raise ModelError(graph.name, findings,
                         "--input names an input of the model and gives one number, or as many as it has channels.")
    for name, given in inputs.items():
        graph = _converted(graph, name, with_network(graph, name, given))
    return graph


def with_network(graph: Graph, name: str, given: Input) -> Input:
    """Returns the format with `network`, the order of axes of the network's input, filled in."""
    return given if given.network else replace(given, network="NHWC" if _begins_transposed(graph, name) else "NCHW")


def _begins_transposed(graph: Graph, name: str) -> bool:
    """Returns whether an input has readers, and all are transposes from channels last to channels first."""
    readers = graph.consumers().get(name, [])
    return bool(readers) and all(op.kind == "transpose" and op.attrs.perm == _TO_CHANNELS_FIRST for op in readers)


def _converted(graph: Graph, name: str, given: Input) -> Graph:
    """Returns the graph with one input in the caller's format."""
    edit = Editor(graph)
    type_, network_inputs = graph.types[name], {name}  # the values that the rest of the network begins with
    transposed = {op.outputs[0] for op in graph.consumers().get(name, [])}
    # A model that begins by transposing NHWC to NCHW: that transpose is dropped, and the converted input replaces its
    # result. So the network's input has the axes NCHW from here on; those that the caller gives stay the same. (A
    # transpose whose result is an output stays.)
    if given.network == "NHWC" and _begins_transposed(graph, name) and not transposed & {*graph.outputs}:
        given = replace(given, layout=given.axes, network="NCHW")
        type_, network_inputs = type_.with_shape(type_.shape[axis] for axis in _TO_CHANNELS_FIRST), transposed
    readers = [op for op in graph.ops if not network_inputs.isdisjoint(op.inputs)]
    if _folds(graph, readers, network_inputs, type_, given):
        _fold(edit, readers, given)
        given = Input(given.dtype, given.layout, network=given.network)
    edit.types[name] = TensorType(given.dtype or type_.dtype, given.given_shape(type_.shape))
    edit.redirect(dict.fromkeys(network_inputs, _convert(edit, name, given, type_)))
    quantised = {port: pair for port, pair in graph.quantised.items() if port != name}
    return edit.finish().with_(quantised=quantised)


def _convert(edit: Editor, name: str, given: Input, network_type: TensorType) -> str:
    """Adds the operators that convert an input to the network's type. Returns the converted value."""
    value = name

    def emit(kind: str, *operands: str, **attrs) -> None:
        nonlocal value
        inputs = (value, *operands)
        value = edit.result(f"{name}.{kind}", kind, Attrs(attrs), inputs)
        edit.add_after(name, Op(kind, Attrs(attrs), inputs, (value,), origin=name))

    is_transposed = given.axes != given.network
    if given.computes or given.order or (network_type.dtype == "float32" and edit.types[name].dtype != "float32"):
        mean, scale = given.factors()
        is_uniform = len(mean) == 1 and not given.order and not is_transposed
        # The result has the channels first, unless all elements are treated alike: then its axes are those given.
        emit("convert_input", _constant(edit, f"{name}.mean", mean), _constant(edit, f"{name}.scale", scale),
             channels_last=given.axes == "NHWC" and not is_uniform, reverse=bool(given.order))
        if given.network == "NHWC" and not is_uniform:
            emit("transpose", perm=_TO_CHANNELS_LAST)
        if not network_type.dtype.startswith("float"):
            emit("round")
    elif is_transposed:
        emit("transpose", perm=_TO_CHANNELS_LAST if given.network == "NHWC" else _TO_CHANNELS_FIRST)
    if edit.types[value].dtype != network_type.dtype:
        emit("cast", dtype=network_type.dtype)
    return value


def _constant(edit: Editor, name: str, array: np.ndarray) -> str:
    return edit.constant(name, np.ascontiguousarray(array, np.float32))


def _folds(graph: Graph, readers: Sequence[Op], network_inputs: Container[str], type_: TensorType, given: Input
           ) -> bool:
    """Returns whether the arithmetic can go into the weights of the convolutions that read one of `network_inputs`.

    It is not folded if the dtype has to be converted: the conversion is a pass over the elements anyway, so arithmetic
    in it costs nearly nothing, and numbers near 0 are more exact. A mean is not folded into a convolution with pads,
    because the padding is 0 after the arithmetic.
    """
    def takes(op: Op) -> bool:
        return (op.kind == "conv2d" and op.epilogue is None and op.inputs[0] in network_inputs
                and isinstance(type_.shape[1], int)
                and all(operand in graph.constants for operand in op.inputs[1:] if operand)
                and (not given.order or op.attrs.groups == 1)
                and (not any(given.mean) or not any(op.attrs.pads)))

    return ((given.computes or bool(given.order)) and given.network == "NCHW"
            and (given.dtype or type_.dtype) == type_.dtype == "float32"
            and bool(readers) and all(map(takes, readers)))


def _fold(edit: Editor, readers: Sequence[Op], given: Input) -> None:
    """Folds mean, scale and channel order into the weights [O, I/groups, KH, KW] and biases of the convolutions."""
    for op in readers:
        weights = edit.constants[op.inputs[1]].astype(np.float64)
        outputs, inputs = weights.shape[:2]
        mean, scale = (np.broadcast_to(values, inputs * op.attrs.groups) for values in given.factors())
        # For each output channel, the values of the input channels that it reads.
        group = np.arange(outputs) // (outputs // op.attrs.groups)
        channels_read = group[:, None] * inputs + np.arange(inputs)
        weights = weights * scale[channels_read][:, :, None, None]
        bias = edit.constants[op.inputs[2]] if len(op.inputs) > 2 and op.inputs[2] else np.zeros(outputs)
        bias = bias - (weights * mean[channels_read][:, :, None, None]).sum((1, 2, 3))
        weights = weights[:, ::-1] if given.order else weights
        name = op.outputs[0]
        edit.replace(op, op.with_(inputs=(op.inputs[0], _constant(edit, f"{name}.weight", weights),
                                          _constant(edit, f"{name}.bias", bias))))
