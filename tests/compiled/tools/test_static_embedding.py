# SPDX-License-Identifier: Apache-2.0
"""Static embedding models: tables with a row for each token, against the formulas of model2vec."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC
from tests.compiled.tools.test_embedding import in_c
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends import safetensors
from tvm_megcc.tools.lm.embedding import EmbeddingModel

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", "sky", "blue", ",", "##s"]
WIDTH = 12
STRINGS = ["hello world", "", "unheard", "Hello, unheard worlds! " * 200, "sky [SEP] blue"]
_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64"}


def written(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Writes a safetensors file."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values()))
    return path


def drawn(kind: str = "float32", quantized: bool = False) -> dict[str, np.ndarray]:
    """Arrays as model2vec names them. quantized: several tokens share a row, and have weights."""
    draw = np.random.default_rng(3)
    rows = draw.normal(0, 40, (4 if quantized else len(WORDS), WIDTH)).astype(kind)
    shared = {"mapping": draw.integers(0, 4, len(WORDS)), "weights": draw.uniform(0.1, 2, len(WORDS))}
    return {"embeddings": rows, **(shared if quantized else {})}


def static_folder(path: Path, arrays: dict[str, np.ndarray], **config: object) -> Path:
    """Writes a folder as model2vec does."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    path.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(path / "tokenizer.json"))
    written(path / "model.safetensors", arrays)
    (path / "config.json").write_text(json.dumps(config))
    return path


def wanted(arrays: dict[str, np.ndarray], text: str, normalize: bool) -> np.ndarray:
    """The formula, over the tokens that the drawn tokenizer gives."""
    parts = text.lower().replace("[sep]", "[SEP]")
    for before, after in ((",", " , "), ("!", " ! "), ("worlds", "world ##s")):
        parts = parts.replace(before, after)
    tokens = [WORDS.index(word) if word in WORDS else 1 for word in parts.split()][:512]
    tokens = [token for token in tokens if token != 1]
    if not tokens:
        return np.zeros(WIDTH)
    rows = arrays["embeddings"].astype(np.float64)[arrays["mapping"][tokens] if "mapping" in arrays else tokens]
    mean = (rows * arrays["weights"][tokens][:, None] if "weights" in arrays else rows).mean(0)
    return mean / np.linalg.norm(mean) if normalize else mean


@pytest.mark.slow
@pytest.mark.parametrize("kind, quantized, normalize", [
    ("float32", False, True), ("float64", True, False), ("int8", True, True), ("float16", False, False)])
def test_embeddings(kind, quantized, normalize, tmp_path):
    arrays = drawn(kind, quantized)
    found = EmbeddingModel(static_folder(tmp_path, arrays, normalize=normalize)).embed(STRINGS)
    assert found.dtype == np.float32 and found.shape == (len(STRINGS), WIDTH)
    np.testing.assert_allclose(found, [wanted(arrays, text, normalize) for text in STRINGS], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_in_c(tmp_path):
    """The same floats as in Python, bit for bit, also of texts without known words."""
    folder = static_folder(tmp_path / "table", drawn("int8", quantized=True), normalize=True)
    np.testing.assert_array_equal(in_c(folder, STRINGS), EmbeddingModel(folder).embed(STRINGS))


@pytest.mark.slow
def test_the_folder_of_sentence_transformers(tmp_path, capsys):
    arrays = drawn()
    static_folder(tmp_path / "0_StaticEmbedding", {"embedding.weight": arrays["embeddings"]})
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.StaticEmbedding"}]))
    assert main(["lm", "embed", str(tmp_path), STRINGS[0], "-q"]) == 0
    np.testing.assert_allclose(json.loads(capsys.readouterr().out), wanted(arrays, STRINGS[0], False), rtol=1e-5)


def test_the_padding_token_may_have_flags(tmp_path):
    """model2vec writes it with flags that are not supported in C; in a text it is ordinary text there."""
    from tvm_megcc.tools.lm.tokenizers import file as tokenizer_file

    path = static_folder(tmp_path, drawn()) / "tokenizer.json"
    given = json.loads(path.read_text())
    given["added_tokens"][0]["single_word"] = True
    given["padding"] = {"pad_token": "[PAD]"}
    path.write_text(json.dumps(given))
    with pytest.raises(MegccError, match="single_word"):
        tokenizer_file.read(path)
    assert "[PAD]" not in tokenizer_file.read(path, has_padding=False).special


@pytest.mark.parametrize("changes, message", [
    ({"embeddings": np.zeros((4, 2, 2), np.float32)}, "a matrix of floats or int8 is read"),
    ({"embeddings": np.zeros((0, 4), np.float32)}, "a matrix of floats or int8 is read"),
    ({"embeddings": np.zeros((4, 2), np.int64)}, "a matrix of floats or int8 is read"),
    ({"mapping": np.array([0, 4])}, "no list of rows"), ({"mapping": np.array([0, -1])}, "no list of rows"),
    ({"mapping": np.array([0.0])}, "no list of rows"), ({"weights": np.ones(3)}, "not a float for each token")])
def test_arrays_that_do_not_fit(changes, message, tmp_path, capsys):
    static_folder(tmp_path, drawn(quantized=True) | changes)
    assert main(["lm", "embed", str(tmp_path), "hello"]) == 1
    assert message in capsys.readouterr().err


def test_damaged_files(tmp_path):
    """A file is refused or read, whatever its bytes are."""
    whole = written(tmp_path / "whole", drawn()).read_bytes()
    path, draw = tmp_path / "damaged", np.random.default_rng(1)
    given = [b"", whole[:7], whole[:20], whole[:-1], b"\xff" * 8 + whole[8:],
             (1 << 20).to_bytes(8, "little") + whole[8:],
             whole.replace(b"F32", b"F31"), whole.replace(b"[10, 12]", b"[-10,12]"),
             whole.replace(b"[10, 12]", b"[1e1,12]"),
             (10_000).to_bytes(8, "little") + b"[" * 10_000 + b"0"]
    for data in given:
        path.write_bytes(data)
        with pytest.raises(MegccError):
            safetensors.read(path, ["embeddings"])
    for _ in range(300):
        data = bytearray(whole[:200])
        for at in draw.integers(0, len(data), 3):
            data[at] = draw.integers(0, 256)
        path.write_bytes(bytes(data) + whole[200:])
        try:
            found = safetensors.read(path, ["embeddings"])
        except MegccError:
            continue
        assert all(array.nbytes <= len(whole) for array in found.values())
