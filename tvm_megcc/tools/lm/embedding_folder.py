# SPDX-License-Identifier: Apache-2.0
"""Writes an embedding model as C: network, tokenizer, pooling and normalization in one function."""

from __future__ import annotations

from pathlib import Path

from ... import folders, paths
from ...codegen import bundle
from ...codegen.c_source.render import environment
from ...errors import MegccError
from ...foreign import c_name, identifier
from ...options import CompileOptions
from ...version import VERSION
from . import tokenizer_file
from .embedding import POOLINGS, Description, tokenizer_of_folder
from .unigram import Unigram
from .wordpiece import WordPieces

#: Inputs in the order of MEGCC_INPUT_IDS and so on in megcc_embedding.h.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
#: The capacity of the example's text buffer in bytes, for each token of the context.
_BYTES = 16


def write(path: str | Path, output: str | Path, target: str = "native", options: CompileOptions | None = None,
          pooling: str = "", normalize: bool | None = None, force: bool = False) -> Path:
    """Writes the folder of an embedding model, and returns its path.

    Args:
        path: a folder that `EmbeddingModel` reads.
        output: the folder; its name is that of everything in C.
        pooling, normalize: as of `Description.of`.
        force: replace an existing folder whatever it contains.

    Raises:
        MegccError: as `EmbeddingModel`, and if the tokenizer is neither WordPiece nor Unigram, or the network's first
            output is no float32 [1, tokens, width] or [1, width].
    """
    path = Path(path)
    description = Description.of(path, pooling, normalize)
    folders.refuse_precious(Path(output), [path, description.path])
    tokenizer = tokenizer_file.read(path / "tokenizer.json")
    if not isinstance(tokenizer, WordPieces | Unigram):
        raise MegccError(f"{path}: the tokenizer is of byte pairs; WordPiece and Unigram are supported for embeddings "
                         "in C")
    if any(tokenizer_of_folder(path, description.context).encode("a").type_ids):
        raise MegccError(f"{path}: the tokenizer gives a text another type than 0, which is not supported in C")
    name = identifier(Path(output).resolve().name)
    artifact = description.compile(target, options or CompileOptions(), name)
    outputs, inputs = artifact.manifest["outputs"], artifact.manifest["inputs"]
    shape, width = outputs[0]["shape"], outputs[0]["shape"][-1] if outputs[0]["shape"] else None
    if outputs[0]["dtype"] != "float32" or len(shape) not in (2, 3) or shape[0] != 1 or not isinstance(width, int):
        raise MegccError(f"{path}: the output {outputs[0]['name']} is no float32 [1, tokens, width] or [1, width]")
    macro = c_name(name).upper()
    if isinstance(tokenizer, Unigram):
        kind, unit, work = "unigram", "uint32_t", f"MEGCC_UNIGRAM_WORK({macro}_EMBED_TEXT)"
    else:
        kind, unit, work = "wordpiece", "uint8_t", f"MEGCC_WORDPIECE_WORK({tokenizer.longest_word})"
    context = {
        "version": VERSION, "name": name, "macro": macro, "width": width, "context": description.context,
        "kind": kind, "unit": unit, "work": work, "text": _BYTES * description.context,
        "begin": int(tokenizer.first >= 0), "first": _token(tokenizer.first), "last": _token(tokenizer.last),
        "inputs": [_INPUTS.index(row["name"]) for row in inputs], "pooling": POOLINGS.index(description.pooling),
        "normalize": int(description.normalize)}
    sources = {file: environment().get_template(f"language_model/{template}.j2").render(context)
               for file, template in ((f"{name}_embed.h", "embed.h"), (f"{name}_embed.c", "embed.c"),
                                      ("main.c", "embed_main.c"))}
    sources[f"{name}_tokenizer.c"] = tokenizer.text(name)
    stems = ["embedding", kind, *(["normalizer"] if kind == "unigram" else [])]
    runtime = [paths.c_runtime() / "lm" / f"megcc_{stem}{end}" for stem in stems for end in (".h", ".c")]
    runtime.append(paths.c_runtime() / "lm" / "megcc_strings.h")
    files = {file: text.encode() for file, text in sources.items()} | {
        f"runtime/{'include' if each.suffix == '.h' else 'src'}/{each.name}": each.read_bytes() for each in runtime}
    return bundle.write([artifact], output, force=force, program=bundle.Program(f"{name}_embed", files))


def _token(token: int) -> str:
    return "UINT32_MAX" if token < 0 else f"{token}u"
