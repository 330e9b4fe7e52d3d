# SPDX-License-Identifier: Apache-2.0
"""Models whose inputs and outputs are strings: numbers in C, strings in Python, whatever the strings are."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_megcc
from tests.c_flags import WARNINGS
from tests.onnx_models import model, node
from tvm_megcc.errors import ShapeError
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.verify import digest

TEXT = TensorProto.STRING
#: What would end a literal or a comment, or is none.
HOSTILE = ['"', "*/ #error", "\\", "??/", "a\0b", "a", "", "\n#include <x>", "ü€😀", "%s", "</script>", "a\0",
           "Z" * 5000, "{{ 1 }}", "'", "\x7f\x1b[31m"]


def ml(kind: str, inputs: str, outputs: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), domain="ai.onnx.ml", **attributes)


def strings_model(nodes, inputs, outputs, constants=None, opset: int = 19) -> onnx.ModelProto:
    made = model(nodes, inputs, outputs, constants, opset=opset)
    for each in made.opset_import:
        each.version = 4 if each.domain == "ai.onnx.ml" else each.version
    return made


def echo(strings: list[str]) -> onnx.ModelProto:
    """The place of a text in a list, the text at a place, and the text itself."""
    places = list(range(len(strings)))
    return strings_model(
        [ml("LabelEncoder", "x", "place", keys_strings=strings, values_int64s=places),
         ml("LabelEncoder", "n", "text", keys_int64s=places, values_strings=strings, default_string="none of them"),
         node("Identity", "x", "same")],
        {"x": (TEXT, ["rows"]), "n": ("int64", ["rows"])},
        {"place": ("int64", ["rows"]), "text": (TEXT, ["rows"]), "same": (TEXT, ["rows"])})


class Table:
    """What a table of pandas has that a session looks at."""

    columns = ("x", "number")
    iloc = None

    def __array__(self, dtype=None, copy=None):
        return np.array([["a", 0], ["b", 1]], object)


@pytest.mark.slow
def test_hostile_texts(tmp_path):
    folder = tvm_megcc.compile(echo(HOSTILE), "native", dispatch="x[0]=1..64;n[0]=1..64", name="echo").save(
        tmp_path / "echo")
    x = np.array([*HOSTILE, "unknown", "other", "unknown"], object)
    n = np.arange(len(x)) - 1
    with tvm_megcc.load(folder) as session:
        assert [port.type for port in session.inputs] == ["tensor(string)", "tensor(int64)"]
        found = session.run({"x": x, "n": n})
        assert found["same"].tolist() == x.tolist()
        assert found["place"].tolist() == [*range(len(HOSTILE)), -1, -1, -1]
        assert found["text"].tolist() == ["none of them", *HOSTILE, *["none of them"] * 2]
        assert session.run({"x": [b"a", b"\xff"], "n": [0, 1]})["place"].tolist() == [5, -1]
        with pytest.raises(TypeError, match=r"input 'x': .*: int is no string"):
            session.run({"x": np.array([1, 2], object), "n": [0, 1]})
        with pytest.raises(ShapeError, match="which has no column 'n'; its inputs are"):
            session.run(Table())


@pytest.mark.slow
def test_the_hash_of_outputs_is_that_of_numbers(tmp_path):
    source = echo(["b", "a"])
    folder = tvm_megcc.compile(source, "native", input_shapes={"x": [9], "n": [9]}, name="m").save(tmp_path / "m")
    with tvm_megcc.load(folder) as session, tvm_megcc.load(folder) as other:
        assert digest(session) == digest(session) == digest(other)


def looked_up_in_c(folder, name: str, strings: list[str], tmp_path) -> None:
    """Every text by the header, and some that it does not have."""
    asked = [text.encode() for text in (*strings, "unknown", "aa", "\1")]
    signed = [", ".join(str(byte if byte < 128 else byte - 256) for byte in (*text, 0)) for text in asked]
    arrays = "".join(f"static const char t{i}[] = {{ {row} }};\n" for i, row in enumerate(signed))
    checks = "".join(f"    check({name}_code_of(t{i}, {len(text)}), t{i}, {len(text)}, {int(i >= len(strings))});\n"
                     for i, text in enumerate(asked))
    (tmp_path / "main.c").write_text(f"""#include <stdlib.h>
#include "{name}_strings.h"
{arrays}static void check(int64_t code, const char *text, size_t size, int unknown)
{{
    size_t found = 0;
    const char *known = {name}_string_of(code, &found);
    if (unknown ? code != -1 || known : !known || found != size || memcmp(known, text, size + 1))
        exit(1);
}}
int main(void)
{{
{checks}    return {name}_code_of(NULL, 0) == -2;
}}
""")
    compiler = find_compiler(TARGETS["c"])
    command = [*compiler.command, "-std=c99", *WARNINGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
               f"-I{folder}", str(tmp_path / "main.c"), "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True)
    subprocess.run([str(tmp_path / "main")], check=True)


def test_hostile_texts_in_c(tmp_path):
    folder = tvm_megcc.compile(echo(HOSTILE), "c", input_shapes={"x": [2], "n": [2]}, name="echo").save(tmp_path / "e")
    known = json.loads((folder / "manifest.json").read_text())["models"][0]["texts"]
    assert known[:len(HOSTILE)] == HOSTILE
    assert "in   x  int64[2], strings: indices in the table of the model" in str(tvm_megcc.inspect(folder))
    looked_up_in_c(folder, "echo", known, tmp_path)
    assert '"x", int64[2], indices of strings: echo_strings.h' in (folder / "echo.h").read_text()


@pytest.mark.slow
def test_a_megabyte(tmp_path):
    strings = ["\"*/??\\\n" * 170_000, "short"]
    folder = tvm_megcc.compile(echo(strings), "c", input_shapes={"x": [2], "n": [2]}, name="echo").save(tmp_path / "e")
    looked_up_in_c(folder, "echo", strings, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [[1, 4], [4]])
def test_texts_that_are_left_out(shape, tmp_path):
    source = strings_model([node("StringNormalizer", "x", "y", stopwords=["a", "b"], is_case_sensitive=1)],
                         {"x": (TEXT, shape)}, {"y": (TEXT, [1, None] if len(shape) == 2 else [None])})
    with tvm_megcc.load(tvm_megcc.compile(source, "native", name="net").save(tmp_path / "net")) as session:
        for row, left in (("baAc", "Ac"), ("abab", ""), ("wxyz", "wxyz")):
            found = session.run({"x": np.array(list(row), object).reshape(shape)})["y"]
            assert found.tolist() == ([list(left) or [""]] if len(shape) == 2 else list(left) or [""])


@pytest.mark.slow
def test_moving_comparing_and_counting_texts(tmp_path):
    """Beside ONNX's own tests: strings of the run, which no table has, on their way and beside each other."""
    words = [["to", "be", "or"], ["not", "to", "be"]]
    nodes = [node("Equal", "x y", "equal"), node("Equal", "x be", "is_be"), node("Where", "equal x be", "chosen"),
             node("Concat", "x y", "both", axis=0), node("Gather", "both two", "row", axis=0),
             node("Cast", "row", "cast", to=TEXT), node("Shape", "both", "shape"),
             ml("OneHotEncoder", "x", "hot", cats_strings=["be", "to"]),
             ml("CategoryMapper", "x", "mapped", cats_strings=["not", "or"], cats_int64s=[4, 9]),
             ml("CategoryMapper", "mapped", "back", cats_strings=["not", "or"], cats_int64s=[4, 9]),
             node("TfIdfVectorizer", "x", "grams", mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0,
                  ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_strings=["be", "new", "to", "be"])]
    source = strings_model(nodes, {"x": (TEXT, [2, 3]), "y": (TEXT, [2, 3])},
                         {"equal": ("bool", [2, 3]), "is_be": ("bool", [2, 3]), "chosen": (TEXT, [2, 3]),
                          "both": (TEXT, [4, 3]), "cast": (TEXT, [3]), "shape": ("int64", [2]), "hot": [2, 3, 2],
                          "mapped": ("int64", [2, 3]), "back": (TEXT, [2, 3]), "grams": [2, 3]},
                         {"be": np.array(["be"], object), "two": np.array(3)})
    x, y = np.array(words, object), np.array([["to", "new", "or"], ["new", "to", "old"]], object)
    x[1, 2] = "old"
    folder = tvm_megcc.compile(source, "native", name="words").save(tmp_path / "words")
    with tvm_megcc.load(folder) as session:
        found = session.run({"x": x, "y": y})
    assert (found["equal"] == (x == y)).all() and (found["is_be"] == (x == "be")).all()
    assert (found["chosen"] == np.where(x == y, x, "be")).all()
    assert (found["both"] == np.concatenate([x, y])).all() and found["cast"].tolist() == ["new", "to", "old"]
    assert found["shape"].tolist() == [4, 3]
    assert (found["hot"] == np.stack([x == "be", x == "to"], 2)).all()
    assert found["mapped"].tolist() == [[-1, -1, 9], [4, -1, -1]]
    assert found["back"].tolist() == [["_Unused", "_Unused", "or"], ["not", "_Unused", "_Unused"]]
    assert found["grams"].tolist() == [[1, 0, 1], [0, 0, 0]]
