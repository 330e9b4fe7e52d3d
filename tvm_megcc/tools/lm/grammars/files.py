# SPDX-License-Identifier: Apache-2.0
"""Reads the files of grammars that are compiled to C."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....errors import MegccError, quoted
from ....foreign import identifier
from ..grammar import read_text
from .automaton import Network, network_of
from .json_schema import gbnf_of


def read_networks(grammars: Sequence[str], schemas: Sequence[str]) -> dict[str, Network]:
    """Returns the automata of grammars by their names.

    Args:
        grammars: files in GBNF, each as "FILE" or "NAME=FILE"; the default name is that of the file.
        schemas: files with a JSON schema.

    Raises:
        MegccError: if a file cannot be read, is no such grammar or needs what is not supported, and for two grammars
            of one name.
    """
    found: dict[str, Network] = {}
    for argument, is_schema in [*((each, False) for each in grammars), *((each, True) for each in schemas)]:
        given, _, path = argument.rpartition("=")
        name = identifier(given or Path(path).stem)
        if name in found:
            raise MegccError(f"two grammars have the name {quoted(name)}; give one as NAME=FILE")
        text = read_text(path, is_schema)
        try:
            found[name] = network_of(gbnf_of(text) if is_schema else text)
        except MegccError as error:
            raise MegccError(f"{path}: {error}") from None
    return found
