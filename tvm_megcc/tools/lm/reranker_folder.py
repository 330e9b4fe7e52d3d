# SPDX-License-Identifier: Apache-2.0
"""Writes a reranker as C: network, tokenizer and score in one function."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TypedDict

from ... import api, folders
from ...codegen import bundle
from ...codegen.c_source.render import environment
from ...errors import MegccError
from ...foreign import c_name, identifier
from ...options import CompileOptions
from ...version import VERSION
from .embedding import CONTEXT, INPUTS, context_of, inputs_of, network_of_folder, tokenizer_of_folder
from .encoder import Around, Encoder
from .reranker import has_sigmoid


class RerankerVariables(TypedDict):
    """The context of language_model/rerank.h.j2, rerank.c.j2 and rerank_main.c.j2, which `write` renders.

    version: version of tvm_megcc, such as "1.4.0".
    name: the model's, a C identifier: the prefix of its functions.
    macro: the name in capitals, the prefix of its macros.
    context: the most tokens of a pair, those around its strings included.
    kind: "tokenizer", "unigram" or "wordpiece": a part of the names of the tokenizer's header and functions.
    unit: C type of the tokenizer's work memory, "uint32_t" or "uint8_t".
    work: the elements of the work memory, a constant expression in C.
    text: capacity of the buffer for a string, in bytes; 0: there is none.
    inputs: for each input of the network its value of the enum with MEGCC_INPUT_IDS in megcc_embedding.h.
    around: the tokens before the query, then those between query and document, then those after the document.
    around_types: the type of each of these tokens.
    lengths: how many tokens there are before, between and after.
    types: the types of the tokens of query and document.
    sigmoid: 1 if a score is the sigmoid of what the network gives, else 0.
    """

    version: str
    name: str
    macro: str
    context: int
    kind: str
    unit: str
    work: str
    text: int
    inputs: Sequence[int]
    around: Sequence[int]
    around_types: Sequence[int]
    lengths: Sequence[int]
    types: Sequence[int]
    sigmoid: int


def write(path: str | Path, output: str | Path, target: str = "native", options: CompileOptions | None = None,
          sigmoid: bool | None = None, force: bool = False) -> Path:
    """Writes the folder of a reranker, and returns its path.

    Args:
        path: a folder that `Reranker` reads.
        output: the folder; its name is that of everything in C.
        sigmoid: as of `Reranker`.
        force: replace an existing folder whatever it contains.

    Raises:
        MegccError: as `Reranker`, and if the tokenizer is not supported in C, or the network's first output is no
            float32 [1, 1].
    """
    path = Path(path)
    folders.require_folder(path)
    context, network = context_of(path), network_of_folder(path)
    folders.refuse_precious(Path(output), [path, network])
    encoder, around = Encoder.of(path), Around.of(tokenizer_of_folder(path, CONTEXT), 2)
    lengths = [len(tokens) for tokens in around.added]
    if sum(lengths) + 2 > context:
        raise MegccError(f"{path}: a context of {context} tokens has no room for two strings and the {sum(lengths)} "
                         "tokens around them")
    name = identifier(Path(output).resolve().name)
    artifact = api.compile(network, target, options or CompileOptions(), name=name, dims=inputs_of(network, context)[1])
    row = artifact.manifest["outputs"][0]
    if row["dtype"] != "float32" or any(extent != 1 for extent in row["shape"]):
        raise MegccError(f"{path}: the output {row['name']} is no float32 [1, 1], one number for a pair")
    macro = c_name(name).upper()
    variables: RerankerVariables = {
        "version": VERSION, "name": name, "macro": macro, "context": context, "kind": encoder.kind,
        "unit": encoder.unit, "work": encoder.work(f"{macro}_RERANK_TEXT"), "text": encoder.text_bytes(context),
        "inputs": [INPUTS.index(row["name"]) for row in artifact.manifest["inputs"]],
        "around": [token for token, _ in chain(*around.added)],
        "around_types": [type_ for _, type_ in chain(*around.added)], "lengths": lengths, "types": around.types,
        "sigmoid": int(has_sigmoid(path) if sigmoid is None else sigmoid)}
    sources = {file: environment().get_template(f"language_model/{template}.j2").render(variables).encode()
               for file, template in ((f"{name}_rerank.h", "rerank.h"), (f"{name}_rerank.c", "rerank.c"),
                                      ("main.c", "rerank_main.c"))}
    files = sources | encoder.files(name, "embedding", "reranker")
    return bundle.write([artifact], output, force=force, program=bundle.Program(f"{name}_rerank", files))
