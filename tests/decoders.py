# SPDX-License-Identifier: Apache-2.0
"""Small decoders with the graphs that optimum and transformers export: the KV cache of past tokens is an input, and the
cache with the new tokens appended is an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tests.onnx_models import model, node

#: The value of masked scores.
LOWEST = np.finfo(np.float32).min


class Writer:
    """Collects the nodes and constants of a graph. A call adds a node and returns the name of its result."""

    def __init__(self, seed: int = 0):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(seed)

    def __call__(self, kind: str, *operands: Any, to: str = "", several: int = 0, **attributes: Any) -> Any:
        """Adds a node. operands: names, or arrays and numbers, which become constants. to: the name of the result.
        several: the number of results, whose names are returned as a list; 0 for one result."""
        names = [each if isinstance(each, str) else self.constant(each) for each in operands]
        result = to or f"{kind}_{len(self.nodes)}"
        results = [f"{result}_{index}" for index in range(several)] or [result]
        self.nodes.append(node(kind, " ".join(names), " ".join(results), **attributes))
        return results if several else result

    def constant(self, array: Any) -> str:
        name = f"constant_{len(self.constants)}"
        array = np.asarray(array)
        self.constants[name] = array.astype(np.float32) if array.dtype.kind == "f" else array
        return name

    def weight(self, *shape: int) -> np.ndarray:
        """Returns random weights of float32."""
        return (self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def real(self, value: str) -> str:
        """Casts a value to float32."""
        self.nodes.append(node("Cast", value, f"Cast_{len(self.nodes)}", to=onnx.TensorProto.FLOAT))
        return self.nodes[-1].output[0]

    def extent(self, value: str, axis: int) -> str:
        """Returns an extent of a value, computed as torch exports `x.shape[axis]`."""
        return self("Gather", self("Shape", value), np.array(axis, np.int64), axis=0)

    def shape(self, *extents: str | int) -> str:
        """Returns a shape of extents, which are numbers or names of values."""
        parts = [self("Unsqueeze", each, np.array([0])) if isinstance(each, str) else np.array([each])
                 for each in extents]
        return self("Concat", *parts, axis=0)

    def layer_norm(self, x: str, width: int) -> str:
        return self("LayerNormalization", x, 1 + 0.1 * self.weight(width), 0.1 * self.weight(width), axis=-1,
                    epsilon=1e-5)

    def rms_norm(self, x: str, width: int) -> str:
        mean = self("ReduceMean", self("Pow", x, np.array(2.0)), np.array([-1]), keepdims=1)
        root = self("Sqrt", self("Add", mean, np.array(1e-6)))
        return self("Mul", 1 + 0.1 * self.weight(width), self("Mul", x, self("Div", np.array(1.0), root)))


def pairs(layers: int) -> dict[str, str]:
    """Returns output -> input for the keys and values of all layers, as the option `states` takes them."""
    return {f"present.{layer}.{what}": f"past_key_values.{layer}.{what}" for layer in range(layers)
            for what in ("key", "value")}


def _model_of(w: Writer, logits: str, layers: int, heads: int, width: int, vocabulary: int,
              positions: bool, masked: bool, batch: str | int) -> onnx.ModelProto:
    """Returns the model of the nodes with the inputs and outputs of a decoder. heads: of keys and values. positions,
    masked: whether position_ids and attention_mask are inputs."""
    w("Identity", logits, to="logits")
    past, total = "past_sequence_length", "past_sequence_length + sequence_length"
    inputs: dict[str, Any] = {"input_ids": ("int64", [batch, "sequence_length"])}
    outputs: dict[str, Any] = {"logits": [batch, "sequence_length", vocabulary]}
    if masked:
        inputs["attention_mask"] = ("int64", [batch, total])
    if positions:
        inputs["position_ids"] = ("int64", [batch, "sequence_length"])
    for result, state in pairs(layers).items():
        inputs[state], outputs[result] = [batch, heads, past, width], [batch, heads, total, width]
    return model(w.nodes, inputs, outputs, w.constants, opset=18, name="decoder")


def gpt2(layers: int = 2, heads: int = 3, width: int = 8, vocabulary: int = 40, longest: int = 64,
         positions: bool = True, masked: bool = True, batch: str | int = "batch_size",
         seed: int = 0) -> onnx.ModelProto:
    """Returns a GPT-2: learnt positions, a causal mask that is a part of a constant (Slice, Where), transposed keys.

    width: of a head. longest: the most positions. positions, masked: whether position_ids and attention_mask are
    inputs; otherwise positions are counted from the extent of the cache, and there is no padding."""
    w, hidden = Writer(seed), heads * width
    count = w.extent("input_ids", 1)
    places = "position_ids"
    if not positions:
        before = w.extent("past_key_values.0.key", 2)
        places = w("Unsqueeze", w("Range", before, w("Add", before, count), np.array(1)), np.array([0]))
    x = w("Add", w("Gather", w.weight(vocabulary, hidden), "input_ids"), w("Gather", w.weight(longest, hidden), places))
    added = ""
    if masked:
        mask = w.real(w("Unsqueeze", w("Unsqueeze", "attention_mask", np.array([1])), np.array([2])))
        added = w("Mul", w("Sub", np.array(1.0), mask), np.array(LOWEST))
    for layer in range(layers):
        normed = w.layer_norm(x, hidden)
        flat = w("Gemm", w("Reshape", normed, np.array([-1, hidden])), w.weight(hidden, 3 * hidden),
                 0.1 * w.weight(3 * hidden))
        both = w("Reshape", flat, w.shape(w.extent(x, 0), count, 3 * hidden))
        q, k, v = (w("Transpose", w("Reshape", part, w.shape(w.extent(x, 0), count, heads, width)), perm=[0, 2, 1, 3])
                   for part in w("Split", both, np.array([hidden] * 3), several=3, axis=2))
        k = w("Concat", f"past_key_values.{layer}.key", k, to=f"present.{layer}.key", axis=-2)
        v = w("Concat", f"past_key_values.{layer}.value", v, to=f"present.{layer}.value", axis=-2)
        scores = w("Div", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), np.array(np.sqrt(width)))
        keys = w.extent(k, 2)
        first = w("Unsqueeze", w("Sub", keys, w.extent(q, 2)), np.array([0]))
        end = w("Unsqueeze", keys, np.array([0]))
        causal = w("Slice", np.tri(longest, dtype=bool)[None, None], first, end, np.array([2]), np.array([1]))
        causal = w("Slice", causal, np.array([0]), end, np.array([3]), np.array([1]))
        scores = w("Where", causal, scores, np.array(LOWEST))
        weights = w("Softmax", w("Add", scores, added) if added else scores, axis=-1)
        y = w("Transpose", w("MatMul", weights, v), perm=[0, 2, 1, 3])
        y = w("Reshape", y, w.shape(w.extent(x, 0), count, hidden))
        y = w("Gemm", w("Reshape", y, np.array([-1, hidden])), w.weight(hidden, hidden), 0.1 * w.weight(hidden))
        x = w("Add", w("Reshape", y, w.shape(w.extent(x, 0), count, hidden)), x)
        wide = w("Add", w("MatMul", w.layer_norm(x, hidden), w.weight(hidden, 4 * hidden)), 0.1 * w.weight(4 * hidden))
        cubed = w("Add", wide, w("Mul", w("Pow", wide, np.array(3.0)), np.array(0.044715)))
        curve = w("Add", w("Tanh", w("Mul", cubed, np.array(np.sqrt(2 / np.pi)))), np.array(1.0))
        wide = w("Mul", w("Mul", wide, np.array(0.5)), curve)
        x = w("Add", x, w("MatMul", wide, w.weight(4 * hidden, hidden)))
    logits = w("MatMul", w.layer_norm(x, hidden), w.weight(hidden, vocabulary))
    return _model_of(w, logits, layers, heads, width, vocabulary, positions, masked, batch)


def llama(layers: int = 2, heads: int = 4, groups: int = 2, width: int = 8, vocabulary: int = 40,
          batch: str | int = "batch_size", seed: int = 0) -> onnx.ModelProto:
    """Returns a Llama: rotary positions, heads that share keys (Unsqueeze, Expand, Reshape), and a mask that is
    computed from the extents of past and new tokens. groups: the number of key heads."""
    w, hidden = Writer(seed), heads * width
    count, rows = w.extent("input_ids", 1), w.extent("input_ids", 0)
    before = w.extent("past_key_values.0.key", 2)
    total = w("Add", before, count)
    x = w("Gather", w.weight(vocabulary, hidden), "input_ids")
    steps = w("Range", before, total, np.array(1))
    later = w("Greater", w("Range", np.array(0), total, np.array(1)), w("Reshape", steps, np.array([-1, 1])))
    causal = w("Unsqueeze", w("Mul", w.real(later), np.array(LOWEST)), np.array([0, 1]))
    causal = w("Expand", causal, w.shape(rows, 1, count, total))
    end = w("Unsqueeze", w.extent("attention_mask", 1), np.array([0]))
    part = w("Slice", causal, np.array([0]), end, np.array([3]), np.array([1]))
    padding = w.real(w("Unsqueeze", "attention_mask", np.array([1, 2])))
    hidden_keys = w("Equal", w("Add", part, padding), np.array(0.0))
    mask = w("Where", hidden_keys, np.array(LOWEST), part)
    frequencies = (10000.0 ** -(np.arange(0, width, 2) / width)).astype(np.float32).reshape(1, 1, -1)
    angles = w("Mul", w.real(w("Unsqueeze", "position_ids", np.array([2]))), frequencies)
    angles = w("Concat", angles, angles, axis=-1)
    cosines, sines = (w("Unsqueeze", w(kind, angles), np.array([1])) for kind in ("Cos", "Sin"))

    def turned(value: str) -> str:
        low = w("Slice", value, np.array([0]), np.array([width // 2]), np.array([3]), np.array([1]))
        high = w("Slice", value, np.array([width // 2]), np.array([2 ** 63 - 1]), np.array([3]), np.array([1]))
        return w("Add", w("Mul", value, cosines), w("Mul", w("Concat", w("Neg", high), low, axis=-1), sines))

    def of_heads(value: str, n: int) -> str:
        made = w("MatMul", value, w.weight(hidden, n * width))
        return w("Transpose", w("Reshape", made, w.shape(rows, count, n, width)), perm=[0, 2, 1, 3])

    def repeated(value: str) -> str:
        n = heads // groups
        value = w("Expand", w("Unsqueeze", value, np.array([2])), w.shape(rows, groups, n, w.extent(value, 2), width))
        return w("Reshape", value, w.shape(rows, heads, w.extent(value, 3), width))

    for layer in range(layers):
        normed = w.rms_norm(x, hidden)
        q, k, v = of_heads(normed, heads), of_heads(normed, groups), of_heads(normed, groups)
        q, k = turned(q), turned(k)
        k = w("Concat", f"past_key_values.{layer}.key", k, to=f"present.{layer}.key", axis=-2)
        v = w("Concat", f"past_key_values.{layer}.value", v, to=f"present.{layer}.value", axis=-2)
        k, v = repeated(k), repeated(v)
        scores = w("Mul", w("MatMul", q, w("Transpose", k, perm=[0, 1, 3, 2])), np.array(width ** -0.5))
        seen = w("Slice", mask, np.array([0]), w("Unsqueeze", w.extent(k, 2), np.array([0])), np.array([3]),
                 np.array([1]))
        y = w("MatMul", w("Softmax", w("Add", scores, seen), axis=-1), v)
        y = w("Reshape", w("Transpose", y, perm=[0, 2, 1, 3]), w.shape(rows, count, hidden))
        x = w("Add", x, w("MatMul", y, w.weight(hidden, hidden)))
        normed = w.rms_norm(x, hidden)
        gate = w("MatMul", normed, w.weight(hidden, 2 * hidden))
        gate = w("Mul", gate, w("Sigmoid", gate))
        x = w("Add", x, w("MatMul", w("Mul", gate, w("MatMul", normed, w.weight(hidden, 2 * hidden))),
                          w.weight(2 * hidden, hidden)))
    logits = w("MatMul", w.rms_norm(x, hidden), w.weight(hidden, vocabulary))
    return _model_of(w, logits, layers, groups, width, vocabulary, True, True, batch)


def fed(proto: onnx.ModelProto, tokens: np.ndarray, past: int) -> dict[str, np.ndarray]:
    """Returns the inputs of a run on these tokens [batch, count], except the KV cache. past: the number of past tokens.
    """
    names = {value.name for value in proto.graph.input}
    batch, count = tokens.shape
    given = {"input_ids": tokens.astype(np.int64), "attention_mask": np.ones((batch, past + count), np.int64),
             "position_ids": np.tile(np.arange(past, past + count), (batch, 1))}
    return {name: value for name, value in given.items() if name in names}


def empty(proto: onnx.ModelProto, batch: int = 1) -> dict[str, np.ndarray]:
    """Returns an empty KV cache."""
    found = {}
    for value in proto.graph.input:
        if value.name.startswith("past"):
            _, heads, _, width = value.type.tensor_type.shape.dim
            found[value.name] = np.zeros((batch, heads.dim_value, 0, width.dim_value), np.float32)
    return found


def names_of_results(proto: onnx.ModelProto) -> Sequence[str]:
    return [value.name for value in proto.graph.output]
