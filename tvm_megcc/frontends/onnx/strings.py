# SPDX-License-Identifier: Apache-2.0
"""Encodes strings as int64 codes: the index in the list of the model's strings, in the order of their occurrence.

An input string that is not in the list gets a negative code of its own at run time. So operators that move, compare or
look up strings work on int64. An operator that reads characters or creates strings is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...errors import MegccError
from ...ir.graph import Graph

#: Operators that move elements -> the indices of the operands that are strings if the result is; () for all operands.
STRING_MOVERS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Cast", "Compress", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
                     "Identity", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze",
                     "StringNormalizer", "Tile", "Transpose", "Trilu", "Unique", "Unsqueeze",
                     "ai.onnx.ml::ArrayFeatureExtractor"), (0,)),
    **dict.fromkeys(("CastLike", "TensorScatter"), (0, 1)), "Concat": (), "OneHot": (2,), "Where": (1, 2),
    **dict.fromkeys(("Pad", "Scatter", "ScatterElements", "ScatterND"), (0, 2)),
}
#: Operators that take strings and return numbers -> the indices of the operands that are strings.
STRING_READERS: dict[str, tuple[int, ...]] = {
    "Equal": (0, 1), **dict.fromkeys(("NonZero", "RandomNormalLike", "RandomUniformLike", "Shape", "Size",
                                      "TfIdfVectorizer", "ai.onnx.ml::CategoryMapper", "ai.onnx.ml::LabelEncoder",
                                      "ai.onnx.ml::OneHotEncoder"), (0,))}


class StringTable:
    """The strings of a model.

    indices: string -> its code. tensors: names of the values that are string tensors; a dictionary, of which only the
    keys have a meaning, so that the builder renames and drops them as in its other tables.
    """

    def __init__(self):
        self.indices: dict[str, int] = {}
        self.tensors: dict[str, bool] = {}

    def mark(self, name: str) -> None:
        """Notes that a value is a tensor of strings."""
        self.tensors[name] = True

    def codes(self, strings: Iterable[str | bytes], shape: Sequence[int]) -> np.ndarray:
        """Returns the codes of strings, int64 of the given shape. New strings are added to the table.

        Raises:
            MegccError: for a string that is not valid UTF-8.
        """
        try:
            decoded = [text.decode() if isinstance(text, bytes) else text for text in strings]
        except UnicodeDecodeError:
            raise MegccError("holds a string that is not valid UTF-8, which is not supported") from None
        return np.array([self.indices.setdefault(text, len(self.indices)) for text in decoded], np.int64).reshape(shape)

    def attach_to(self, graph: Graph) -> Graph:
        """Returns the graph with its string table, and with its string inputs and outputs marked."""
        ports = frozenset(self.tensors).intersection((*graph.inputs, *graph.outputs))
        return graph.with_(strings=tuple(self.indices), string_ports=ports) if ports else graph

    def returns_strings(self, kind: str, inputs: Sequence[str], reduced: bool = False) -> bool:
        """Whether an operator returns strings because its operands are strings.

        kind: the ONNX operator. reduced: whether it combines several elements into one.

        Raises:
            MegccError: if an operand is a string tensor and the operator does not accept it.
        """
        strings = {index for index, name in enumerate(inputs) if name in self.tensors}
        if not strings:
            return False
        if kind not in STRING_MOVERS and kind not in STRING_READERS:
            raise MegccError("takes strings, which is supported where they are moved, compared or looked up in "
                             "tables")
        expected = STRING_MOVERS.get(kind, STRING_READERS.get(kind)) or range(len(inputs))
        if strings != {index for index in expected if index < len(inputs) and inputs[index]}:
            raise MegccError("takes strings and numbers together, which is not supported")
        if reduced:
            raise MegccError("adds, multiplies or orders strings, which is not supported")
        return kind in STRING_MOVERS
