# SPDX-License-Identifier: Apache-2.0
"""Decomposes com.microsoft's QMoE, a mixture of experts with weights of 4 or 8 bits (Shazeer et al. 2017), into an If
for each expert, so that a run reads the weights of chosen experts only.

A token chooses the k experts of the largest logits, and weights their results by the softmax of these. An expert that
any token of a run chooses computes all tokens of it; the others get weight 0. Semantics are those of ONNX Runtime on
CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...errors import MegccError
from ...ir.dims import Dim
from .builder import Node

if TYPE_CHECKING:
    from .nodes import Importer, Scope

_OPSETS = {"": 18, "ai.onnx": 18, "com.microsoft": 1}
#: Operands by position; those of each product: weights uint8 [experts, N, K * bits / 8], scales [experts, N, K / block]
#: or [experts, N], bias [experts, N], zero points in the packed form of MatMulNBits.
_PRODUCTS = {"fc1": (2, 3, 4, 11), "fc2": (5, 6, 7, 12), "fc3": (8, 9, 10, 13)}
_FIRST_UNSUPPORTED = 14
#: Attributes that change the computation but are not supported -> the values that are accepted.
_UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "quant_type": ("int",), "use_sparse_mixer": (0,), "swiglu_limit_after_activation": (0,),
    "weights_prepacked": (-1, 0)}


@dataclass(frozen=True)
class _Product:
    """A product of each expert.

    bits, block: of the weights. numbers: uint8 [experts, N, K / block, block * bits / 8].
    scales: float32 [experts, N, K / block]. zeros: packed zero points [experts, N, bytes]; None for the middle.
    bias: float32 [experts, N]; None for none.
    """

    bits: int
    block: int
    numbers: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    bias: np.ndarray | None

    @property
    def depth(self) -> int:
        """The length of a sum."""
        return int(self.numbers.shape[2]) * self.block

    def rows(self, which: slice) -> _Product:
        """Returns the product with some of the rows of weights."""
        zeros, bias = (None if array is None else array[:, which] for array in (self.zeros, self.bias))
        return _Product(self.bits, self.block, self.numbers[:, which], self.scales[:, which], zeros, bias)


def import_qmoe(importer: Importer, node: Node, proto: onnx.NodeProto, scope: Scope,
                opsets: Mapping[str, int]) -> list[str | None]:
    """Returns the sum of the results of the chosen experts for each token, of the input's shape."""
    for name, accepted in _UNSUPPORTED.items():
        if node.attr(name, accepted[0]) not in accepted:
            raise MegccError(f"has {name} {node.attr(name)!r}, which is not supported")
    if any(map(node.has, range(_FIRST_UNSUPPORTED, len(node.inputs)))):
        raise MegccError("has router_weights or scales of activations, which is not supported")
    products, activation = _products(node), node.attr("activation_type", "relu")
    x = node.type(0)
    if x is None:
        raise MegccError("has no input")
    _require_fitting(products, x.shape[-1])
    graph = _Graph(node, products, activation).proto()
    # A new scope, since the graph reads its own inputs only. Its class is in `nodes`, which imports this module.
    return importer.inline(graph, type(scope)(), _OPSETS, {"x": node.inputs[0], "logits": node.inputs[1]})


def _products(node: Node) -> dict[str, _Product]:
    """Returns the products by the names of their operands; those of gate and up are "gate" and "up"."""
    swiglu, fusion = node.attr("activation_type", "relu") == "swiglu", node.attr("swiglu_fusion", 0)
    found = {name: _product(node, name) for name in ("fc1", "fc2", *["fc3"] * (swiglu and fusion == 0))}
    if not swiglu:
        return found
    fc1 = found.pop("fc1")
    half = fc1.numbers.shape[1] // 2
    if fusion not in (0, 1, 2):
        raise MegccError(f"has swiglu_fusion {fusion}, which is not supported")
    gate, up = ((slice(0, None, 2), slice(1, None, 2)), (slice(0, half), slice(half, None)))[fusion == 2]
    found["gate"], found["up"] = (fc1, found.pop("fc3")) if fusion == 0 else (fc1.rows(gate), fc1.rows(up))
    return found


def _require_fitting(products: Mapping[str, _Product], width: Dim) -> None:
    """Raises MegccError for products that do not fit each other or the input's width. In the branch of an expert they
    would fail the runs that choose it, and no others."""
    *first, last = (products[name] for name in sorted(products, key="fc2".__eq__))
    hidden = {product.numbers.shape[1] for product in first}
    experts = {product.numbers.shape[0] for product in products.values()}
    depths = {product.depth for product in first}
    if len(experts) > 1 or hidden != {last.depth} or depths != {last.numbers.shape[1]} or (
            isinstance(width, int) and depths != {width}):
        shapes = ", ".join(f"{name} {list(product.numbers.shape[:2])} of {product.depth}"
                           for name, product in products.items())
        raise MegccError(f"has products that do not fit each other, or inputs of {width} numbers: {shapes}")


def _product(node: Node, name: str) -> _Product:
    """Returns the product of these operands."""
    weights, scale, bias, zero = _PRODUCTS[name]
    bits = int(node.attr(f"{name}_expert_weight_bits", node.attr("expert_weight_bits", 4)))
    if bits not in (4, 8):
        raise MegccError(f"has weights of {bits} bits; 4 and 8 are supported")
    if any(node.has(index) and not node.is_const(index) for index in (weights, scale, bias, zero)) \
            or not (node.has(weights) and node.has(scale)):
        raise MegccError(f"its {name} has no constant weights and scales")
    numbers, scales = _array(node, weights), _array(node, scale).astype(np.float32)
    if numbers.ndim != 3 or numbers.dtype != np.uint8:
        raise MegccError(f"its {name} has weights {numbers.dtype}{list(numbers.shape)}, not uint8 of three axes")
    experts, rows, size = numbers.shape
    depth, block = size * 8 // bits, int(node.attr("block_size", 0))
    zeros = _array(node, zero) if node.has(zero) else None
    if not block:  # one scale for a row: blocks of 32 or 16 share it
        block = 32 if depth % 32 == 0 else 16
        scales = np.repeat(scales.reshape(experts, rows, 1), depth // block, 2)
        zeros = None if zeros is None else _of_blocks(zeros, bits, rows, depth // block)
    if block < 16 or block & (block - 1) or depth % block or scales.shape != (experts, rows, depth // block):
        raise MegccError(f"its {name} has scales {scales.shape} for {depth} numbers in blocks of {block}")
    zero_bytes = -(-(depth // block) * bits // 8)
    offsets = _array(node, bias).astype(np.float32) if node.has(bias) else None
    if (zeros is not None and zeros.shape != (experts, rows, zero_bytes)) or (
            offsets is not None and offsets.shape != (experts, rows)):
        raise MegccError(f"its {name} has zero points or a bias for other weights than [{experts}, {rows}]")
    return _Product(bits, block, numbers.reshape(experts, rows, depth // block, block * bits // 8), scales, zeros,
                    offsets)


def _array(node: Node, index: int) -> np.ndarray:
    """Returns a constant operand."""
    value = node.const(index)
    assert value is not None
    return value


def _of_blocks(zeros: np.ndarray, bits: int, rows: int, blocks: int) -> np.ndarray:
    """Converts zero points of rows, packed [experts, bytes], to those of blocks of these rows, packed [experts, rows,
    bytes]."""
    if bits == 8:
        return np.repeat(zeros[:, :rows, None], blocks, 2)
    numbers = np.stack([zeros & 15, zeros >> 4], -1).reshape(len(zeros), -1)[:, :rows, None]
    both = numbers | numbers << 4
    return np.repeat(both, -(-blocks // 2), 2).astype(np.uint8)


class _Graph:
    """Writes the graph of a node: inputs x and logits, output y."""

    def __init__(self, node: Node, products: Mapping[str, _Product], activation: str):
        self.node, self.products, self.activation = node, products, activation
        self.experts, self.chosen = next(iter(products.values())).numbers.shape[0], int(node.attr("k", 1))
        self.alpha, self.beta = float(node.attr("activation_alpha", 1.0)), float(node.attr("activation_beta", 0.0))
        self.limit = float(node.attr("swiglu_limit", np.inf))
        if not 1 <= self.chosen <= self.experts:
            raise MegccError(f"chooses {self.chosen} of {self.experts} experts")
        if activation not in ("swiglu", "relu", "silu", "gelu", "identity"):
            raise MegccError(f"has activation_type {activation!r}; swiglu, relu, silu, gelu and identity are supported")

    def proto(self) -> onnx.GraphProto:
        width = self.products["fc2"].numbers.shape[1]
        constants = [_constant("k", np.array([self.chosen])), _constant("rows", np.array([-1, width])),
                     _constant("none", np.zeros((), np.float32)), _constant("columns", np.array([1]))]
        make = helper.make_node
        nodes = [make("Reshape", ["x", "rows"], ["flat"]), make("Cast", ["flat"], ["tokens"], to=TensorProto.FLOAT),
                 make("Cast", ["logits"], ["scores"], to=TensorProto.FLOAT),
                 make("TopK", ["scores", "k"], ["best", "index"]), make("Softmax", ["best"], ["weights"], axis=-1),
                 make("Mul", ["tokens", "none"], ["sum"])]
        for expert in range(self.experts):
            before, after = f"sum{expert}" if expert else "sum", f"sum{expert + 1}"
            constants.append(_constant(f"number{expert}", np.array(expert)))
            body = helper.make_graph(self._expert(expert, before), f"expert{expert}", [], [
                helper.make_tensor_value_info("result", TensorProto.FLOAT, None)], self._weights(expert))
            rest = helper.make_graph([make("Identity", [before], ["result"])], f"others{expert}", [], [
                helper.make_tensor_value_info("result", TensorProto.FLOAT, None)])
            nodes += [make("Equal", ["index", f"number{expert}"], [f"is{expert}"]),
                      make("Where", [f"is{expert}", "weights", "none"], [f"share{expert}"]),
                      make("ReduceSum", [f"share{expert}", "columns"], [f"weight{expert}"], keepdims=1),
                      make("Cast", [f"is{expert}"], [f"one{expert}"], to=TensorProto.INT32),
                      make("ReduceMax", [f"one{expert}"], [f"any{expert}"], keepdims=0),
                      make("Cast", [f"any{expert}"], [f"chosen{expert}"], to=TensorProto.BOOL),
                      make("If", [f"chosen{expert}"], [after], then_branch=body, else_branch=rest)]
        nodes += [make("Shape", ["x"], ["shape"]), make("Reshape", [f"sum{self.experts}", "shape"], ["total"]),
                  make("CastLike", ["total", "x"], ["y"])]
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "logits")]
        return helper.make_graph(nodes, "experts", inputs, [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)

    def _weights(self, expert: int) -> list[onnx.TensorProto]:
        """Returns the constants of an expert."""
        found = []
        for name, product in self.products.items():
            arrays = {"numbers": product.numbers[expert], "scales": product.scales[expert].reshape(-1)}
            arrays |= {} if product.zeros is None else {"zeros": product.zeros[expert].reshape(-1)}
            arrays |= {} if product.bias is None else {"bias": product.bias[expert]}
            found += [_constant(f"{name}.{part}", array) for part, array in arrays.items()]
        numbers = {"alpha": self.alpha, "beta": self.beta, "limit": self.limit, "lower": -self.limit}
        return found + [_constant(name, np.array(value, np.float32)) for name, value in numbers.items()]

    def _expert(self, expert: int, before: str) -> list[onnx.NodeProto]:
        """Returns the nodes that add the weighted result of an expert to the value `before`."""
        make = helper.make_node
        if self.activation == "swiglu":
            nodes = [self._apply("gate", "tokens", "gate.full"), self._apply("up", "tokens", "up.full"),
                     make("Min", ["gate.full", "limit"], ["g"]), make("Clip", ["up.full", "lower", "limit"], ["u"]),
                     make("Mul", ["g", "alpha"], ["g.alpha"]), make("Sigmoid", ["g.alpha"], ["g.sigmoid"]),
                     make("Mul", ["g", "g.sigmoid"], ["g.active"]), make("Add", ["u", "beta"], ["u.beta"]),
                     make("Mul", ["g.active", "u.beta"], ["hidden"])]
            if not np.isfinite(self.limit):
                nodes = [each for each in nodes if each.op_type not in ("Min", "Clip")]
                for each in nodes:
                    each.input[:] = [{"g": "gate.full", "u": "up.full"}.get(name, name) for name in each.input]
        else:
            nodes = [self._apply("fc1", "tokens", "inner"), *self._activated()]
        return [*nodes, self._apply("fc2", "hidden", "output"),
                make("Mul", ["output", f"weight{expert}"], ["weighted"]), make("Add", [before, "weighted"], ["result"])]

    def _activated(self) -> Sequence[onnx.NodeProto]:
        """Returns the nodes of an activation of one value."""
        make = helper.make_node
        if self.activation == "silu":
            return [make("Sigmoid", ["inner"], ["gate"]), make("Mul", ["inner", "gate"], ["hidden"])]
        if self.activation == "gelu":
            return [make("FastGelu", ["inner"], ["hidden"], domain="com.microsoft")]
        return [make("Relu" if self.activation == "relu" else "Identity", ["inner"], ["hidden"])]

    def _apply(self, name: str, operand: str, result: str) -> onnx.NodeProto:
        """Returns the node of a product."""
        product = self.products[name]
        inputs = [operand, f"{name}.numbers", f"{name}.scales", "" if product.zeros is None else f"{name}.zeros", "",
                  "" if product.bias is None else f"{name}.bias"]
        while not inputs[-1]:
            inputs.pop()
        _, rows, blocks, _ = product.numbers.shape
        return helper.make_node("MatMulNBits", inputs, [result], domain="com.microsoft", N=rows, bits=product.bits,
                                K=blocks * product.block, block_size=product.block,
                                accuracy_level=int(self.node.attr("accuracy_level", 0)))


def _constant(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array), name)
