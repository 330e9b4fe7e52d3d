# SPDX-License-Identifier: Apache-2.0
"""A model whose every name is hostile: no file made of it says more than it should, and all of them compile."""

import itertools
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_megcc
from tests.foreign_texts import MARKER, TEXTS, code_of
from tvm_megcc.codegen import bundle
from tvm_megcc.runtime.load import load

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wcomment", "-Wtrigraphs", "-trigraphs",
          "-fsyntax-only", "-I.", "-Iruntime/include")


def hostile(strings=TEXTS, is_open: bool = False) -> onnx.ModelProto:
    """Branches side by side, one a text, which is the name of everything in it: input, dimension, constant, node,
    value, function, domain, attribute and output; the graph and what a file says of itself have the first. A kernel
    names four nodes that it is for, so extents differ as soon as there are more."""
    text = strings[0]
    inputs, outputs, nodes, constants, functions = [], [], [], [], []
    for index, name in enumerate(strings):
        extent = f"{name}#" if is_open else index // 4 + 2
        inputs.append(helper.make_tensor_value_info(name + "i", TensorProto.FLOAT, [extent, 3]))
        outputs.append(helper.make_tensor_value_info(name + "o", TensorProto.FLOAT, None))
        constants.append(helper.make_tensor(name + "c", TensorProto.FLOAT, [3], np.ones(3, np.float32)))
        functions.append(helper.make_function(
            name + "d", name + "f", ["x"], ["y"], [helper.make_node("Sigmoid", ["x"], ["y"], name=name)],
            [helper.make_opsetid("", 17)], [name + "a"]))
        nodes += [helper.make_node(name + "f", [name + "i"], [name + "v"], name, domain=name + "d",
                                   **{name + "a": name}),
                  helper.make_node("Mul", [name + "v", name + "c"], [name + "o"], name=name + "m", doc_string=name)]
    between = [helper.make_tensor_value_info(name + "v", TensorProto.FLOAT, None) for name in strings]
    graph = helper.make_graph(nodes, text, inputs, outputs, constants, text, between)
    model = helper.make_model(
        graph, functions=functions, producer_name=text, domain=text, doc_string=text, ir_version=8,
        opset_imports=[helper.make_opsetid("", 17), *(helper.make_opsetid(name + "d", 1) for name in strings)])
    graph = model.graph
    for described in (model, graph, *graph.node, *graph.input, *graph.initializer):
        described.metadata_props.add(key=text, value=text)
    return model


#: No empty names, which stand for an operand that is left out, and none with a half of a character.
NAMES = tuple(f"{text}." for text in TEXTS)
#: Some names and the kind of folder that they are tried in.
FOLDERS = [(kind, NAMES[part::5]) for part, kind in enumerate(("fixed", "open", "embedded", "several", "fixed"))]


def artifact_of(model, name: str, **options):
    return tvm_megcc.compile(model.SerializeToString(), "c", name=name, **options)


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda param: f"{param[0]}{FOLDERS.index(param)}")
def made(request, tmp_path_factory) -> tuple[Path, tuple[str, ...]]:
    """A folder, and the names in it."""
    kind, names = request.param
    dispatch = {name + "i": {0: [(1, 5)]} for name in names} if kind == "open" else None
    artifacts = [artifact_of(hostile(names, is_open=dispatch is not None), names[0], dispatch=dispatch)]
    if kind == "several":
        artifacts.append(artifact_of(hostile(names[:3]), "int"))
    folder = tmp_path_factory.mktemp("hostile") / "folder"
    return bundle.write(artifacts, folder, embed=kind == "embedded"), names


@pytest.fixture(scope="module")
def folder(made) -> Path:
    return made[0]


def generated(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and "runtime" not in path.parts]


def test_no_text_becomes_code(folder):
    shown = 0
    for path in generated(folder):
        if path.suffix in (".c", ".h"):
            text = path.read_text("ascii")
            assert MARKER not in code_of(text), path.name
            shown += text.count(MARKER)
    assert shown > 10, "names are to be seen in comments, or this test tests nothing"


def test_every_file_is_plain(made):
    folder, names = made
    for path in generated(folder):
        assert re.fullmatch(r"[a-z0-9_.]+", path.name) or path.name in ("Makefile", "README.md", "CMakeLists.txt")
        if path.suffix not in (".megcc", ".json"):
            text = path.read_text("ascii")
            assert re.fullmatch(r"[ -~\n\t]*", text), path.name
        if path.name in ("Makefile", "CMakeLists.txt", "config.cmake.in"):
            assert MARKER not in text, path.name
        if path.name == "README.md":
            assert "<" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL) and "](" not in text
            rows = [line for line in text.splitlines() if line.startswith(("| input", "| output"))]
            assert all(row.count("|") == 5 for row in rows) and len(rows) >= 2 * len(names)
        if path.suffix == ".svg":
            tags = {element.tag.rpartition("}")[2] for element in xml.fromstring(text).iter()}
            assert tags <= {"svg", "rect", "text", "title", "line", "polyline"}


def test_the_manifest_keeps_the_names(made):
    folder, names = made
    model = json.loads((folder / "manifest.json").read_text())["models"][0]
    assert [row["name"] for row in model["inputs"]] == [name + "i" for name in names]
    assert [row["name"] for row in model["outputs"]] == [name + "o" for name in names]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_it_compiles(made, compiler):
    """Names that are equal as identifiers would define a macro or a function twice."""
    folder, names = made
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    sources = [str(path.relative_to(folder)) for path in generated(folder) if path.suffix == ".c"]
    result = subprocess.run([compiler, *STRICT, *sources], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    example = (folder / "README.md").read_text().partition("```c\n")[2].partition("```")[0]
    defined = re.findall(r"^const float \*(\w+) =", example, re.MULTILINE)
    assert len(set(defined)) == len(defined) == len(names)
    for header in folder.glob("*.h"):
        macros = re.findall(r"^#define (\w+)", header.read_text(), re.MULTILINE)
        assert len(set(macros)) == len(macros)


def test_it_runs_under_its_own_names(tmp_path):
    """Only the caller's side has the names as they are."""
    session = load(artifact_of(hostile(NAMES[:4]), "hostile").save(tmp_path / "folder"))
    results = session.run({name + "i": np.zeros((index // 4 + 2, 3), np.float32)
                           for index, name in enumerate(NAMES[:4])})
    assert list(results) == [name + "o" for name in NAMES[:4]]


@pytest.mark.parametrize("text", [text for text in TEXTS if len(text) < 200][:12])
def test_a_file_name(text, tmp_path):
    """The model takes its name from the file, as far as a file can have that name."""
    path = tmp_path / f"{text.replace('/', '_')}.onnx".replace("\0", "")
    onnx.save(hostile(NAMES[:1]), path)
    strings = bundle.contents([tvm_megcc.compile(path, "c")])
    assert not any(MARKER in code_of(data.decode()) for name, data in strings.items()
                   if name.endswith((".c", ".h")) and not name.startswith("runtime/"))


def test_symbols_with_long_names_have_an_example(tmp_path):
    """An extent that the manifest is too short for still has a number in the example."""
    names = ("past sequence length + sequence length of the keys",)
    model = hostile(names, is_open=True)
    artifact = artifact_of(model, "long", dispatch={names[0] + "i": {0: [(2, 5)]}})
    files = bundle.contents([artifact])
    assert b"{ 2, { 2, 3 } }" in files["main.c"] and b"{ 2, { 2, 3 } }" in files["README.md"]
    assert list(itertools.chain(artifact.manifest["buckets"][0].values())) == [[2, 4]]
