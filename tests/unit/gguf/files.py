# SPDX-License-Identifier: Apache-2.0
"""Small GGUF files of drawn decoders, written by the package gguf, and what they give, in float64 from the formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Shape:
    """A decoder to draw. Names as in the metadata; window: 0 for none."""

    architecture: str = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    groups: int = 2
    head: int = 16
    hidden: int = 96
    vocabulary: int = 40
    window: int = 0
    encoding: str = "F32"
    tied: bool = True
    context: int = 64

    def with_(self, **changes) -> Shape:
        return replace(self, **changes)


SHAPES = {
    "llama": Shape(),
    "qwen2": Shape("qwen2", tied=False),
    "qwen3": Shape("qwen3", head=32),
    "phi3": Shape("phi3", groups=4, tied=False),
    "granite": Shape("granite"),
    "gemma3": Shape("gemma3", layers=7, groups=1, window=3),
}
EPSILON, THETA = 1e-5, 5000.0
#: Of Granite.
SCALES = {"embedding_scale": 6.0, "residual_scale": 0.25, "attention.scale": 0.1, "logit_scale": 4.0}


def weights(shape: Shape, seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors of float32 by the names of the format."""
    random, queries, keys = np.random.default_rng(seed), shape.heads * shape.head, shape.groups * shape.head

    def drawn(*extents: int) -> np.ndarray:
        return random.normal(0, 1 / np.sqrt(extents[-1]), extents).astype(np.float32)

    def gain(extent: int) -> np.ndarray:
        return random.uniform(0.5, 1.5, extent).astype(np.float32)

    made = {"token_embd.weight": drawn(shape.vocabulary, shape.width), "output_norm.weight": gain(shape.width)}
    if not shape.tied:
        made["output.weight"] = drawn(shape.vocabulary, shape.width)
    for layer in range(shape.layers):
        block = {"attn_norm": gain(shape.width), "ffn_norm": gain(shape.width),
                 "attn_output": drawn(shape.width, queries), "ffn_down": drawn(shape.width, shape.hidden)}
        if shape.architecture == "phi3":
            block |= {"attn_qkv": drawn(queries + 2 * keys, shape.width),
                      "ffn_up": drawn(2 * shape.hidden, shape.width)}
        else:
            block |= {"attn_q": drawn(queries, shape.width), "attn_k": drawn(keys, shape.width),
                      "attn_v": drawn(keys, shape.width), "ffn_gate": drawn(shape.hidden, shape.width),
                      "ffn_up": drawn(shape.hidden, shape.width)}
        if shape.architecture in ("qwen3", "gemma3"):
            block |= {"attn_q_norm": gain(shape.head), "attn_k_norm": gain(shape.head)}
        if shape.architecture == "gemma3":
            block |= {"post_attention_norm": gain(shape.width), "post_ffw_norm": gain(shape.width)}
        made |= {f"blk.{layer}.{name}.weight": value for name, value in block.items()}
        if shape.architecture == "qwen2":
            made |= {f"blk.{layer}.attn_{part}.bias": drawn(extent)
                     for part, extent in (("q", queries), ("k", keys), ("v", keys))}
    return made


def write(path: Path, shape: Shape, tensors: dict[str, np.ndarray], **metadata) -> Path:
    """A file of these tensors; matrices in the encoding of the shape, if the package gguf encodes it."""
    import gguf

    writer = gguf.GGUFWriter(path, shape.architecture)
    numbers = {"block_count": shape.layers, "context_length": shape.context, "embedding_length": shape.width,
               "feed_forward_length": shape.hidden, "attention.head_count": shape.heads,
               "attention.head_count_kv": shape.groups, "attention.key_length": shape.head,
               "attention.value_length": shape.head, "attention.sliding_window": shape.window}
    for name, number in numbers.items():
        writer.add_uint32(f"{shape.architecture}.{name}", number)
    reals = {"attention.layer_norm_rms_epsilon": EPSILON, "rope.freq_base": THETA,
             **(SCALES if shape.architecture == "granite" else {})}
    for name, real in reals.items():
        writer.add_float32(f"{shape.architecture}.{name}", real)
    for name, value in metadata.items():
        writer.add_key_value(name, *value)
    kind = gguf.GGMLQuantizationType[shape.encoding]
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and shape.encoding != "F32":
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass(frozen=True)
class Sinks:
    """The cache of StreamingLLM: `first` tokens stay, and before each run (of so many tokens) others are removed until
    the new ones fit into `rows`. Positions are places in the cache."""

    first: int
    rows: int
    runs: list[int]

    def places(self, token: int) -> np.ndarray:
        """The place in the cache of each token up to a new one; -1 for those that were removed before its run."""
        total = next(end for end in np.cumsum(self.runs) if end > token)
        gone, every = max(0, total - self.rows), np.arange(token + 1)
        return np.where(every < self.first, every, np.where(every < self.first + gone, -1, every - gone))


def logits(shape: Shape, tensors: dict[str, np.ndarray], tokens: list[int],
           stored: Callable[[np.ndarray], np.ndarray] = lambda rows: rows, sinks: Sinks | None = None) -> np.ndarray:
    """float64 [tokens, vocabulary], of a whole sequence at once. stored: what a cache makes of keys and values."""
    w = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    granite = SCALES if shape.architecture == "granite" else {}
    gemma = shape.architecture == "gemma3"
    x = w["token_embd.weight"][tokens] * (np.sqrt(shape.width) if gemma else granite.get("embedding_scale", 1))
    residual = granite.get("residual_scale", 1)
    for layer in range(shape.layers):
        part = {name.split(".")[2] + "." * name.endswith("bias"): value for name, value in w.items()
                if name.startswith(f"blk.{layer}.")}
        y = _attention(shape, part, _norm(x, part["attn_norm"]), layer, stored, sinks)
        x = x + residual * (_norm(y, part["post_attention_norm"]) if gemma else y)
        y = _norm(x, part["ffn_norm"])
        gate, up = (np.split(y @ part["ffn_up"].T, 2, 1) if shape.architecture == "phi3"
                    else (y @ part["ffn_gate"].T, y @ part["ffn_up"].T))
        acted = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3))) if gemma \
            else gate / (1 + np.exp(-gate))
        y = (acted * up) @ part["ffn_down"].T
        x = x + residual * (_norm(y, part["post_ffw_norm"]) if gemma else y)
    head = w.get("output.weight", w["token_embd.weight"])
    return _norm(x, w["output_norm.weight"]) @ head.T / granite.get("logit_scale", 1)


def _norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + EPSILON) * gain


def _attention(shape: Shape, part: dict[str, np.ndarray], x: np.ndarray, layer: int,
               stored: Callable[[np.ndarray], np.ndarray], sinks: Sinks | None) -> np.ndarray:
    queries, keys, steps = shape.heads * shape.head, shape.groups * shape.head, np.arange(len(x))
    if shape.architecture == "phi3":
        q, k, v = np.split(x @ part["attn_qkv"].T, [queries, queries + keys], 1)
    else:
        q, k, v = (x @ part[f"attn_{name}"].T + part.get(f"attn_{name}.", 0) for name in "qkv")
    q, k, v = (value.reshape(len(x), -1, shape.head) for value in (q, k, v))
    if "attn_q_norm" in part:
        q, k = _norm(q, part["attn_q_norm"]), _norm(k, part["attn_k_norm"])
    everything = not shape.window or (shape.architecture == "gemma3" and layer % 6 == 5)
    theta = 10000.0 if shape.architecture == "gemma3" and not everything else THETA
    neighbours = shape.architecture in ("llama", "granite")
    keys_unturned, queries_unturned = k, q
    q, k = (_turned(value, theta, neighbours, steps) for value in (q, k))
    k, v = stored(k), stored(v)
    far = steps[:, None] - steps
    seen = (far >= 0) & (everything | (far < max(shape.window, 1)))
    scale = SCALES["attention.scale"] if shape.architecture == "granite" else shape.head ** -0.5
    results = []
    streams = sinks and (everything or shape.window >= sinks.rows)
    for head in range(shape.heads):
        group = head // (shape.heads // shape.groups)
        scores = np.where(seen, q[:, head] @ k[:, group].T * scale, -np.inf)
        for token in range(len(x)) if streams else ():
            places = sinks.places(token)
            query = _turned(queries_unturned[token:token + 1, head:head + 1], theta, neighbours, places[-1:])
            turned = _turned(keys_unturned[:token + 1, group:group + 1], theta, neighbours, places)
            scores[token] = -np.inf
            scores[token, :token + 1] = np.where(places < 0, -np.inf, turned[:, 0] @ query[0, 0] * scale)
        scores = np.exp(scores - scores.max(1, keepdims=True))
        results.append(scores / scores.sum(1, keepdims=True) @ v[:, group])
    return np.concatenate(results, 1) @ part["attn_output"].T


def _turned(x: np.ndarray, theta: float, neighbours: bool, places: np.ndarray) -> np.ndarray:
    """Complex numbers of neighbours, or of both halves of a head, turned by the place times a frequency."""
    head = x.shape[-1]
    first, second = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., :head // 2], x[..., head // 2:])
    turns = np.outer(places, theta ** (-np.arange(head // 2) * 2 / head))[:, None]
    turned = (first + 1j * second) * np.exp(1j * turns)
    return (np.stack([turned.real, turned.imag], -1).reshape(x.shape) if neighbours
            else np.concatenate([turned.real, turned.imag], -1))
