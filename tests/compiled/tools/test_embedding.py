# SPDX-License-Identifier: Apache-2.0
"""`megcc lm embed`: tokenizer, network, pooling and normalization against onnxruntime and the formulas."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.compiled.runtime.test_runtime import CC, call
from tvm_megcc.cli import main
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.embedding import EmbeddingModel

pytest.importorskip("tokenizers")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]

WIDTH, TOKENS = 16, 60
STRINGS = ["hello world", "", "Hello, w\u00f6rld! " * 30, "[MASK] \u4e2d"]


def network() -> onnx.ModelProto:
    """Embeddings of tokens and types, and one head of attention."""
    draw = np.random.default_rng(1)
    weights = {"words": (TOKENS, WIDTH), "types": (2, WIDTH), **{name: (WIDTH, WIDTH) for name in ("wq", "wk", "wv")}}
    given = [numpy_helper.from_array(draw.normal(0, 0.5, shape).astype(np.float32), name)
             for name, shape in weights.items()]
    given += [numpy_helper.from_array(np.float32(value), name) for name, value in (("one", 1), ("least", -1e4))]
    given.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    node = helper.make_node
    nodes = [node("Gather", ["words", "input_ids"], ["w"]), node("Gather", ["types", "token_type_ids"], ["t"]),
             node("Add", ["w", "t"], ["x"]), *(node("MatMul", ["x", f"w{each}"], [each]) for each in "qkv"),
             node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["scores"]),
             node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT), node("Sub", ["one", "m"], ["hidden"]),
             node("Mul", ["hidden", "least"], ["low"]), node("Unsqueeze", ["low", "axes"], ["bias"]),
             node("Add", ["scores", "bias"], ["masked"]), node("Softmax", ["masked"], ["p"], axis=-1),
             node("MatMul", ["p", "v"], ["attended"]), node("Add", ["attended", "x"], ["last_hidden_state"])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch_size", "sequence_length"])
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT,
                                           ["batch_size", "sequence_length", WIDTH])
    return helper.make_model(helper.make_graph(nodes, "embedding", inputs, [output], given), ir_version=10,
                             opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    made = tmp_path_factory.mktemp("embedding")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", ",", "!", "\u4e2d", "##s"]
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(words[:5])
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.enable_padding(length=40)  # as all-MiniLM-L6-v2 has it
    tokenizer.save(str(made / "tokenizer.json"))
    onnx.save(network(), made / "model.onnx")
    (made / "config.json").write_text(json.dumps({"max_position_embeddings": 32}))
    return made


def wanted(folder, text: str, pooling: str, normalize: bool) -> np.ndarray:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(32)
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    assert ids.shape[1] <= 32
    rows = onnxruntime.InferenceSession(str(folder / "model.onnx")).run(None, {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})[0][0]
    found = {"mean": rows.mean(0), "cls": rows[0], "max": rows.max(0)}[pooling]
    return found / np.linalg.norm(found) if normalize else found


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [True, False])
def test_embeddings(folder, pooling, normalize):
    found = EmbeddingModel(folder, pooling=pooling, normalize=normalize).embed(STRINGS)
    assert found.shape == (len(STRINGS), WIDTH) and found.dtype == np.float32
    np.testing.assert_allclose(found, [wanted(folder, text, pooling, normalize) for text in STRINGS], rtol=1e-4,
                               atol=1e-5)


def test_the_folder_says_how(folder, tmp_path, capsys, monkeypatch):
    for name in ("tokenizer.json", "model.onnx", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling"}]))
    assert main(["lm", "embed", str(tmp_path), *STRINGS]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(rows, [wanted(folder, text, "cls", False) for text in STRINGS], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nworld\n"))
    assert main(["lm", "embed", str(folder)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(rows, [wanted(folder, text, "mean", True) for text in ("hello", "world")], rtol=1e-4,
                               atol=1e-5)


@pytest.mark.parametrize("name, data, message", [
    ("tokenizer.json", b"{}", "damaged"), ("tokenizer.json", None, "no tokenizer.json"),
    ("model.onnx", None, "no network"), ("model.onnx", b"\xff", "model.onnx"), ("config.json", b"[]", "damaged"),
    ("modules.json", b"[" * 100_000, "damaged"),
    ("1_Pooling/config.json", b'{"pooling_mode_lasttoken": true}', "pools by")])
def test_refusals(folder, name, data, message, tmp_path, capsys):
    for each in ("tokenizer.json", "model.onnx", "config.json"):
        (tmp_path / each).write_bytes((folder / each).read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    if data is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(data)
    assert main(["lm", "embed", str(tmp_path), "hello"]) == 1
    assert message in capsys.readouterr().err


def test_other_inputs(folder, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    model = network()
    model.graph.input[1].name = "pixels"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(MegccError, match="pixels"):
        EmbeddingModel(tmp_path)
    with pytest.raises(MegccError, match="no pooling"):
        EmbeddingModel(folder, pooling="last")


def in_c(folder, texts: list[str], *options: str) -> np.ndarray:
    """The embeddings of a program in C, of lines of stdin and of arguments."""
    made = folder.parent / f"{folder.name}_c"
    assert main(["lm", "embed", str(folder), "-o", str(made), "--force", *options]) == 0
    call(["make", "-s", "-C", made, f"CC={CC}"])
    program = [made / "build" / "make" / f"{made.name}_embed", "-m", made / f"{made.name}.megcc"]
    lines = call(program, input="".join(f"{text}\n" for text in texts))
    assert call([*program, *texts]) == lines
    return np.array([json.loads(line) for line in lines.splitlines()], np.float32)


@pytest.mark.parametrize("pooling, options", [("mean", []), ("cls", ["--no-normalize"]), ("max", [])])
def test_in_c(folder, pooling, options):
    """The same floats as in Python, bit for bit."""
    python = EmbeddingModel(folder, pooling=pooling, normalize=False if options else None).embed(STRINGS)
    found = in_c(folder, STRINGS, "--pooling", pooling, *options)
    np.testing.assert_array_equal(found, python)
    assert len(np.unique(found, axis=0)) == len(STRINGS)


def test_unigram_in_c(folder, tmp_path):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    given = tmp_path / "given"
    given.mkdir()
    for name in ("model.onnx", "config.json"):
        (given / name).write_bytes((folder / name).read_bytes())
    tokens = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -3.0), ("\u2581hello", -4.0), ("wor", -5.0),
              ("l", -6.0), ("d", -6.5), ("\u00f6", -7.0)]
    tokenizer = Tokenizer(models.Unigram(tokens, 2))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer.save(str(given / "tokenizer.json"))
    texts = ["hello world", "", "h\u00f6 " * 40, "\uff28\uff21 \u4e2d"]
    np.testing.assert_array_equal(in_c(given, texts), EmbeddingModel(given).embed(texts))


#: A network whose second input is bound to other memory; the runtime is replaced by functions of the same names.
BOUND = """
#include <stdio.h>
#include "megcc_embedding.h"
static int64_t ids[8];
void *megcc_session_input(megcc_session *session, uint32_t index, megcc_tensor *tensor)
{
    (void)session;
    tensor->dtype = MEGCC_INT64;
    return index == 0 ? ids : NULL;
}
int32_t megcc_model_input(const megcc_model *model, uint32_t index, megcc_tensor *tensor)
{
    (void)model, (void)index;
    tensor->rank = 0;
    return 0;
}
int32_t megcc_session_reshape(megcc_session *session, const megcc_shape *shapes, uint32_t count, megcc_error *error)
{
    (void)session, (void)shapes, (void)count, (void)error;
    return 0;
}
int32_t megcc_session_run(megcc_session *session, megcc_error *error) { (void)session, (void)error; return 0; }
const void *megcc_session_output(megcc_session *session, uint32_t index, megcc_tensor *tensor)
{
    (void)session, (void)index, (void)tensor;
    return NULL;
}
int main(void)
{
    static const uint8_t inputs[] = { MEGCC_INPUT_IDS, MEGCC_INPUT_MASK };
    const megcc_embedding_model model = { 8, 1, UINT32_MAX, UINT32_MAX, 2, inputs, MEGCC_POOL_MEAN, 0 };
    static megcc_model network;
    megcc_shape shapes[2] = { { 0, { 0 } }, { 0, { 0 } } };
    uint32_t tokens[8] = { 1, 2 };
    float vector[1];
    megcc_error error;
    const int32_t status = megcc_embedding_run(&model, &network, NULL, shapes, tokens, 2, vector, &error);
    printf("%d %s %d %d", (int)(status == MEGCC_E_ORDER), error.where, (int)error.detail, (int)error.needed);
    return 0;
}
"""


def test_a_bound_input_is_named(tmp_path):
    runtime = Path(__file__).resolve().parents[3] / "c_runtime"
    (tmp_path / "p.c").write_text(BOUND)
    call([CC, f"-I{runtime / 'include'}", f"-I{runtime / 'lm'}", tmp_path / "p.c",
          runtime / "lm" / "megcc_embedding.c", "-o", tmp_path / "p"])
    assert call([tmp_path / "p"]) == "1 input 1 0"


@pytest.mark.parametrize("form", ["", "NFC"])
def test_byte_pairs_in_c(folder, form, tmp_path):
    """As ModernBERT's, which composes characters first, and RoBERTa's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    given = tmp_path / "given"
    given.mkdir()
    for name in ("model.onnx", "config.json"):
        (given / name).write_bytes((folder / name).read_bytes())
    words = ["[CLS]", "[SEP]", *"helowrd!,\u0120\u00c3\u00b6", "lo", "\u0120w"]
    tokenizer = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, [("l", "o"), ("\u0120", "w")]))
    if form:
        tokenizer.normalizer = getattr(normalizers, form)()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(words[:2])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    tokenizer.save(str(given / "tokenizer.json"))
    texts = ["hello world", "", "Hello, wo\u0308rld! " * 30, "[SEP] hello\u4e2d"]
    np.testing.assert_array_equal(in_c(given, texts), EmbeddingModel(given).embed(texts))


def test_refused_in_c(folder, tmp_path, capsys):
    from tokenizers import Tokenizer, models, pre_tokenizers

    for name in ("model.onnx", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    tokenizer = Tokenizer(models.BPE({"h": 0, "i": 1, "hi": 2}, [("h", "i")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert main(["lm", "embed", str(tmp_path), "-o", str(tmp_path / "made")]) == 1
    assert "pre-tokenizer of the tokenizer.json is not supported" in capsys.readouterr().err
    assert main(["lm", "embed", str(folder), "a text", "-o", str(tmp_path / "made")]) == 1
    assert "no string" in capsys.readouterr().err and not (tmp_path / "made").exists()
