# SPDX-License-Identifier: Apache-2.0
"""The table of decoder architectures, and the hyperparameters of a GGUF file, read from its metadata and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import ModelError, quoted
from .file import File


@dataclass(frozen=True)
class Architecture:
    """The differences of a family of decoders from Llama.

    interleaved: rotary embeddings rotate neighbouring elements, not elements half a head apart.
    gelu: the gate is GELU (tanh), not SiLU.
    scaled_embedding: embeddings are multiplied by sqrt(width).
    window_period: every n-th layer attends to all keys, the others to a sliding window; 0: all layers have the window,
        if there is one.
    """

    interleaved: bool = False
    gelu: bool = False
    scaled_embedding: bool = False
    window_period: int = 0


#: general.architecture of a file -> its differences.
ARCHITECTURES = {
    "llama": Architecture(interleaved=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "phi3": Architecture(),
    "granite": Architecture(interleaved=True),
    "gemma3": Architecture(gelu=True, scaled_embedding=True, window_period=6),
}

#: The base of rotary embeddings in RoFormer, the default of files, and that of the layers with a window in Gemma 3.
_DEFAULT_THETA = 10000.0
#: The upper limit of each hyperparameter; real models stay far below.
_MAX_HYPERPARAMETER = 1 << 24
#: Metadata that change the computation but are not supported -> the value that has no effect, which is accepted.
_UNSUPPORTED = {"expert_count": 0, "attention.clamp_kqv": 0.0, "attention.max_alibi_bias": 0.0,
                "attn_logit_softcapping": 0.0, "final_logit_softcapping": 0.0, "attention.causal": True}


@dataclass(frozen=True)
class Decoder:
    """Hyperparameters of a decoder-only transformer.

    layers: the number of transformer blocks.
    width: the size of the residual stream.
    heads, kv_heads: the numbers of query heads and of key/value heads.
    head_size: the number of elements of a head.
    rotary_pairs: the number of pairs of elements of a head that rotary embeddings rotate.
    context: the number of tokens the model was trained for.
    epsilon: is added to the mean square in the norms.
    theta: base of the rotary embeddings; theta_window: the same in layers with a window.
    rotary_scale: positions are divided by it (linear scaling of the context); rotary_scale_window: the same in layers
        with a window. Gemma 3 scales only layers that attend to all keys.
    window: the size of the sliding window in keys, 0 for all.
    attention_scale: scores are multiplied by it.
    embedding_scale, residual_scale: embeddings, and the results of each half of a block, are multiplied by them.
    logit_scale: logits are divided by it.
    """

    name: str
    architecture: Architecture
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    rotary_pairs: int
    context: int
    epsilon: float
    theta: float
    theta_window: float
    rotary_scale: float
    rotary_scale_window: float
    window: int
    attention_scale: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float

    def attends_to_all(self, layer: int) -> bool:
        """Whether a layer attends to all earlier keys, not to a window of them."""
        period = self.architecture.window_period
        return not self.window or bool(period and layer % period == period - 1)


def decoder(file: File) -> Decoder:
    """Returns the hyperparameters of a file.

    Raises:
        ModelError: listing metadata that are missing, out of range or not supported.
    """
    metadata = _Metadata(file)
    name = metadata.architecture()
    architecture = ARCHITECTURES[name]
    width, heads = metadata.integer("embedding_length"), metadata.integer("attention.head_count")
    head_size = metadata.integer("attention.key_length", width // heads)
    if metadata.integer("attention.value_length", head_size) != head_size:
        metadata.findings.append("heads of keys and of values differ in length")
    rotary_size = metadata.integer("rope.dimension_count", head_size)
    scaling = metadata.text("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        metadata.findings.append(f"rope.scaling.type is {quoted(scaling)}; none and linear are supported")
    if head_size % 2 or rotary_size % 2 or rotary_size > head_size:
        metadata.findings.append(f"rotary embeddings turn {rotary_size} of {head_size} numbers")
    theta = metadata.positive_float("rope.freq_base", _DEFAULT_THETA)
    rotary_scale = metadata.positive_float("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0
    embedding_scale = math.sqrt(width) if architecture.scaled_embedding else 1.0
    found = Decoder(
        name=name, architecture=architecture, layers=metadata.integer("block_count"), width=width,
        heads=heads, kv_heads=metadata.integer("attention.head_count_kv", heads), head_size=head_size,
        rotary_pairs=rotary_size // 2, context=metadata.integer("context_length"),
        epsilon=metadata.positive_float("attention.layer_norm_rms_epsilon", 1e-5), theta=theta,
        theta_window=_DEFAULT_THETA if architecture.window_period else theta,
        rotary_scale=rotary_scale, rotary_scale_window=1.0 if architecture.window_period else rotary_scale,
        window=metadata.integer("attention.sliding_window", 0, minimum=0),
        attention_scale=metadata.positive_float("attention.scale", 1 / math.sqrt(head_size)),
        embedding_scale=metadata.positive_float("embedding_scale", embedding_scale),
        residual_scale=metadata.positive_float("residual_scale", 1.0),
        logit_scale=metadata.positive_float("logit_scale", 1.0))
    if found.heads % found.kv_heads:
        metadata.findings.append(f"{found.heads} heads of queries do not share {found.kv_heads} of keys")
    metadata.raise_findings()
    return found


class _Metadata:
    """Reads metadata and collects the errors in them. For a value with an error a method returns a harmless one, so
    that reading goes on."""

    def __init__(self, file: File):
        self.file, self.values = file, file.metadata
        self.findings: list[str] = []
        self.prefix = ""

    def architecture(self) -> str:
        """Returns the key of `ARCHITECTURES`, which prefixes the keys of the other metadata from here on.

        Raises:
            ModelError: for an architecture that is not supported, and for a file that is part of a model.
        """
        name = self.values.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            raise ModelError(str(self.file.path), [
                f"is of the architecture {quoted(name)}; {', '.join(ARCHITECTURES)} are read"])
        if not _is_any_of(self.values.get("split.count", 1), (0, 1)):
            raise ModelError(str(self.file.path), ["is one of several files that make a model"],
                             "Merge them with llama.cpp's llama-gguf-split --merge")
        self.prefix = f"{name}."
        self.findings += [f"{self.prefix}{key} is {self.values[self.prefix + key]}, which is not supported"
                          for key, neutral in _UNSUPPORTED.items()
                          if not _is_any_of(self.values.get(self.prefix + key, neutral), (neutral,))]
        return name

    def integer(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _MAX_HYPERPARAMETER:
            self.findings.append(f"{self.prefix}{key} is {quoted(value)}; a number from {minimum} to "
                                 f"{_MAX_HYPERPARAMETER} is wanted")
            return 1
        return value

    def positive_float(self, key: str, default: float) -> float:
        value = self._value(key, default)
        if not isinstance(value, float) or not 0 < value < math.inf:
            self.findings.append(f"{self.prefix}{key} is {quoted(value)}; a positive number is wanted")
            return 1.0
        return value

    def text(self, key: str, default: str) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            self.findings.append(f"{self.prefix}{key} is {quoted(value)}; a text is wanted")
            return default
        return value

    def _value(self, key: str, default: object) -> object:
        return self.values.get(self.prefix + key, default)

    def raise_findings(self) -> None:
        if self.findings:
            raise ModelError(str(self.file.path), self.findings)


def _is_any_of(value: object, numbers: Sequence[float]) -> bool:
    """Returns whether a value is one of the numbers; an array is none, and numpy's cannot be compared."""
    return isinstance(value, (int, float)) and value in numbers


def trained_context(metadata: Mapping[str, object]) -> int:
    """Returns the number of tokens that the model was trained for, 0 if the file does not state it."""
    value = metadata.get(f"{metadata.get('general.architecture')}.context_length", 0)
    return value if isinstance(value, int) and 0 < value <= _MAX_HYPERPARAMETER else 0
