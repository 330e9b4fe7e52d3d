# SPDX-License-Identifier: Apache-2.0
"""Describes the language model of a folder of `megcc lm compile` for packages (`megcc export`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import MegccError
from ...target import TARGETS
from ..c_source.render import environment
from ..embedding import including_source, part_files, read_container

#: The templates of a system that packages of language models share with other packages; the rest is in
#: `templates/export/language_model/`.
_SHARED = {
    "npm": ("package.json",),
    "rust": ("Cargo.toml", "build.rs"),
    "cpp": ("CMakeLists.txt",),
    "cmake": ("CMakeLists.txt", "CMakePresets.json", "toolchain.cmake"),
    "go": ("go.mod", "nocgo.go"),
    "android": ("CMakeLists.txt", "CMakePresets.json"),
    "swift": ("Package.swift",),
}
#: How paths begin of templates that packages of programs leave out: an XCFramework has no place for the weights.
_NOT_OF_PROGRAMS = "xcframework/"
#: The most bytes of weights, and of a session with what a block has beside it, since functions count them in 32 bits.
_MAX_BYTES = (1 << 32) - (1 << 28)
#: The functions of export/language_model/block.c.j2 without the prefix `<model>_block_`.
FUNCTIONS = ("bytes", "open", "options", "stop", "start", "next", "piece", "piece_bytes", "reset", "step", "logits",
             "length", "encode", "token", "token_bytes", "message")


def including(folder: Path, row: Mapping[str, Any]) -> dict[str, bytes]:
    """Returns the container of a model, and the C file that includes it by the assembler, by their names."""
    name, targets = row["name"], [TARGETS[target] for target in row["targets"]]
    data = read_container(folder, name, targets[0])
    source = including_source(name, targets, [data])
    return {f"{name}_data.c": source.encode(), part_files(name, 1)[0]: data}


def require_32_bits(folder: Path, sizes: Mapping[str, int], advice: Mapping[str, str], kind: str) -> None:
    """Raises MegccError for sizes that the functions of packages cannot count.

    Args:
        sizes: what it is, such as "weights" -> bytes.
        advice: the same keys -> what to do instead.
        kind: what the packages have, such as "language models".
    """
    for what, size in sizes.items():
        if size > _MAX_BYTES:
            raise MegccError(f"{folder} has {size / (1 << 30):.1f} GB of {what}, and packages of {kind} have at most "
                             f"{_MAX_BYTES / (1 << 30):.2f} GB: {advice[what]}")


def templates(system: str, language_model: bool = False, program: bool = False) -> dict[str, str]:
    """Returns the templates of a system's packages: paths in the package -> names of templates."""
    kind = "language_model" if language_model else "program"
    common, own = ({name.removeprefix(folder).removesuffix(".j2"): name for name in environment().list_templates()
                    if name.startswith(folder)} for folder in (f"export/{system}/", f"export/{kind}/{system}/"))
    if language_model:
        return own | {path: common[path] for path in _SHARED.get(system, ())}
    if program:
        return {path: name for path, name in common.items() if not path.startswith(_NOT_OF_PROGRAMS)} | own
    return common


@dataclass(frozen=True)
class LanguageModel:
    """A language model as the templates see it.

    chats: whether it answers questions, so that there is `ask`.
    vocabulary: the number of its tokens.
    context: the most tokens of a conversation, prompts and answers.
    """

    chats: bool
    vocabulary: int
    context: int

    @staticmethod
    def of(folder: Path, manifest: Mapping[str, Any]) -> LanguageModel | None:
        """Returns the language model of a folder; None if it has none.

        Raises:
            MegccError: if the folder is damaged, or has too many bytes for packages.
        """
        name = manifest["models"][0]["name"]
        if len(manifest["models"]) != 1 or not {f"{name}_lm.h", f"{name}_tokenizer.c"} <= set(manifest["files"]):
            return None
        try:
            header = (folder / f"{name}_lm.h").read_text("utf-8", "replace")
        except OSError as error:
            raise MegccError(f"{folder} is damaged: {error}; compile the model again") from None
        found = {word: re.search(rf"#define {name.upper()}_LM_{word} (\d+)", header)
                 for word in ("VOCABULARY", "CONTEXT")}
        numbers = {word: int(match[1]) for word, match in found.items() if match}
        if len(numbers) < len(found):
            raise MegccError(f"{folder} is damaged: {name}_lm.h does not say how large context and vocabulary are; "
                             "compile the model again")
        row = manifest["models"][0]
        require_32_bits(
            folder, {"weights": row["container_bytes"],
                     "keys and values": max(program["arena_bytes"] for program in row["programs"])},
            {"weights": "use the folder itself",
             "keys and values": "compile it with a smaller --context, or with --cache int8"}, "language models")
        return LanguageModel(chats=f"{name}_ask(" in header, vocabulary=numbers["VOCABULARY"],
                             context=numbers["CONTEXT"])
