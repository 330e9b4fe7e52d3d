# SPDX-License-Identifier: Apache-2.0
"""Steps from tokens to text: the labels of a list, or of a file, one after the other as UTF-8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from ...errors import MegccError, quoted
from ...ops.search.labels import MAX_TEXT_BYTES, label_table
from .functions import Function
from .nodes import Nodes
from .settings import Settings
from .steps import ValueType
from .tokenizers import token_labels

#: How names of files with a tokenizer end; their tokens are bytes of a text, not characters.
_TOKENIZERS = (".json", ".model", ".gguf")
#: The most labels.
_MOST_LABELS = 1 << 20


def _labels(graph: Nodes, settings: Settings, given: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The labels of tokens one after the other; bytes after the text are 0."""
    shape = given["tokens"].shape
    if not shape:
        raise MegccError(f"its input 'tokens' is int64[tokens], or int64[batch,tokens], not {given['tokens']}")
    batch, length = prod(shape[:-1]), shape[-1]
    if "count" in given and prod(given["count"].shape) != batch:
        raise MegccError(f"its input 'count' is int64[{batch}], not {given['count']}")
    words = [label.encode() if isinstance(label, str) else label for label in (
        *settings.strings("before", ()), *_read(settings), *settings.strings("after", ()))]
    longest = max(map(len, words), default=0)
    most = settings.integer("most", 1, MAX_TEXT_BYTES, max(1, min(length * longest, MAX_TEXT_BYTES)))
    table, ends = label_table(words)
    count = graph.add("Reshape", ["count", [batch]]) if "count" in given else np.full(batch, length)
    found = graph.several("Labels", [graph.add("Reshape", ["tokens", [batch, length]]), count, table, ends],
                          ["strings", "sizes"], domain="megcc", most=most, strip=int(settings.flag("strip")))
    types = {"text": ValueType("uint8", (batch, most) if batch > 1 else (most,)),
             "bytes": ValueType("int64", (batch,))}
    for name, result in zip(types, found, strict=True):
        graph.add("Reshape", [result, list(types[name].shape)], f"out_{name}")
    return types


def _read(settings: Settings) -> Sequence[str | bytes]:
    """Returns the labels of the key `labels` or of the file.

    Raises:
        MegccError: if both are there, or none; if the file has no text, or no such property.
    """
    path = settings.string("file")
    if (path is None) == ("labels" not in settings):
        raise MegccError("it has one of the keys 'labels', a list of strings, and 'file', a path")
    if path is not None and "property" not in settings and (Path(path).is_dir() or Path(path).suffix in _TOKENIZERS):
        return token_labels(Path(path))
    if path is None:
        found = list(settings.strings("labels"))
    elif (key := settings.string("property")) is not None:
        found = _property(Path(path), key)
    else:
        try:
            found = Path(path).read_text("utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise MegccError(f"{path} cannot be read: {error}") from None
    space = settings.string("space")
    found = [label.removesuffix("\r") for label in found]
    # Lines of "label number", as NeMo's vocabularies are. A label "0" without a space is no such line.
    if found and all(label.endswith(f" {index}") for index, label in enumerate(found)):
        found = [label.rpartition(" ")[0] for label in found]
    found = [label.replace(space, " ") if space else label for label in found]
    # A character has at most 4 bytes in UTF-8.
    if not found or len(found) > _MOST_LABELS or sum(map(len, found)) * 4 > MAX_TEXT_BYTES:
        raise MegccError(f"there are {len(found)} labels, none or too many")
    return found


def _property(path: Path, key: str) -> list[str]:
    """Returns the lines of a property of an ONNX model's metadata."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except (OSError, DecodeError) as error:
        raise MegccError(f"{path} is no model of ONNX: {error}") from None
    properties: dict[str, str] = {entry.key: entry.value for entry in model.metadata_props}
    if key not in properties:
        raise MegccError(f"{path} has no property {quoted(key)}; it has {', '.join(map(quoted, properties)) or 'none'}")
    return properties[key].removesuffix("\n").split("\n")


FUNCTIONS = {"labels": Function(
    keys=("labels", "file", "property", "before", "after", "space", "strip", "most"), inputs=("tokens", "count"),
    outputs=("text", "bytes"), make=_labels, integers=("tokens", "count"), optional=("count",), paths=("file",))}
