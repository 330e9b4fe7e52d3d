# SPDX-License-Identifier: Apache-2.0
"""Values of options: as strings, which the command, a configuration file and Python take alike, and others."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from tests.onnx_models import model, node, saved
from tvm_megcc import CompileOptions, Input, MegccError, option_values, paths
from tvm_megcc.cli import REFUSED, USAGE, main, parsed
from tvm_megcc.cli import parser as command
from tvm_megcc.context import Regions
from tvm_megcc.dispatch import log_dispatcher, parse_dispatch, parse_shape_sets
from tvm_megcc.ir.streams import Stream
from tvm_megcc.options import all_options
from tvm_megcc.tools import source
from tvm_megcc.tuning_log import TuningLog

DIGITS = str(paths.examples() / "digits.onnx")


@pytest.mark.parametrize("name, value", [
    ("input_shapes", {"x": (1, 3)}), ("input_shapes", [{"x": [1, 3]}, {"x": np.array([2, 3])}]),
    ("dims", {"batch": range(1, 9)}), ("dims", ["batch=1", "length=2"]),
    ("inputs", {"x": Input("uint8")}), ("inputs", {"x": "uint8"}), ("output_names", ("y", "z")),
    ("constants", {"x": np.zeros(3)}), ("bounds", {"n": 5}), ("states", {"new": "old"}),
    ("dispatch", log_dispatcher(2, 1, 8)), ("dispatch", {"x": {0: [(1, 2)]}}),
    ("log", TuningLog()), ("log", Path("times.jsonl")), ("regions", Regions.parse("dtcm=64K")),
    ("stream", Stream.parse("axis=2,block=64")), ("extern", Path("own.py")), ("extern", ["own.py", Path("more.py")]),
])
def test_taken(name, value):
    assert getattr(CompileOptions(**{name: value}), name) is not None


@pytest.mark.parametrize("threads", [0, -2, 257])
def test_threads_that_no_device_has(threads, capsys):
    """The C runtime refuses such containers as damaged: that is not what is wrong."""
    assert main(["compile", DIGITS, "--threads", str(threads)]) == REFUSED
    assert f"threads: {threads} is no number between 1 and 256" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["abc", "-5", "K", "", "9" * 5000])
def test_sizes_that_are_none(size, capsys):
    for argv in (["list", "kernels", "--op", "softmax", "--shape", "4x100", f"--network={size}"],
                 ["compile", DIGITS, f"--ram={size}"], ["compile", DIGITS, f"--flash={size}"]):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == USAGE
        assert f"'{size}': expected a number of bytes, such as 4096, 256K or 100M" in capsys.readouterr().err


def test_a_deprecated_option_that_is_called_like_a_new_one(capsys):
    """`run --profile` was a flag; a value after it makes it the option of compilation."""
    old = parsed(["run", DIGITS, "--profile", "--repeat", "2"])
    assert old.times and old.options.profile == "default" and "use --times" in capsys.readouterr().err
    for words in (["--profile", "safety"], ["--profile=safety"]):
        new = parsed(["run", DIGITS, *words])
        assert not new.times and new.options.profile == "safety" and not capsys.readouterr().err


def test_every_option_that_changes_the_code_is_listed():
    """So that none is ignored silently on a compiled folder."""
    parser = argparse.ArgumentParser()
    command.add_compiling(parser)
    assert command.compile_options(parser.parse_args([])) == CompileOptions()
    given = parser.parse_args(["--ram", "4K", "--dim", "n=1", "--dim", "m=2", "-O", "size"])
    assert command.compile_options(given) == CompileOptions(ram=4096, dims={"n": 1, "m": 2}, optimize="size")


#: Texts of each option that are taken, and some that are none; those without the latter are read with the model.
TEXTS = {
    "optimize": (("speed", "size"), ("fast",)), "activations": (("model", "int8", "float32"), ("int4",)),
    "weight_dtype": (("model", "int8"), ("float16", "int4", "")),
    "cache": (("float16", "int8"), ("float64", "int4")), "profile": (("safety", "default"), ("fast", "")),
    "input_shapes": (("data=(1,3,8,8)", "a:[1,2];b=(3)"), ()), "dispatch": (("data[0]=1..4",), ()),
    "dims": (("batch=1", "batch=1;sequence=1..128"), ("batch", "batch=-1", "batch=big")),
    "inputs": (("data=uint8,NHWC,mean=127.5", "a=uint8;b=uint8"), ("data", "data=uint7", "data=mean=x")),
    "output_names": (("a", "a,b"), ()), "signature": (("serving_default",), ()), "log": (("/times.jsonl",), ()),
    "threads": (("1", "4"), ("0", "-1", "many", "2.5")), "sinks": (("1", "4"), ("-1", "many", "2.5")),
    **dict.fromkeys(("ram", "flash"), (("65536", "64K", "64k", "64KB", "64KiB", "1M"),
                                       ("64Q", "K", "", "-1", "6.5K", "64 Kilo"))),
    "regions": (("dtcm=64K,flash=1M", "sram=65536", "sram=64KiB"), ("dtcm", "dtcm=64Q", "dtcm=", "DTCM=1K")),
    "constants": (("sr=16000", "sr=1;pads=1,2,-3", "a;b=1"), ("sr", "sr=fast")),
    "bounds": (("boxes=1000", "boxes=3;rows=7", "a;b=1"), ("boxes", "boxes=-1", "boxes=many")),
    "extern": (("/own.py",), ()), "stream": (("axis=2,block=64",), ("axis", "block=64", "axis=x")),
    "states": (("h_out=h_in", "a=b;c=d", "a;b=c;d"), ("h_out", "=h_in", "a=b;a=c")),
    **dict.fromkeys(("keep_inputs", "caller_inputs", "reproducible", "half"), ((), ()))}


@pytest.mark.parametrize("name", [name for name, _ in all_options()])
def test_command_file_and_python_take_the_same_texts(name, tmp_path, capsys):
    option, (taken, refused) = dict(all_options())[name], TEXTS[name]
    assert taken or option.kind == "flag"
    file = tmp_path / "models.json"

    def described(value) -> CompileOptions:
        file.write_text(json.dumps({option.key: value, "models": [{"path": "m.onnx"}]}))
        _, ((_, _, options),) = source.described(str(file), parsed(["compile", "--config", str(file)]))
        return options

    for given in taken:
        parser = argparse.ArgumentParser()
        command.add_compiling(parser)
        typed = command.compile_options(parser.parse_args([option.flag, given]))
        assert typed != CompileOptions() or given in ("1", "speed", "model", "default")
        assert typed == described(given) == CompileOptions(**{name: [given] if option.kind == "paths" else given})
        if given.isdecimal():
            assert typed == described(int(given)) == CompileOptions(**{name: int(given)})
    for given in refused:
        with pytest.raises(MegccError, match=name.rstrip("s")):
            CompileOptions(**{name: given})
        with pytest.raises(MegccError, match=rf"models\.json.*({option.key}|{name.rstrip('s')})"):
            described(given)
        try:
            assert main(["compile", DIGITS, option.flag, given]) == REFUSED
        except SystemExit as stop:  # argparse's own
            assert stop.code == 2
        assert name.rstrip("s") in (said := capsys.readouterr().err) or option.flag in said


@pytest.mark.parametrize("options", [
    {"threads": 0}, {"dims": 1}, {"bounds": {"n": "x"}}, {"bounds": {"n": -1}}, {"bounds": {"n": 2**31}}, {"states": 5},
    {"output_names": 5}, {"constants": 3}, {"inputs": 7}, {"regions": 3}, {"stream": 4}, {"signature": 3}, {"log": 3},
    {"dispatch": 5}, {"input_shapes": 5}, {"extern": 5}, {"optimize": ["size"]}, {"half": "yes"}, {"ram": -5},
    {"flash": "4Q"}, {"ram": 4096.0}, {"ram": True}, {"threads": "two"},
    {"stream": {"axis": 1}}, {"stream": ["axis=1"]}, {"regions": {"sram": 1}}, {"log": b"log"}, {"log": ["log"]},
    {"dispatch": ["x[0]=1..8"]}, {"dispatch": {1: 2}}, {"input_shapes": {"x": 5}}, {"input_shapes": [{"x": None}]},
    {"input_shapes": {1: [2]}},
    {"dims": b"n=1"}, {"dims": {1: 2}}, {"dims": [1]}, {"inputs": {"x": 5}}, {"inputs": [None]}, {"output_names": [1]},
    {"output_names": {"y": 1}}, {"constants": {1: 2}}, {"constants": [3]}, {"bounds": np.zeros(3)}, {"states": [None]},
    {"states": {"y": 1}}, {"extern": [1]}, {"extern": {"a": "b"}}, {"signature": np.zeros(3)},
    {"optimize": np.zeros(3)}, {"half": np.zeros(3)}, {"reproducible": []}], ids=str)
def test_options_of_another_kind(options):
    (name,) = options
    with pytest.raises(MegccError, match=name.rstrip("s")):
        CompileOptions(**options)


def test_none_is_the_default_of_every_option():
    assert CompileOptions(**{name: None for name, _ in all_options()}) == CompileOptions()


@pytest.mark.parametrize(("strings", "constants"), [
    (["sr=16000"], {"sr": 16000}), (["scale = 0.5", "on=true"], {"scale": 0.5, "on": True}),
    (["pads=1,2,-3"], {"pads": [1, 2, -3]})])
def test_constants(strings, constants):
    assert option_values.parse_constants(strings) == constants


@pytest.mark.parametrize("text", ["sr", "sr=", "sr=fast", "sr=1,,2"])
def test_wrong_constants(text, capsys):
    assert main(["compile", DIGITS, "--target", "c", "--constant", text]) == REFUSED
    assert f"constant '{text}': expected INPUT=NUMBER" in capsys.readouterr().err


@pytest.mark.parametrize(("parse", "given"), [
    (option_values.parse_constants, ["sr=1", "sr=2"]), (option_values.parse_bounds, "sr=1;sr=2"),
    (option_values.parse_shapes, "sr=1;sr=2"), (option_values.parse_shapes, "sr=(1,2);sr=(1,2)"),
    (parse_shape_sets, "sr=(1,2);sr=(3,2)"), (parse_dispatch, "sr[0,1]=1..8;sr[1]=2")])
def test_a_name_that_is_given_twice(parse, given):
    with pytest.raises(MegccError, match=r"'sr(\[1\])?' is given in another string too"):
        parse(given)


def test_a_constant_for_no_input(capsys):
    assert main(["compile", DIGITS, "--target", "c", "--constant", "rate=1"]) == REFUSED
    assert "--constant names rate, but the inputs are: image" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["64K", "64k", "64KB", "64KiB", "65536", "65536B"])
def test_sizes(size):
    assert parsed(["compile", DIGITS, "--ram", size]).options.ram == 65536


@pytest.mark.parametrize(("size", "said"), [
    ("8..1", "axis 0 of input 'x': 8..1 is no range of sizes; the first is at least 0, and the last no smaller"),
    ("", "expected NAME=SIZE")])
def test_ranges_that_are_none(size, said, tmp_path, capsys):
    path = saved(model([node("Relu", "x", "y")], {"x": ["n", 4]}, ("y",)), tmp_path / "open.onnx")
    assert main(["compile", path, "--dim", f"n={size}"]) == REFUSED
    assert said in capsys.readouterr().err
    assert main(["compile", path]) == REFUSED
    assert "the dimension n is not known: x [n, 4]" in capsys.readouterr().err
