# SPDX-License-Identifier: Apache-2.0
"""`megcc lm rerank`: scores of pairs of texts against onnxruntime."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.compiled.runtime.test_runtime import CC, SANITIZE, call, has_flags
from tests.compiled.tools.test_embedding import folder as embedding_folder
from tests.compiled.tools.test_embedding import network
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.reranker import Reranker

pytest.importorskip("tokenizers")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]

__all__ = ["embedding_folder"]  # a fixture
QUERY = "hello world?"
TEXTS = ["hello", "", "w\u00f6rld, hello " * 9, "[MASK] \u4e2d", "world"]


def cross_encoder(labels: int) -> onnx.ModelProto:
    """The network of the embeddings, and a number for each label from the mean of its rows."""
    made = network()
    weights = np.random.default_rng(2).normal(0, 1, (16, labels)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "head"))
    made.graph.node.extend([
        helper.make_node("ReduceMean", ["last_hidden_state"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "head"], ["logits"])])
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", labels]))
    return made


@pytest.fixture(scope="module")
def folder(embedding_folder, tmp_path_factory):
    from tokenizers import Tokenizer, processors

    made = tmp_path_factory.mktemp("reranker")
    tokenizer = Tokenizer.from_file(str(embedding_folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(made / "tokenizer.json"))
    onnx.save(cross_encoder(1), made / "model.onnx")
    (made / "config.json").write_text(json.dumps({"max_position_embeddings": 24}))
    return made


def wanted(folder, query: str, text: str) -> float:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(24, strategy="longest_first")
    tokens = tokenizer.encode(query, text)
    assert len(tokens.ids) <= 24 and set(tokens.type_ids) == {0, 1}
    given = {"input_ids": tokens.ids, "attention_mask": tokens.attention_mask, "token_type_ids": tokens.type_ids}
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    return float(session.run(None, {name: np.array([value], np.int64) for name, value in given.items()})[0][0, 0])


def test_scores(folder):
    """Also of pairs that are longer than the context, by either of the texts."""
    model = Reranker(folder, sigmoid=False)
    for query in (QUERY, QUERY * 9):
        found = model.scores(query, TEXTS)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [wanted(folder, query, text) for text in TEXTS], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config, sigmoid", [
    ({}, True), ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, False),
    ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, False),
    ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, True)])
def test_the_configuration_says_what_scores_are(folder, config, sigmoid, tmp_path, capsys, monkeypatch):
    for name in ("tokenizer.json", "model.onnx"):
        shutil.copyfile(folder / name, tmp_path / name)
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 24, **config}))
    logits = np.array([wanted(folder, QUERY, text) for text in TEXTS])
    scores = 1 / (1 + np.exp(-logits)) if sigmoid else logits
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{text}\n" for text in TEXTS)))
    assert main(["lm", "rerank", str(tmp_path), QUERY, "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["index"] for row in rows] == np.argsort(-logits).tolist()
    assert [row["text"] for row in rows] == [TEXTS[row["index"]] for row in rows]
    np.testing.assert_allclose([row["score"] for row in rows], scores[[row["index"] for row in rows]], rtol=1e-5)
    assert main(["lm", "rerank", str(tmp_path), QUERY, *TEXTS[:1], "--logits", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["score"] == pytest.approx(logits[0], rel=1e-5)


def test_several_numbers_are_refused(folder, tmp_path):
    shutil.copyfile(folder / "tokenizer.json", tmp_path / "tokenizer.json")
    onnx.save(cross_encoder(3), tmp_path / "model.onnx")
    with pytest.raises(MegccError, match="gives 3 numbers"):
        Reranker(tmp_path).scores(QUERY, TEXTS)


def in_c(folder, query: str, texts: list[str], *options: str) -> np.ndarray:
    """The scores of a program in C, for lines of stdin and for arguments."""
    made = folder.parent / f"{folder.name}_c"
    assert main(["lm", "rerank", str(folder), "-o", str(made), "--force", *options]) == 0
    sanitize = " ".join(SANITIZE) if has_flags(*SANITIZE) else ""
    call(["make", "-s", "-C", made, f"CC={CC}", f"CFLAGS=-O1 {sanitize}", f"LDFLAGS={sanitize}"])
    program = [made / "build" / "make" / f"{made.name}_rerank", "-m", made / f"{made.name}.megcc", query]
    lines = call(program, input="".join(f"{text}\n" for text in texts))
    assert call([*program, *texts]) == lines
    return np.array(lines.split(), np.float32)


@pytest.mark.parametrize("options", [[], ["--logits"]])
def test_in_c(folder, options):
    """The scores of Python, for pairs that are cut in each way."""
    texts = [*TEXTS, *("hello " * count for count in range(30))]
    model = Reranker(folder, sigmoid=False if options else None)
    for query in ("hello", QUERY * 4) if options else (QUERY,):
        found = in_c(folder, query, texts, *options)
        np.testing.assert_array_max_ulp(found, model.scores(query, texts), 1 - len(options))
        assert len(np.unique(found)) > 5


def test_byte_pairs_in_c(folder, tmp_path):
    """RoBERTa's tokenizer: two tokens between the strings, and no types."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    given = tmp_path / "given"
    given.mkdir()
    for name in ("model.onnx", "config.json"):
        shutil.copyfile(folder / name, given / name)
    words = ["<s>", "</s>", *"helowrd?\u0120\u00c3\u00b6", "lo", "\u0120w"]
    tokenizer = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, [("l", "o"), ("\u0120", "w")]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(words[:2])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.save(str(given / "tokenizer.json"))
    texts = ["hello", "", "wo\u0308rld, hello " * 9, "</s> world", "o" * 40]
    found = in_c(given, QUERY, texts, "--logits")
    np.testing.assert_array_equal(found, Reranker(given, sigmoid=False).scores(QUERY, texts))


def test_refused_in_c(folder, tmp_path, capsys):
    shutil.copyfile(folder / "tokenizer.json", tmp_path / "tokenizer.json")
    onnx.save(cross_encoder(3), tmp_path / "model.onnx")
    assert main(["lm", "rerank", str(tmp_path), "-o", str(tmp_path / "made")]) == 1
    assert "one number for a pair" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4}')
    assert main(["lm", "rerank", str(tmp_path), "-o", str(tmp_path / "made")]) == 1
    assert "no room for two strings" in capsys.readouterr().err
    assert main(["lm", "rerank", str(folder), "a query", "-o", str(tmp_path / "made")]) == 1
    assert "no string" in capsys.readouterr().err and not (tmp_path / "made").exists()
    assert main(["lm", "rerank", str(folder)]) == 1
    assert "the query is missing" in capsys.readouterr().err


def test_types_of_tokens_that_do_not_fit_are_refused(folder, tmp_path, capsys):
    """C has them as bytes."""
    shutil.copytree(folder, tmp_path / "given")
    file = tmp_path / "given" / "tokenizer.json"
    text = file.read_text()
    file.write_text(text.replace('"type_id": 1', '"type_id": 300').replace('"type_id":1', '"type_id":300'))
    assert file.read_text() != text
    assert main(["lm", "rerank", str(tmp_path / "given"), "-o", str(tmp_path / "made")]) == 1
    assert "has types of tokens up to 300" in capsys.readouterr().err and not (tmp_path / "made").exists()
