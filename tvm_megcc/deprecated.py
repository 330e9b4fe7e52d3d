# SPDX-License-Identifier: Apache-2.0
"""Public names that were renamed: an old name works for one release, with a DeprecationWarning that has the new."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

#: Class or function -> old name -> new name.
RENAMED: dict[str, dict[str, str]] = {
    "Port": {"texts": "strings", "integers": "quantize", "reals": "dequantize", "filled": "cache_input"},
    "Session": {"run_real": "run_float", "kept": "state_of"},
    "Target": {"halved": "float16_target"},
    "quantize": {"enough": "min_snr", "most": "max_samples"},
}
#: Options of the command, old -> new; `cli/parser.py` reads them.
FLAGS = {"--real": "--float", "--enough": "--min-snr", "--beside": "--separate-weights", "--profile": "--times"}

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def with_old_attributes(cls: _Class) -> _Class:
    """Gives a class the old names of its attributes and methods."""
    for old, new in RENAMED[cls.__name__].items():
        setattr(cls, old, property(functools.partial(_attribute, old=f"{cls.__name__}.{old}", new=new),
                                   doc=f"Deprecated: use `{new}`."))
    return cls


def with_old_keywords(function: _Function) -> _Function:
    """Lets a function be called with the old names of its keyword arguments."""
    renamed = RENAMED[function.__name__]

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        for old in renamed.keys() & keywords.keys():
            _warn(f"{function.__name__}({old}=…)", f"{renamed[old]}=…")
            if renamed[old] in keywords:
                raise TypeError(f"{function.__name__}() got {renamed[old]} and its old name {old}")
            keywords[renamed[old]] = keywords.pop(old)
        return function(*arguments, **keywords)

    return called  # type: ignore[return-value]


def _attribute(owner: Any, old: str, new: str) -> Any:
    _warn(old, new)
    return getattr(owner, new)


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is deprecated and will be removed in the next release: use {new}", DeprecationWarning,
                  stacklevel=3)  # the line that uses the old name: the caller of `_attribute` or `called`
