# SPDX-License-Identifier: Apache-2.0
"""Imports whole Relay modules for the stand-alone compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relay

from ...ir.graph import Graph
from .dispatch import extents_of, with_extents
from .functions import by_function
from .importer import import_main
from .patterns import registered
from .prepare import bind_params, prepare


def input_dims(mod: tvm.IRModule) -> dict[str, tuple[int | None, ...]]:
    """Returns the shapes of the parameters of "main", also of those that will be bound; None for an extent that is
    Any."""
    return {parameter.name_hint: extents_of(parameter) for parameter in mod["main"].params}


def import_module(mod: tvm.IRModule, params: Mapping | None = None,
                  shapes: Mapping[str, Sequence[int | str | None]] | None = None, name: str = "model") -> Graph:
    """Returns a module as a graph.

    Args:
        params: weights to bind, {name: array}.
        shapes: extents of inputs that replace Any; entries that are not numbers are ignored.

    Raises:
        ModelError: naming the operators that have no kernel, even if TVM could lower them itself.
    """
    mod = bind_params(relay.transform.InferType()(mod), params or {})
    known = {name: {axis: extent for axis, extent in enumerate(shape) if isinstance(extent, int)}
             for name, shape in (shapes or {}).items()}
    mod["main"] = with_extents(mod["main"], known)
    # Composites are merged as in a region, so that the operators have the same order and the generated C is the same.
    # The patterns' checks are left out: an operator without a kernel is an error here, whether it is merged or not.
    table = [(name, pattern) for name, pattern, _check in registered()]
    mod = by_function(prepare(mod), lambda _name: relay.transform.MergeComposite(table))
    functions = {var.name_hint: function for var, function in mod.functions.items()
                 if isinstance(function, relay.Function)}
    return import_main(functions, name)
