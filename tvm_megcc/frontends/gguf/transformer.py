# SPDX-License-Identifier: Apache-2.0
"""Builds the graph of a decoder-only transformer: embedding, layers of attention and feed-forward, logits of the last
token.

Sources: "RoFormer" (Su et al., 2021), "GLU Variants Improve Transformer" (Shazeer, 2020), "GQA" (Ainslie et al., 2023);
the differences between families are those of llama.cpp's models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import MegccError, ModelError, quoted
from ...ir.dims import Dim, Symbol
from ...ir.graph import Graph
from ...ir.types import TensorType
from ...ops.elementwise import cast_to, emit_broadcast
from ...ops.emit_onnx import number, onnx_operator
from ...ops.nn.attention import (
    MASKED_SCORE,
    additive_mask,
    apply_rotary,
    arange_int32,
    attend,
    concat_past,
    first_rows,
    gather_angles,
    keep_first_rows,
    keys_up_to,
    merge_heads,
    rotary_angles,
    split_axis,
    split_heads,
    stored_tokens,
)
from ...ops.quantized.blocks import BlockConstants, block_constants, emit_block_gather, emit_block_matmul
from ...ops.rules import emit_arange
from ..decoder_names import LOGITS, NEW, PAST, TOKENS
from ..onnx.builder import Builder
from ..onnx.synthetic_node import SyntheticNode
from .architectures import Decoder, decoder
from .blocks import blocks, floats
from .file import File


def state_names(layers: int) -> dict[str, str]:
    """Returns output -> input for the keys and values of each layer."""
    return {output: state for layer in range(layers) for output, state in layer_states(layer).items()}


def layer_states(layer: int) -> dict[str, str]:
    """Returns output -> input for the keys and values of a layer."""
    return {f"present.{layer}.{part}": f"past_key_values.{layer}.{part}" for part in ("key", "value")}


def sink_state(layer: int) -> tuple[str, str]:
    """Returns output and input of the state with the keys of a layer's attention sinks, each rotated by its own
    position."""
    return f"present.{layer}.key.sinks", f"past_key_values.{layer}.key.sinks"


def layers_with_sinks(config: Decoder, context: int) -> list[int]:
    """Returns the layers whose keys of attention sinks are rotated further: those that attend to everything in a cache
    of `context` tokens, not to a shorter window."""
    return [layer for layer in range(config.layers) if config.attends_to_all(layer) or config.window >= context]


def rotated_sinks(layer: int) -> str:
    """Returns the output with the keys of a layer's attention sinks as attention reads them."""
    return f"present.{layer}.key.rotated"


def transformer(file: File, length: Dim, context: int, sequences: int = 1, sinks: int = 0) -> Graph:
    """Returns the decoder of a file as a graph.

    Its inputs are `input_ids`, int64 [sequences, length], and keys and values of the past, float32 [sequences,
    kv_heads, past_sequence_length, head_size]; its outputs logits of the last token, float32 [sequences, vocabulary],
    and all keys and values. For several sequences there are two more inputs, int64 [sequences]: `new_tokens`, of which
    a sequence has the first of its row of `input_ids`, and `past_sequence_length`, the tokens before them.

    With attention sinks there is an input `past_sequence_length`, int64 [1], too, and for `layers_with_sinks` the state
    `sink_state` and an output `rotated_sinks`: the keys of the sinks, rotated by as many positions more as there are
    tokens that are no longer in the cache. So their distances to new tokens are those of a cache without gaps, as in
    StreamingLLM (Xiao et al. 2023), and all other distances are those of the tokens.

    Args:
        length: the number of new tokens in a run.
        context: the capacity of the KV cache in tokens; rotary angles are tabulated for as many.
        sequences: the number of sequences.
        sinks: the number of attention sinks; 0 for none.

    Raises:
        ModelError: for anything in the file that is missing, contradictory or not supported.
    """
    config = decoder(file)
    try:
        return _Transformer(file, config, length, context, sequences, sinks).run()
    except ModelError:
        raise
    except MegccError as error:
        raise ModelError(str(file.path), [str(error)]) from None


class _Transformer:
    """Builds the graph.

    node: the node that importers of operators see. Its name is the part of the model that operators come from, for
        messages and reports.
    used_tensors: the names of the file's tensors that the graph has used.
    block_weights: name of a quantised tensor -> its constants in the graph.
    past_length: the number of tokens in the KV cache.
    rotary, masks: by whether a layer attends to all keys: the cosines and sines of rotary angles, and the mask.
    sink_angles: by whether a layer attends to all keys: cosines and sines of the angles that rotate keys of attention
        sinks.
    first_rows: what `keep_first_rows` needs of these keys.
    """

    def __init__(self, file: File, config: Decoder, length: Dim, context: int, sequences: int, sinks: int):
        self.file, self.config, self.length, self.context = file, config, length, context
        self.sequences, self.sinks = sequences, sinks
        self.builder = Builder()
        self.node = SyntheticNode(self.builder, "gguf", "model", (), {})
        self.used_tensors: set[str] = set()
        self.block_weights: dict[str, BlockConstants] = {}
        self.past_length: Dim = Symbol(PAST, least=0)

    def run(self) -> Graph:
        config, node = self.config, self.node
        self._check_extents()
        inputs = {TOKENS: TensorType("int64", (self.sequences, self.length))}
        if self.sequences > 1:
            inputs |= dict.fromkeys((NEW, PAST), TensorType("int64", (self.sequences,)))
        if self.sinks:
            inputs[PAST] = TensorType("int64", (1,))
        for name, type_ in inputs.items():
            self.builder.add_input(name, type_)
        states = state_names(config.layers)
        for name in states.values():
            shape = self.sequences, config.kv_heads, self.past_length, config.head_size
            self.builder.add_input(name, TensorType("float32", shape))
        layers = layers_with_sinks(config, self.context) if self.sinks else []
        sinks = dict(map(sink_state, layers))
        for name in sinks.values():
            self.builder.add_input(name, TensorType("float32", (1, config.kv_heads, self.sinks, config.head_size)))
        (tokens,) = cast_to(node, TOKENS, "int32")
        x = self._embedding(tokens)
        self.positions = self._positions()
        kinds_of_layers = {config.attends_to_all(layer) for layer in range(config.layers)}
        self.rotary = {all_keys: self._angles(all_keys) for all_keys in kinds_of_layers}
        self.masks = {all_keys: self._mask(all_keys) for all_keys in kinds_of_layers}
        if sinks:
            kinds_of_layers = {config.attends_to_all(layer) for layer in layers}
            self.sink_angles = {all_keys: self._sink_angles(all_keys) for all_keys in kinds_of_layers}
            self.first_rows = first_rows(node, self.sinks, self.length, PAST)
        for layer in range(config.layers):
            x = self._layer(layer, x)
        self._set_origin("output")
        x = x if self.length == 1 else self._last_row(x) if self.sequences == 1 else self._last_rows(x)
        x = self._norm("output_norm", x)
        head = "output" if "output.weight" in self.file.tensors else "token_embd"
        y = self._scale(self._product(head, x, columns=self._vocabulary()), 1 / config.logit_scale)
        y = self._rename(LOGITS, *node.emit("reshape", (y,), shape=(self.sequences, self._vocabulary())))
        unused = sorted(set(self.file.tensors) - self.used_tensors)
        if unused:
            raise MegccError(f"has tensors that {config.name} does not have, such as {quoted(unused[0])}")
        return self.builder.graph(self.file.path.stem, [*inputs, *states.values(), *sinks.values()],
                                  [y, *states, *sinks, *map(rotated_sinks, layers)])

    def _check_extents(self) -> None:
        """Compares extents with the file's tensors, before lists and tables are made that could exceed any memory."""
        config = self.config
        if config.layers > len(self.file.tensors):
            raise MegccError(f"has {config.layers:,} layers, and {len(self.file.tensors):,} tensors")
        self._tensor("blk.0.attn_output.weight", config.width, config.heads * config.head_size)

    def _set_origin(self, origin: str) -> None:
        """Sets the part of the model that the next operators come from."""
        self.node.name = origin
        self.node.outputs = (origin,)

    # Tensors of the file.

    def _tensor(self, name: str, *shape: int):
        """Returns a tensor of the file. shape: what it has to be; any if it is left out."""
        self.used_tensors.add(name)
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise MegccError(f"has no tensor {quoted(name)}")
        if shape and tensor.shape != shape:
            raise MegccError(f"tensor {quoted(name)} is {list(tensor.shape)}; wanted is {list(shape)}")
        return tensor

    def _blocks(self, tensor) -> BlockConstants | None:
        """Returns the constants of a quantised tensor, which its uses share; None for a float tensor."""
        if tensor.name not in self.block_weights:
            decoded = blocks(tensor)
            if decoded is None:
                return None
            self.block_weights[tensor.name] = block_constants(self.node, decoded)
        return self.block_weights[tensor.name]

    def _vector(self, name: str, extent: int) -> str:
        """Adds a tensor of shape [extent] to the graph as a float32 constant and returns its name."""
        return self.node.constant(floats(self._tensor(name, extent)))

    def _vocabulary(self) -> int:
        """Returns the number of tokens that the model knows."""
        return self._tensor("token_embd.weight").shape[0]

    # Steps.

    def _embedding(self, tokens: str) -> str:
        """Returns the embeddings of the tokens, [1, S, width]."""
        self._set_origin("token_embd")
        tensor = self._tensor("token_embd.weight", self._vocabulary(), self.config.width)
        block_weights = self._blocks(tensor)
        if block_weights is None:
            x = onnx_operator(self.node, "Gather", self.node.constant(floats(tensor)), tokens, axis=0)
        else:
            x = emit_block_gather(self.node, tokens, block_weights)
        return self._scale(x, self.config.embedding_scale)

    def _positions(self) -> str:
        """Returns the positions of the new tokens in their sequences, int32 [sequences, S]; with attention sinks int64
        [S]. Those of elements of `input_ids` that are no tokens are at most the last one of the context."""
        self._set_origin("positions")
        if self.sinks:
            return emit_broadcast(self.node, "add", (emit_arange(self.node, self.length, "int64"), PAST))[0]
        if self.sequences > 1:
            (before,) = self.node.emit("reshape", cast_to(self.node, PAST, "int32"), shape=(self.sequences, 1))
            (found,) = emit_broadcast(self.node, "add", (arange_int32(self.node, self.length, 1, self.length), before))
            return emit_broadcast(self.node, "min", (found, number(self.node, self.context - 1, "int32")))[0]
        (before,) = cast_to(self.node, self.builder.extent(self.past_length, "past"), "int32")
        return emit_broadcast(self.node, "add", (arange_int32(self.node, self.length, 1, self.length), before))[0]

    def _angles(self, all_keys: bool) -> list[str]:
        """Returns cosines and sines of the rotary angles of the new tokens, [1, 1, S, pairs] each."""
        if self.sinks:
            return rotary_angles(self.node, self.positions, self._inverse_frequencies(all_keys))
        table = np.outer(np.arange(self.context), self._inverse_frequencies(all_keys))
        return [gather_angles(self.node, self.node.constant(function(table).astype(np.float32)), self.positions)
                for function in (np.cos, np.sin)]

    def _inverse_frequencies(self, all_keys: bool) -> np.ndarray:
        """Returns the rotary angles of position 1, [pairs]."""
        config = self.config
        scale = config.rotary_scale if all_keys else config.rotary_scale_window
        theta = config.theta if all_keys else config.theta_window
        found: np.ndarray = theta ** (-np.arange(config.rotary_pairs) / config.rotary_pairs) / scale
        if "rope_freqs.weight" in self.file.tensors:
            found = found / floats(self._tensor("rope_freqs.weight", config.rotary_pairs))
        return found

    def _total(self) -> str:
        """Returns the number of past and new tokens, int64 [1], of a model with attention sinks."""
        return emit_broadcast(self.node, "add", (PAST, self.node.extent(self.length)))[0]

    def _sink_angles(self, all_keys: bool) -> list[str]:
        """Returns cosines and sines of the angles that rotate keys of attention sinks, [1, 1, 1, pairs] each."""
        (gone,) = emit_broadcast(self.node, "sub", (self._total(), number(self.node, self.context, "int64")))
        (gone,) = emit_broadcast(self.node, "max", (gone, number(self.node, 0, "int64")))
        return rotary_angles(self.node, gone, self._inverse_frequencies(all_keys))

    def _mask(self, all_keys: bool) -> list[str]:
        """Returns the mask that is added to scores, [S, past + S] or, for several sequences, [sequences, 1, S, past +
        S]; an empty list for one token that attends to all keys."""
        window = 0 if all_keys or (self.sinks and self.config.window >= self.context) else self.config.window
        if self.length == 1 and not window and self.sequences == 1:
            return []
        if self.sinks:
            return [self._mask_of_stored_tokens(window)]
        outer = (self.sequences, 1) if self.sequences > 1 else ()
        (last,) = self.node.emit("reshape", (self.positions,), shape=(*outer, self.length, 1))
        allowed = keys_up_to(self.node, last, self.past_length + self.length, window)
        return [additive_mask(self.node, allowed, MASKED_SCORE, "float32")]

    def _mask_of_stored_tokens(self, window: int) -> str:
        """Returns the mask of keys in the order in which a cache with attention sinks stores them, [S, past + S].
        window: the number of keys that a token attends to; 0 for no limit."""
        node = self.node
        tokens = stored_tokens(node, self.past_length + self.length, self._total(), self.context, self.sinks)
        (last,) = node.emit("reshape", (self.positions,), shape=(self.length, 1))
        (allowed,) = emit_broadcast(node, "less_equal", (tokens, last))
        if window:
            (first,) = emit_broadcast(node, "sub", (last, number(node, window, "int64")))
            (allowed,) = node.emit("logical_and", (allowed, *emit_broadcast(node, "greater", (tokens, first))))
        return additive_mask(node, allowed, MASKED_SCORE, "float32")

    def _last_row(self, x: str) -> str:
        """Returns the last row of [1, S, width]."""
        (last,) = cast_to(self.node, self.builder.extent(self.length - 1, "last"), "int32")
        (last,) = self.node.emit("reshape", (last,), shape=(1,))
        return self.node.emit("gather", (x, last), axis=1)[0]

    def _last_rows(self, x: str) -> str:
        """Returns the row of the last new token of each sequence, [sequences, 1, width], of [sequences, S, width]; the
        first row of a sequence without new tokens."""
        node, width = self.node, self._last_extent(x)
        (last,) = emit_broadcast(node, "sub", (*cast_to(node, NEW, "int32"), number(node, 1, "int32")))
        (last,) = emit_broadcast(node, "max", (last, number(node, 0, "int32")))
        (last,) = node.emit("reshape", (last,), shape=(self.sequences, 1, 1))
        (last,) = node.emit("expand", (last,), shape=(self.sequences, 1, width))
        return node.emit("gather_elements", (x, last), axis=1)[0]

    def _layer(self, layer: int, x: str) -> str:
        """Adds one transformer block: attention, then a gated feed-forward, each with a norm before it and a residual.
        x, result: [1, S, width]."""
        block, config = f"blk.{layer}", self.config
        y = self._attention(layer, self._norm(f"{block}.attn_norm", x))
        x = self._add_residual(x, self._post_norm(f"{block}.post_attention_norm", y))
        y = self._norm(f"{block}.ffn_norm", x)
        gate, up = self._gate_and_up(block, y)
        self._set_origin(f"{block}.ffn_gate")
        if config.architecture.gelu:
            gate = onnx_operator(self.node, "Gelu", gate, approximate="tanh")
        else:
            (gate,) = self.node.emit("mul", (gate, *self.node.emit("sigmoid", (gate,))))
        (y,) = self.node.emit("mul", (gate, up))
        y = self._product(f"{block}.ffn_down", y, columns=config.width)
        return self._add_residual(x, self._post_norm(f"{block}.post_ffw_norm", y))

    def _attention(self, layer: int, x: str) -> str:
        """Adds grouped-query attention with rotary embeddings and a KV cache. x, result: [1, S, width]."""
        block, config, node = f"blk.{layer}", self.config, self.node
        queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
        if f"{block}.attn_qkv.weight" in self.file.tensors:
            packed = self._product(f"{block}.attn_qkv", x, columns=queries + 2 * keys)
            flat = split_axis(node, packed, 2, (queries, keys, keys))
        else:
            flat = [self._product(f"{block}.attn_{name}", x, columns=columns)
                    for name, columns in (("q", queries), ("k", keys), ("v", keys))]
        q, k, v = (split_heads(node, value, count) for value, count in
                   zip(flat, (config.heads, config.kv_heads, config.kv_heads), strict=True))
        if f"{block}.attn_q_norm.weight" in self.file.tensors:
            q, k = self._norm(f"{block}.attn_q_norm", q), self._norm(f"{block}.attn_k_norm", k)
        all_keys = config.attends_to_all(layer)
        self._set_origin(f"{block}.attn")
        q, k = (apply_rotary(node, value, *self.rotary[all_keys], config.architecture.interleaved) for value in (q, k))
        if self.sinks and layer in layers_with_sinks(config, self.context):
            self._keep_sinks(layer, k)
        k, v = (self._state(f"{layer}.{part}", value) for part, value in (("key", k), ("value", v)))
        y = merge_heads(node, attend(node, q, k, v, config.attention_scale, self.masks[all_keys]))
        return self._product(f"{block}.attn_output", y, columns=config.width)

    def _state(self, name: str, new: str) -> str:
        """Appends new keys or values to the cache; the result is the state after the run."""
        return self._rename(f"present.{name}", concat_past(self.node, f"past_key_values.{name}", new))

    def _keep_sinks(self, layer: int, new: str) -> None:
        """Adds the keys of a layer's attention sinks as a state, and rotated. new: the keys of the new tokens."""
        output, state = sink_state(layer)
        kept = self._rename(output, keep_first_rows(self.node, state, new, *self.first_rows))
        angles = self.sink_angles[self.config.attends_to_all(layer)]
        rotated = apply_rotary(self.node, kept, *angles, self.config.architecture.interleaved)
        self._rename(rotated_sinks(layer), rotated)

    def _rename(self, name: str, value: str) -> str:
        """Gives a result of the last operator the name of an output, and returns that name."""
        return self.builder.rename({value: name}, first_op=len(self.builder.ops) - 1)[value]

    def _gate_and_up(self, block: str, x: str) -> Sequence[str]:
        """Returns gate and up projections of a gated feed-forward; some files have both in one tensor."""
        hidden = self._tensor(f"{block}.ffn_down.weight").shape[-1]
        if f"{block}.ffn_gate.weight" in self.file.tensors:
            return [self._product(f"{block}.ffn_{name}", x, columns=hidden) for name in ("gate", "up")]
        return split_axis(self.node, self._product(f"{block}.ffn_up", x, columns=2 * hidden), 2, (hidden, hidden))

    def _product(self, name: str, x: str, columns: int) -> str:
        """Returns x @ w', with w of shape [columns, K], plus the bias if there is one."""
        self._set_origin(name)
        tensor = self._tensor(f"{name}.weight", columns, self._last_extent(x))
        block_weights = self._blocks(tensor)
        if block_weights is None:
            w = self.node.constant(np.ascontiguousarray(floats(tensor).T))
            (y,) = self.node.emit("matmul", (x, w), trans_a=0, trans_b=0)
        else:
            y = emit_block_matmul(self.node, x, block_weights)
        if f"{name}.bias" in self.file.tensors:
            (y,) = emit_broadcast(self.node, "add", (y, self._vector(f"{name}.bias", columns)))
        return y

    def _last_extent(self, x: str) -> int:
        """Returns the extent of the last axis, which never is symbolic."""
        extent = self.node.type_of(x).shape[-1]
        assert isinstance(extent, int)
        return extent

    def _norm(self, name: str, x: str) -> str:
        """Normalises the last axis by its root mean square and multiplies it by the weight `name`."""
        self._set_origin(name)
        weight = self._vector(f"{name}.weight", self._last_extent(x))
        return onnx_operator(self.node, "RMSNormalization", x, weight, axis=-1, epsilon=self.config.epsilon)

    def _post_norm(self, name: str, x: str) -> str:
        """Applies the norm after a block, for architectures that have one; else returns x."""
        return self._norm(name, x) if f"{name}.weight" in self.file.tensors else x

    def _add_residual(self, x: str, y: str) -> str:
        """Returns x + residual_scale * y."""
        return self.node.emit("add", (x, self._scale(y, self.config.residual_scale)))[0]

    def _scale(self, x: str, factor: float) -> str:
        return x if factor == 1 else emit_broadcast(
            self.node, "mul", (x, number(self.node, factor, "float32")))[0]
