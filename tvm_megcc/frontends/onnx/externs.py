# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX nodes of the user's own domains as calls of C functions (tvm_megcc/extern.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...errors import MegccError
from ...extern import attribute
from ...ir.graph import Attrs
from ...ops.control.extern import Function
from .builder import Node


def importers(externs: Mapping[tuple[str, str], Sequence[Function]]) -> dict[str, Callable[[Node], tuple[str, ...]]]:
    """Returns "domain::operator" -> importer of its nodes."""
    return {f"{domain}::{name}": lambda node, functions=tuple(functions): import_call(node, functions)
            for (domain, name), functions in externs.items()}


def import_call(node: Node, functions: Sequence[Function]) -> tuple[str, ...]:
    """Imports a node as a call of the first function that accepts its element types, and returns its results.

    Raises:
        MegccError: if no function accepts them, or the functions do not declare an attribute of the node.
    """
    types = [node.type(index) for index in range(len(node.inputs))]
    dtypes = tuple(type_ and type_.dtype for type_ in types)
    matching = [function for function in functions if tuple(dtype for _, dtype in function.inputs) == dtypes
                and node.num_outputs <= len(function.outputs)]
    if not matching:
        wanted = " or ".join(f"({', '.join(dtype for _, dtype in function.inputs)})" for function in functions)
        raise MegccError(f"has operands ({', '.join(map(str, dtypes))}) and {node.num_outputs} outputs; the extern "
                         f"{functions[0].label} has the operands {wanted} and {len(functions[0].outputs)} outputs")
    function = matching[0]
    known = dict(function.attributes)
    unknown = [name for name in node.attributes if name not in known]
    if unknown:
        raise MegccError(f"has an attribute '{unknown[0]}', which the extern {function.label} does not declare")
    arguments = Attrs({name: attribute(function, name, default, node.attr(name)) for name, default in known.items()})
    return node.emit("extern", node.inputs, function=function, arguments=arguments)

