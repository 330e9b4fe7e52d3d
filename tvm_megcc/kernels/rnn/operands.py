# SPDX-License-Identifier: Apache-2.0
"""The operands and results of a recurrent layer, most of which are optional, as its kernel's C code sees them."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.dims import Dim
from ...ops.base import operator
from ..base import Operand
from ..site import Site


def operand_names(site: Site) -> dict[int, str]:
    """Returns the names of the operands that the operator has, by their positions."""
    names = operator(site.kind).operands
    return {index: name.removesuffix("?") for index, name in enumerate(names) if site.has(index)}


def operands_of(site: Site, sizes: Mapping[str, Dim], pack: tuple[object, ...] = ()) \
        -> tuple[tuple[Operand, ...], ...]:
    """Returns the operands and the results that the operator has.

    Args:
        sizes: the number of elements of each operand and result, by its name in lower case; names that the operator
            does not have are allowed.
        pack: how the recurrent weights `r` are packed (`Operand.pack`).
    """
    return (tuple(Operand(name, index, sizes[name], pack if name == "r" else ())
                  for index, name in operand_names(site).items()),
            tuple(Operand(name.lower(), index, sizes[name.lower()]) for index, name in enumerate(site.attrs.results)))
