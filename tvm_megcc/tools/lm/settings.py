# SPDX-License-Identifier: Apache-2.0
"""The settings and the tokenizer in the generated folder of a language model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ... import folders
from ...errors import MegccError, MissingTool
from ...frontends.contents import is_gguf
from ...frontends.decoder_names import SETTINGS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: The tokenizer in the generated folder of a language model.
TOKENIZER = "language_model/tokenizer.json"


@dataclass(frozen=True)
class Settings:
    """Settings of a language model besides its network.

    context: capacity of the KV cache in tokens.
    prompt: the most new tokens in a run.
    bos: token before every text, -1 for none.
    ends: tokens that end a text.
    chat_template: in Jinja, "" for none.
    bos_token: the template's variable of this name: the text of the first token, "" if `bos` puts it before a text.
    eos_token: the template's variable of this name: the text of the token that ends a text, "" for none.
    sequences: the number of sequences, each of which has a KV cache.
    sinks: the number of first tokens that stay in a full KV cache, so that a text has no end; 0: it ends then.
    """

    context: int
    prompt: int
    bos: int
    ends: tuple[int, ...]
    chat_template: str
    bos_token: str = ""
    eos_token: str = ""
    sequences: int = 1
    sinks: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=True) + "\n"


def read_settings(folder: Path) -> Settings:
    """Reads the settings of a folder; the file is not trusted.

    Raises:
        MegccError: if it is missing or damaged, or there is no tokenizer.
    """
    if not (folder / SETTINGS).is_file():
        if is_gguf(folder) or any((folder / name).is_file() for name in ("config.json", "genai_config.json")):
            folder_name = Path(f"{folder.stem}_megcc")
            raise MegccError(f"{folder} is not compiled yet: 'megcc lm compile {folder} -o {folder_name}' makes the "
                             f"folder {folder_name}")
        folders.require_folder(folder)
        raise MegccError(f"{folder} is no language model: 'megcc lm compile MODEL.gguf -o {folder}' makes one")
    try:
        given = json.loads((folder / SETTINGS).read_text("utf-8"))
        settings = Settings(context=int(given["context"]), prompt=int(given["prompt"]), bos=int(given["bos"]),
                            ends=tuple(map(int, given["ends"])), chat_template=str(given["chat_template"]),
                            bos_token=str(given.get("bos_token", "")), eos_token=str(given.get("eos_token", "")),
                            sequences=int(given.get("sequences", 1)), sinks=int(given.get("sinks", 0)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MegccError(f"{folder}: {SETTINGS} is damaged: {error}") from None
    if min(settings.context, settings.prompt, settings.sequences) < 1 or not 0 <= settings.sinks < settings.context:
        raise MegccError(f"{folder}: {SETTINGS} is damaged: a context of {settings.context} tokens, of which a run "
                         f"reads {settings.prompt}, and {settings.sinks} stay")
    if not (folder / TOKENIZER).is_file():
        raise MegccError(f"{folder}: {TOKENIZER} is missing")
    return settings


def read_tokenizer(folder: Path) -> Tokenizer:
    """Reads the tokenizer of a folder; the file is not trusted. Errors are those of `LanguageModel.tokenizer`."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingTool("language models need the package tokenizers: pip install 'tvm_megcc[llm]'") from None
    try:
        return Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # tokenizers raises Exception itself
        raise MegccError(f"{folder}: {TOKENIZER} is damaged: {error}") from None
