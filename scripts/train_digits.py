#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small network that ships with the package: scikit-learn's handwritten digits, 8x8 pixels.

    python scripts/train_digits.py [FOLDER]        (needs scikit-learn; about half a minute)

Two 3x3 convolutions with ReLU, each with 2x2 max pooling, then a linear layer; plain numpy, seeded. Writes
digits.onnx and digits.npz: one test image as `in:image`, what the network says to it as `out:logits`, its label.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

CHANNELS = (12, 24)
EPOCHS, BATCH, RATE = 30, 32, 2e-3

Weights = dict[str, np.ndarray]


def initial_weights(rng: np.random.Generator) -> Weights:
    c1, c2 = CHANNELS

    def he(*shape):
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    return {"conv1.w": he(c1, 1, 3, 3), "conv1.b": np.zeros(c1, np.float32),
            "conv2.w": he(c2, c1, 3, 3), "conv2.b": np.zeros(c2, np.float32),
            "dense.w": he(10, c2 * 4), "dense.b": np.zeros(10, np.float32)}


def windows(x: np.ndarray) -> np.ndarray:
    """[n,c,h,w] -> [n,h,w,c,3,3], zero padded."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)


def conv_forward(x, w, b):
    columns = windows(x).reshape(*x.shape[:1], *x.shape[2:], -1)
    y = columns @ w.reshape(len(w), -1).T + b
    return y.transpose(0, 3, 1, 2), columns


def conv_backward(dy, columns, w, need_input):
    dy = dy.transpose(0, 2, 3, 1)
    dw = np.einsum("nhwo,nhwk->ok", dy, columns).reshape(w.shape)
    dx = None
    if need_input:
        flipped = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
        dx = conv_forward(dy.transpose(0, 3, 1, 2), flipped, np.float32(0))[0]
    return dx, dw, dy.sum((0, 1, 2))


def pool_forward(x):
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    y = blocks.max((3, 5))
    return y, blocks == y[:, :, :, None, :, None]


def pool_backward(dy, mask):
    share = mask / mask.sum((3, 5), keepdims=True)
    n, c, h, _, w, _ = mask.shape
    return (share * dy[:, :, :, None, :, None]).reshape(n, c, 2 * h, 2 * w).astype(np.float32)


def forward(p: Weights, x: np.ndarray):
    """Logits [n,10] of images [n,1,8,8], and what the backward pass needs."""
    a1, k1 = conv_forward(x, p["conv1.w"], p["conv1.b"])
    p1, m1 = pool_forward(np.maximum(a1, 0))
    a2, k2 = conv_forward(p1, p["conv2.w"], p["conv2.b"])
    p2, m2 = pool_forward(np.maximum(a2, 0))
    flat = p2.reshape(len(x), -1)
    return flat @ p["dense.w"].T + p["dense.b"], (a1, k1, m1, a2, k2, m2, p2.shape, flat)


def gradients(p: Weights, x: np.ndarray, label: np.ndarray) -> Weights:
    logits, (a1, k1, m1, a2, k2, m2, shape, flat) = forward(p, x)
    e = np.exp(logits - logits.max(1, keepdims=True))
    d = e / e.sum(1, keepdims=True)
    d[np.arange(len(x)), label] -= 1
    d = (d / len(x)).astype(np.float32)
    g = {"dense.w": d.T @ flat, "dense.b": d.sum(0)}
    d = pool_backward((d @ p["dense.w"]).reshape(shape), m2) * (a2 > 0)
    d, g["conv2.w"], g["conv2.b"] = conv_backward(d, k2, p["conv2.w"], True)
    d = pool_backward(d, m1) * (a1 > 0)
    _, g["conv1.w"], g["conv1.b"] = conv_backward(d, k1, p["conv1.w"], False)
    return g


def train(x: np.ndarray, label: np.ndarray) -> Weights:
    """Adam with a rate that falls to zero."""
    rng = np.random.default_rng(0)
    p = initial_weights(rng)
    m = {k: np.zeros_like(v) for k, v in p.items()}
    v = {k: np.zeros_like(w) for k, w in p.items()}
    steps = EPOCHS * (len(x) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for i in range(len(x) // BATCH):
            step += 1
            batch = order[i * BATCH:(i + 1) * BATCH]
            for k, g in gradients(p, x[batch], label[batch]).items():
                m[k] = 0.9 * m[k] + 0.1 * g
                v[k] = 0.999 * v[k] + 0.001 * g * g
                rate = RATE * (1 - step / (steps + 1)) * np.sqrt(1 - 0.999 ** step) / (1 - 0.9 ** step)
                p[k] = (p[k] - rate * m[k] / (np.sqrt(v[k]) + 1e-8)).astype(np.float32)
    return p


def onnx_model(p: Weights) -> onnx.ModelProto:
    conv = dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    pool = dict(kernel_shape=[2, 2], strides=[2, 2])
    nodes = [
        helper.make_node("Conv", ["image", "conv1.w", "conv1.b"], ["c1"], "conv1", **conv),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", **pool),
        helper.make_node("Conv", ["p1", "conv2.w", "conv2.b"], ["c2"], "conv2", **conv),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["p2"], "pool2", **pool),
        helper.make_node("Flatten", ["p2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense.w", "dense.b"], ["logits"], "dense", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in p.items()],
        doc_string="Handwritten digits of scikit-learn; image: 8x8 grey values 0 (paper) to 1 (ink).")
    model = helper.make_model(graph, producer_name="tvm_megcc", opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main(folder: Path) -> None:
    digits = load_digits()
    x = (digits.images[:, None] / 16).astype(np.float32)
    label = digits.target
    test = np.arange(len(x)) % 5 == 0
    p = train(x[~test], label[~test])
    logits = forward(p, x[test])[0]
    right = logits.argmax(1) == label[test]
    print(f"{right.mean():.1%} of {right.size} test images right")
    sample = np.flatnonzero(test)[np.flatnonzero(right & (label[test] == 7))[0]]
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx_model(p), folder / "digits.onnx")
    np.savez(folder / "digits.npz", **{
        "in:image": x[sample:sample + 1], "out:logits": forward(p, x[sample:sample + 1])[0],
        "label": label[sample]})


if __name__ == "__main__":
    default = Path(__file__).resolve().parent.parent / "tvm_megcc" / "examples"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
