# SPDX-License-Identifier: Apache-2.0
"""Quantises activations of products with block-quantised weights, if the model or an option asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...context import Context
from ...ir.graph import Attrs, Graph, Op
from ...ops.quantized.nbits import BLOCK, QuantizeBlocks, activation_multiple, is_supported_block
from ..edit import Editor


def quantize_activations(graph: Graph, context: Context) -> Graph:
    """Replaces matmul_nbits by quantize_blocks and matmul_nbits_int8, if the weights' blocks are multiples of the
    activations' blocks.

    Products with the same activations share their quantisation. An operator `nbits_rows` that gathers rows of a
    product's weights gets the product's kind, because both share packed weights.
    """
    edit = Editor(graph := _with_shared_weights(graph))
    quantised: dict[tuple[Any, ...], tuple[str, ...]] = {}
    products: dict[str, str] = {}
    for op in graph.ops:
        if op.kind == "matmul_nbits":
            products[op.inputs[1]] = "matmul_nbits_int8" if _is_int8(op, context) else op.kind
    for op in graph.ops:
        if op.kind == "nbits_rows" and op.inputs[1] in products:
            edit.replace(op, op.with_(attrs=Attrs(op.attrs, tied=products[op.inputs[1]])))
        if op.kind != "matmul_nbits" or not _is_int8(op, context):
            continue
        x, block = op.inputs[0], op.attrs.block
        # Rows are padded with zeros to a multiple of `multiple` elements; `part` elements share a sum.
        quantization = Attrs(multiple=activation_multiple(block), part=min(block, BLOCK))
        if (x, quantization) not in quantised:
            types = QuantizeBlocks.infer(quantization, graph.types[x])
            quantised[x, quantization] = tuple(
                edit.value(f"{x}.{name}", type_)
                for name, type_ in zip(("int8", "scale", "sum"), types, strict=True))
            edit.add_before(op, Op("quantize_blocks", quantization, (x,), quantised[x, quantization], origin=op.origin))
        depth = graph.types[x].shape[-1]
        edit.replace(op, op.with_(kind="matmul_nbits_int8", attrs=Attrs(bits=op.attrs.bits, block=block, depth=depth),
                                  inputs=(*quantised[x, quantization], *op.inputs[1:])))
    return edit.finish()


def _with_shared_weights(graph: Graph) -> Graph:
    """Lets each nbits_rows whose weights equal those of a product read the product's constants: a model may have an
    embedding and a head with the same weights."""
    edit = Editor(graph)
    for rows in graph.ops:
        if rows.kind == "nbits_rows":
            same = next((op for op in graph.ops if _has_weights_of(graph, op, rows)), None)
            if same is not None:
                edit.replace(rows, rows.with_(inputs=(rows.inputs[0], *same.inputs[1:len(rows.inputs)])))
    return edit.finish()


def _has_weights_of(graph: Graph, product: Op, rows: Op) -> bool:
    """Returns whether a product is a matmul_nbits with the weights of a nbits_rows."""
    if product.kind != "matmul_nbits":
        return False
    pairs = list(zip(product.inputs[1:], rows.inputs[1:], strict=False))
    return (product.attrs.bits, product.attrs.block, len(product.inputs)) == (
        rows.attrs.bits, rows.attrs.block, len(rows.inputs)) and all(
        a == b or (a in graph.constants and b in graph.constants and graph.types[a] == graph.types[b]
                   and np.array_equal(graph.constants[a], graph.constants[b])) for a, b in pairs)


def _is_int8(product: Op, context: Context) -> bool:
    """Returns whether the activations of a product are quantised."""
    chosen = product.attrs.activations if context.activations == "model" else context.activations
    return chosen == "int8" and is_supported_block(product.attrs.block, product.attrs.bits)
