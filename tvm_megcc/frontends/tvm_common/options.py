# SPDX-License-Identifier: Apache-2.0
"""The options of `CompileOptions` that regions inside TVM have, such as `optimize`. They are keywords of
`partition_for_megcc`, options of the code generator, and attributes of regions, which TVM keeps in a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import MegccError
from ...options import CompileOptions, all_options

#: Name -> option.
OPTIONS = {name: option for name, option in all_options() if option.in_tvm}
#: The attribute of a region with an option's value, as a string.
_ATTRIBUTE = "megcc_{}"
_FLAGS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}


def region_options(given: Mapping[str, object], function: str, others: str = "target") -> CompileOptions:
    """Returns the options that a caller of `function` gave by name. A flag may be a string, as in a command.

    Args:
        others: the other keywords of the function, for the message.

    Raises:
        MegccError: for a name that is not an option of regions, and for a value that the option does not take.
    """
    for name in given:
        if name not in OPTIONS:
            raise MegccError(f"{function} has no option '{name}'; it has {others}, {', '.join(OPTIONS)}")
    return CompileOptions.of(changes={name: _value(name, value) for name, value in given.items()})


def _value(name: str, value: object) -> object:
    return _FLAGS.get(value, value) if OPTIONS[name].kind == "flag" and isinstance(value, str) else value


def to_attributes(options: CompileOptions) -> dict[str, str]:
    """Returns the attributes of a region with the options that are not the default."""
    return {_ATTRIBUTE.format(row.name): str(getattr(options, row.name)) for row in options.given()}


def from_attributes(attribute: Callable[[str], object], generator: Mapping[str, object] | None = None) \
        -> CompileOptions:
    """Returns the options of a region.

    Args:
        attribute: returns the value of a region's attribute; None without it.
        generator: options that were given to the code generator: `RunCodegen({"megcc": {"half": True}})`. They count
            more than the attributes.
    """
    found = {name: str(value) for name in OPTIONS if (value := attribute(_ATTRIBUTE.format(name))) is not None}
    return region_options({**found, **(generator or {})}, "the code generator")
