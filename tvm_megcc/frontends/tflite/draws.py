# SPDX-License-Identifier: Apache-2.0
"""Random operators. They use the network's input `seed` and ignore the seeds in the file: LiteRT advances a hidden
generator state from the file's seeds in every run, which our networks do not have."""

from __future__ import annotations

import onnx

from .node import Node, Results, Unsupported, imports


@imports("RANDOM_UNIFORM")
def random_uniform(node: Node) -> Results:
    """Draws float32 numbers uniformly from [0, 1)."""
    return _random(node, "RandomUniform")


@imports("RANDOM_STANDARD_NORMAL")
def random_standard_normal(node: Node) -> Results:
    return _random(node, "RandomNormal")


def _random(node: Node, op_type: str) -> Results:
    if node.results[0].dtype != "float32":
        raise Unsupported(f"random numbers of {node.results[0].dtype} are not supported")
    return node.onnx(op_type, shape=node.dims(0, "shape"))


@imports("MULTINOMIAL")
def multinomial(node: Node) -> Results:
    """Operands: unnormalised log-probabilities of classes, [batch, classes]; the number of samples for each row."""
    dtype = {"int32": onnx.TensorProto.INT32, "int64": onnx.TensorProto.INT64}.get(node.results[0].dtype)
    if dtype is None:
        raise Unsupported(f"drawn classes of {node.results[0].dtype} are not supported")
    return node.onnx("Multinomial", node.plain(0), sample_size=node.number(1, "num_samples"), dtype=dtype)
