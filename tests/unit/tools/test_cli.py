# SPDX-License-Identifier: Apache-2.0
"""The command: what it prints where, and how it ends. Without a C compiler."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.onnx_models import model, node, saved
from tvm_megcc import api, paths, target
from tvm_megcc.cli import BUG, REFUSED, USAGE, main, verbs
from tvm_megcc.errors import InternalError, MegccError, readable
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.run import describe, read_npz, text, write_npz

DIGITS = str(paths.examples() / "digits.onnx")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every test in its own folder, and without progress, which comes on a slow machine only."""
    monkeypatch.setattr(verbs, "PATIENCE", 600.0)
    monkeypatch.chdir(tmp_path)


def unknown_operator(path) -> str:
    """A model with two nodes that nobody knows."""
    nodes = [node("Frobnicate", "x", "h", "first"), node("Twiddle", "h", "y", "second")]
    return saved(model(nodes, {"x": [1, 4]}, {"y": [1, 4]}), path)


def test_steps_are_logged_and_shown_with_v(capsys, caplog):
    caplog.set_level("INFO", "tvm_megcc")
    api.compile(DIGITS, "x86-64-v3,arm64")
    assert [record.getMessage() for record in caplog.records] == ["compiling digits for arm64, x86-64-v3"]
    assert capsys.readouterr().err == ""
    assert main(["compile", DIGITS, "--target", "x86-64-v3", "-v"]) == 0
    assert capsys.readouterr().err == "megcc: compiling digits for x86-64-v3 …\n"
    assert main(["compile", DIGITS, "--target", "x86-64-v3"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("argv", [[], ["bogus"], ["compile"], ["list", "planets"], ["run", DIGITS, "--repeat", "x"]])
def test_wrong_usage(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == USAGE
    assert "usage: megcc" in capsys.readouterr().err


def test_a_misspelt_option(capsys):
    """Its verb says so, and which one may have been meant."""
    with pytest.raises(SystemExit) as ended:
        main(["compile", DIGITS, "--targt", "c"])
    assert ended.value.code == USAGE
    text = capsys.readouterr().err
    assert "usage: megcc compile" in text and "'--targt', did you mean --target?" in text


def test_lists(capsys):
    assert main(["list", "targets", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["rows"]] == list(TARGETS)
    assert main(["list", "ops"]) == 0
    assert "conv2d" in capsys.readouterr().out
    assert main(["list", "kernels"]) == 0
    assert "conv2d" in capsys.readouterr().out


def test_compile_writes_the_folder(tmp_path, capsys):
    assert main(["compile", DIGITS, "--target", "arm64,c"]) == 0
    out = capsys.readouterr()
    assert "digits_megcc" in out.out and "arm64" in out.out and not out.err
    manifest = json.loads((tmp_path / "digits_megcc" / "manifest.json").read_text())
    assert manifest["models"][0]["targets"] == ["arm64", "c"]
    assert main(["inspect", "digits_megcc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"][0]["name"] == "digits"


def test_quiet(capsys):
    assert main(["compile", DIGITS, "--target", "c", "-q"]) == 0
    out = capsys.readouterr()
    assert out.out == out.err == ""


def test_a_folder_that_was_edited_is_not_replaced(tmp_path, capsys):
    assert main(["compile", DIGITS, "--target", "c"]) == 0
    (tmp_path / "digits_megcc" / "build").mkdir()
    (tmp_path / "digits_megcc" / "build" / "mine.o").write_text("")
    assert main(["compile", DIGITS, "--target", "c"]) == 0, "build products are no edits"
    assert (tmp_path / "digits_megcc" / "build" / "mine.o").exists()
    (tmp_path / "digits_megcc" / "main.c").write_text("int main(void) { return 7; }\n")
    assert main(["compile", DIGITS, "--target", "c"]) == REFUSED
    assert "'main.c' was edited" in capsys.readouterr().err
    assert "return 7" in (tmp_path / "digits_megcc" / "main.c").read_text()
    assert main(["compile", DIGITS, "--target", "c", "--force"]) == 0
    assert "return 7" not in (tmp_path / "digits_megcc" / "main.c").read_text()


def test_a_folder_of_others_is_not_replaced(tmp_path, capsys):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("…")
    assert main(["compile", DIGITS, "--target", "c", "-o", "precious"]) == REFUSED
    assert "--force" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_model_that_cannot_be_compiled(tmp_path, capsys):
    model = unknown_operator(tmp_path / "odd.onnx")
    assert main(["compile", model]) == REFUSED
    err = capsys.readouterr().err
    assert "first" in err and "second" in err and "Frobnicate" in err, "everything at once, by node name"
    assert not (tmp_path / "odd_megcc").exists()
    assert main(["explain", model]) == REFUSED
    assert "second" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07\x12\xff"])
@pytest.mark.parametrize("verb", ["compile", "run", "compare", "explain"])
def test_files_that_are_no_model(content, verb, tmp_path, capsys):
    (tmp_path / "bad.onnx").write_bytes(content)
    assert main([verb, "bad.onnx"]) == REFUSED
    out = capsys.readouterr()
    assert "bad.onnx" in out.err + out.out


@pytest.mark.parametrize("argv", [["compile", "absent.onnx"], ["run", "absent"], ["inspect", "absent"],
                                  ["build", "absent"], ["compile", DIGITS, "--target", "z80"],
                                  ["compile", DIGITS, "--input-shapes", "image=1,1"],
                                  ["compile", DIGITS, "--input-shapes", "picture=(1,1,8,8)"]])
def test_refusals_say_what_is_wrong(argv, capsys):
    assert main(argv) == REFUSED
    message = capsys.readouterr().err
    assert message.startswith("megcc: ") and "Traceback" not in message
    assert any(word in message for word in ("absent", "z80", "image=1,1", "picture"))


def test_models_that_do_not_fit(capsys):
    for option in ("ram", "flash"):
        for size in ("0", "1K"):
            assert main(["compile", DIGITS, "--target", "cortex-m4", f"--{option}", size]) == REFUSED
            message = capsys.readouterr().err
            found = re.search(r" ([\d,]+) bytes of .* the limit is ([\d,]+): ([\d,]+) bytes are missing", message)
            needed, there, few = (int(number.replace(",", "")) for number in found.groups())
            assert needed - there == few and "-O size" not in message
        assert main(["compile", DIGITS, "--target", "cortex-m4", f"--{option}", str(needed), "--force", "-q"]) == 0


@pytest.mark.parametrize("error", [InternalError("a stage lost its mind"), ZeroDivisionError("division by zero")])
def test_bugs_of_ours(error, monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise error
    monkeypatch.setattr(api, "compile", fail)
    assert main(["compile", DIGITS]) == BUG
    err = capsys.readouterr().err
    assert str(error) in err and "--dump" in err and "Traceback" not in err


def test_dump(tmp_path):
    assert main(["compile", DIGITS, "--target", "c", "--dump", "stages", "-q"]) == 0
    stages = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert stages[0].startswith("00_import") and len(stages) > 3


def test_same_code_as(tmp_path, capsys):
    assert main(["compile", DIGITS, "--target", "c", "-o", "old", "-q"]) == 0
    model = onnx.load(DIGITS)
    for tensor in model.graph.initializer:
        if tensor.name == "dense.b":
            tensor.raw_data = np.frombuffer(tensor.raw_data, np.float32).__add__(1).tobytes()
    onnx.save(model, "digits.onnx")
    assert main(["compile", "digits.onnx", "--target", "c", "-o", "new", "--same-code-as", "old", "-q"]) == 0
    assert (tmp_path / "new" / "digits.megcc").read_bytes() != (tmp_path / "old" / "digits.megcc").read_bytes()
    assert main(["compile", "digits.onnx", "--target", "arm64", "--same-code-as", "old"]) == REFUSED
    assert "firmware" in capsys.readouterr().err


def test_a_folder_that_is_not_replaced_is_said_before_compiling(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("")
    monkeypatch.setattr(api, "compile", lambda *_, **__: pytest.fail("compiled in vain"))
    assert main(["compile", DIGITS, "--target", "c", "-o", "mine"]) == REFUSED
    assert "mine was not made by 'megcc compile'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["compile --target c", "export --for rust"])
def test_what_no_force_replaces(verb, tmp_path, capsys, monkeypatch):
    """A file, a repository, the folder that the command runs in or one around it, the folder of the model."""
    for folder in ("repository/.git", "around/here", "own"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "own/net.onnx").write_bytes(Path(DIGITS).read_bytes())
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path / "around/here")
    for path, output, reason in ((DIGITS, "../../repository", "is a repository of git"), (DIGITS, ".", "runs in it"),
                                 (DIGITS, "..", "runs in it"), (DIGITS, "../../file", "is a file"),
                                 ("../../own/net.onnx", "../../own", "with ../../own/net.onnx")):
        assert main([*verb.split(), path, "-o", output, "--force", "-q"]) == REFUSED
        assert reason in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(MegccError, match="runs in it"):
        api.compile(DIGITS, "c").save(".", force=True)


def test_a_page_that_cannot_be_written_is_said_at_once(tmp_path, capsys):
    for output, reason in ((".", "is a folder"), ("none/page.html", "there is no folder none")):
        for argv in (["report", DIGITS], ["quantize", DIGITS, "--calibrate", "none.npz"]):
            assert main([*argv, "-o", output]) == REFUSED
            assert reason in capsys.readouterr().err


def test_options_that_a_compiled_folder_cannot_obey(capsys):
    assert main(["compile", DIGITS, "--target", "c", "-o", "made", "-q"]) == 0
    for options in (["--dispatch", "image[0]=1..2", "-O", "size"], ["--input-shapes", "image=(1,1,8,8)"],
                    ["--threads", "2"]):
        assert main(["inspect", "made", *options]) == REFUSED
        text = capsys.readouterr().err
        assert "made is compiled already" in text and options[0] in text
        assert ("--shape" in text.replace("--input-shapes", "")) == (options[0] == "--input-shapes")


def test_explain(capsys):
    assert main(["explain", DIGITS, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["supported"] and any(call["kind"] == "conv2d" for call in report["calls"])
    assert main(["explain", DIGITS]) == 0
    assert "conv1" in capsys.readouterr().out


def test_explain_shortens_names_in_the_middle(tmp_path, capsys):
    name = "/model/" + "decoder/" * 30 + "Relu_output_0"
    saved(model([node("Relu", "x", name)], {"x": [1, 4]}, {name: [1, 4]}), tmp_path / "long.onnx")
    assert main(["explain", "long.onnx", "--target", "c"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "Relu_output_0: float32" in line)
    assert "%/model/decoder/" in line and "Relu_output_0: float32[1,4]" in line and len(line) < 240
    assert main(["explain", "long.onnx", "--target", "c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"][0]["outputs"] == [name]


@pytest.mark.parametrize(("line", "words"), [("megcc ", {"compile", "run", "list"}),
                                             ("megcc bench --ag", {"--against"})])
def test_completion(line, words, tmp_path):
    """As bash asks: through the environment, answers in a file."""
    pytest.importorskip("argcomplete")
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n",
             "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer")}
    subprocess.run([sys.executable, "-m", "tvm_megcc"], env={**os.environ, **asked}, check=True)
    answer = {word.strip() for word in (tmp_path / "answer").read_text().split("\n")}
    assert words <= answer


def test_messages_say_what_to_do(tmp_path, capsys):
    folder = tmp_path / "digits_megcc"
    assert main(["compile", DIGITS, "--target", "c", "-q"]) == 0
    (tmp_path / "alone").mkdir()
    (folder / "digits.megcc").rename(tmp_path / "alone" / "digits.megcc")
    for argv, message in (
            (["run", str(tmp_path / "alone" / "digits.megcc")], "its code is in the folder that 'megcc compile' wrote"),
            (["build", str(folder), "--flash", "10K"], "c is no microcontroller: sizes of flash"),
            (["compile", DIGITS, "--target", "cortex_m4"], "did you mean cortex-m4?"),
            (["compile", DIGITS, "--target", "xtensa"], "there is portable C: c"),
            (["run", str(folder), "--target", "foo"], "unknown target 'foo'; one of: native, c, "),
            (["run", str(folder), "--target", "arm64,c"], "is built for one target at a time, not for arm64,c"),
            (["run", str(folder), "--target", "arm64"], "compile the model again with --target c,arm64"),
            (["run", str(folder), "--model", "other"], "has no model 'other'; it has digits")):
        assert main(argv) == REFUSED
        assert message in capsys.readouterr().err, argv
    with pytest.raises(SystemExit):
        main(["bench", str(folder), "--repeat", "0"])
    assert "'0': expected a number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "message"), [
    (["export", DIGITS, "--for", "arduino", "--target", "arm64"], f"{DIGITS} is for arm64, none of which is"),
    (["export", DIGITS, "--for", "go", "--weights", "incbin"], f"{DIGITS} includes its model with the assembler"),
    (["export", DIGITS, "--for", "mlperf-tiny"], f"{DIGITS} is not a network of MLPerf Tiny"),
    (["export", DIGITS, "--for", "wheel", "--target", "cortex-m4"], f"{DIGITS} is for cortex-m4, but a wheel"),
    (["run", DIGITS, "--model", "other"], f"{DIGITS} has no model 'other'")])
def test_messages_name_what_was_given(argv, message, capsys):
    """Not the folder of the cache that it was compiled into."""
    assert main(argv) == REFUSED
    said = capsys.readouterr().err
    assert message in said and str(paths.cache("models")) not in said


@pytest.mark.parametrize(("name", "near"), [
    ("nativ", "native"), ("megcc-nativ", "native"), ("CORTEX-M4", "cortex-m4"), ("aarch64", "arm64"),
    ("avx2", "x86-64-v3"), ("cortex-m4f", "cortex-m4"), ("m4", "cortex-m4"), ("stm32f407", "cortex-m4"),
    ("cortex-m99", "c"), ("esp32", "c"), ("rp2040", "cortex-m0plus"), ("wasm", "wasm32-simd128")])
def test_targets_that_may_have_been_meant(name, near, capsys):
    assert main(["compile", DIGITS, "--target", name]) == REFUSED
    assert f"did you mean {near}?" in capsys.readouterr().err


def test_what_is_meant_by_a_name_is_a_target():
    assert {meant for _, meant in target._ALIASES} <= set(TARGETS)


@pytest.mark.parametrize(("argv", "said"), [
    ([], "VERB (one of demo, compile, build, "), (["cmpile", DIGITS], "did you mean compile?"),
    (["lm"], "VERB (one of compile, "), (["export", DIGITS], "--for (one of zephyr, esp-idf, "),
    (["export", DIGITS, "--for", "Arduino"], "did you mean arduino?"),
    (["export", DIGITS, "--for", "esp32"], "did you mean esp-idf?"),
    (["compile", DIGITS, "--ram", "64X"], "'64X': expected a number of bytes, such as 4096, 256K or 100M\n")])
def test_wrong_usage_says_what_there_is(argv, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == USAGE and said in capsys.readouterr().err


def test_options_and_arguments_are_named_as_they_were_given(tmp_path, capsys):
    path = saved(model([node("Relu", "x", "y")], {"x": ["n", 4]}, ("y",)), tmp_path / "open.onnx")
    for option, said in (("--input-shapes", "input-shapes names z, but the inputs are: x"),
                         ("--input-shapes", "input-shapes gives 3"), ("--dispatch", "dispatch names 'z', but")):
        value = "z[0]=1..2" if option == "--dispatch" else "x=(1,2,3)" if "gives" in said else "z=(1,2)"
        assert main(["compile", path, option, value, "--dim", "n=1"]) == REFUSED
        assert f"--{said}" in capsys.readouterr().err
        with pytest.raises(MegccError, match=rf"(^| ){said.replace('-', '_')}"):
            api.compile(path, **{option[2:].replace("-", "_"): value}, dims={"n": 1})


def test_an_interrupt_while_it_is_imported_leaves_no_trace():
    program = """
import sys
class Interrupted:
    def find_spec(name, path, target=None):
        if name == "tvm_megcc.options": raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted)
from tvm_megcc.__main__ import command
sys.exit(command())
"""
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_arrays_without_names(tmp_path):
    array = np.zeros((1, 1, 8, 8), np.float32)
    np.save(tmp_path / "alone.npy", array)
    np.savez(tmp_path / "alone.npz", array)
    np.savez(tmp_path / "case.npz", Image=array)
    for file, said in (("alone.npy", "alone.npy is one array without a name: save it with numpy.savez('in.npz', "
                                     "**{'image': array})"),
                       ("alone.npz", "it has arr_0: numpy.savez('in.npz', **{'image': array}) gives an array its name"),
                       ("case.npz", "it has Image. Names are those of the model, its capitals too")):
        with pytest.raises(MegccError, match=re.escape(said)):
            read_npz(tmp_path / file, ["image"])
    np.savez(tmp_path / "objects.npz", image=np.array([None, 1]))
    with pytest.raises(MegccError, match=r"objects\.npz: 'image' is an array of Python objects; save one of numbers"):
        read_npz(tmp_path / "objects.npz", ["image"])
    with pytest.raises(MegccError, match="is a folder; give the file to write"):
        write_npz(tmp_path, {"image": array})


def test_the_largest_values_have_their_places():
    value = np.zeros((1, 3, 2), np.float32)
    value[0, 2, 1] = 5
    report = {"model": "m", "target": "c", "emulated": False, "inputs": [],
              "outputs": [describe("y", value), describe("z", value[:, 2])]}
    lines = text(report).splitlines()
    assert "top 5: [0,2,1] 5, [0,0,0] 0" in lines[1] and "top 5: [1] 5, [0] 0" in lines[2]


def test_a_bound_of_nothing_for_an_input(tmp_path, capsys):
    path = saved(model([node("Relu", "x", "y")], {"x": ["n", 4]}, ("y",)), tmp_path / "open.onnx")
    assert main(["compile", path, "--bound", "n=0"]) == REFUSED
    assert "--dim n=1..MOST" in capsys.readouterr().err


def test_extents_that_are_long_are_not_shown():
    long = "((((n - 96)//64) - 1*min(0, ((n - 96)//64) + 1))//4) + 1"
    message = readable(f"X is float32[1,{long},(n - 2)//4,128], not [n,{long}]")
    assert message == "X is float32[1,?,(n - 2)//4,128], not [n,?]"
    assert readable("'a[b(c, d)]' of [x]") == "'a[b(c, d)]' of [x]"


def test_report_refuses_folders_before_it_asks_for_bokeh(monkeypatch, capsys):
    from tvm_megcc.tools.report import page

    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    assert main(["compile", DIGITS, "--target", "c", "-o", "made", "-q"]) == 0
    assert main(["report", "made"]) == REFUSED
    assert "made: 1 problem\n  - is compiled already" in capsys.readouterr().err
    assert main(["report", "absent.onnx"]) == REFUSED
    assert "absent.onnx does not exist" in capsys.readouterr().err
