# SPDX-License-Identifier: Apache-2.0
"""Compiles a GGUF file, or the folder of an ONNX file, into a generated folder, with its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ... import api, folders
from ...codegen import bundle
from ...errors import MegccError
from ...frontends.contents import is_gguf
from ...frontends.decoder_names import LENGTH, LOGITS, PAST, SETTINGS, TOKENS
from ...frontends.formats import refuse_misnamed
from ...frontends.gguf.architectures import trained_context
from ...frontends.gguf.file import read
from ...frontends.gguf.importer import DEFAULT_CONTEXT
from ...frontends.onnx.load import LoadedModel
from ...frontends.onnx_decoders import decoder
from ...options import CompileOptions
from . import hugging_face
from .grammars.automaton import Network
from .program import sources
from .settings import TOKENIZER, Settings
from .tokenizers.tokenizer import Vocabulary, metadata_value, tokenizer_of

#: The default of the most new tokens in a run.
PROMPT = 64
#: Control tokens that end an answer in a conversation.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>")


def compile_model(path: str | Path, output: str | Path = "", target: str = "native",
                  options: CompileOptions | None = None, context: int = 0, prompt: int = 0,
                  force: bool = False, sequences: int = 1, grammars: Mapping[str, Network] | None = None) -> Path:
    """Compiles a language model, and returns the folder.

    Args:
        path: a GGUF file; or a folder with an ONNX file and a tokenizer, as Hugging Face's exporters and the model
            builder of ONNX Runtime GenAI write it, or the ONNX file in it.
        output: the folder; default is the file's name with `_megcc`.
        target: names of CPUs.
        options: options of compilation, except dimensions, bounds and states. With `sinks`, a text has no end.
        context: capacity of the KV cache in tokens; default is the model's trained context, at most 2048.
        prompt: the most new tokens in a run, in which a prompt is read; default is 64, at most the context without
            its attention sinks.
        force: replace an existing folder whatever it contains.
        grammars: those that a text in C can be restricted to, by names that are C identifiers.
        sequences: the number of sequences that one run has new tokens of; of a GGUF file. For several, `Sequences` runs
            the model.

    Raises:
        MegccError: for another file, a tokenizer that is not supported, and as `tvm_megcc.compile`.
    """
    path = Path(path)
    folders.require_exists(path)
    refuse_misnamed(path)
    if not path.is_dir() and not is_gguf(path) and path.suffix != ".onnx":
        raise MegccError(f"{path} is no GGUF file (.gguf), and no ONNX file (.onnx) or folder of one")
    options = options or CompileOptions()
    source = (_gguf if is_gguf(path) else _onnx)(path, context, prompt, options.sinks)
    if sequences > 1 and not is_gguf(path):
        raise MegccError(f"--sequences {sequences}: {path} is no GGUF file")
    settings = replace(source.settings, sequences=sequences, sinks=options.sinks)
    lengths = f"{LENGTH}=1" + f",2..{settings.prompt}" * (settings.prompt > 1)
    options = replace(options, states=source.states)
    if sequences > 1:
        options = replace(options, input_shapes=f"{TOKENS}=({sequences},?)")
    artifact = api.compile(source.model, target, options, name=source.name, dims=lengths,
                           bounds={PAST: settings.context})
    vocabulary = source.vocabulary
    if not is_gguf(path):
        size = next(row["shape"][-1] for row in artifact.manifest["outputs"] if row["name"] == LOGITS)
        vocabulary = hugging_face.padded(vocabulary, size, path)
    program = bundle.Program(f"{artifact.name}_{'texts' if sequences > 1 else 'chat'}",
                             sources(artifact, vocabulary, settings, grammars or {}))
    return bundle.write([artifact], output or f"{artifact.name}_megcc", force=force,
                        others={TOKENIZER: tokenizer_of(vocabulary).to_str().encode(),
                                SETTINGS: settings.text().encode()},
                        program=program)


@dataclass(frozen=True)
class _Source:
    """The parts that a language model is compiled from.

    model: for `tvm_megcc.compile`. states: its states, those of GGUF files excepted.
    name: the prefix of the generated C.
    """

    model: Path | LoadedModel
    states: Mapping[str, str]
    name: str
    vocabulary: Vocabulary
    settings: Settings


def _lengths(trained: int, context: int, prompt: int, sinks: int) -> tuple[int, int]:
    """Returns the context and the most new tokens in a run. trained: the number of tokens that the model was trained
    for, 0 if its files do not have it. context, prompt: as of `compile_model`. sinks: the number of attention sinks.

    Raises:
        MegccError: for a context longer than the trained one, sinks that leave no room in it, and a prompt that is
            longer than that room.
    """
    context = context or min(DEFAULT_CONTEXT, trained or DEFAULT_CONTEXT)
    if trained and context > trained:
        raise MegccError(f"--context {context}: the model was trained for {trained} tokens")
    if sinks >= context:
        raise MegccError(f"--sinks {sinks}: as many tokens as these stay, of a context of {context}; 4 are usual")
    room, what = context - sinks, "the context without its sinks" if sinks else "the context"
    prompt = prompt or min(PROMPT, room)
    if not 1 <= prompt <= room:
        raise MegccError(f"--prompt {prompt} is no number of tokens from 1 to {room}, {what}")
    return context, prompt


def _gguf(path: Path, context: int, prompt: int, sinks: int) -> _Source:
    """Reads a GGUF file."""
    metadata = read(path).metadata
    context, prompt = _lengths(trained_context(metadata), context, prompt, sinks)
    vocabulary = Vocabulary.of(metadata)
    settings = replace(_settings(metadata), context=context, prompt=prompt)
    return _Source(path, {}, path.stem, vocabulary, settings)


def _onnx(path: Path, context: int, prompt: int, sinks: int) -> _Source:
    """Reads the folder of an ONNX file."""
    folder = hugging_face.read(path)
    context, prompt = _lengths(folder.context, context, prompt, sinks)
    settings = replace(folder.settings, context=context, prompt=prompt)
    hugging_face.check_template(settings, folder.template)
    found = decoder(folder.model, folder.ports)
    if folder.vocabulary_size:  # a wrong tokenizer is told before the network is compiled
        hugging_face.padded(folder.vocabulary, folder.vocabulary_size, path)
    return _Source(found.model, found.states, folder.name, folder.vocabulary, settings)


def _settings(metadata: Mapping[str, object]) -> Settings:
    tokens, template = metadata.get("tokenizer.ggml.tokens", []), metadata.get("tokenizer.chat_template", "")
    assert isinstance(tokens, list)
    number = {name: value for name in ("bos", "eos", "eot") if isinstance(
        value := metadata.get(f"tokenizer.ggml.{name}_token_id"), int) and 0 <= value < len(tokens)}
    ends = {number[name] for name in ("eos", "eot") if name in number} | {
        tokens.index(token) for token in _ENDS if token in tokens}
    adds = metadata_value(metadata, "add_bos_token", metadata.get("tokenizer.ggml.model") == "llama")
    text = {name: str(tokens[index]) for name, index in number.items()}
    return Settings(0, 0, number.get("bos", -1) if adds else -1, tuple(sorted(ends)),
                    template if isinstance(template, str) else "", "" if adds else text.get("bos", ""),
                    text.get("eos", ""))
