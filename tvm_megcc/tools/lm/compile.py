# SPDX-License-Identifier: Apache-2.0
"""Compiles a GGUF file into a generated folder, with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ... import api, folders
from ...codegen import bundle
from ...errors import MegccError
from ...frontends.contents import is_gguf
from ...frontends.decoder_names import LENGTH, PAST
from ...frontends.formats import refuse_misnamed
from ...frontends.gguf.architectures import trained_context
from ...frontends.gguf.file import read
from ...frontends.gguf.importer import DEFAULT_CONTEXT
from ...options import CompileOptions
from .model import SETTINGS, TOKENIZER, Settings
from .program import sources
from .tokenizer import Vocabulary, metadata_value, tokenizer_of

#: The default of the most new tokens in a run.
PROMPT = 64
#: Control tokens that end an answer in a conversation.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>")


def compile_model(path: str | Path, output: str | Path = "", target: str = "native",
                  options: CompileOptions | None = None, context: int = 0, prompt: int = 0,
                  force: bool = False) -> Path:
    """Compiles a language model, and returns the folder.

    Args:
        path: a GGUF file.
        output: the folder; default is the file's name with `_megcc`.
        options: options of compilation, except dimensions and bounds.
        context: capacity of the KV cache in tokens; default is the model's trained context, at most 2048.
        prompt: the most new tokens in a run, in which a prompt is read; default is 64, at most the context.
        force: replace an existing folder whatever it contains.

    Raises:
        MegccError: for another file, a tokenizer that is not supported, and as `tvm_megcc.compile`.
    """
    folders.require_exists(Path(path))
    refuse_misnamed(path)
    if not is_gguf(path):
        raise MegccError(f"{path} is no GGUF file (.gguf); other decoders compile with 'megcc compile' "
                         "(docs/streaming.md)")
    file = read(path)
    context = context or min(DEFAULT_CONTEXT, trained_context(file.metadata) or DEFAULT_CONTEXT)
    prompt = prompt or min(PROMPT, context)
    if not 1 <= prompt <= context:
        raise MegccError(f"--prompt {prompt} is no number of tokens from 1 to {context}, the context")
    vocabulary = Vocabulary.of(file.metadata)
    tokenizer = tokenizer_of(vocabulary)
    settings = _settings(file.metadata, context, prompt)
    lengths = f"{LENGTH}=1" + f",2..{prompt}" * (prompt > 1)
    artifact = api.compile(path, target, options, name=Path(path).stem, dims=lengths, bounds={PAST: context})
    return bundle.write([artifact], output or f"{artifact.name}_megcc", force=force,
                        others={TOKENIZER: tokenizer.to_str().encode(), SETTINGS: settings.text().encode()},
                        program=bundle.Program(f"{artifact.name}_chat", sources(artifact, vocabulary, settings)))


def _settings(metadata: Mapping[str, object], context: int, prompt: int) -> Settings:
    tokens, template = metadata.get("tokenizer.ggml.tokens", []), metadata.get("tokenizer.chat_template", "")
    assert isinstance(tokens, list)
    number = {name: value for name in ("bos", "eos", "eot") if isinstance(
        value := metadata.get(f"tokenizer.ggml.{name}_token_id"), int) and 0 <= value < len(tokens)}
    ends = {number[name] for name in ("eos", "eot") if name in number} | {
        tokens.index(token) for token in _ENDS if token in tokens}
    adds = metadata_value(metadata, "add_bos_token", metadata.get("tokenizer.ggml.model") == "llama")
    text = {name: str(tokens[index]) for name, index in number.items()}
    return Settings(context, prompt, number.get("bos", -1) if adds else -1, tuple(sorted(ends)),
                    template if isinstance(template, str) else "", "" if adds else text.get("bos", ""),
                    text.get("eos", ""))
