# SPDX-License-Identifier: Apache-2.0
"""Imports whole Relax modules for the stand-alone compiler. Operators without a hand-written kernel get one printed
from TVM's loops."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from ...errors import MegccError, MegccWarning
from ...ir.graph import Graph
from ...target import TARGETS
from ..tvm_common.support import why_unsupported
from ..tvm_versions import has_extents, name_of, type_of
from .extents import declared_shape
from .importer import Importer, import_function
from .patterns import tir_functions
from .prepare import bind_params, prepare

#: Attribute of modules: names of the results of "main".
OUTPUTS = "megcc_outputs"


def input_dims(mod: tvm.IRModule) -> dict[str, tuple[int | str | None, ...]]:
    """Returns the shapes of the parameters of "main", also of those that will be bound. An entry is an extent, the name
    of a symbol, or None for an expression over symbols."""
    found: dict[str, tuple[int | str | None, ...]] = {}
    for parameter in mod["main"].params:
        if has_extents(type_of(parameter)):
            found[name_of(parameter)] = declared_shape(type_of(parameter))
    return found


def import_module(mod: tvm.IRModule, params: Mapping | None = None,
                  shapes: Mapping[str, Sequence[int | str | None]] | None = None, name: str = "model") -> Graph:
    """Returns the function "main" of a module as a graph.

    Args:
        params: weights to bind, as in `partition_for_megcc`.
        shapes: shapes of inputs with symbolic extents; an entry that is not a number leaves the extent as it is.

    Raises:
        ModelError: naming the operators that have neither a kernel nor loops that can be printed.
    """
    outputs = [str(output) for output in (mod.attrs or {}).get(OUTPUTS, ())]
    mod = bind_params(mod, params or {})
    if not params:
        _warn_of_weights(mod["main"])
    known = known_extents(mod, shapes or {})
    if known:
        mod = relax.transform.BindSymbolicVars(known, "main")(mod)
    mod = prepare(mod, loops=True)
    importer = Importer()
    importer.tir = tir_functions(mod)
    # The portable target "c" tells for all: an operator with a portable kernel has a kernel on every CPU.
    importer.refuses = lambda graph: why_unsupported(graph, TARGETS["c"])
    return import_function(mod["main"], name, importer, outputs)


def _warn_of_weights(main: relax.Function) -> None:
    """Warns if weights are parameters of "main": TVM's importers state how many of the parameters are inputs."""
    count = (main.attrs or {}).get("num_input")
    if count is not None and int(count) < len(main.params):
        names = [name_of(param) for param in main.params[int(count):]]
        shown = ", ".join(names[:4]) + f" and {len(names) - 4} more" * (len(names) > 4)
        warnings.warn(f"weights of the module are inputs ({shown}). To have them in the code: mod, params = "
                      "tvm.relax.frontend.detach_params(mod), and give params", MegccWarning, stacklevel=2)


def known_extents(mod: tvm.IRModule, shapes: Mapping[str, Sequence[int | str | None]]) -> dict[str, int]:
    """Returns the values of the symbols of "main" that the given shapes determine.

    Raises:
        MegccError: for an unknown input, a wrong rank, or extents that contradict the module or each other.
    """
    dims = input_dims(mod)
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in dims:
            raise MegccError(f"--input-shapes names {name}, but the inputs are: {', '.join(dims)}")
        if len(shape) != len(dims[name]):
            raise MegccError(f"input '{name}' has {len(dims[name])} axes, --input-shapes gives {len(shape)}")
        for axis, (declared, given) in enumerate(zip(dims[name], shape, strict=True)):
            if not isinstance(given, int):
                continue
            if declared is None:
                raise MegccError(f"input '{name}': axis {axis} is an expression; give the symbols in it an extent")
            if isinstance(declared, str) and found.setdefault(declared, given) == given:
                continue
            if given != (found[declared] if isinstance(declared, str) else declared):
                raise MegccError(f"input '{name}': --input-shapes gives axis {axis} the extent {given}; it has "
                                 f"{found[declared] if isinstance(declared, str) else declared}")
    return found
