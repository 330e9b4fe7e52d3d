# SPDX-License-Identifier: Apache-2.0
"""Descriptions of programs: what is refused, and with which words; hostile ones; features and types without C."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc.cli import main
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.program import detections, features, functions, images, mel
from tvm_megcc.tools.program.kinds import KINDS
from tvm_megcc.tools.program.program import SHIPPED, Program, shipped
from tvm_megcc.tools.program.steps import (
    Detection,
    Feature,
    Image,
    Network,
    Operator,
    Search,
    State,
    Text,
    ValueType,
)

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")

GOOD = """
outputs = ["y"]
[inputs]
x = "float32[4]"
[states.kept]
type = "float32[4]"
next = "y"
[sample-rates]
x = 8000
[[step]]
operator = "Add"
inputs = ["x", "kept"]
outputs = ["y"]
"""


def read(tmp_path, text: str) -> Program:
    path = tmp_path / "filter.toml"
    path.write_text(text)
    return Program.read(path)


def test_a_file_and_python_describe_the_same(tmp_path):
    expected = Program("filter", {"x": "float32[4]"}, [Operator("Add", ["x", "kept"], ["y"])], ["y"],
                       {"kept": State("float32[4]", "y")}, {"x": 8000})
    assert read(tmp_path, GOOD) == expected


@pytest.mark.parametrize(("old", "new", "message"), [
    ('outputs = ["y"]\n[in', 'outputs = ["y"]\noutput = 3\n[in', "'output' is no key, did you mean 'outputs'?"),
    ("[inputs]", "[inputs", "is no TOML"),
    ("[[step]]", "[[steps]]", "'steps' is no key, did you mean 'step'?"),
    ('x = "float32[4]"', 'x = "float33[4]"', "inputs.x: 'float33[4]' is no type"),
    ('x = "float32[4]"', 'x = "float32[0]"', "inputs.x: a value of type float32[0] is empty"),
    ('x = "float32[4]"', 'x = 4', "[inputs] is a table of strings"),
    ('x = "float32[4]"', 'float = "float32[4]"', "'float' cannot be a name"),
    ('x = "float32[4]"', 'nullptr = "float32[4]"', "'nullptr' cannot be a name"),  # in C++, and in C23
    ('x = "float32[4]"', 'linux = "float32[4]"', "'linux' cannot be a name"),  # a macro of gcc
    ('x = "float32[4]"', 'int32_t = "float32[4]"', "'int32_t' cannot be a name"),
    ('next = "y"', 'next = "z"', "states.kept: next: no step makes 'z'"),
    ('next = "y"', 'then = "y"', "[states.kept] has 'type' and 'next'"),
    ('inputs = ["x", "kept"]', 'inputs = ["w", "kept"]', "step 1 'add' uses 'w', which is neither an input"),
    ('inputs = ["x", "kept"]', 'inputs = ["y", "kept"]', "step 1 'add' uses 'y', which is the output of a later step"),
    ('inputs = ["x", "kept"]', 'inputs = "x"', "step 1: 'inputs' is a list of values and numbers"),
    ('operator = "Add"', 'operator = "Add"\nname = "to"', "step 1: name: 'to' cannot be a name"),
    ('operator = "Add"', 'operator = "Add"\nattribute = 3', "step 1: 'attribute' is no key, did you mean 'attributes'"),
    ('operator = "Add"', 'operator = "Add"\nname = "in_x"', "'in_x' begins as macros of inputs"),
    ('operator = "Add"', 'operator = 3', "step 1 has one of the keys network, operator, image, feature"),
    ('operator = "Add"', 'image = "ad"', "there is no image function 'ad'; there are resize, letterbox"),
    ('operator = "Add"', 'feature = "mfc"', "there is no feature function 'mfc'; there are log_mel"),
    ('operator = "Add"', 'search = "ctc"', "there is no search function 'ctc'; there are ctc_greedy, ctc_beam"),
    ("x = 8000", "kept = 8000", "sample-rates.kept: an input has a number from 1 to 1048576"),
    ("x = 8000", "x = true", "sample-rates.x: an input has a number from 1 to 1048576"),
    ("x = 8000", "x = 1048577", "sample-rates.x: an input has a number from 1 to 1048576"),
    ('outputs = ["y"]\n[in', 'outputs = ["q"]\n[in', "outputs: no step makes 'q'"),
    ('outputs = ["y"]\n[in', 'outputs = ["y", "y"]\n[in', "outputs: a value is there twice"),
    ('outputs = ["y"]\n[in', 'outputs = []\n[in', "has no 'outputs'"),
    ('outputs = ["y"]\n[in', 'name = "Ab"\noutputs = ["y"]\n[in', "name: 'Ab' cannot be a name"),
])
def test_what_is_refused_is_named(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(MegccError) as refused:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert message in str(refused.value)


def test_messages_name_the_line(tmp_path):
    line = GOOD.splitlines().index("[[step]]") + 1
    for old, new in (('operator = "Add"', 'operator = "Add"\nattribute = 3'), ('["x", "kept"]', '["w", "kept"]')):
        with pytest.raises(MegccError, match=rf"\.toml: line {line}: step 1"):
            read(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(MegccError, match=f"^line {line}: step 1 'addd'"):
        read(tmp_path, GOOD.replace('operator = "Add"', 'operator = "Addd"', 1)).compile(tmp_path / "p", "c")


LOOP = """
outputs = ["squares", "total", "trips"]
[inputs]
rows = "float32[4,3]"
found = "int64[1]"
first = "float32[3]"
[[step]]
loop = "lines"
count = "found"
max_trip_count = 4
for_each = { row = "rows" }
index = "number"
outputs = { squares = "square" }
final = { total = "sum" }
trip_count = "trips"
[step.carried.sum]
initial = "first"
next = "more"
[[step.step]]
operator = "Mul"
inputs = ["row", "row"]
outputs = ["square"]
[[step.step]]
operator = "Add"
inputs = ["sum", "square"]
outputs = ["more"]
[[step.step]]
loop = "inner"
max_trip_count = 2
outputs = { twice = "negative" }
until = "ends"
[[step.step.step]]
operator = "Neg"
inputs = ["square"]
outputs = ["negative"]
[[step.step.step]]
operator = "Equal"
inputs = ["number", [3]]
outputs = ["ends"]
"""


def test_a_loop_from_a_file_and_from_python(tmp_path):
    inner = Program.Loop("inner", [Operator("Neg", ["square"], ["negative"]),
                                   Operator("Equal", ["number", [3]], ["ends"])], 2, until="ends",
                         outputs={"twice": "negative"})
    body = [Operator("Mul", ["row", "row"], ["square"]), Operator("Add", ["sum", "square"], ["more"]), inner]
    loop = Program.Loop("lines", body, 4, count="found", for_each={"row": "rows"}, index="number", trip_count="trips",
                        carried={"sum": Program.Carried("more", "first")}, outputs={"squares": "square"},
                        final={"total": "sum"})
    inputs = {"rows": "float32[4,3]", "found": "int64[1]", "first": "float32[3]"}
    assert read(tmp_path, LOOP) == Program("filter", inputs, [loop], ["squares", "total", "trips"])


@pytest.mark.parametrize(("old", "new", "message"), [
    ("max_trip_count = 4\n", "", "line 7: step 1: 'max_trip_count' is a number"),
    ("max_trip_count = 4\n", "max_trip_count = 0\n", "line 7: step 1 'lines': 'max_trip_count' is a number from 1 to"),
    ("max_trip_count = 4\n", "max_trips = 4\n", "line 7: step 1: 'max_trips' is no key"),
    ('count = "found"', 'count = 4', "line 7: step 1: 'count' is a string"),
    ('count = "found"', 'count = "find"', "line 7: step 1 'lines' uses 'find', which is neither"),
    ('row = "rows"', 'row = "square"', "line 7: step 1 'lines' uses 'square', which is the output of a later step"),
    ('row = "rows"', 'found = "rows"', "step 1 'lines' makes 'found', which inputs.found is already"),
    ('squares = "square"', 'squares = "row"', "step 1 'lines': no step of it makes 'row'"),
    ('until = "ends"', 'until = "end"', "line 27: step 1.3 'inner': no step of it makes 'end'"),
    ('total = "sum"', 'total = "more"', "step 1 'lines': final: it carries no value 'more'"),
    ('initial = "first"\n', '', "line 7: step 1: carried.sum has 'next', and 'initial' or 'type'"),
    ('initial = "first"\n', 'type = "float33[3]"\n', "step 1 'lines': carried.sum: 'float33[3]' is no type"),
    ('inputs = ["sum", "square"]', 'inputs = ["sum", "twice"]', "line 23: step 1.2 'add' uses 'twice', which is the"),
    ('outputs = ["squares", "total"', 'outputs = ["more", "total"', "outputs: no step makes 'more'"),
    ('loop = "inner"', 'loop = "int"', "step 1.3: name: 'int' cannot be a name"),
    ('loop = "inner"', 'loop = ["int"]', "line 27: step 1.3: 'loop' is a string"),
    ('found = "int64[1]"', 'n1 = "int64[1]"', "inputs.n1: 'n1' cannot be a name"),
    ("step.step.step", "step.step.steps", "line 27: step 1.3: 'steps' is no key, did you mean 'step'?"),
])
def test_what_is_refused_of_a_loop_is_named(tmp_path, old, new, message):
    assert old in LOOP
    with pytest.raises(MegccError) as refused:
        read(tmp_path, LOOP.replace(old, new))
    assert message in str(refused.value)


def test_a_value_of_a_loop_stays_in_it(tmp_path):
    after = '[[step]]\noperator = "Neg"\ninputs = ["square"]\noutputs = ["y"]\n'
    with pytest.raises(MegccError, match="step 2 'neg_2' uses 'square', which exists in a loop only: 'outp"):
        read(tmp_path, LOOP + after)
    deep = "".join(f'[[{"step." * depth}step]]\nloop = "l{depth}"\nmax_trip_count = 1\n' for depth in range(60))
    with pytest.raises(MegccError, match="more than 3 loops, one inside the other"):
        read(tmp_path, LOOP + deep + f'[[{"step." * 60}step]]\n')


@pytest.mark.parametrize(("old", "new", "message"), [
    ('found = "int64[1]"', 'found = "int64[2]"', "line 7: step 1 'lines': 'count' is int64 with one element, not"),
    ('found = "int64[1]"', 'found = "int32[1]"', "is int64 with one element, not int32[1] of inputs.found"),
    ('rows = "float32[4,3]"', 'rows = "float32[3,3]"', "for_each.row: 'rows' of inputs.rows is float32[3,3], and has"),
    ('first = "float32[3]"', 'first = "float32[1]"', "carried.sum is float32[1], and its next value 'more' of step"),
    ('"Equal"', '"Add"', "line 27: step 1.3 'inner': 'until' is bool with one element, not int64[1] of step 1.3.2"),
    ('"Mul"', '"Mull"', "line 19: step 1.1 'mull'"),
])
def test_types_of_a_loop_that_do_not_fit(tmp_path, old, new, message):
    assert old in LOOP
    with pytest.raises(MegccError) as refused:
        read(tmp_path, LOOP.replace(old, new)).compile(tmp_path / "p", "c")
    assert message in str(refused.value)


def test_lengths_that_a_run_decides_are_read_and_checked():
    type_ = ValueType.of("float32[1, 2..80,3]")
    assert type_ == ValueType("float32", (1, 80, 3), (1, 2, 3)) and str(type_) == "float32[1,2..80,3]"
    assert type_.varying == (1,) and type_.bytes == 4 * 80 * 3
    assert ValueType.of("float32[5..5]") == ValueType("float32", (5,)) and not ValueType("float32", (5,)).varying
    for text, message in (("float32[3..2]", "at least more than at most"), ("float32[0..0]", "empty or too large"),
                          ("float32[..4]", "is no type"), ("float32[1..]", "is no type"),
                          ("float32[1..2..3]", "is no type"), ("float32[0..999999999]", "empty or too large")):
        with pytest.raises(MegccError, match=message):
            ValueType.of(text)
    taken = ValueType.of("float32[1,2..8]")
    for given, fits in (("float32[2..8]", True), ("float32[1,1,0..8]", True), ("float32[5]", True),
                        ("float32[9]", False), ("float32[2..9]", False), ("float32[0..1]", False),
                        ("float32[2,3..4]", False), ("int64[2..8]", False)):
        assert ValueType.of(given).fits(taken) == fits, given
    assert not taken.fits(ValueType.of("float32[8]"))


def _varying(*steps: object, **others: object) -> Program:
    return Program("p", {"x": "float32[1..4]", "n": "int64[1]", "rows": "float32[2..3,5]"}, list(steps),
                   others.pop("outputs", ["y"]), **others)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Program("p", {"x": "float32[1..2,1..3]"}, [Operator("Neg", ["x"], ["y"])], ["y"]),
     "inputs.x: 'float32[1..2,1..3]' has several extents that the caller decides"),
    (lambda: _varying(Operator("Neg", ["x"], ["y"]), states={"kept": State("float32[1..4]", "y")}),
     "states.kept: 'float32[1..4]' has an extent that a run decides"),
    (lambda: _varying(Operator("Neg", ["x"], ["y"]), states={"kept": State("float32[4]", "y")}),
     "states.kept is float32[4], and its next value 'y' of step 1 'neg' is float32[1..4]"),
    (lambda: _varying(Feature("log_mel", "x", "y", {"sample_rate": 8000, "fft": 4, "mels": 2})),
     "step 1 'log_mel': it takes values of one shape, and 'x' of inputs.x is float32[1..4]"),
    (lambda: _varying(Program.Loop("l", [Operator("Neg", ["x"], ["z"])], 2, outputs={"y": "z"})),
     "step 1 'l': the end of an iteration takes values of one shape, and 'z' of step 1.1 'neg' is float32[1..4]"),
    (lambda: _varying(Program.Loop("l", [Operator("Neg", ["row"], ["z"])], 2, for_each={"row": "rows"},
                           outputs={"y": "z"})),
     "step 1 'l': it takes values of one shape, and 'rows' of inputs.rows is float32[2..3,5]"),
    (lambda: _varying(Operator("Expand", ["n", "n"], ["y"])),
     "step 1 'expand': the run decides extents without a limit, and memory is planned: compute them in a network"),
    (lambda: _varying(Operator("Neg", ["x"], ["x_length"]), Operator("Neg", ["x_length"], ["y"]),
                      outputs=["y", "x_length"]), "'x_length' is the name of the length of 'x'"),
    (lambda: _varying(
        Operator("Reshape", ["x", [-1, 1]], ["column"]), Operator("Reshape", ["x", [1, -1]], ["line"]),
        Operator("MatMul", ["column", "line"], ["y"])), "outputs: 'y' is float32[1..4,1..4], and a run decides one"),
])
def test_lengths_that_nothing_carries_are_refused(tmp_path, make, message):
    with pytest.raises(MegccError) as refused:
        make().compile(tmp_path / "p", "c")
    assert message in str(refused.value)


def test_types_that_do_not_fit_name_both_ends(tmp_path):
    program = Program("p", {"x": "float32[4]", "image": "uint8[4,4,3]"}, [
        Operator("Cast", ["x"], ["whole"], {"to": 6}), Feature("log_mel", "whole", "mel", {
            "sample_rate": 8000, "fft": 4, "mels": 2})], ["mel"])
    with pytest.raises(MegccError, match=r"step 2 'log_mel': it requires sound, float32\[samples\], not int32\[4\]"):
        program.compile(tmp_path / "p", "c")
    model = _identity(tmp_path)
    program = Program("p", {"x": "float32[4]"}, [Operator("Neg", ["x"], ["y"]), Network(
        str(model), {"data": "y"}, {"result": "z"})], ["z"])
    with pytest.raises(MegccError, match=r"step 2 'small' requires float32\[1,8\] as 'data', but 'y' of step 1 'neg' "
                                         r"is float32\[4\]"):
        program.compile(tmp_path / "p", "c")
    program = Program("p", {"x": "float32[8]"}, [Network(str(model), {"input": "x"}, {"result": "z"})], ["z"])
    with pytest.raises(MegccError, match=r"the network has no input 'input'; it has data"):
        program.compile(tmp_path / "p", "c")
    program = Program("p", {"x": "float32[8]"}, [Network(str(model), {"data": "x"}, {"result": "z"},
                                                         {"threads": 2})], ["z"])
    with pytest.raises(MegccError, match="cannot have the option 'threads'"):
        program.compile(tmp_path / "p", "c")
    program = Program("p", {"x": "float32[8]"}, [Network(str(model), {"data": "x"}, {"result": "z"})], ["z"],
                      {"kept": State("float32[3]", "z")})
    with pytest.raises(MegccError, match=r"states.kept is float32\[3\], and its next value 'z' of step 1 'small' is "
                                         r"float32\[1,8\]"):
        program.compile(tmp_path / "p", "c")


def _identity(folder):
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph([helper.make_node("Neg", ["data"], ["result"])], "small",
                              [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 8])],
                              [helper.make_tensor_value_info("result", TensorProto.FLOAT, [1, 8])])
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


@pytest.mark.parametrize("name", sorted(shipped()))
def test_hostile_descriptions_end_with_a_message(tmp_path, name, capsys):
    """Bytes and lines of a description are changed, removed and doubled: each ends in a description or a MegccError."""
    drawn, whole = random.Random(name), (SHIPPED / f"{name}.toml").read_bytes()
    path, refused = tmp_path / "hostile.toml", 0
    for turn in range(90):
        data = bytearray(whole)
        lines = bytes(data).split(b"\n")
        if turn % 3 == 0:
            for _ in range(drawn.randint(1, 8)):
                data[drawn.randrange(len(data))] = drawn.randrange(256)
        elif turn % 3 == 1:
            del lines[drawn.randrange(len(lines))]
            drawn.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        else:
            at = drawn.randrange(len(lines))
            key, _, _ = lines[at].partition(b"=")
            values = (b"[]", b"{}", b"-1", b"1e400", b"nan", b'""', b"[[[]]]", b'"\\u0000"', b"true",
                      b"'" + b"x" * 999 + b"'",
                      b"[1, 'a']", b"9223372036854775807", b"1979-05-27")
            lines[at] = key + b"= " + drawn.choice(values)
            data = bytearray(b"\n".join(lines))
        path.write_bytes(data)
        try:
            Program.read(path)
        except MegccError as error:
            assert str(error)
            refused += 1
    assert refused > 40
    path.write_bytes(b"\xff\xfe[[[")
    assert main(["program", "compile", str(path)]) == 1
    assert "hostile.toml" in capsys.readouterr().err


def test_what_ships_is_listed(capsys):
    assert main(["program", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed and what in listed for name, what in shipped().items()) and len(shipped()) >= 4
    assert not any("SPDX" in what for what in shipped().values())
    with pytest.raises(MegccError, match="ships without its networks"):
        tvm_megcc.Program.read("classify")
    with pytest.raises(MegccError, match="is no description: a file of TOML, or one of classify"):
        tvm_megcc.Program.read("clasify")


@pytest.mark.parametrize(("step", "message"), [
    (Operator("Ad d", ["x"], ["y"]), "'Ad d' is no name of an operator"),
    (Operator("Addd", ["x", "x"], ["y"]), "Addd"),
    (Operator("Add", ["x", 10 ** 30], ["y"]), "input 1 is the name of a value, a number, or a list"),
    (Operator("Add", ["x", [[1, 2], [3]]], ["y"]), "input 1 is the name of a value, a number, or a list"),
    (Operator("Add", ["x", {"a": 1}], ["y"]), "input 1 is the name of a value, a number, or a list"),
    (Operator("Neg", ["x"], ["y"], {"axis": 1 << 63}), "attribute 'axis' is a number, a string"),
    (Operator("Neg", ["x"], ["y"], {"axis": []}), "attribute 'axis' is a number, a string"),
    (Operator("Neg", ["x"], ["y"], {"domain": "a"}), "domain"),
    (Network("nothing.onnx", {"a": "x"}, {"b": "y"}), "nothing.onnx"),
])
def test_steps_that_cannot_be_compiled_say_where(tmp_path, step, message):
    with pytest.raises(MegccError) as refused:
        Program("p", {"x": "float32[4]"}, [step], ["y"]).compile(tmp_path / "p", "c")
    assert str(refused.value).startswith("step 1 '") and message in str(refused.value)


@pytest.mark.parametrize(("settings", "message"), [
    ({"size": [4]}, "'size' is [height, width]"), ({"size": [0, 4]}, "'size' is [height, width]"),
    ({"size": [4, True]}, "'size' is [height, width]"), ({}, "'size' is [height, width]"),
    ({"size": [4, 4], "method": "cubic"}, "'method' is linear, nearest or area"),
    ({"size": [4, 4], "value": [1, 2]}, "'value' is a list of 3 numbers"),
    ({"size": [4, 4], "value": [1, 2, float("nan")]}, "'value' is a list of 3 numbers"),
    ({"size": [4, 4], "colour": 3}, "'colour' is no key of letterbox"),
])
def test_settings_of_images_are_checked(settings, message):
    with pytest.raises(MegccError) as refused:
        images.call(Image("letterbox", "a", "b", settings), ValueType.of("uint8[8,8,3]"), None)
    assert message in str(refused.value)


@pytest.mark.parametrize(("function", "settings", "given", "expected"), [
    ("crop", {"x": 2, "y": 1, "size": [3, 4]}, "uint8[8,8,3]", "uint8[3,4,3]"),
    ("rotate", {"degrees": 90}, "float32[8,6,1]", "float32[6,8,1]"),
    ("rotate", {"degrees": 180}, "float32[8,6,1]", "float32[8,6,1]"),
    ("color", {"code": "NV12_RGB"}, "uint8[12,6,1]", "uint8[8,6,3]"),
    ("color", {"code": "RGBA_GRAY"}, "float32[12,6,4]", "float32[12,6,1]"),
    ("crop", {"x": 5, "y": 1, "size": [3, 4]}, "uint8[8,8,3]", "reaches beyond the image"),
    ("color", {"code": "NV12_RGB"}, "uint8[12,5,1]", "requires an image of one channel"),
    ("color", {"code": "RGB_BGR"}, "uint8[12,5,1]", "requires an image of 3 channels"),
    ("flip", {"mirrored": "rows"}, "int32[4,4,1]", "it requires an image"),
    ("flip", {"mirrored": "rows"}, "uint8[4,4,5]", "it requires an image"),
    ("blur", {"size": [4, 3]}, "uint8[9,9,1]", "both are odd"),
    ("warp_affine", {"size": [4, 3], "matrix": [1, 2]}, "uint8[9,9,1]", "'matrix' is a list of 6 numbers"),
    ("warp_affine", {"size": [4, 3], "matrix": "m"}, "uint8[9,9,1]", "has to be float32 with 6 elements"),
])
def test_images_have_types(function, settings, given, expected):
    try:
        found = str(images.call(Image(function, "a", "b", settings), ValueType.of(given), None).result)
    except MegccError as error:
        found = str(error)
    assert found == expected or (" " in expected and expected in found)


def mel_of(hertz: float, scale: str) -> float:
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    return 3 * hertz / 200 if hertz < 1000 else 15 + np.log(hertz / 1000) * 27 / np.log(6.4)


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_mel_weights_are_triangles(scale):
    """Corners are equally far apart in mel; a triangle is 1 high at its middle, or has the area 1."""
    weights = mel.mel_weights(16000, 4096, 20, 50.0, 7000.0, scale, scale == "slaney")
    spacing = 16000 / 4096
    peaks = weights.argmax(0) * spacing
    apart = np.diff([mel_of(peak, scale) for peak in peaks])
    assert np.abs(apart / apart.mean() - 1).max() < 0.1
    assert (weights >= 0).all()
    assert weights[:int(50 / spacing)].max() == weights[int(7000 / spacing) + 2:].max() == 0
    if scale == "slaney":
        np.testing.assert_allclose(weights.sum(0) * spacing, 1, rtol=0.05)
    else:
        np.testing.assert_allclose(weights.max(0), 1, atol=0.1)


def test_a_step_is_not_called_as_macros_are():
    steps = [Program.Operator("In_Relu", ["x"], ["y"])]
    assert Program("p", {"x": "float32[4]"}, steps, ["y"]).step_names == ["operator_in_relu"]


@pytest.mark.parametrize(("settings", "message"), [
    ({"sample_rate": 8000, "fft": 64}, "'mels' is a number"),
    ({"sample_rate": 8000, "mels": 4, "fft": 1 << 17}, "'fft' is"),
    ({"sample_rate": 8000, "mels": 1 << 16, "fft": 1 << 16}, "'fft' 65536 times 'mels' 65536 is more than"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "window": 65}, "'window' is a number from 1 to 64"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "high": 5000}, "'high'"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "log": "ln"}, "'log' is natural, log10 or decibel"),
    ({"sample_rate": 8000, "mels": 4, "fft": 512}, "100 samples are fewer than a frame of 512 has"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "floor": 0.0}, "'floor' or 'offset' is at least 1e-30"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "std": 0.0}, "'std' is positive"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "frames": 3}, "'frames' is a number from 1 to 2"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "stream": 1}, "'stream' is true or false"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "stream": True}, "100 samples, which is no multiple of 'hop' 32"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "stream": True, "range": 8}, "'stream' goes without 'pad', 'range'"),
    ({"sample_rate": 8000, "mels": 4, "fft": 64, "coefficients": 4}, "'coefficients' is no key of log_mel"),
    ({"preset": "sphinx"}, "'preset' is kaldi, whisper, nemo or openwakeword"),
    ({"preset": "kaldi"}, "100 samples are fewer than a frame of 400 has"),
])
def test_settings_of_features_are_checked(settings, message):
    with pytest.raises(MegccError) as refused:
        features.model(Feature("log_mel", "a", "b", settings), ValueType.of("float32[100]"))
    assert message in str(refused.value)


@pytest.mark.parametrize(("function", "settings", "message"), [
    ("mfcc", {"sample_rate": 8000, "mels": 4, "fft": 64}, "'coefficients' is a number from 1 to 4"),
    ("mfcc", {"sample_rate": 8000, "mels": 4, "fft": 64, "coefficients": 5}, "'coefficients' is a number from 1 to 4"),
    ("resample", {"sample_rate": 8000}, "'to' is a number"),
    ("resample", {"sample_rate": 999983, "to": 1000003}, "a filter has"),
    ("resample", {"sample_rate": 44100, "to": 16000, "stream": True}, "100 samples, which is no multiple of 441"),
])
def test_settings_of_other_features_are_checked(function, settings, message):
    with pytest.raises(MegccError) as refused:
        features.model(Feature(function, "a", "b", settings), ValueType.of("float32[100]"))
    assert message in str(refused.value)


@pytest.mark.parametrize(("function", "inputs", "settings", "message"), [
    ("nms", {"boxes": [5, 4], "scores": [4]}, {}, "its input 'scores' is float32[5,classes], not float32[4]"),
    ("nms", {"boxes": [5, 4], "scores": []}, {}, "its input 'scores' is float32[5,classes], not float32[]"),
    ("nms", {"boxes": [5, 3], "scores": [5]}, {}, "its input 'boxes' is float32[count,4], not float32[5,3]"),
    ("nms", {"boxes": [5, 4]}, {}, "its input 'scores' gets no value"),
    ("nms", {"boxes": [5, 4], "scores": [5], "masks": [5]}, {}, "nms has no input 'masks'; it has boxes, scores"),
    ("nms", {"boxes": [5, 4], "scores": [5]}, {"overlap": 0}, "'overlap' is above 0 and at most 1"),
    ("nms", {"boxes": [5, 4], "scores": [5]}, {"most": 6}, "'most' is a number from 1 to 5"),
    ("yolox", {"results": [84, 5]}, {"size": [64, 64]}, "its input 'results' is float32[count,5 + classes]"),
    ("yolox", {"results": [83, 9]}, {"size": [64, 64]}, "has 84 cells of 'strides' 8, 16, 32, and there are 83"),
    ("yolox", {"results": [84, 9]}, {"size": [64, 64], "strides": [0]}, "'strides' is a list of numbers from 1"),
    ("yolo", {"results": [84, 5]}, {}, "its input 'results' has rows of more than 5 numbers"),
    ("ssd", {"offsets": [9, 4]}, {"maps": [[2, 2]], "anchors": [[[1, 1]]]}, "have 4 boxes, and there are 9 results"),
    ("ssd", {"offsets": [9, 4]}, {"maps": [[2, 2]], "anchors": [[[1, "a"]]]}, "'anchors' has rows of 2 positive"),
    ("ssd", {"offsets": [9, 4]}, {"maps": 3, "anchors": []}, "'maps' has rows of 2 positive numbers"),
    ("unletterbox", {"places": [9, 3]}, {"size": [4, 4], "picture": [8, 8]}, "has pairs of x and y"),
    ("five_points", {"points": [9]}, {"size": [112, 112]}, "has five pairs of x and y, and is float32[9]"),
    ("ctc_greedy", {"scores": [9]}, {}, "its input 'scores' is float32[frames,classes], or [batch,frames,classes]"),
    ("ctc_greedy", {"scores": [9, 1, 5]}, {}, "an operator Transpose or Reshape makes frames the last but one"),
    ("ctc_greedy", {"scores": [9, 5]}, {"blank": 5}, "'blank' is a number from -5 to 4"),
    ("ctc_greedy", {"scores": [9, 5], "length": [2]}, {}, "its input 'length' is int64[1], the number of frames"),
    ("ctc_greedy", {"scores": [9, 5]}, {"most": 10}, "'most' is a number from 1 to 9"),
    ("ctc_beam", {"scores": [9, 5]}, {"beam": 5000}, "'beam' is a number from 1 to 4096"),
    ("ctc_beam", {"scores": [9, 5]}, {"beam": 2, "results": 3}, "'results' is a number from 1 to 2"),
    ("ctc_beam", {"scores": [9, 5]}, {"probabilities": 1}, "'probabilities' is true or false"),
    ("ctc_align", {"scores": [9, 5]}, {}, "its input 'tokens' gets no value"),
    ("transducer", {"scores": [1, 5], "frame": [1], "symbols": [1]}, {}, "it gets an input 'length' or a key 'frames'"),
    ("transducer", {"scores": [2, 5], "frame": [1], "symbols": [1]}, {}, "its input 'scores' is float32[classes]"),
    ("transducer", {"scores": [5], "frame": [2], "symbols": [1]}, {}, "its input 'frame' is int64[1], not int64[2]"),
    ("transducer", {"scores": [5], "frame": [1], "symbols": [1]}, {"durations": [-1]}, "list of numbers from 0 to"),
    ("transducer", {"scores": [5], "frame": [1], "symbols": [1]}, {"durations": [0, 1, 2, 3, 4]}, "float32[classes]"),
    ("ctc_align", {"scores": [2, 9, 5], "tokens": [3, 4]}, {}, "its input 'tokens' is int64[2,tokens], not int64[3,4]"),
    ("ctc_align", {"scores": [9, 5], "tokens": [4], "count": [2]}, {}, "its input 'count' is int64[1], not int64[2]"),
])
def test_functions_are_checked(function, inputs, settings, message):
    step, known = next(each for each in KINDS.values() if function in each[1])
    types = {name: ValueType("int64" if name in known[function].integers else "float32", tuple(shape))
             for name, shape in inputs.items()}
    with pytest.raises(MegccError) as refused:
        functions.model(step(function, {name: name for name in inputs}, {known[function].outputs[0]: "y"}, settings),
                        known, types)
    assert message in str(refused.value)


def test_outputs_that_the_program_does_not_name_are_not_computed(tmp_path):
    """Their weights and their memory are not there; the next value of a state, and a misspelled name's list, are."""
    weights = {"w": np.ones((4, 8), np.float32), "v": np.ones((4, 1000), np.float32)}
    path = saved(model([node("Add", "x before", "after"), node("MatMul", "after w", "y"), node("MatMul", "x v", "z")],
                       {"x": ("float32", [1, 4]), "before": ("float32", [1, 4])},
                       {"y": ("float32", [1, 8]), "z": ("float32", [1, 1000]), "after": ("float32", [1, 4])}, weights),
                 tmp_path / "two.onnx")

    def facts(outputs, name):
        network = Network(path, {"x": "x"}, outputs, {"states": "after=before"}, name="two")
        program = Program("p", {"x": "float32[1,4]"}, [network, Operator("Neg", ["out"], ["last"])], ["last"])
        return read_manifest(program.compile(tmp_path / name, "c"))["program"]

    both, one = facts({"y": "out", "z": "other"}, "both"), facts({"y": "out"}, "one")
    assert both["weight_bytes"] >= 4 * 1008 * 4 and one["weight_bytes"] < 4 * 1000 * 4
    assert both["block_bytes"] >= 4000 > one["block_bytes"]
    with pytest.raises(MegccError, match="no output 'q'; it has y, z"):
        facts({"q": "out"}, "none")


@pytest.mark.parametrize(("settings", "message"), [
    ({}, "it has one of the keys 'labels', a list of strings, and 'file', a path"),
    ({"labels": ["a"], "file": "b"}, "it has one of the keys 'labels'"),
    ({"labels": "abc"}, "'labels' is a list of strings"),
    ({"labels": ["a", 3]}, "'labels' is a list of strings"),
    ({"labels": ["\ud800"]}, "'labels' is a list of strings"),
    ({"labels": []}, "there are 0 labels"),
    ({"file": "no such file"}, "no such file cannot be read"),
    ({"file": "no such file", "property": "character"}, "no such file is no model of ONNX"),
    ({"labels": ["a"], "most": 0}, "'most' is a number from 1 to"),
    ({"labels": ["a"], "space": 3}, "'space' is a string"),
    ({"file": "no such file", "property": 3}, "'property' is a string"),
    ({"file": 3}, "'file' is a string"),
])
def test_labels_are_checked(settings, message):
    with pytest.raises(MegccError) as refused:
        functions.model(Text("labels", {"tokens": "x"}, {"text": "y"}, settings), KINDS["text"][1],
                        {"tokens": ValueType.of("int64[4]")})
    assert message in str(refused.value)


def test_labels_are_read_from_files_of_several_kinds(tmp_path):
    def bytes_of(**settings) -> bytes:
        model = functions.model(Text("labels", {"tokens": "x"}, {"text": "y"}, settings), KINDS["text"][1],
                                {"tokens": ValueType.of("int64[4]")})
        return next(each.raw_data for each in model.graph.initializer if each.data_type == 2)

    (tmp_path / "lines").write_bytes("a\r\nb c\r\nö".encode())
    (tmp_path / "numbered").write_bytes("▁the 0\n▁ 1\ns 2\n".encode())
    assert bytes_of(labels=["0", "1", "2"]) == b"012"  # digits are labels, not the numbers of labels
    assert bytes_of(file=str(tmp_path / "lines")) == "ab cö".encode()
    assert bytes_of(file=str(tmp_path / "numbered"), space="▁", after=["!"]) == b" the s!"
    model = _identity(tmp_path)
    with pytest.raises(MegccError, match=r"has no property 'character'; it has none"):
        bytes_of(file=str(model), property="character")


def test_a_file_of_labels_is_beside_the_description(tmp_path):
    text = GOOD + """
[[step]]
text = "labels"
inputs = { tokens = "y" }
outputs = { text = "z" }
file = "labels.txt"
"""
    assert read(tmp_path, text).steps[-1].settings == {"file": str(tmp_path / "labels.txt")}
    with pytest.raises(MegccError, match=r"line 15: step 2: 'file' is a string, a path"):
        read(tmp_path, text.replace('"labels.txt"', "3"))


def test_a_beam_that_needs_too_much_memory_is_refused(tmp_path):
    program = Program("p", {"x": "float32[20000,5]"}, [Search("ctc_beam", {"scores": "x"}, {"tokens": "y"},
                                                              {"beam": 4096})], ["y"])
    with pytest.raises(MegccError, match=r"(?s)^step 1 'ctc_beam': .*a beam of 4096 over .* needs too much"):
        program.compile(tmp_path / "p", "c")


def test_an_unknown_output_of_a_detection_is_named():
    step = Detection("nms", {"boxes": "b", "scores": "s"}, {"masks": "y"})
    with pytest.raises(MegccError, match="nms has no output 'masks'; it has boxes, scores, classes, indices, count"):
        functions.model(step, detections.FUNCTIONS,
                        {"boxes": ValueType("float32", (5, 4)), "scores": ValueType("float32", (5,))})
