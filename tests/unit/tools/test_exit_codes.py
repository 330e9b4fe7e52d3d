# SPDX-License-Identifier: Apache-2.0
"""Exit code 70 is for bugs of ours: what is wrong with a file, a folder or the machine is 1, with a reason that is not
Python's."""

import errno
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_megcc
from tests import onnx_models
from tvm_megcc import folders, paths
from tvm_megcc.cli import BUG, REFUSED, main
from tvm_megcc.errors import MAX_FINDINGS, MegccError, ModelError, readable
from tvm_megcc.tools import run
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tuning_log import TuningLog

DIGITS = str(paths.examples() / "digits.onnx")
#: What a message does not have: names of Python's exceptions, its way of writing values, traces.
PYTHONIC = re.compile(r"\w+Error\b|\bErrno\b|Traceback|<class|NoneType|object has no|\bb'")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refusal(capsys, *argv) -> str:
    """The message of a command that is refused."""
    code = main([str(word) for word in argv])
    message = capsys.readouterr().err
    assert code == REFUSED, message
    assert message.startswith("megcc: ") and not PYTHONIC.search(message), message
    return message


def saved(model: onnx.ModelProto, change=lambda data: data) -> Path:
    Path("model.onnx").write_bytes(change(model.SerializeToString()))
    return Path("model.onnx")


def relu(opset: int = 17, name: str = "node", shape=(1, 3, 8, 8)) -> onnx.ModelProto:
    return onnx_models.model([onnx_models.node("Relu", "x", "y", name)], {"x": shape}, ["y"], opset=opset)


@pytest.mark.parametrize("opset", [0, -1, -2**62])
def test_operator_sets_that_never_were(capsys, opset):
    assert "operator set" in refusal(capsys, "compile", saved(relu(opset)))


def test_operators_that_came_later(capsys):
    model = relu(1)
    model.graph.node[0].op_type = "HardSwish"
    assert "is no operator of operator set 1" in refusal(capsys, "compile", saved(model))


@pytest.mark.parametrize("place", ["node", "Relu", "domain", "x", "y", "opset"])
def test_names_that_are_no_text(capsys, place):
    model = relu()
    model.graph.node[0].domain, model.graph.node[0].name = "domain", "node"
    model.opset_import.add(domain="opset", version=1)
    path = saved(model, lambda data: data.replace(place.encode(), b"\xff" * len(place)))
    assert "not valid UTF-8" in refusal(capsys, "compile", path)


@pytest.mark.parametrize("target", [np.float32([1, 192]), np.int64([-2, -96]), np.int64([-1, -1]), np.int64([5, -1]),
                                    np.int64([2**40, 2**40]), np.int64([0, 0]), np.int64([[1, 192]] * 3000)],
                         ids=lambda target: f"{target.dtype}{target.shape}{target.flat[0]}")
def test_shapes_that_cannot_be(capsys, target):
    model = relu()
    model.graph.node[0].CopyFrom(helper.make_node("Reshape", ["x", "s"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(target, "s"))
    assert "Reshape 'y'" in refusal(capsys, "compile", saved(model))


@pytest.mark.parametrize("entries, reason", [
    ({"location": "weights", "length": "-1"}, "no numbers"), ({"location": "weights", "offset": "-5"}, "no numbers"),
    ({"location": "weights", "offset": "abc"}, "no numbers"), ({"location": "weights", "length": "9" * 18}, "needed"),
    ({"location": "weights", "offset": "9" * 17}, "too short"), ({"location": "weights", "offset": "9" * 30}, "no num"),
    ({"location": "missing"}, "no such file"), ({"location": "../weights"}, "out of the folder"),
    ({"location": "/etc/passwd"}, "out of the folder"), ({"location": "a/../../weights"}, "out of the folder"),
    ({"location": "nul\0"}, "out of the folder"), ({}, "out of the folder"), ({"location": "."}, "no such file"),
    ({"location": "x" * 5000}, "")])
def test_external_data(capsys, entries, reason):
    Path("weights").write_bytes(bytes(8))
    model = relu(shape=(4,))
    model.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    tensor = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4],
                                         data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    assert reason in refusal(capsys, "compile", saved(model))


def test_external_data_is_read():
    Path("weights").write_bytes(b"12345678" + np.arange(4, dtype=np.float32).tobytes())
    model = relu(shape=(4,))
    model.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    tensor = model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4],
                                         data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "./weights", "offset": "8", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    assert np.arange(4, dtype=np.float32).tobytes() in tvm_megcc.compile(saved(model), "c").container


def test_long_names_are_shortened(capsys):
    model = relu(name="n" * 100_000)
    model.graph.node[0].op_type = "Relu\n\x1b[31m" + "x" * 100_000
    message = refusal(capsys, "compile", saved(model))
    assert len(message) < 1500 and "\x1b" not in message and "nnn...nnn" in message


def test_many_findings_are_counted():
    error = ModelError("model", [f"finding {index}" for index in range(1000)])
    assert len(error.findings) == 1000 and f"and {1000 - MAX_FINDINGS} more" in str(error)
    assert readable(f"a\0b '{'x' * 1000}' 'short'\n" + "y" * 10_000).count("...") == 2


def test_ctrl_characters_never_reach_the_terminal(capsys):
    assert "\x1b" not in str(MegccError("\x1b]0;title\x07 \u202e \ud800"))
    assert main(["compile", str(saved(relu(name="\x1b[31mred"))), "--target", "c"]) == 0
    assert main(["explain", "model.onnx", "--target", "c"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_names_do_not_end_lines(capsys):
    """Neither of a report nor of a message."""
    model = relu()
    model.graph.node[0].name = "node\nmegcc: fine"
    model.graph.node[0].output[0] = model.graph.output[0].name = "y\nmegcc: done"
    path = saved(model)
    for argv in (["explain", path], ["run", path], ["compare", path], ["compile", path, "-o", "out"],
                 ["inspect", "out"]):
        assert main([*map(str, argv), "--target", "c"]) == 0
        assert "\nmegcc:" not in f"\n{capsys.readouterr().out}", argv
    assert "\nmegcc:" not in str(tvm_megcc.explain(path, "c"))
    assert "\nmegcc:" not in refusal(capsys, "compile", path, "--state", "none\nmegcc: fine=x")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
def test_devices_that_do_not_end(capsys):
    limit = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), limit[1]))
    try:
        for argv in (["compile", DIGITS, "--log", "/dev/zero"], ["compile", "--config", "/dev/zero"],
                     ["compile", "/dev/zero"], ["unpack", "/dev/zero", "--key", "/dev/zero"]):
            assert "more than" in refusal(capsys, *argv), argv
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.fixture(params=["templates", ""])
def cache(request, tmp_path, monkeypatch) -> Path:
    """A folder of a cache; below it lies what would be run."""
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    return paths.cache(*filter(None, [request.param]))


def test_a_cache_that_others_may_write_to(capsys, cache):
    cache.chmod(0o777)
    message = refusal(capsys, "compile", DIGITS, "--target", "c", "--force")
    assert f"{cache} can be written to by others" in message and "MEGCC_CACHE" in message
    cache.chmod(0o1777)
    refusal(capsys, "run", DIGITS)
    cache.chmod(0o755)
    assert main(["compile", DIGITS, "--target", "c"]) == 0


def test_a_cache_of_another_user(capsys, cache, monkeypatch):
    other = os.stat(cache).st_uid + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    if cache.stat().st_uid:  # what is root's may be used
        assert f"{cache} belongs to another user" in refusal(capsys, "compile", DIGITS, "--target", "c")
    else:
        os.chown(cache, 12345, -1)
        assert f"{cache} belongs to another user" in refusal(capsys, "compile", DIGITS, "--target", "c")


def test_a_new_cache_is_ours_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "a" / "cache"))
    before = os.umask(0)
    try:
        assert paths.cache("models").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "a" / "cache").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tvm_megcc.compile(DIGITS, "c").save(tmp_path / "digits_megcc")


def changed(manifest: dict, place: tuple, value) -> dict:
    *way, last = place
    part = manifest
    for key in way:
        part = part[key]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return manifest


@pytest.mark.parametrize("place, value", [
    (("models",), []), (("models",), {}), (("models", 0), 7), (("models", 0, "name"), "../../x"),
    (("models", 0, "name"), ...), (("models", 0, "targets"), ["vax"]), (("models", 0, "targets"), []),
    (("models", 0, "targets"), ["c", "c"]), (("models", 0, "inputs"), None),
    (("models", 0, "inputs", 0, "dtype"), "int3"),
    (("models", 0, "inputs", 0, "shape"), [[1]]), (("models", 0, "programs"), []),
    (("models", 0, "programs", 0, "calls"), [{}]), (("models", 0, "container_bytes"), "many"),
    (("models", 0, "buckets"), [{"n": 1}]), (("models", 0, "buckets"), [{"n": [None, 1]}]), (("files",), [])])
@pytest.mark.parametrize("verb", ["inspect", "build", "run"])
def test_damaged_manifests(capsys, folder, verb, place, value):
    path = folder / "manifest.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), place, value)))
    assert "is damaged" in refusal(capsys, verb, folder)


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[]", b'{"generator": 5}', b"1" * 10_000])
def test_files_that_are_no_manifest(capsys, folder, text):
    (folder / "manifest.json").write_bytes(text)
    assert "was not made by" in refusal(capsys, "inspect", folder)


#: Verbs whose last argument is a model, a compiled folder or either, or a folder of another kind.
MODELS = ("compile", "explain", "report", "tune", "compare", "quantize --calibrate none.npz",
          "bench --against onnxruntime")
MODELS_OR_FOLDERS = ("build", "run", "bench", "verify", "inspect", "export --for cmake")
FOLDERS = (f"compare {DIGITS} --folder", f"compile {DIGITS} --target c --same-code-as")
OTHERS = ("program run", "program compile", "lm compile", "lm tokenizer", "lm embed", "lm generate", "lm chat",
          "lm bench", "lm rerank")


def arguments(verb: str, path: object) -> list[object]:
    """The command line of a verb on a path."""
    words = verb.split()
    return [*words[:2], path, "text"] if verb in ("lm generate", "lm rerank") else [*words, path]


@pytest.mark.parametrize("verb", [*MODELS, *MODELS_OR_FOLDERS, *FOLDERS, *OTHERS])
def test_paths_at_which_there_is_nothing(capsys, verb):
    assert refusal(capsys, *arguments(verb, "none.toml")) == "megcc: none.toml does not exist\n"


@pytest.mark.parametrize("verb", MODELS)
def test_folders_in_place_of_a_model(capsys, folder, verb):
    for path in (folder, folder / "digits.megcc"):
        assert "is compiled already\n  build, run, bench" in refusal(capsys, *arguments(verb, path))
    Path("empty").mkdir()
    assert "is a folder\n  Give the file of a model" in refusal(capsys, *arguments(verb, "empty"))


@pytest.mark.parametrize("verb", [*MODELS_OR_FOLDERS, *FOLDERS, "program run"])
def test_what_is_no_compiled_folder(capsys, verb):
    Path("file").write_text("of words")
    Path("empty").mkdir()
    assert re.search("is a file, not a folder|a text that begins with 'of words'",
                     refusal(capsys, *arguments(verb, "file")))
    assert re.search("was not made by 'megcc compile': it has no manifest.json|no folder of 'megcc compile' is here",
                     refusal(capsys, *arguments(verb, "empty")))


def test_folders_of_another_kind(capsys, folder):
    """A program in place of a model, a model in place of a program or a language model."""
    program = Program("many", {"x": "float32[4]"}, [Program.Operator("Softmax", ["x"], ["y"])], ["y"])
    other = program.compile("many", "c")
    for verb in ("build", "bench", "verify"):
        assert "many is the program 'many' of several networks" in refusal(capsys, verb, other)
    assert "is no program: 'megcc run' runs models" in refusal(capsys, "program", "run", folder)
    for verb in ("generate", "chat", "bench"):
        assert "is no language model" in refusal(capsys, *arguments(f"lm {verb}", folder))
    assert "has no tokenizer" in refusal(capsys, "lm", "tokenizer", folder)
    assert "has no network" in refusal(capsys, "lm", "embed", folder)


ROW = {"format": 1, "target": "c", "optimize": "speed", "call": "relu()", "kernel": "k", "layouts": "", "ns": 1.0,
       "cost": 1.0, "code": ""}


@pytest.mark.parametrize("line", [
    "{", "[" * 100_000, "7", json.dumps({**ROW, "ns": -1}), json.dumps({**ROW, "cost": 10**400}),
    json.dumps({**ROW, "ns": "1"}), json.dumps({**ROW, "call": 3}), json.dumps({**ROW, "more": 1}),
    json.dumps({**ROW, "network_bytes": -1}), json.dumps({**ROW, "ns": float("nan")}), "1" * 10_000, "\0"])
def test_damaged_tuning_logs(capsys, line):
    Path("tune.jsonl").write_text(f"{json.dumps(ROW)}\n{line}\n{json.dumps(ROW)}\n")
    assert "tune.jsonl:2" in refusal(capsys, "compile", DIGITS, "--log", "tune.jsonl")
    assert len(TuningLog.parse(json.dumps(ROW), "log")) == 1


@pytest.mark.parametrize("number, advice", [
    (errno.ENOSPC, "free space"), (errno.EACCES, "another place"), (errno.EROFS, "MEGCC_CACHE"),
    (errno.EMFILE, "ulimit"), (errno.ENAMETOOLONG, "--name"), (errno.EIO, "")])
def test_what_the_system_refuses(capsys, monkeypatch, number, advice):
    def refuse(*_arguments, **_options):
        raise OSError(number, os.strerror(number), "digits_megcc/kernels.c")

    monkeypatch.setattr(folders, "replace", refuse)
    message = refusal(capsys, "compile", DIGITS, "--target", "c")
    assert "digits_megcc cannot be written" in message and os.strerror(number) in message and advice in message


def test_files_in_the_way(capsys, monkeypatch):
    Path("file").write_text("in the way")
    refusal(capsys, "compile", DIGITS, "-o", "file")
    refusal(capsys, "compile", DIGITS, "-o", "file/folder")
    refusal(capsys, "compile", DIGITS, "--dump", "file/folder")
    refusal(capsys, "compile", "file")
    refusal(capsys, "compile", ".")
    refusal(capsys, "compile", "n" * 300 + ".onnx")
    refusal(capsys, "compile", DIGITS, "--log", ".")
    refusal(capsys, "run", DIGITS, "--inputs", "file")
    monkeypatch.setenv("MEGCC_CACHE", str(Path("file").resolve() / "cache"))
    refusal(capsys, "run", DIGITS)
    assert Path("file").read_text() == "in the way"


def test_not_enough_memory(capsys, monkeypatch):
    def refuse(*_arguments, **_options):
        raise MemoryError

    monkeypatch.setattr(tvm_megcc.compiler, "compile_graph", refuse)
    assert "not enough memory" in refusal(capsys, "compile", DIGITS)


def command(*argv, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tvm_megcc", *map(str, argv)], text=True, stderr=subprocess.PIPE,
                          check=False, **options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("argv", [["list", "targets"], ["list", "ops", "--json"]])
def test_a_report_that_cannot_be_written(argv):
    with open("/dev/full", "w") as full:
        result = command(*argv, stdout=full)
    assert result.returncode == REFUSED and result.stderr.count("\n") == 1 and not PYTHONIC.search(result.stderr)


def test_a_disk_that_is_full(tmp_path):
    """No file may become larger than ten kilobytes; the folder that was there stays."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    folder = tvm_megcc.compile(DIGITS, "c").save(tmp_path / "digits_megcc")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = command("compile", DIGITS, "--target", "c", "-O", "size", "-o", folder, stdout=subprocess.PIPE,
                     preexec_fn=limit)
    assert result.returncode == REFUSED and not PYTHONIC.search(result.stderr), result.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_names_that_the_terminal_does_not_have(tmp_path):
    """A report is printed whatever the locale."""
    path = saved(relu(name="名前"))
    result = command("explain", path, "--target", "c", stdout=subprocess.PIPE,
                     env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert result.returncode == 0 and "\\u540d" in result.stdout, result.stderr


def test_our_bugs_are_ours(capsys, monkeypatch):
    def fail(*_arguments, **_options):
        raise KeyError("x")

    monkeypatch.setattr(tvm_megcc.compiler, "compile_graph", fail)
    assert main(["compile", DIGITS]) == BUG
    assert "a bug of ours" in capsys.readouterr().err


def test_outputs_of_any_name(tmp_path):
    arrays = {name: np.arange(3) for name in ("file", "args", "a/b", "名")}
    run.write_npz(tmp_path / "outputs", arrays)
    assert run.read_npz(tmp_path / "outputs.npz", list(arrays)).keys() == arrays.keys()
