# SPDX-License-Identifier: Apache-2.0
"""Builds the graph of a decoder-only transformer: embedding, layers of attention and feed-forward, logits of the last
token.

Sources: "RoFormer" (Su et al., 2021), "GLU Variants Improve Transformer" (Shazeer, 2020), "GQA" (Ainslie et al., 2023);
the differences between families are those of llama.cpp's models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import MegccError, ModelError, quoted
from ...ir.dims import Dim, Symbol
from ...ir.graph import Graph
from ...ir.types import TensorType
from ...ops.elementwise import cast_to, emit_broadcast
from ...ops.emit_onnx import number, onnx_operator
from ...ops.nn.attention import LOWEST, angles, appended, attend, count_up, heads, joined, parts, rotated, unless, up_to
from ...ops.quantized.blocks import BlockConstants, block_constants, block_product, block_rows
from ..onnx.builder import Builder
from ..onnx.synthetic_node import SyntheticNode
from .architectures import Decoder, decoder
from .blocks import blocks, floats
from .file import File

#: Names of the inputs, symbols and outputs, as in optimum's ONNX exports.
TOKENS, LENGTH, PAST, LOGITS = "input_ids", "sequence_length", "past_sequence_length", "logits"


def state_names(layers: int) -> dict[str, str]:
    """Returns output -> input for the keys and values of each layer."""
    return {f"present.{layer}.{part}": f"past_key_values.{layer}.{part}"
            for layer in range(layers) for part in ("key", "value")}


def transformer(file: File, length: Dim, context: int) -> Graph:
    """Returns the decoder of a file as a graph.

    Its inputs are `input_ids`, int64 [1, length], and keys and values of the past, float32 [1, groups,
    past_sequence_length, head]; its outputs logits of the last token, float32 [1, vocabulary], and all keys and values.

    Args:
        length: the number of new tokens in a run.
        context: the capacity of the KV cache in tokens; rotary angles are tabulated for as many.

    Raises:
        ModelError: for anything in the file that is missing, contradictory or not supported.
    """
    what = decoder(file)
    try:
        return _Transformer(file, what, length, context).run()
    except ModelError:
        raise
    except MegccError as error:
        raise ModelError(str(file.path), [str(error)]) from None


class _Transformer:
    """Builds the graph. origin: the part of the model that operators come from, for messages and reports."""

    def __init__(self, file: File, what: Decoder, length: Dim, context: int):
        self.file, self.what, self.length, self.context = file, what, length, context
        self.builder = Builder()
        self.node = SyntheticNode(self.builder, "gguf", "model", (), {})
        self.used: set[str] = set()
        self.quantised: dict[str, BlockConstants] = {}
        self.past: Dim = Symbol(PAST, least=0)

    def run(self) -> Graph:
        what, node = self.what, self.node
        self.builder.add_input(TOKENS, TensorType("int64", (1, self.length)))
        states = state_names(what.layers)
        for name in states.values():
            self.builder.add_input(name, TensorType("float32", (1, what.groups, self.past, what.head)))
        (tokens,) = cast_to(node, TOKENS, "int32")
        x = self._embedding(tokens)
        self.positions = self._positions()
        self.rotary = {all_: self._angles(all_) for all_ in {what.sees_all(layer) for layer in range(what.layers)}}
        self.masks = {all_: self._mask(all_) for all_ in self.rotary}
        for layer in range(what.layers):
            x = self._layer(layer, x)
        self._at("output")
        x = x if self.length == 1 else self._last(x)
        x = self._norm("output_norm", x)
        head = "output" if "output.weight" in self.file.tensors else "token_embd"
        y = self._scaled(self._product(head, x, columns=self._vocabulary()), 1 / what.logit_scale)
        y = self._named(LOGITS, *node.emit("reshape", (y,), shape=(1, self._vocabulary())))
        unread = sorted(set(self.file.tensors) - self.used)
        if unread:
            raise MegccError(f"has tensors that {what.name} does not have, such as {quoted(unread[0])}")
        return self.builder.graph(self.file.path.stem, [TOKENS, *states.values()], [y, *states])

    def _at(self, origin: str) -> None:
        self.node.name = origin
        self.node.outputs = (origin,)

    # Tensors of the file.

    def _tensor(self, name: str, *shape: int):
        self.used.add(name)
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise MegccError(f"has no tensor {quoted(name)}")
        if shape and tensor.shape != shape:
            raise MegccError(f"tensor {quoted(name)} is {list(tensor.shape)}; wanted is {list(shape)}")
        return tensor

    def _blocks(self, tensor) -> BlockConstants | None:
        """Returns the constants of a quantised tensor, which its uses share; None for a float tensor."""
        if tensor.name not in self.quantised:
            decoded = blocks(tensor)
            if decoded is None:
                return None
            self.quantised[tensor.name] = block_constants(self.node, decoded)
        return self.quantised[tensor.name]

    def _vector(self, name: str, extent: int) -> str:
        return self.node.constant(floats(self._tensor(name, extent)))

    def _vocabulary(self) -> int:
        return self._tensor("token_embd.weight").shape[0]

    # Steps.

    def _embedding(self, tokens: str) -> str:
        """Returns the embeddings of the tokens, [1, S, width]."""
        self._at("token_embd")
        tensor = self._tensor("token_embd.weight", self._vocabulary(), self.what.width)
        quantised = self._blocks(tensor)
        if quantised is None:
            x = onnx_operator(self.node, "Gather", self.node.constant(floats(tensor)), tokens, axis=0)
        else:
            x = block_rows(self.node, tokens, quantised)
        return self._scaled(x, self.what.embedding_scale)

    def _positions(self) -> str:
        """Returns the positions of the new tokens in the sequence, int32 [1, S]."""
        self._at("positions")
        (before,) = cast_to(self.node, self.builder.extent(self.past, "past"), "int32")
        return emit_broadcast(self.node, "add", (count_up(self.node, self.length, 1, self.length), before))[0]

    def _angles(self, all_keys: bool) -> list[str]:
        """Returns cosines and sines of the rotary angles of the new tokens, [1, 1, S, pairs] each."""
        what, scale = self.what, self.what.rotary_scale if all_keys else 1.0
        theta = what.theta if all_keys else what.theta_window
        inverse_frequencies = theta ** (-np.arange(what.pairs) / what.pairs) / scale
        if "rope_freqs.weight" in self.file.tensors:
            inverse_frequencies = inverse_frequencies / floats(self._tensor("rope_freqs.weight", what.pairs))
        table = np.outer(np.arange(self.context), inverse_frequencies)
        return [angles(self.node, self.node.constant(function(table).astype(np.float32)), self.positions)
                for function in (np.cos, np.sin)]

    def _mask(self, all_keys: bool) -> list[str]:
        """Returns the mask that is added to scores, [S, past + S]; an empty list for one token that attends to all
        keys."""
        window = 0 if all_keys else self.what.window
        if self.length == 1 and not window:
            return []
        (last,) = self.node.emit("reshape", (self.positions,), shape=(self.length, 1))
        return [unless(self.node, up_to(self.node, last, self.past + self.length, window), LOWEST, "float32")]

    def _last(self, x: str) -> str:
        """Returns the last row of [1, S, width]."""
        (last,) = cast_to(self.node, self.builder.extent(self.length - 1, "last"), "int32")
        (last,) = self.node.emit("reshape", (last,), shape=(1,))
        return self.node.emit("gather", (x, last), axis=1)[0]

    def _layer(self, layer: int, x: str) -> str:
        block, what = f"blk.{layer}", self.what
        y = self._attention(layer, self._norm(f"{block}.attn_norm", x))
        x = self._added(x, self._after(f"{block}.post_attention_norm", y))
        y = self._norm(f"{block}.ffn_norm", x)
        gate, up = self._gates(block, y)
        self._at(f"{block}.ffn_gate")
        if what.architecture.gelu:
            gate = onnx_operator(self.node, "Gelu", gate, approximate="tanh")
        else:
            (gate,) = self.node.emit("mul", (gate, *self.node.emit("sigmoid", (gate,))))
        (y,) = self.node.emit("mul", (gate, up))
        y = self._product(f"{block}.ffn_down", y, columns=what.width)
        return self._added(x, self._after(f"{block}.post_ffw_norm", y))

    def _attention(self, layer: int, x: str) -> str:
        block, what, node = f"blk.{layer}", self.what, self.node
        queries, keys = what.heads * what.head, what.groups * what.head
        if f"{block}.attn_qkv.weight" in self.file.tensors:
            both = self._product(f"{block}.attn_qkv", x, columns=queries + 2 * keys)
            flat = parts(node, both, 2, (queries, keys, keys))
        else:
            flat = [self._product(f"{block}.attn_{name}", x, columns=columns)
                    for name, columns in (("q", queries), ("k", keys), ("v", keys))]
        q, k, v = (heads(node, value, count) for value, count in
                   zip(flat, (what.heads, what.groups, what.groups), strict=True))
        if f"{block}.attn_q_norm.weight" in self.file.tensors:
            q, k = self._norm(f"{block}.attn_q_norm", q), self._norm(f"{block}.attn_k_norm", k)
        all_keys = what.sees_all(layer)
        self._at(f"{block}.attn")
        q, k = (rotated(node, value, *self.rotary[all_keys], what.architecture.interleaved) for value in (q, k))
        k, v = (self._state(f"{layer}.{part}", value) for part, value in (("key", k), ("value", v)))
        y = joined(node, attend(node, q, k, v, what.attention_scale, self.masks[all_keys]))
        return self._product(f"{block}.attn_output", y, columns=what.width)

    def _state(self, name: str, new: str) -> str:
        """Appends new keys or values to the cache; the result is the state after the run."""
        return self._named(f"present.{name}", appended(self.node, f"past_key_values.{name}", new))

    def _named(self, name: str, value: str) -> str:
        """Gives a value the name of an output."""
        return self.builder.rename({value: name}, len(self.builder.ops) - 1)[value]

    def _gates(self, block: str, x: str) -> Sequence[str]:
        """Returns gate and up projections of a gated feed-forward; some files have both in one tensor."""
        hidden = self._tensor(f"{block}.ffn_down.weight").shape[-1]
        if f"{block}.ffn_gate.weight" in self.file.tensors:
            return [self._product(f"{block}.ffn_{name}", x, columns=hidden) for name in ("gate", "up")]
        return parts(self.node, self._product(f"{block}.ffn_up", x, columns=2 * hidden), 2, (hidden, hidden))

    # Small steps.

    def _product(self, name: str, x: str, columns: int) -> str:
        """Returns x @ w', with w of shape [columns, K], plus the bias if there is one."""
        self._at(name)
        tensor = self._tensor(f"{name}.weight", columns, self._static(x))
        quantised = self._blocks(tensor)
        if quantised is None:
            w = self.node.constant(np.ascontiguousarray(floats(tensor).T))
            (y,) = self.node.emit("matmul", (x, w), trans_a=0, trans_b=0)
        else:
            y = block_product(self.node, x, quantised)
        if f"{name}.bias" in self.file.tensors:
            (y,) = emit_broadcast(self.node, "add", (y, self._vector(f"{name}.bias", columns)))
        return y

    def _static(self, x: str) -> int:
        extent = self.node.type_of(x).shape[-1]
        assert isinstance(extent, int)
        return extent

    def _norm(self, name: str, x: str) -> str:
        self._at(name)
        weight = self._vector(f"{name}.weight", self._static(x))
        return onnx_operator(self.node, "RMSNormalization", x, weight, axis=-1, epsilon=self.what.epsilon)

    def _after(self, name: str, x: str) -> str:
        """Applies the norm after a block, for architectures that have one; else returns x."""
        return self._norm(name, x) if f"{name}.weight" in self.file.tensors else x

    def _added(self, x: str, y: str) -> str:
        return self.node.emit("add", (x, self._scaled(y, self.what.residual_scale)))[0]

    def _scaled(self, x: str, factor: float) -> str:
        return x if math.isclose(factor, 1.0, rel_tol=0) else emit_broadcast(
            self.node, "mul", (x, number(self.node, factor, "float32")))[0]
