# SPDX-License-Identifier: Apache-2.0
"""Small drawn decoders in folders, as the model builder of ONNX Runtime GenAI and Hugging Face's exporters write them,
and their likeliest tokens by ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, GROUPS, HEAD, LAYERS, CONTEXT = 64, 4, 2, 16, 2, 48
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL"
WORDS = ["<s>", "</s>", *LETTERS, "ab"]
#: Two logits have no token.
SIZE = len(WORDS) + 2
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


class Graph:
    """Nodes and drawn weights."""

    def __init__(self, seed: int):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def constant(self, value: np.ndarray) -> str:
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def drawn(self, *extents: int) -> str:
        return self.constant(self.random.normal(0, extents[0] ** -0.5, extents).astype(np.float32))

    def emit(self, kind: str, *inputs: str, outputs: list[str] | None = None, domain: str = "", **attributes) -> str:
        outputs = outputs or [f"value{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def contrib(self, kind: str, *inputs: str, **others) -> str:
        return self.emit(kind, *inputs, domain="com.microsoft", **others)

    def packed(self, rows: int, columns: int) -> list[str]:
        """Numbers of 4 bits in blocks, and their scales."""
        packed = self.random.integers(0, 256, (columns, rows // 32, 16), np.uint8)
        scales = self.random.uniform(0.01, 0.03, columns * rows // 32).astype(np.float32)
        return [self.constant(packed), self.constant(scales)]

    def product(self, x: str, rows: int, columns: int, weights: list[str] | None = None, **others) -> str:
        """MatMulNBits of 4 bits, whose activations may be int8."""
        return self.contrib("MatMulNBits", x, *(weights or self.packed(rows, columns)), K=rows, N=columns, bits=4,
                            block_size=32, accuracy_level=4, **others)

    def save(self, path: Path, inputs: list, outputs: list, nodes: list | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph(nodes or self.nodes, "decoder", inputs, outputs, self.weights)
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path, save_as_external_data=True,
                  location=f"{path.name}.data", size_threshold=100)


def ports(size: int | str, *others: str) -> tuple[list, list]:
    """Inputs and outputs. size: the extent of a head. others: names of inputs besides tokens and the past."""
    def value(name: str, dtype: int, *shape: int | str):
        return helper.make_tensor_value_info(name, dtype, shape)

    inputs = [value("input_ids", TensorProto.INT64, "batch", "sequence")]
    lengths = {"attention_mask": "total", "position_ids": "sequence"}
    inputs += [value(name, TensorProto.INT64, "batch", lengths[name]) if name in lengths else
               value(name, TensorProto.BOOL, 1) for name in others]
    outputs = [value("logits", TensorProto.FLOAT, "batch", "sequence", SIZE)]
    for layer in range(LAYERS):
        for part in ("key", "value"):
            inputs.append(value(f"past_key_values.{layer}.{part}", TensorProto.FLOAT, "batch", GROUPS, "past", size))
            outputs.append(value(f"present.{layer}.{part}", TensorProto.FLOAT, "batch", GROUPS, "total", size))
    return inputs, outputs


def genai(folder: Path, experts: int = 0) -> Path:
    """A decoder of com.microsoft's operators, whose embedding is also the head. experts: each layer has so many after
    attention."""
    graph = Graph(1)
    axis, one = graph.constant(np.array([1])), graph.constant(np.array([1]))
    last = graph.emit("Sub", graph.emit("ReduceSum", "attention_mask", axis, keepdims=0), one)
    total = graph.emit("Gather", graph.emit("Shape", "attention_mask"), graph.constant(np.array(1)), axis=0)
    last, total = (graph.emit("Cast", value, to=TensorProto.INT32) for value in (last, total))
    angles = np.outer(np.arange(CONTEXT), 100.0 ** -np.arange(0, 1, 2 / HEAD))
    rotary = [graph.constant(function(angles).astype(np.float32)) for function in (np.cos, np.sin)]
    gain = graph.constant(np.ones(WIDTH, np.float32))
    tied = graph.packed(WIDTH, SIZE)
    rows = graph.emit("Reshape", tied[0], graph.constant(np.array([SIZE, WIDTH // 2])))
    scales = graph.emit("Reshape", tied[1], graph.constant(np.array([SIZE, WIDTH // 32])))
    total_x = graph.contrib("GatherBlockQuantized", rows, "input_ids", scales, bits=4, block_size=32, gather_axis=0,
                            quantize_axis=1)
    x = graph.emit("SimplifiedLayerNormalization", total_x, gain, axis=-1, epsilon=1e-5)
    for layer in range(LAYERS):
        packed = graph.product(x, WIDTH, (HEADS + 2 * GROUPS) * HEAD)
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        y = graph.contrib("GroupQueryAttention", packed, "", "", *past, last, total, *rotary, num_heads=HEADS,
                          kv_num_heads=GROUPS, do_rotary=1,
                          outputs=[f"y{layer}", f"present.{layer}.key", f"present.{layer}.value"])
        y = graph.product(y, HEADS * HEAD, WIDTH)
        x = graph.contrib("SkipSimplifiedLayerNormalization", total_x, y, gain, epsilon=1e-5,
                          outputs=[f"x{layer}", "", "", f"total{layer}"])
        total_x = f"total{layer}"
        if experts:
            logits = graph.emit("MatMul", graph.emit("Reshape", x, graph.constant(np.array([-1, WIDTH]))),
                                graph.drawn(WIDTH, experts))
            weights = [graph.constant(array) for rows, depth in ((4 * WIDTH, WIDTH), (WIDTH, 2 * WIDTH)) for array in (
                graph.random.integers(0, 256, (experts, rows, depth // 2), np.uint8),
                graph.random.uniform(0.01, 0.03, (experts, rows, depth // 32)).astype(np.float32))]
            y = graph.contrib("QMoE", x, logits, *weights[:2], "", *weights[2:], k=2, expert_weight_bits=4,
                              block_size=32, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1)
            x = graph.contrib("SkipSimplifiedLayerNormalization", total_x, y, gain, epsilon=1e-5,
                              outputs=[f"x{layer}.experts", "", "", f"total{layer}.experts"])
            total_x = f"total{layer}.experts"
    graph.product(x, WIDTH, SIZE, tied, outputs=["logits"])
    graph.save(folder / "text.onnx", *ports("size", "attention_mask"))
    config = {"bos_token_id": 0, "eos_token_id": [1], "context_length": CONTEXT, "vocab_size": SIZE, "decoder": {
        "filename": "text.onnx", "head_size": HEAD, "num_key_value_heads": GROUPS,
        "inputs": {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"},
        "outputs": {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}}}
    (folder / "genai_config.json").write_text(json.dumps({"model": config}))
    tokenizer(folder)
    return folder


def hugging_face(folder: Path) -> Path:
    """A decoder of ONNX's operators with learned positions, in the branch of an If as merged files have it."""
    graph = Graph(2)
    x = graph.emit("Add", graph.emit("Gather", graph.drawn(SIZE, WIDTH), "input_ids"),
                   graph.emit("Gather", graph.drawn(CONTEXT, WIDTH), "position_ids"))
    scale = graph.constant(np.array(HEAD ** -0.5, np.float32))
    keys = graph.emit("Range", graph.constant(np.array(0)), graph.emit(
        "Gather", graph.emit("Shape", "attention_mask"), graph.constant(np.array(1))), graph.constant(np.array(1)))
    allowed = graph.emit("LessOrEqual", keys, graph.emit("Unsqueeze", "position_ids", graph.constant(np.array([1, 3]))))
    attended = graph.emit("Cast", graph.emit("Unsqueeze", "attention_mask", graph.constant(np.array([1, 2]))),
                          to=TensorProto.BOOL)
    mask = graph.emit("Where", graph.emit("And", allowed, attended), graph.constant(np.array(0, np.float32)),
                      graph.constant(np.array(-1e9, np.float32)))
    shape = graph.constant(np.array([0, 0, -1, HEAD]))
    for layer in range(LAYERS):
        q, k, v = (graph.emit("Transpose", graph.emit("Reshape", graph.emit(
            "MatMul", x, graph.drawn(WIDTH, count * HEAD)), shape), perm=[0, 2, 1, 3])
            for count in (HEADS, GROUPS, GROUPS))
        both = []
        for part, new in (("key", k), ("value", v)):
            value = graph.emit("Concat", f"past_key_values.{layer}.{part}", new, axis=2,
                               outputs=[f"inner.{layer}.{part}"])
            wide = graph.emit("Expand", graph.emit("Unsqueeze", value, graph.constant(np.array([2]))),
                              graph.constant(np.array([1, 1, HEADS // GROUPS, 1, 1])))
            both.append(graph.emit("Reshape", wide, graph.constant(np.array([0, HEADS, -1, HEAD]))))
        scores = graph.emit("Mul", graph.emit("MatMul", q, graph.emit("Transpose", both[0], perm=[0, 1, 3, 2])), scale)
        y = graph.emit("MatMul", graph.emit("Softmax", graph.emit("Add", scores, mask), axis=-1), both[1])
        y = graph.emit("Reshape", graph.emit("Transpose", y, perm=[0, 2, 1, 3]),
                       graph.constant(np.array([0, 0, HEADS * HEAD])))
        x = graph.emit("Add", x, graph.emit("MatMul", y, graph.drawn(HEADS * HEAD, WIDTH)))
    graph.emit("MatMul", x, graph.drawn(WIDTH, SIZE), outputs=["inner.logits"])
    inputs, outputs = ports(HEAD, "attention_mask", "position_ids", "use_cache_branch")
    inner = [helper.make_tensor_value_info(value.name.replace("present", "inner").replace("logits", "inner.logits"),
                                           TensorProto.FLOAT, None) for value in outputs]
    branch = helper.make_graph(graph.nodes, "with_past", [], inner)
    choice = helper.make_node("If", ["use_cache_branch"], [value.name for value in outputs], then_branch=branch,
                              else_branch=branch)
    graph.save(folder / "onnx" / "decoder_model_merged.onnx", inputs, outputs, [choice])
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": CONTEXT, "vocab_size": SIZE}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    tokenizer(folder, normalizer={"type": "NFC"})
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def tokenizer(folder: Path, normalizer: dict | None = None) -> None:
    """Letters, and a merged pair; texts begin with <s>."""
    special = [{"id": index, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for index, word in enumerate(WORDS[:2])]
    begin = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                      {"Sequence": {"id": "A", "type_id": 0}}]}
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": special, "normalizer": normalizer, "post_processor": begin,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {word: index for index, word in enumerate(WORDS)}, "merges": ["a b"]}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}))


def likeliest(path: Path, tokens: list[int], count: int) -> list[int]:
    """The likeliest tokens after some, by ONNX Runtime with float activations."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(exact(path))
    found = list(tokens)
    for _ in range(count):
        found.append(int(session.run(["logits"], feeds(session, np.array([found])))[0][0, -1].argmax()))
    return found[len(tokens):]


def exact(path: Path) -> bytes:
    """A model whose products have float activations."""
    model = onnx.load(path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    return model.SerializeToString()


def feeds(session, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs for tokens [1, count] without a past. session: of ONNX Runtime."""
    count = tokens.shape[1]
    given = {"input_ids": tokens.astype(np.int64), "attention_mask": np.ones((1, count), np.int64),
             "position_ids": np.arange(count)[None], "use_cache_branch": np.ones(1, bool)}
    return {port.name: given[port.name] if port.name in given else
            np.zeros([each if index in (1, 3) and isinstance(each, int) else (1, GROUPS, 0, HEAD)[index]
                      for index, each in enumerate(port.shape)], np.float32) for port in session.get_inputs()}
