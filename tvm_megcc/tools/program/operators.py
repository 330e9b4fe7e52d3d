# SPDX-License-Identifier: Apache-2.0
"""Steps that are one operator: a model of one node, compiled like other networks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import MegccError
from .nodes import OPSET
from .steps import Operator, ValueType

if TYPE_CHECKING:
    import onnx


def model(step: Operator, types: Mapping[str, ValueType]) -> onnx.ModelProto:
    """Returns an operator as a model of ONNX, with the inputs `in_0`, `in_1`, … where values are, and the outputs
    `out_0`, `out_1`, ….

    Raises:
        MegccError: for a name that is no operator, and numbers or attributes of another kind.
    """
    from onnx import helper, numpy_helper

    if not re.fullmatch(r"([A-Za-z][\w.]*::)?[A-Za-z]\w*", step.operator, re.ASCII):
        raise MegccError(f"'{step.operator}' is no name of an operator")
    domain, _, name = step.operator.rpartition("::")
    names, inputs, constants = [], [], []
    for index, source in enumerate(step.inputs):
        names.append(f"in_{index}")
        if isinstance(source, str):
            given = types[source]
            inputs.append(helper.make_tensor_value_info(
                names[-1], helper.np_dtype_to_tensor_dtype(np.dtype(given.dtype)),
                [_dimension(source, axis) if axis in given.varying else extent
                 for axis, extent in enumerate(given.shape)]))
        else:
            constants.append(numpy_helper.from_array(_numbers(source, f"input {index}"), names[-1]))
    for key, value in step.attributes.items():
        if not _is_attribute(value):
            raise MegccError(f"attribute '{key}' is a number, a string, or a list of numbers or strings")
    outputs = [f"out_{index}" for index in range(len(step.outputs))]
    node = helper.make_node(name, names, outputs, domain=domain)
    node.attribute.extend(helper.make_attribute(key, value) for key, value in step.attributes.items())
    opsets = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    graph = helper.make_graph([node], "operator", inputs, [helper.make_empty_tensor_value_info(source)
                                                           for source in outputs], constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def dims(step: Operator, types: Mapping[str, ValueType]) -> dict[str, str]:
    """Returns the ranges of the model's dimensions that a run decides, for the option `dims`."""
    return {_dimension(source, axis): "{}..{}".format(*types[source].extents[axis])
            for source in step.taken for axis in types[source].varying}


def _dimension(value: str, axis: int) -> str:
    return f"{value}_{axis}"


#: The most numbers of an input.
_MOST_NUMBERS = 1 << 20


def _numbers(value: Any, where: str) -> np.ndarray:
    """Returns numbers of a description as an array: bool, int64 if all are whole numbers, float32 if not."""
    try:
        found = np.array(value)
    except ValueError:  # lists of different lengths
        found = np.array(None)
    if found.dtype == bool:
        return found
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all() or found.size > _MOST_NUMBERS:
        raise MegccError(f"{where} is the name of a value, a number, or a list of numbers")
    return found.astype(np.int64 if found.dtype.kind in "iu" else np.float32)


def _is_attribute(value: object) -> bool:
    """Returns whether ONNX has such attributes: an int64, a float, a string, or a list of one of these types."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return bool(value) and len({type(element) for element in value}) == 1 and all(map(_is_element, value))
    return _is_element(value)


def _is_element(value: object) -> bool:
    return type(value) in (float, str) or (type(value) is int and -(1 << 63) <= value < 1 << 63)
