# SPDX-License-Identifier: Apache-2.0
"""Every notebook runs from top to bottom."""

import importlib.util
import os
import runpy
from pathlib import Path

import pytest

import tvm_megcc
from tests.compiled.tools.test_static_embedding import drawn, static_folder

#: What a notebook imports that may not be there, and what is said then.
NEEDS = {"03_inside_tvm": ("tvm.relax", "TVM with Relax is not installed"),
         "09_bring_your_own_codegen": ("tvm.relax", "TVM with Relax is not installed"),
         "10_microcontroller_from_tvm": ("tvm.relax", "TVM with Relax is not installed"),
         "07_relay": ("tvm.relay", "TVM with Relay (0.9 to 0.19) is not installed")}
NOTEBOOKS = sorted((Path(__file__).resolve().parents[3] / "tutorials").glob("*.ipynb"))


#: Notebooks that are committed with their outputs, since what they download is no part of the tests.
WITH_OUTPUTS = {"11_language_model"}
#: Notebooks that are made of scripts in the form of sphinx-gallery.
SCRIPTS = {"09_bring_your_own_codegen": "bring_your_own_codegen",
           "10_microcontroller_from_tvm": "microcontroller_from_tvm"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_notebooks_are_those_of_their_scripts(name):
    """`python3 scripts/notebook_of.py SCRIPT NOTEBOOK` writes them anew."""
    made = runpy.run_path(str(NOTEBOOKS[0].parents[1] / "scripts" / "notebook_of.py"))["notebook"]
    folder = NOTEBOOKS[0].parent
    assert (folder / f"{name}.ipynb").read_text("utf-8") == made((folder / f"{SCRIPTS[name]}.py").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path, monkeypatch):
    if path.stem in NEEDS:
        module, reason = NEEDS[path.stem]
        pytest.importorskip(module, reason=reason)
    if NEEDS.get(path.stem, ("",))[0] == "tvm.relax" and importlib.util.find_spec("tvm.relay"):
        pytest.skip("this TVM has Relay, which goes first")
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(Path(tvm_megcc.__file__).parents[1]), prepend=os.pathsep)
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MEGCC_TEMPLATES", raising=False)
    notebook = nbformat.read(path, as_version=4)
    if path.stem in WITH_OUTPUTS:
        assert sum(bool(cell.get("outputs")) for cell in notebook.cells) > 5, "commit it with outputs"
        monkeypatch.setenv("LANGUAGE_MODEL", str(_language_model(tmp_path / "drawn.gguf")))
        monkeypatch.setenv("EMBEDDINGS", str(static_folder(tmp_path / "table", drawn("int8", quantized=True))))
    else:
        assert not any(cell.get("outputs") for cell in notebook.cells), "commit notebooks without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()


def _language_model(path: Path) -> Path:
    """Writes a drawn model whose tokens are the printable characters of ASCII."""
    pytest.importorskip("tokenizers")
    gguf = pytest.importorskip("gguf")
    from tests.unit.gguf.files import SHAPES, weights, write

    words = ["<end>", *map(chr, range(33, 127)), "\u0120", "ab"]  # U+0120 is the space
    shape, kinds = SHAPES["llama"].with_(layers=1, vocabulary=len(words), context=1024), gguf.GGUFValueType
    return write(path, shape, weights(shape), **{
        "tokenizer.ggml.model": ("gpt2", kinds.STRING), "tokenizer.ggml.pre": ("gpt-2", kinds.STRING),
        "tokenizer.ggml.tokens": (words, kinds.ARRAY), "tokenizer.ggml.merges": (["a b"], kinds.ARRAY),
        "tokenizer.ggml.token_type": ([3] + [1] * (len(words) - 1), kinds.ARRAY),
        "tokenizer.ggml.eos_token_id": (0, kinds.UINT32),
        "tokenizer.chat_template": ("{{ messages[-1].content }}", kinds.STRING)})


@pytest.mark.slow
def test_a_notebook_that_ends_in_a_value(tmp_path, monkeypatch):
    """What people write first: the last line of a cell is an artifact or a session, and the notebook stays small."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(Path(tvm_megcc.__file__).parents[1]), prepend=os.pathsep)
    model = tvm_megcc.paths.examples() / "digits.onnx"
    cells = [f"import tvm_megcc\nartifact = tvm_megcc.compile({str(model)!r})\nartifact",
             "session = tvm_megcc.load(artifact.save('digits_megcc'))\nsession", f"tvm_megcc.explain({str(model)!r})"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [cell.outputs[-1].data for cell in notebook.cells]
    assert [data["text/plain"][:11] for data in shown] == ["<Artifact d", "<digits on ", f"{model} for"[:11]]
    assert all("<table>" in data["text/html"] for data in shown)
    assert len(nbformat.writes(notebook)) < 100_000
