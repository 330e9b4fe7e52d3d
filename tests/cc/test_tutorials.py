# SPDX-License-Identifier: Apache-2.0
"""Every notebook runs from top to bottom."""

from pathlib import Path

import pytest

import tvm_megcc

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "tutorials").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path, monkeypatch):
    if "tvm" in path.stem:
        pytest.importorskip("tvm", reason="TVM is not installed")
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(Path(tvm_megcc.__file__).parents[1]))
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MEGCC_TEMPLATES", raising=False)
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit notebooks without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
