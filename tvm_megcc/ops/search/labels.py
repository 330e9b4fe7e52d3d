# SPDX-License-Identifier: Apache-2.0
"""The text of tokens: their labels one after the other, as bytes. It is an operator of our own ONNX domain "megcc",
which programs use (tools/program/labels.py)."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, decomposes, register

#: The largest number of bytes of a text, and of all labels together.
MAX_TEXT_BYTES = 1 << 24


@register
class Labels(Operator):
    """Concatenates the labels of tokens. N: batch, L: tokens, V: labels, B: bytes of all labels, M: capacity of a text
    in bytes.

    Operands: tokens int64 [N,L]; numbers int64 [N], the number of tokens, clamped to [0, L]; table uint8 [B], the bytes
    of the labels, one after the other; ends int32 [V], the end of each label in the table. Results: the text uint8
    [N,M], with 0 after it; its length in bytes int64 [N].

    Attributes: `most`: M; `strip`: a space at the beginning of a text is left out. Tokens that are no label are left
    out, and so are the first label that does not fit, and all after it.
    """

    kind = "labels"
    operands = ("tokens", "numbers", "table", "ends")

    @staticmethod
    def infer(attrs: Attrs, tokens: TensorType, numbers: TensorType, table: TensorType,
              ends: TensorType) -> tuple[TensorType, ...]:
        if tokens.rank != 2 or table.rank != 1 or ends.rank != 1:
            raise ShapeError(f"labels of tokens {tokens}: table {table}, ends {ends}")
        require_shape(numbers.shape, tokens.shape[:1], f"numbers {numbers} of tokens {tokens}")
        if not 1 <= attrs.most <= MAX_TEXT_BYTES:
            raise ShapeError(f"strings of {attrs.most} bytes; 1 to {MAX_TEXT_BYTES} are supported")
        return TensorType("uint8", (tokens.shape[0], attrs.most)), TensorType("int64", tokens.shape[:1])

    @staticmethod
    def compute(attrs: Attrs, tokens: np.ndarray, numbers: np.ndarray, table: np.ndarray,
                ends: np.ndarray) -> tuple[np.ndarray, ...]:
        strings, sizes = np.zeros((len(tokens), attrs.most), np.uint8), np.zeros(len(tokens), np.int64)
        for row in range(len(tokens)):
            text = b""
            for token in tokens[row, :max(int(numbers[row]), 0)].tolist():
                if not 0 <= token < len(ends):
                    continue
                label = table[ends[token - 1] if token else 0:ends[token]].tobytes()
                if attrs.strip and not text and label[:1] == b" ":
                    label = label[1:]
                if len(text) + len(label) > attrs.most:
                    break
                text += label
            strings[row, :len(text)], sizes[row] = np.frombuffer(text, np.uint8), len(text)
        return strings, sizes

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return 0


@decomposes("megcc::Labels")
def import_labels(node: OnnxNode) -> tuple[str, ...]:
    """Imports Labels of the domain megcc, with the operands and results of `Labels`; table and ends are constants.
    Attributes: `most`; `strip`: by default 0."""
    if len(node.inputs) != 4:
        raise ShapeError("requires the operands tokens, numbers, table and ends")
    table, ends = node.const(2, "table"), node.const(3, "ends")
    assert table is not None and ends is not None  # there are four operands
    if table.dtype != np.uint8 or ends.dtype != np.int32 or ends.ndim != 1 or len(table) > MAX_TEXT_BYTES \
            or np.any(np.diff(ends, prepend=0) < 0) or (len(ends) and ends[-1] > len(table)):
        raise ShapeError("table is uint8, and ends int32 that rise up to its length")
    return node.emit("labels", node.inputs, most=node.attr("most"), strip=bool(node.attr("strip", 0)))


def label_table(labels: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the operands `table` and `ends` for labels, in the order of the tokens."""
    return np.frombuffer(b"".join(labels), np.uint8), np.cumsum([len(label) for label in labels]).astype(np.int32)


def _case(labels: list[bytes], batch: int, tokens: int, numbers: list[int], most: int, strip: bool = False) -> Case:
    table, ends = label_table(labels)
    drawn = np.random.default_rng(batch + tokens).integers(-1, len(labels) + 1, (batch, tokens))
    drawn[0, 0], drawn[-1, -1] = 0, 1 << 40  # the first label, and a token that int32 does not hold
    return Case((((batch, tokens), "int64"), ((batch,), "int64"), (table.shape, "uint8"), (ends.shape, "int32")),
                {"most": most, "strip": strip}, (2, 3), {0: drawn, 1: np.array(numbers), 2: table, 3: ends})


Labels.cases = (
    _case([b" a", b"", "ö".encode(), b"cd", "字".encode()], 3, 9, [9, 4, 0], 30, strip=True),
    _case([b" ", b" b", b"xyz"], 4, 17, [99, -1, 17, 3], 16),
    _case([b" ", b" b", b"xyz"], 2, 8, [8, 8], 5, strip=True),
)
