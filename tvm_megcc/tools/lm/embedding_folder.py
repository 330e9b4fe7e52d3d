# SPDX-License-Identifier: Apache-2.0
"""Writes an embedding model as C: network, tokenizer, pooling and normalization in one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ... import folders
from ...codegen import bundle
from ...codegen.c_source.render import environment
from ...errors import MegccError
from ...foreign import c_name, identifier
from ...options import CompileOptions
from ...version import VERSION
from .embedding import CONTEXT, INPUTS, POOLINGS, Description, tokenizer_of_folder
from .encoder import Around, Encoder


class EmbeddingVariables(TypedDict):
    """The context of language_model/embed.h.j2, embed.c.j2 and embed_main.c.j2, which `write` renders.

    version: version of tvm_megcc, such as "1.4.0".
    name: the model's, a C identifier: the prefix of its functions.
    macro: the name in capitals, the prefix of its macros.
    width: elements of an embedding.
    context: the most tokens of a text, those at its ends included.
    kind: "tokenizer", "unigram" or "wordpiece": a part of the names of the tokenizer's header and functions.
    unit: C type of the tokenizer's work memory, "uint32_t" or "uint8_t".
    work: the elements of the work memory, a constant expression in C.
    text: capacity of the buffer for a text, in bytes; 0: there is none.
    begin: the index of the first token of the text: 1 after the token `first`, else 0.
    first: the token before each text as C; "UINT32_MAX": none.
    last: the token after each text as C; "UINT32_MAX": none.
    inputs: for each input of the network its value of the enum with MEGCC_INPUT_IDS in megcc_embedding.h.
    pooling: how the vectors of the tokens become one, the value of the enum in megcc_embedding.h.
    normalize: 1 if the embedding is scaled to length 1, else 0.
    is_static: 1 if the network is a table with a row for each token, else 0.
    unknown: the token that such a network does not get, as C; "UINT32_MAX": none.
    """

    version: str
    name: str
    macro: str
    width: int
    context: int
    kind: str
    unit: str
    work: str
    text: int
    begin: int
    first: str
    last: str
    inputs: Sequence[int]
    pooling: int
    normalize: int
    is_static: int
    unknown: str


def write(path: str | Path, output: str | Path, target: str = "native", options: CompileOptions | None = None,
          pooling: str = "", normalize: bool | None = None, force: bool = False) -> Path:
    """Writes the folder of an embedding model, and returns its path.

    Args:
        path: a folder that `EmbeddingModel` reads.
        output: the folder; its name is that of everything in C.
        pooling, normalize: as of `Description.of`.
        force: replace an existing folder whatever it contains.

    Raises:
        MegccError: as `EmbeddingModel`, and if the tokenizer is not supported in C, or the network's first output is no
            float32 [1, tokens, width] or [1, width].
    """
    path = Path(path)
    description = Description.of(path, pooling, normalize)
    folders.refuse_precious(Path(output), [path, description.path])
    encoder, ends, unknown = _encoder(path, description)
    name = identifier(Path(output).resolve().name)
    artifact = description.compile(target, options or CompileOptions(), name)
    width = _width_of(artifact.manifest["outputs"][0], path)
    macro = c_name(name).upper()
    context: EmbeddingVariables = {
        "version": VERSION, "name": name, "macro": macro, "width": width, "context": description.context,
        "kind": encoder.kind, "unit": encoder.unit, "work": encoder.work(f"{macro}_EMBED_TEXT"),
        "text": encoder.text_bytes(description.context),
        "begin": int(ends[0] >= 0), "first": _token(ends[0]), "last": _token(ends[1]),
        "is_static": int(description.table is not None), "unknown": _token(unknown),
        "inputs": [INPUTS.index(row["name"]) for row in artifact.manifest["inputs"]],
        "pooling": POOLINGS.index(description.pooling), "normalize": int(description.normalize)}
    sources = {file: environment().get_template(f"language_model/{template}.j2").render(context).encode()
               for file, template in ((f"{name}_embed.h", "embed.h"), (f"{name}_embed.c", "embed.c"),
                                      ("main.c", "embed_main.c"))}
    files = sources | encoder.files(name, "embedding")
    return bundle.write([artifact], output, force=force, program=bundle.Program(f"{name}_embed", files))


def _encoder(path: Path, description: Description) -> tuple[Encoder, tuple[int, int], int]:
    """Returns the tokenizer of an embedding model, the tokens before and after a string, and the token that its network
    does not get; -1 for none.

    Raises:
        MegccError: as `write`.
    """
    is_static = description.table is not None
    encoder = Encoder.of(description.tokenizer, has_padding=not is_static)
    package = tokenizer_of_folder(description.tokenizer, CONTEXT)
    around = Around.of(package, 1)
    before, after = around.added
    # The C code writes zeros into the input token_type_ids (megcc_embedding.c).
    if any(type_ for _, type_ in (*before, *after)) or any(around.types):
        raise MegccError(f"{path}: the tokenizer gives tokens another type than 0, which is not supported in C")
    if is_static:
        return encoder, (-1, -1), description.unknown_token(package)
    if len(before) > 1 or len(after) > 1:
        raise MegccError(f"{path}: the tokenizer adds more than one token before or after a string, which is not "
                         "supported in C")
    ends = before[0][0] if before else -1, after[0][0] if after else -1
    return encoder, ends, description.unknown_token(package)


def _width_of(output: Mapping[str, Any], path: Path) -> int:
    """Returns the elements of an embedding. output: the manifest's row of the network's first output."""
    shape = output["shape"]
    width = shape[-1] if shape else None
    if output["dtype"] != "float32" or len(shape) not in (2, 3) or shape[0] != 1 or not isinstance(width, int):
        raise MegccError(f"{path}: the output {output['name']} is no float32 [1, tokens, width] or [1, width]")
    return width


def _token(token: int) -> str:
    """Returns a token as C; UINT32_MAX, the C code's value for no token, if it is negative."""
    return "UINT32_MAX" if token < 0 else f"{token}u"
