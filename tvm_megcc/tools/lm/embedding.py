# SPDX-License-Identifier: Apache-2.0
"""Embeddings of strings: a tokenizer, a network like BERT or a table of rows, pooling and normalization."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from ... import api, folders
from ...codegen.artifact import Artifact
from ...errors import MegccError, ModelError, quoted, refused_by_system
from ...options import CompileOptions
from . import static_embedding
from .tokenizers.tokenizer import tokenizers_package

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ...runtime.session import Session

#: The network's file in the folder.
MODELS = ("model.onnx", "onnx/model.onnx")
POOLINGS = ("mean", "cls", "max")
#: Inputs in the order of MEGCC_INPUT_IDS and so on in megcc_embedding.h.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: The most tokens of a string, if the folder does not say less.
CONTEXT = 512
#: Keys of the configuration of sentence-transformers -> ways of pooling.
_KEYS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}


@dataclass(frozen=True)
class Description:
    """An embedding model as its folder describes it.

    path: the network, an ONNX file, or the file of `table`.
    tokenizer: the folder of tokenizer.json.
    table: a row for each token, of which the network is made; None: the network is that of `path`.
    inputs: input of the network -> its dtype.
    dims: dimension of the network -> its size: 1 for the batch, 1 to `context` for the tokens of a string.
    pooling: one of `POOLINGS`.
    normalize: whether embeddings have length 1.
    context: the most tokens of a string.
    """

    path: Path
    tokenizer: Path
    table: static_embedding.Table | None
    inputs: Mapping[str, type]
    dims: Mapping[str, int | str]
    pooling: str
    normalize: bool
    context: int

    @classmethod
    def of(cls, folder: str | Path, pooling: str = "", normalize: bool | None = None) -> Description:
        """Reads a folder.

        Args:
            pooling: default is the folder's, else mean.
            normalize: default is the folder's way, else embeddings have length 1.

        Raises:
            MegccError: as `EmbeddingModel`.
        """
        folder = Path(folder)
        folders.require_folder(folder)
        pooling = pooling or _pooling(folder)
        if pooling not in POOLINGS:
            raise MegccError(f"{quoted(pooling)} is no pooling: {', '.join(POOLINGS)}")
        context, table = context_of(folder), static_embedding.read(folder)
        if normalize is None:
            normalize = _normalizes(folder, default=table is None)
        if table is not None:
            return cls(table.path, table.tokenizer, table, {"input_ids": np.int64}, {"tokens": f"1..{context}"},
                       pooling, normalize, context)
        path = network_of_folder(folder)
        inputs, dims = inputs_of(path, context)
        return cls(path, folder, None, inputs, dims, pooling, normalize, context)

    def compile(self, target: str, options: CompileOptions, name: str = "") -> Artifact:
        """Compiles the network. name: prefix of everything that is generated; default is the file's name."""
        model = self.path if self.table is None else self.table.network()
        return api.compile(model, target, options, name=name, dims=self.dims)

    def unknown_token(self, tokenizer: Tokenizer) -> int:
        """Returns the token of unknown words, which is left out of a text for a table, as model2vec does; -1: there is
        none, or the network wants all tokens."""
        model = self.table and (read_json(self.tokenizer / "tokenizer.json", dict) or {}).get("model")
        if not isinstance(model, dict):
            return -1
        unknown, token = model.get("unk_id"), model.get("unk_token")
        if isinstance(token, str):
            unknown = tokenizer.token_to_id(token)
        return unknown if type(unknown) is int else -1


class EmbeddingModel:
    """An embedding model in a folder as Hugging Face has it: tokenizer.json, model.onnx (or onnx/model.onnx), and, if
    they are there, the configuration of sentence-transformers (1_Pooling/config.json, modules.json) and config.json.
    Or a static one, as model2vec writes it: tokenizer.json, config.json, and model.safetensors with a row for each
    token.

    >>> model = EmbeddingModel("all-MiniLM-L6-v2")
    >>> model.embed(["It is late.", "The hour is advanced."]).shape
    (2, 384)

    Raises:
        MegccError: if a file is missing or damaged, or the network has other inputs than input_ids, attention_mask and
            token_type_ids.
    """

    def __init__(self, folder: str | Path, target: str = "native", threads: int = 1, pooling: str = "",
                 normalize: bool | None = None):
        """pooling, normalize: as `Description.of` takes them."""
        self.description = Description.of(folder, pooling, normalize)
        self.tokenizer = tokenizer_of_folder(self.description.tokenizer, self.description.context)
        self.unknown = self.description.unknown_token(self.tokenizer)
        self.session = api.load(self.description.compile(target, CompileOptions(threads=threads)))

    def embed(self, strings: Sequence[str]) -> np.ndarray:
        """Returns the embeddings [number of strings, width] as float32. Strings longer than the context are cut."""
        return np.stack([self._embedding(text) for text in strings]) if strings else np.zeros((0, 0), np.float32)

    def _embedding(self, text: str) -> np.ndarray:
        table = self.description.table
        encoding = self.tokenizer.encode(without_surrogates(text), add_special_tokens=table is None)
        given = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask,
                 "token_type_ids": encoding.type_ids}
        if table is not None:
            given = {"input_ids": [token for token in encoding.ids if token != self.unknown]}
            if not given["input_ids"]:
                return np.zeros(table.rows.shape[1], np.float32)
        if not given["input_ids"]:
            raise MegccError("a string has no tokens, and the tokenizer adds none")
        found = run(self.session, self.description.inputs, given)
        if found.ndim == 3:  # [1, tokens, width]
            found = _pooled(found[0], self.description.pooling)
        found = found.reshape(-1).astype(np.float32)
        return _of_length_1(found) if self.description.normalize else found


def without_surrogates(text: str) -> str:
    """Returns a string whose lone surrogates, which Python has for bytes that are no UTF-8, have become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def run(session: Session, inputs: Mapping[str, type], given: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Runs a network on the tokens of one text, and returns its first output as float64.

    Args:
        inputs: input of the network -> its dtype.
        given: the values of all inputs that a network may have, one for each token.
    """
    results = session.run({name: np.array([given[name]], dtype) for name, dtype in inputs.items()})
    return np.asarray(next(iter(results.values())), np.float64)


def network_of_folder(folder: Path) -> Path:
    """Returns the ONNX file of a folder.

    Raises:
        MegccError: if there is none.
    """
    path = next((folder / name for name in MODELS if (folder / name).is_file()), None)
    if path is None:
        raise MegccError(f"{folder} has no network: {' or '.join(MODELS)}")
    return path


def _pooled(rows: np.ndarray, pooling: str) -> np.ndarray:
    """Returns one row; sums are in order, as in c_runtime/lm/megcc_embedding.c."""
    if pooling == "mean":
        return np.cumsum(rows, axis=0)[-1] / len(rows)
    return rows[0] if pooling == "cls" else rows.max(axis=0)


def _of_length_1(vector: np.ndarray) -> np.ndarray:
    """Returns a float32 vector divided by its Euclidean length. The length has the bits of
    c_runtime/lm/megcc_embedding.c, since both take the root of an integer. As in PyTorch's normalize, it is at least
    1e-12."""
    squares = float(np.cumsum(np.square(vector.astype(np.float64)))[-1])
    length = squares
    if squares < 1e-24:
        length = 1e-12
    elif math.isfinite(squares):
        exponent = (62 - math.frexp(squares)[1]) // 2  # squares * 4 ** exponent is in [2 ** 60, 2 ** 62)
        length = math.ldexp(math.isqrt(int(math.ldexp(squares, 2 * exponent))), -exponent)
    return (vector / np.float64(length)).astype(np.float32)


def read_json(path: Path, kind: type) -> Any:
    """Returns what a file of JSON contains, None if it is not there.

    Raises:
        MegccError: if it is damaged, or contains no `kind`, which is dict or list.
    """
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
    given = read_json(folder / "1_Pooling" / "config.json", dict) or {"pooling_mode_mean_tokens": True}
    modes = [name for name, value in given.items() if name.startswith("pooling_mode") and value is True]
    if len(modes) != 1 or modes[0] not in _KEYS:
        raise MegccError(f"{folder} pools by {', '.join(map(quoted, modes)) or 'nothing'}; one of {', '.join(_KEYS)} "
                         "is supported: give --pooling")
    return _KEYS[modes[0]]


def _normalizes(folder: Path, default: bool) -> bool:
    """Returns whether the configuration of a folder scales embeddings to length 1; `default` if it does not say."""
    given = (read_json(folder / "config.json", dict) or {}).get("normalize")
    if isinstance(given, bool):
        return given
    modules = read_json(folder / "modules.json", list)
    kinds = [str(module.get("type")) for module in modules or () if isinstance(module, dict)]
    return any(kind.endswith("Normalize") for kind in kinds) if kinds else default


def context_of(folder: Path) -> int:
    """Returns the most tokens of a string: the least that `CONTEXT` and the configuration of a folder allow.

    Raises:
        MegccError: if a file of it is damaged.
    """
    found = [CONTEXT]
    for name, key in (("config.json", "max_position_embeddings"), ("config.json", "max_length"),
                      ("sentence_bert_config.json", "max_seq_length")):
        value = (read_json(folder / name, dict) or {}).get(key)
        if type(value) is int and value > 2:    # more than the two special tokens around a string
            found.append(value)
    return min(found)


def tokenizer_of_folder(folder: Path, context: int):
    """Returns the tokenizer of the package tokenizers, which cuts strings at a number of tokens.

    Raises:
        MegccError: if its file is missing or damaged.
    """
    path, tokenizers = folder / "tokenizer.json", tokenizers_package()
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


def inputs_of(path: Path, context: int) -> tuple[dict[str, type], dict[str, int | str]]:
    """Returns the dtypes of a network's inputs by name, and its dimensions: one string of 1 to `context` tokens.

    Raises:
        ModelError: if the file is damaged, or the network has other inputs than input_ids, attention_mask and
            token_type_ids.
    """
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # DecodeError of protobuf has no common base
        raise ModelError(str(path), [f"cannot be read: {error}"]) from None
    weights = {weight.name for weight in graph.initializer}
    dtypes: dict[str, type] = {}
    dims: dict[str, int | str] = {}
    for value in graph.input:
        kind, shape = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
        if value.name in weights:
            continue
        if value.name not in INPUTS or len(shape) != 2 or kind not in (
                onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            raise ModelError(str(path), [f"the input {quoted(value.name)} is not one of such a network. Those "
                                         "are input_ids, attention_mask and token_type_ids, int32 or int64 [batch, "
                                         "sequence]"])
        dtypes[value.name] = np.int64 if kind == onnx.TensorProto.INT64 else np.int32
        for axis, size in zip(shape, (1, f"1..{context}"), strict=True):
            if axis.dim_param:
                dims.setdefault(axis.dim_param, size)
    if "input_ids" not in dtypes:
        raise ModelError(str(path), ["it has no input input_ids"])
    return dtypes, dims
