# SPDX-License-Identifier: Apache-2.0
"""The arena against a bound computed from the ONNX file alone: ONNX's own shape inference, the file's own order, and
three rules that need no planner (elementwise tails are free, reshapes and concats are no copies)."""

from __future__ import annotations

import math
import os
from pathlib import Path

import onnx
import pytest
import tflite
from onnx import shape_inference

import tvm_megcc

from .networks import CHECKOUT, NETWORKS

#: Operators computed in the registers of their producer, or in place.
TAILS = {"Relu", "Clip", "Sigmoid", "Mul", "Add", "Sub", "Div", "BatchNormalization", "Exp", "Softmax", "Dropout"}
ALIASES = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}


def onnx_bound(path, shapes: dict[str, tuple[int, ...]]) -> int:
    """Largest sum of live activations in bytes, in the file's order."""
    model = onnx.load(path)
    graph = model.graph
    for value in graph.input:
        if value.name in shapes:
            for dim, extent in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
                dim.dim_value = extent
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    known = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}

    def size(name: str) -> int:
        tensor = known[name].type.tensor_type
        return math.prod(d.dim_value for d in tensor.shape.dim) * 4

    constants = {i.name for i in graph.initializer}
    inputs = [v.name for v in graph.input if v.name not in constants]
    leader = {name: name for name in inputs}

    def lead(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    uses: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            uses[name] = uses.get(name, 0) + 1
    for node in graph.node:
        data = [n for n in node.input if n in leader]
        if not data:
            continue
        output = node.output[0]
        leader[output] = output
        if node.op_type in ALIASES or (node.op_type in TAILS and size(output) == size(data[0])):
            leader[output] = lead(data[0])
        elif node.op_type == "Concat":
            for name in data:
                leader[lead(name)] = output
        for name in node.output:
            leader.setdefault(name, name)
    members: dict[str, list[str]] = {}
    for name in leader:
        members.setdefault(lead(name), []).append(name)
    born = {name: 0 for name in inputs} | {n: i for i, node in enumerate(graph.node) for n in node.output}
    read: dict[str, int] = {}
    for when, node in enumerate(graph.node):
        for name in node.input:
            read[name] = when
    for value in graph.output:
        read[value.name] = len(graph.node)
    live = [0] * (len(graph.node) + 1)
    for names in members.values():
        first = min(born[n] for n in names)
        last = max(read.get(n, born[n]) for n in names)
        if all(n in known for n in names):
            bytes_ = max(size(n) for n in names)
            for when in range(first, last + 1):
                live[when] += bytes_
    return max(live)


@pytest.mark.parametrize("name", [n.name for n in NETWORKS.values() if n.arena_kb])
def test_arena_meets_the_bound_of_the_onnx_graph(name: str):
    network = NETWORKS[name]
    bound = onnx_bound(network.path, dict(network.shapes))
    artifact = tvm_megcc.compile(network.path, "arm64", input_shapes=dict(network.shapes))
    (program,) = artifact.manifest["programs"]
    assert program["arena_bytes"] <= 1.05 * bound, f"arena {program['arena_bytes']}, bound {bound}"


@pytest.mark.parametrize("name", ("resnet8_cifar10_int8", "kws_dscnn_int8", "ad_autoencoder_int8",
                                  "mobilenet_v1_025_224_uint8", "tflm_micro_speech"))
def test_weights_of_bytes(name: str):
    """A container for a microcontroller against the file's constants and their scales by channel."""
    folder = Path(os.environ.get("MEGCC_MODELS", CHECKOUT.parent / "shared" / "models")) / name
    if not folder.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    path = folder / "model.tflite"
    model = tflite.Model.GetRootAs(path.read_bytes(), 0)
    graph, read = model.Subgraphs(0), set()
    for index in range(graph.OperatorsLength()):
        read.update(graph.Operators(index).InputsAsNumpy().tolist())
    size = 0
    for tensor in (graph.Tensors(index) for index in read - {-1}):
        constant = model.Buffers(tensor.Buffer()).DataLength()
        if constant:
            scales = tensor.Quantization().ScaleLength() if tensor.Type() == tflite.TensorType.INT8 else 0
            size += constant + (4 * scales if scales > 1 else 0)
    (program,) = tvm_megcc.compile(path, "cortex-m4").manifest["programs"]
    assert program["unpacked_bytes"] <= 1.05 * size
