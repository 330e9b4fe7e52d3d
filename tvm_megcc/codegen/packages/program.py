# SPDX-License-Identifier: Apache-2.0
"""Describes the program of a folder of `megcc program compile` for packages (`megcc export`): as a model whose inputs
and outputs are those of the program, so that packages of both have the same templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import MegccError
from .language_model import require_32_bits
from .languages import Memory, Port


def packaged(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the program of a folder as the manifest of a model has it; None if the folder has models.

    Raises:
        MegccError: if the folder has too many bytes for packages.
    """
    facts = manifest.get("program")
    if facts is None:
        return None
    ports = {direction: [{**_of_length(port), "is_utf8": port["name"] in facts[known]} for port in facts[direction]]
             for direction, known in (("inputs", "strings"), ("outputs", "texts"))}
    lengths = {f"{port['name']}_length": next(list(ends) for ends in port["limits"] if ends[0] != ends[1])
               for port in facts["inputs"] if "limits" in port}
    models = manifest["models"]
    sessions = sum(max(program["arena_bytes"] for program in model["programs"]) for model in models)
    require_32_bits(folder, {"weights": facts["container_bytes"], "memory": facts["block_bytes"] + sessions},
                    {"weights": "use the folder itself", "memory": "use the folder itself"}, "programs")
    return {"name": facts["name"], **ports, "states": [], "buckets": [lengths] if lengths else [], "options": {},
            "is_program": True, "lengths": facts.get("lengths", 0),
            "keeps": bool(facts["states"]) or any(model["states"] for model in models),
            "targets": models[0]["targets"], "alignment": max([16, *(model["alignment"] for model in models)])}


def _of_length(port: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an input or output as the manifest of a model has it: an extent that varies has a name. `most` is its
    largest shape."""
    if "limits" not in port:
        return dict(port)
    shape = [most if least == most else f"{port['name']}_length" for least, most in port["limits"]]
    return {**port, "shape": shape, "least": [least for least, _ in port["limits"]], "most": port["shape"]}


@dataclass(frozen=True)
class Sizes:
    """The sizes in a block of a program, for languages that allocate it themselves.

    sessions: the terms of the size of each network's session.
    parts: the bytes of everything else: values between steps, and each input and output.
    """

    sessions: tuple[Memory, ...]
    parts: tuple[int, ...]

    @staticmethod
    def of(header: str, name: str, headers: Mapping[str, str], ports: list[Port]) -> Sizes:
        """Returns the sizes.

        Args:
            header: the text of the header of the program `name`.
            headers: the name of each network -> the text of its header.
            ports: inputs and outputs.

        Raises:
            MegccError: if a header does not say them.
        """
        block = re.search(rf"#define {name.upper()}_BLOCK_BYTES (\d+)u", header)
        if not block:
            raise MegccError(f"{name}.h does not say what memory the program needs; compile it again")
        return Sizes(tuple(Memory.of(text, network) for network, text in headers.items()),
                     (int(block[1]), *(port.most_bytes for port in ports)))
