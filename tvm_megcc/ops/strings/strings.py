# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX's StringNormalizer. The elements of a string tensor are int64 indices in the model's string table
(frontends/onnx/strings.py)."""

from __future__ import annotations

import numpy as np

from ...errors import MegccError, ShapeError
from ..base import OnnxNode, decomposes
from ..elementwise import emit_broadcast
from ..emit_onnx import number, onnx_operator


@decomposes("StringNormalizer")
def string_normalizer(node: OnnxNode) -> tuple[str, ...]:
    """Imports StringNormalizer, which removes the strings of attribute stopwords from a row, [C] or [1, C]. If nothing
    remains, the result is one empty string.

    Raises:
        MegccError: if it changes the case of strings, or compares without case.
    """
    x, stops = node.type_of(node.inputs[0]), node.strings("stopwords")
    if node.attr("case_change_action", "NONE") != "NONE":
        raise MegccError("changes the case of strings, which is not supported; do it before you call the model")
    if not node.is_string(0) or not (x.rank == 1 or (x.rank == 2 and x.shape[0] == 1)):
        raise ShapeError(f"{x} is not a row of strings")
    if stops is None:
        return node.inputs[:1]
    if not node.attr("is_case_sensitive", 0):
        raise MegccError("removes stop words of any case, which is not supported; is_case_sensitive = 1 is")
    (row,) = node.emit("reshape", node.inputs[:1], shape=(x.shape[-1], 1))
    (hits,) = emit_broadcast(node, "equal", (row, node.constant(stops.reshape(1, -1))))
    (hits,) = node.emit("cast", (hits,), dtype="uint8")  # reductions are of numbers
    (is_stopword,) = node.emit("reduce_max", (hits,), axes=(1,), keepdims=False)
    (are_all_stopwords,) = node.emit("reduce_min", (is_stopword,), axes=(0,), keepdims=True)
    # An empty string is appended, which is kept if no other is.
    (is_kept,) = node.emit("concat", (*emit_broadcast(node, "equal", (is_stopword, number(node, 0, "uint8"))),
                                      *node.emit("cast", (are_all_stopwords,), dtype="bool")), axis=0)
    (row,) = node.emit("concat", (row, node.constant(np.array([[node.string_index("")]]))), axis=0)
    y = onnx_operator(node, "Compress", row, is_kept, axis=0)
    count = node.type_of(y).shape[0]
    return node.emit("reshape", (y,), shape=(1, count) if x.rank == 2 else (count,))
