# SPDX-License-Identifier: Apache-2.0
"""Static embedding models, as model2vec and sentence-transformers write them: a table with a row for each token. The
embedding of a text is the mean of the rows of its tokens.

The table becomes a network of Gather operators, so that C comes out as of any other network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...errors import ModelError
from ...frontends import safetensors

#: Files that may have the table, each with the name of the table in it and the folder of its tokenizer.
_LAYOUTS = (("model.safetensors", "embeddings", "."), ("model.safetensors", "embedding.weight", "."),
            ("0_StaticEmbedding/model.safetensors", "embedding.weight", "0_StaticEmbedding"))


@dataclass(frozen=True)
class Table:
    """The arrays of a static embedding model.

    path: their file.
    tokenizer: the folder of tokenizer.json.
    rows: embeddings [rows, width] as float64, float32, float16, bfloat16 or int8.
    row_of: the row of each token [tokens]; None: that of its number.
    weights: a factor for each token [tokens]; None: 1.
    """

    path: Path
    tokenizer: Path
    rows: npt.NDArray[Any]
    row_of: npt.NDArray[Any] | None
    weights: npt.NDArray[Any] | None

    @property
    def tokens(self) -> int:
        return len(self.rows if self.row_of is None else self.row_of)

    def network(self) -> onnx.ModelProto:
        """Returns a network: input_ids int64 [1, tokens] -> rows float32 [1, tokens, width]."""
        weights, nodes, ids = {"rows": _stored(self.rows)}, [], "input_ids"
        if self.row_of is not None:
            weights["row_of"] = self.row_of.astype(np.int32)
            nodes.append(helper.make_node("Gather", ["row_of", ids], ["row"]))
            ids = "row"
        nodes += [helper.make_node("Gather", ["rows", ids], ["stored"]),
                  helper.make_node("Cast", ["stored"], ["plain"], to=TensorProto.FLOAT)]
        if self.weights is not None:
            weights["weights"] = self.weights.astype(np.float32).reshape(-1, 1)
            nodes += [helper.make_node("Gather", ["weights", "input_ids"], ["weight"]),
                      helper.make_node("Mul", ["plain", "weight"], ["embeddings"])]
        else:
            nodes.append(helper.make_node("Identity", ["plain"], ["embeddings"]))
        graph = helper.make_graph(
            nodes, "static_embedding", [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, [1, "tokens", self.rows.shape[1]])],
            [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()])
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def read(folder: Path) -> Table | None:
    """Reads the table of a folder; None if there is none.

    Raises:
        MegccError: if its file is damaged, or the arrays do not fit each other.
    """
    for file, name, tokenizer in _LAYOUTS:
        path = folder / file
        found = safetensors.read(path, [name, "mapping", "weights"]) if path.is_file() else {}
        if name in found:
            table = Table(path, folder / tokenizer, found[name], found.get("mapping"), found.get("weights"))
            _check(table)
            return table
    return None


def _check(table: Table) -> None:
    problem = ""
    if table.rows.ndim != 2 or not table.rows.size or (table.rows.dtype.kind in "iu" and table.rows.dtype != np.int8):
        problem = f"the embeddings are {table.rows.dtype} {list(table.rows.shape)}; a matrix of floats or int8 is read"
    elif table.row_of is not None and (table.row_of.ndim != 1 or table.row_of.dtype.kind != "i" or not len(
            table.row_of) or not 0 <= int(table.row_of.min()) <= int(table.row_of.max()) < len(table.rows)):
        problem = "the mapping is no list of rows of the embeddings"
    elif table.weights is not None and (table.weights.shape != (table.tokens,) or table.weights.dtype.kind in "iu"):
        problem = f"the weights are {table.weights.dtype} {list(table.weights.shape)}, not a float for each token"
    if problem:
        raise ModelError(str(table.path), [problem])


def _stored(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns rows in a dtype that the network keeps: int8, float16 or float32."""
    return rows if rows.dtype in (np.int8, np.float16) else rows.astype(np.float32)
