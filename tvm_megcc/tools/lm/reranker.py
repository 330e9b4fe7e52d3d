# SPDX-License-Identifier: Apache-2.0
"""Rerankers (cross-encoders): a network reads a query and a string together, and gives one number that says how well
the string answers the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import api, folders
from ...errors import MegccError
from ...options import CompileOptions
from .embedding import context_of, inputs_of, network_of_folder, read_json, run, tokenizer_of_folder, without_surrogates


class Reranker:
    """A reranker in a folder as Hugging Face has it: tokenizer.json, model.onnx (or onnx/model.onnx), whose first
    output is [batch, 1], and, if it is there, config.json.

    >>> reranker = Reranker("ms-marco-MiniLM-L6-v2")
    >>> reranker.scores("Why is the sky blue?", ["Air scatters blue light.", "It is late."]).shape
    (2,)

    Raises:
        MegccError: if a file is missing or damaged, the network has other inputs than input_ids, attention_mask and
            token_type_ids, or more than one number for a pair of strings.
    """

    def __init__(self, folder: str | Path, target: str = "native", threads: int = 1, sigmoid: bool | None = None):
        """
        Args:
            sigmoid: whether scores are 1 / (1 + exp(-x)) of what the network gives; default is what config.json says
                as sentence-transformers reads it: yes, unless it names another activation.
        """
        folder = Path(folder)
        folders.require_folder(folder)
        context, path = context_of(folder), network_of_folder(folder)
        self.inputs, dims = inputs_of(path, context)
        self.sigmoid = has_sigmoid(folder) if sigmoid is None else sigmoid
        self.tokenizer = tokenizer_of_folder(folder, context)
        self.session = api.load(api.compile(path, target, CompileOptions(threads=threads), dims=dims))

    def scores(self, query: str, strings: Sequence[str]) -> npt.NDArray[np.float32]:
        """Returns the scores [number of strings] of strings for a query; higher is better. A pair that is longer than
        the context is cut, the longer one of both first."""
        return np.array([self._score(query, text) for text in strings], np.float32)

    def _score(self, query: str, text: str) -> float:
        encoding = self.tokenizer.encode(without_surrogates(query), without_surrogates(text))
        found = run(self.session, self.inputs, {
            "input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids})
        if found.size != 1:
            raise MegccError(f"the network gives {found.size} numbers for a pair of strings; a reranker gives one")
        value = float(found.reshape(()))
        return float(1 / (1 + np.exp(-value))) if self.sigmoid else value


def has_sigmoid(folder: Path) -> bool:
    """Returns whether the configuration of sentence-transformers has a sigmoid, its default, behind the network."""
    given: Mapping[str, Any] = read_json(folder / "config.json", dict) or {}
    newer = given.get("sentence_transformers")
    name = (newer if isinstance(newer, dict) else {}).get("activation_fn",
                                                          given.get("sbert_ce_default_activation_function"))
    return name is None or str(name).endswith("Sigmoid")
