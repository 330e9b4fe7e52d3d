# SPDX-License-Identifier: Apache-2.0
"""Embeddings of strings: a tokenizer, a network like BERT, pooling and normalization."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ... import api, folders
from ...errors import MegccError, ModelError, quoted, refused_by_system
from .tokenizer import required

#: The network's file in the folder.
MODELS = ("model.onnx", "onnx/model.onnx")
POOLINGS = ("mean", "cls", "max")
#: The most tokens of a string, if the folder does not say less.
CONTEXT = 512
#: Keys of the configuration of sentence-transformers -> ways of pooling.
_KEYS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}


class EmbeddingModel:
    """An embedding model in a folder as Hugging Face has it: tokenizer.json, model.onnx (or onnx/model.onnx), and, if
    they are there, the configuration of sentence-transformers (1_Pooling/config.json, modules.json) and config.json.

    >>> model = EmbeddingModel("all-MiniLM-L6-v2")
    >>> model.embed(["It is late.", "The hour is advanced."]).shape
    (2, 384)

    Raises:
        MegccError: if a file is missing or damaged, or the network has other inputs than input_ids, attention_mask and
            token_type_ids.
    """

    def __init__(self, folder: str | Path, target: str = "native", threads: int = 1, pooling: str = "",
                 normalize: bool | None = None):
        """pooling: one of `POOLINGS`; default is the folder's, else mean. normalize: whether embeddings have length 1;
        default is the folder's way, else they have."""
        folder = Path(folder)
        self.pooling, self.normalize = pooling or _pooling(folder), normalize
        if self.pooling not in POOLINGS:
            raise MegccError(f"{quoted(self.pooling)} is no pooling: {', '.join(POOLINGS)}")
        if normalize is None:
            modules = _json(folder / "modules.json", list)
            kinds = [str(each.get("type")) for each in modules or () if isinstance(each, dict)]
            self.normalize = not kinds or any(kind.endswith("Normalize") for kind in kinds)
        self.context = _context(folder)
        self.tokenizer = _tokenizer(folder / "tokenizer.json", self.context)
        path = next((folder / name for name in MODELS if (folder / name).is_file()), None)
        if path is None:
            raise MegccError(f"{folder} has no network: {' or '.join(MODELS)}")
        self.inputs, dims = _inputs(path, self.context)
        self.session = api.load(api.compile(path, target, dims=dims, threads=threads))

    def embed(self, strings: Sequence[str]) -> np.ndarray:
        """Returns the embeddings [number of strings, width] as float32. Strings longer than the context are cut."""
        return np.stack([self._embedding(text) for text in strings]) if strings else np.zeros((0, 0), np.float32)

    def _embedding(self, text: str) -> np.ndarray:
        encoding = self.tokenizer.encode(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        if not encoding.ids:
            raise MegccError("a string has no tokens, and the tokenizer adds none")
        given = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask,
                 "token_type_ids": encoding.type_ids}
        results = self.session.run({name: np.array([given[name]], dtype) for name, dtype in self.inputs.items()})
        found = np.asarray(next(iter(results.values())), np.float64)
        if found.ndim == 3:  # [1, tokens, width]
            found = {"mean": np.mean, "cls": lambda rows, axis: rows[0], "max": np.max}[self.pooling](found[0], axis=0)
        found = found.reshape(-1)
        return (found / max(float(np.linalg.norm(found)), 1e-12) if self.normalize else found).astype(np.float32)


def _json(path: Path, kind: type) -> Any:
    """Returns what a file contains; None if it is not there."""
    try:
        given = json.loads(folders.read(path)) if path.is_file() else None
    except (ValueError, RecursionError) as error:
        raise MegccError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise refused_by_system(error, f"{path} cannot be read") from None
    if given is not None and not isinstance(given, kind):
        raise MegccError(f"{path} is damaged: it has no {'list' if kind is list else 'object'}")
    return given


def _pooling(folder: Path) -> str:
    given = _json(folder / "1_Pooling" / "config.json", dict) or {"pooling_mode_mean_tokens": True}
    modes = [name for name, value in given.items() if name.startswith("pooling_mode") and value is True]
    if len(modes) != 1 or modes[0] not in _KEYS:
        raise MegccError(f"{folder} pools by {', '.join(map(quoted, modes)) or 'nothing'}; one of {', '.join(_KEYS)} "
                         "is supported: give --pooling")
    return _KEYS[modes[0]]


def _context(folder: Path) -> int:
    found = [CONTEXT]
    for name, key in (("config.json", "max_position_embeddings"), ("sentence_bert_config.json", "max_seq_length")):
        value = (_json(folder / name, dict) or {}).get(key)
        if type(value) is int and value > 2:
            found.append(value)
    return min(found)


def _tokenizer(path: Path, context: int):
    tokenizers = required()
    if not path.is_file():
        raise MegccError(f"{path.parent} has no {path.name}")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.enable_truncation(context)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the package raises Exception itself, and panics as BaseException
        raise MegccError(f"{path} is damaged: {error}") from None
    return tokenizer


def _inputs(path: Path, context: int) -> tuple[dict[str, type], dict[str, int | str]]:
    """Returns the dtypes of the network's inputs, and its dimensions: one string of 1 to `context` tokens."""
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # DecodeError of protobuf has no common base
        raise ModelError(str(path), [f"cannot be read: {error}"]) from None
    weights = {each.name for each in graph.initializer}
    dtypes: dict[str, type] = {}
    dims: dict[str, int | str] = {}
    for each in graph.input:
        kind, shape = each.type.tensor_type.elem_type, each.type.tensor_type.shape.dim
        if each.name in weights:
            continue
        if each.name not in ("input_ids", "attention_mask", "token_type_ids") or len(shape) != 2 or kind not in (
                onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            raise ModelError(str(path), [f"the input {quoted(each.name)} is none of an embedding model: input_ids, "
                                         "attention_mask and token_type_ids are, integers [batch, sequence]"])
        dtypes[each.name] = np.int64 if kind == onnx.TensorProto.INT64 else np.int32
        for axis, size in zip(shape, (1, f"1..{context}"), strict=True):
            if axis.dim_param:
                dims.setdefault(axis.dim_param, size)
    if "input_ids" not in dtypes:
        raise ModelError(str(path), ["it has no input input_ids"])
    return dtypes, dims
