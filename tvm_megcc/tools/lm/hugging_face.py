# SPDX-License-Identifier: Apache-2.0
"""Reads the folder of a language model of Hugging Face, optimum or ONNX Runtime GenAI. Its files are not trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ... import folders
from ...errors import MegccError, quoted, refused_by_system
from ...frontends.onnx_decoders import Ports
from .chat import DamagedTemplate, rendered
from .json_file import JsonFile
from .settings import Settings
from .tokenizers import file as tokenizer_file
from .tokenizers import sentencepiece
from .tokenizers.sentencepiece import SentencePiece
from .tokenizers.tokenizer import Vocabulary

#: The files of a folder that may be its decoder, the preferred ones first.
MODELS = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx")
#: Keys of config.json with the trained context.
_CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "seq_length")
#: The most logits without a token: models round their vocabulary up.
_MAX_PADDING = 4096


@dataclass(frozen=True)
class Folder:
    """A language model in a folder.

    model: its ONNX file. ports: names of the file's inputs and outputs.
    name: that of the model.
    vocabulary: its tokens, fewer than `vocabulary_size` if some logits have none.
    vocabulary_size: the number of logits in the folder's files, 0 if they do not have it.
    context: the number of tokens that the model was trained for, 0 if the files do not have it.
    settings: with 0 for both contexts.
    template: the file and key that the chat template was read from, for messages.
    """

    model: Path
    ports: Ports
    name: str
    vocabulary: Vocabulary
    vocabulary_size: int
    context: int
    settings: Settings
    template: str


def read(path: Path) -> Folder:
    """Reads a folder, or the folder of an ONNX file.

    Raises:
        MegccError: for a file that is missing, damaged or not supported, with its name and the key.
    """
    root = path if path.is_dir() else path.parent
    if root.name == "onnx" and not any((root / name).is_file() for name in tokenizer_file.NAMES):
        root = root.parent
    genai = JsonFile.read(root / "genai_config.json").part("model")
    config = JsonFile.read(root / "config.json")
    model = path if path.is_file() else _model(path, genai)
    found = tokenizer_file.read(root)
    if isinstance(found, SentencePiece):
        found = _pieces(found, root)
    if not isinstance(found, Vocabulary):
        raise MegccError(f"{root}: the tokenizer is {type(found).__name__}; language models have byte pairs or "
                         "SentencePiece's pairs")
    text = config.part("text_config") if "text_config" in config.content else config
    context = next(filter(None, (genai.count("context_length"), *map(text.count, _CONTEXTS))), 0)
    size = text.count("vocab_size") or genai.count("vocab_size")
    template, source = _template(root)
    settings = replace(_settings(root, (genai, config), found), chat_template=template)
    return Folder(model, _ports(genai, text), root.resolve().name, found, size, context, settings, source)


def _model(folder: Path, genai: JsonFile) -> Path:
    """Returns the ONNX file of a folder."""
    decoder = genai.part("decoder")
    if named := decoder.text("filename"):
        relative = PurePosixPath(named)
        if relative.is_absolute() or ".." in relative.parts or "\0" in named or not (folder / relative).is_file():
            raise decoder.error("filename", f"is {quoted(named)}, and there is no such file in the folder")
        return folder / relative
    found = next((folder / place / name for place in ("", "onnx") for name in MODELS
                  if (folder / place / name).is_file()), None)
    others = [*sorted(folder.glob("*.onnx")), *sorted(folder.glob("onnx/*.onnx"))]
    if found is None and len(others) == 1:
        return others[0]
    if found is None:
        advice = "; give one of its files, such as " + str(others[0]) if others else (
            ": 'optimum-cli export onnx --model "
            f"{folder} --task text-generation-with-past FOLDER' writes one"
            if any(folder.glob("*.safetensors")) else "")
        raise MegccError(f"{folder} has no {' or '.join(MODELS)}{advice}")
    return found


def _ports(genai: JsonFile, config: JsonFile) -> Ports:
    """Returns the names of inputs and outputs."""
    decoder, default = genai.part("decoder"), Ports()
    inputs, outputs = decoder.part("inputs"), decoder.part("outputs")
    heads = decoder.count("num_key_value_heads") or config.count("num_key_value_heads") \
        or config.count("num_attention_heads")
    size = decoder.count("head_size") or config.count("head_dim") or config.count("hidden_size") // max(
        config.count("num_attention_heads"), 1)
    return replace(
        default, tokens=inputs.text("input_ids", default.tokens), mask=inputs.text("attention_mask", default.mask),
        positions=inputs.text("position_ids", default.positions), logits=outputs.text("logits", default.logits),
        past=_pair(inputs, "past_key_names", "past_value_names", default.past),
        present=_pair(outputs, "present_key_names", "present_value_names", default.present),
        head_size=size, kv_heads=heads)


def _pair(names: JsonFile, key: str, value: str, default: tuple[str, ...]) -> tuple[str, str]:
    """Returns the patterns of keys and values."""
    found = names.text(key, default[0]), names.text(value, default[1])
    for which, pattern in zip((key, value), found, strict=True):
        if pattern.count("%d") != 1:
            raise names.error(which, f"is {quoted(pattern)}, without one %d for the layer")
    return found


def _pieces(found: SentencePiece, folder: Path) -> Vocabulary:
    """Returns the vocabulary of a tokenizer.model, if it merges pairs as a GGUF file's does."""
    if found.unigram or not found.bytes_known or found.suffix or found.single_spaces or not found.escape \
            or found.replaced:
        raise MegccError(f"{folder / 'tokenizer.model'} is no SentencePiece model of pairs with bytes for the rest, or "
                         "it normalizes text; language models need the tokenizer.json then")
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": list(found.tokens),
        "tokenizer.ggml.scores": list(found.scores), "tokenizer.ggml.token_type": list(found.types),
        "tokenizer.ggml.unknown_token_id": found.types.index(sentencepiece.UNKNOWN),
        "tokenizer.ggml.add_space_prefix": found.prefix}
    return Vocabulary.of(metadata)


def _settings(root: Path, files: tuple[JsonFile, ...], vocabulary: Vocabulary) -> Settings:
    """Returns the tokens that begin and end a text. files: those with `eos_token_id` besides generation_config.json."""
    tokenizer, generation = (JsonFile.read(root / name) for name in ("tokenizer_config.json", "generation_config.json"))
    text = {name: _token(tokenizer, f"{name}_token", vocabulary) for name in ("bos", "eos")}
    ends = set()
    for file in (generation, *files):
        for number in file.numbers("eos_token_id"):
            if number >= len(vocabulary.tokens):
                raise file.error("eos_token_id", f"is {number}, and the tokenizer has {len(vocabulary.tokens):,} "
                                                 "tokens")
            ends.add(number)
    if text["eos"]:
        ends.add(vocabulary.tokens.index(text["eos"]))
    bos = _first_token(root, tokenizer, vocabulary, text["bos"])
    return Settings(0, 0, bos, tuple(sorted(ends)), "", "" if bos >= 0 else text["bos"], text["eos"])


def _token(file: JsonFile, key: str, vocabulary: Vocabulary) -> str:
    """Returns the text of a special token, "" for none."""
    value = file.content.get(key)
    found = value.get("content") if isinstance(value, dict) else value
    if found is None:
        return ""
    if not isinstance(found, str) or found not in vocabulary.tokens:
        raise file.error(key, f"is {quoted(found)}, which is no token")
    return found


def _first_token(root: Path, tokenizer: JsonFile, vocabulary: Vocabulary, bos: str) -> int:
    """Returns the token before every text, -1 for none: that of the post-processor of tokenizer.json; without this
    file, `bos` unless `add_bos_token` is false."""
    file = JsonFile.read(root / "tokenizer.json")
    if not file.content:
        adds = tokenizer.content.get("add_bos_token", True) is not False
        return vocabulary.tokens.index(bos) if adds and bos else -1
    for rule in _rules(file.content.get("post_processor")):
        if rule.get("type") == "TemplateProcessing":
            single = rule.get("single")
            first = single[0] if isinstance(single, list) and single and isinstance(single[0], dict) else {}
            special = first.get("SpecialToken")
            name = special.get("id") if isinstance(special, dict) else None
            if name is not None and name not in vocabulary.tokens:
                raise file.error("post_processor", f"adds {quoted(name)}, which is no token")
            return -1 if name is None else vocabulary.tokens.index(name)
    return -1


def _rules(given: Any) -> list[dict[str, Any]]:
    """Returns the rules of a post-processor, which may be a sequence of them."""
    if not isinstance(given, dict):
        return []
    parts = given.get("processors")
    return [rule for rule in parts if isinstance(rule, dict)] if isinstance(parts, list) else [given]


def _template(root: Path) -> tuple[str, str]:
    """Returns the chat template, "" for none, and the file and key that it is from: chat_template.jinja,
    chat_template.json, or that of tokenizer_config.json."""
    path = root / "chat_template.jinja"
    if path.is_file():
        try:
            return folders.read(path).decode(), str(path)
        except OSError as error:
            raise refused_by_system(error, f"{path} cannot be read") from None
        except UnicodeDecodeError:
            raise MegccError(f"{path} is not UTF-8") from None
    file = JsonFile.read(root / "chat_template.json")
    file = file if file.content else JsonFile.read(root / "tokenizer_config.json")
    value = file.content.get("chat_template")
    if isinstance(value, list):  # several templates by name
        value = next((row.get("template") for row in value if isinstance(row, dict) and row.get("name") == "default"),
                     None)
    if value is not None and not isinstance(value, str):
        raise file.error("chat_template", "is no string")
    return value or "", f"{file.path}: 'chat_template'"


def check_template(settings: Settings, source: str) -> None:
    """Raises MegccError for a chat template that is damaged or does not end. One that only refuses the conversation
    passes."""
    if settings.chat_template:
        try:
            rendered(settings, [{"role": "user", "content": "Is it late?"}])
        except DamagedTemplate as error:
            raise MegccError(f"{source}: {error}") from None
        except MegccError:
            pass


def padded(vocabulary: Vocabulary, size: int, root: Path) -> Vocabulary:
    """Returns a vocabulary with as many tokens as the network has logits. Those without a token get "". Added tokens
    beyond the logits are dropped, since the network cannot read them.

    Raises:
        MegccError: if the tokenizer is one of another model.
    """
    tokens = vocabulary.tokens
    special = {token for token, _ in vocabulary.special}
    if len(tokens) > size and all(token in special or not token for token in tokens[size:]):
        kept = tuple((token, control) for token, control in vocabulary.special if token in tokens[:size])
        return replace(vocabulary, tokens=tokens[:size], special=kept)
    if not size - _MAX_PADDING <= len(tokens) <= size:
        raise MegccError(f"{root}: the tokenizer has {len(tokens):,} tokens, and the network {size:,} logits: they are "
                         "not of one model")
    return replace(vocabulary, tokens=tokens + ("",) * (size - len(tokens)))
