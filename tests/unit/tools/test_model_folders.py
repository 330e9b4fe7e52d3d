# SPDX-License-Identifier: Apache-2.0
"""Folders of language models that are damaged, contradictory or incomplete: a sentence with the file and the key."""

from __future__ import annotations

import json
import shutil

import onnx
import pytest

from tests.decoder_folders import genai, hugging_face
from tvm_megcc.cli import main
from tvm_megcc.context import Context
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.onnx import import_onnx
from tvm_megcc.frontends.onnx_decoders import decoder
from tvm_megcc.passes.quantization.activations import quantize_activations
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.lm import chat
from tvm_megcc.tools.lm import hugging_face as folders

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    return {"genai": genai(root / "genai"), "hf": hugging_face(root / "hf")}


@pytest.fixture
def copies(made, tmp_path):
    return {name: shutil.copytree(path, tmp_path / name) for name, path in made.items()}


def refused(path, capsys) -> str:
    assert main(["lm", "compile", str(path), "-o", str(path.parent / "out")]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("which, name, content, message", [
    ("genai", "genai_config.json", "{", "genai_config.json is no JSON file: "),
    ("genai", "genai_config.json", "[" * 100_000, "genai_config.json is no JSON file: "),
    ("genai", "genai_config.json", "[]", "genai_config.json is no object of JSON"),
    ("genai", "genai_config.json", '{"model": 3}', "genai_config.json: 'model' is no object"),
    ("genai", "genai_config.json", {"model": {"decoder": {"filename": "../a.onnx"}}},
     "genai_config.json: 'model.decoder.filename' is '../a.onnx', and there is no such file in the folder"),
    ("genai", "genai_config.json", {"model": {"decoder": {"filename": "text.onnx", "inputs": {
        "past_key_names": "past"}}}}, "'model.decoder.inputs.past_key_names' is 'past', without one %d"),
    ("genai", "genai_config.json", {"model": {"decoder": {"filename": "text.onnx"}}},
     "input 'past_key_values.0.key' has no known number of heads or size of a head"),
    ("genai", "genai_config.json", {"model": {"eos_token_id": 99}},
     "genai_config.json: 'model.eos_token_id' is 99, and the tokenizer has 41 tokens"),
    ("genai", "genai_config.json", {"model": {"context_length": -1}}, "'model.context_length' is '-1', and no number"),
    ("genai", "genai_config.json", {"model": {"vocab_size": 9}},
     "the tokenizer has 41 tokens, and the network 9 logits"),
    ("genai", "text.onnx", "text", "is no ONNX model, or is truncated or corrupt"),
    ("genai", "text.onnx.data", "text", "which cannot be used: it is too short"),
    ("hf", "config.json", {"vocab_size": 5000}, "the tokenizer has 41 tokens, and the network 5,000 logits"),
    ("hf", "config.json", {"max_position_embeddings": True}, "config.json: 'max_position_embeddings' is 'True'"),
    ("hf", "generation_config.json", {"eos_token_id": ["a"]}, "generation_config.json: 'eos_token_id' is"),
    ("hf", "tokenizer_config.json", {"bos_token": "<none>"},
     "tokenizer_config.json: 'bos_token' is '<none>', which is no token"),
    ("hf", "tokenizer.json", "{}", "tokenizer.json: no tokenizer.json: it has no model"),
    ("hf", "chat_template.jinja", "{% for %}", "chat_template.jinja"),
    ("hf", "chat_template.jinja", "{{ 1 / 0 }}", "chat_template.jinja"),
    ("hf", "chat_template.jinja", "{{ 'a' * 1000000000 }}", "an operand of * is no number below 1,000,000"),
    ("genai", "tokenizer_config.json", {"chat_template": 5}, "tokenizer_config.json: 'chat_template' is no string")])
def test_damaged_files(copies, capsys, which, name, content, message):
    given = content if isinstance(content, str) else json.dumps(content)
    path = copies[which] / name
    counts = {"eos_token_id", "context_length", "vocab_size"}
    if isinstance(content, dict) and content.get("model", {}).keys() <= counts:
        known = json.loads(path.read_text()) if path.is_file() else {}
        given = json.dumps({"model": known.get("model", {}) | content["model"]} if "model" in content else
                           known | content)
    path.write_text(given)
    assert message in refused(copies[which], capsys)


@pytest.mark.parametrize("which, name, message", [
    ("genai", "tokenizer.json", "has no tokenizer: tokenizer.json or tokenizer.model"),
    ("genai", "text.onnx", "'model.decoder.filename' is 'text.onnx', and there is no such file in the folder"),
    ("genai", "text.onnx.data", "there is no such file"),
    ("hf", "onnx/decoder_model_merged.onnx", "has no model.onnx or decoder_model_merged.onnx")])
def test_missing_files(copies, capsys, which, name, message):
    (copies[which] / name).unlink()
    assert message in refused(copies[which], capsys)


def test_templates_that_do_not_end(copies, capsys, monkeypatch):
    monkeypatch.setattr(chat, "_TEMPLATE_SECONDS", 0.05)
    (copies["hf"] / "chat_template.jinja").write_text(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    assert "chat_template.jinja" in (found := refused(copies["hf"], capsys)) and "takes longer than 0.05 s" in found
    (copies["hf"] / "chat_template.jinja").write_text("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}")
    assert "cannot be used: maximum recursion depth" in refused(copies["hf"], capsys)


@pytest.mark.parametrize("change, message", [
    (lambda graph: graph.input.add(name="pixels"), "input 'pixels' is none of a decoder of text"),
    (lambda graph: graph.output.remove(graph.output[1]), "input 'past_key_values.0.key' has no output 'present.0.key'"),
    (lambda graph: setattr(graph.input[0], "name", "tokens"), "has no input 'input_ids'"),
    (lambda graph: setattr(graph.output[0], "name", "scores"), "has no output 'logits'"),
    (lambda graph: graph.input[1].type.tensor_type.shape.dim.add(), "input 'attention_mask' has 3 axes, and not 2"),
    (lambda graph: setattr(graph.input[0].type.tensor_type, "elem_type", 1), "input 'input_ids' is not of integers"),
    (lambda graph: [graph.input.remove(value) for value in list(graph.input)[2:]],
     "has no input 'past_key_values.0.key': it is a decoder without keys and values")])
def test_graphs_that_are_no_decoders(copies, change, message):
    folder = folders.read(copies["genai"])
    proto = onnx.load(folder.model, load_external_data=False)
    change(proto.graph)
    onnx.save(proto, folder.model)
    with pytest.raises(MegccError) as raised:
        decoder(folder.model, folder.ports)
    assert message in str(raised.value)


def test_where_settings_come_from(copies):
    found = folders.read(copies["genai"])
    assert (found.context, found.vocabulary_size, found.settings.ends) == (48, 43, (1,))
    assert found.settings.chat_template and found.settings.bos == 0 and found.name == "genai"
    found = folders.read(copies["hf"] / "onnx" / "decoder_model_merged.onnx")
    assert (found.context, found.name, found.vocabulary.form) == (48, "hf", "NFC")
    (copies["hf"] / "chat_template.jinja").unlink()
    named = [{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]
    (copies["hf"] / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert folders.read(copies["hf"]).settings.chat_template == "b"
    (copies["genai"] / "genai_config.json").unlink()
    assert folders.read(copies["genai"]).model.name == "text.onnx"


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_embedding_that_is_the_head_is_stored_once(made, dtype):
    folder = folders.read(made["genai"])
    graph = import_onnx(decoder(folder.model, folder.ports).model)
    graph = quantize_activations(graph, Context(TARGETS["c"], activations=dtype))
    (rows,) = (op for op in graph.ops if op.kind == "nbits_rows")
    product = next(op for op in reversed(graph.ops) if op.kind.startswith("matmul"))
    assert rows.attrs.tied == product.kind == ("matmul_nbits_int8" if dtype == "int8" else "matmul_nbits")
    assert set(rows.inputs[1:]) < set(product.inputs)


def test_tokens_beyond_the_logits(made):
    """Added tokens that the network does not have are left out; logits without a token have the token ""."""
    vocabulary = folders.read(made["hf"]).vocabulary
    assert folders.padded(vocabulary, 43, made["hf"]).tokens[41:] == ("", "")
    more = vocabulary.__class__(**{**vars(vocabulary), "tokens": (*vocabulary.tokens, "<image>"),
                                   "special": (*vocabulary.special, ("<image>", True))})
    assert folders.padded(more, 41, made["hf"]) == vocabulary
