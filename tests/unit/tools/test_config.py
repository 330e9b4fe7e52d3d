# SPDX-License-Identifier: Apache-2.0
"""Descriptions of several models: what they say is what is compiled, and what is wrong in them is said."""

import argparse
import json
from pathlib import Path

import pytest

from tvm_megcc import paths
from tvm_megcc.cli import main, parsed
from tvm_megcc.codegen.manifest import read_manifest
from tvm_megcc.errors import MegccError
from tvm_megcc.option_values import parse_bounds
from tvm_megcc.tools import config, source

DIGITS = str(paths.examples() / "digits.onnx")


def options(*given: str) -> argparse.Namespace:
    return parsed(["compile", *given])


def test_two_models_in_one_folder(tmp_path, capsys):
    (tmp_path / "copy.onnx").write_bytes(Path(DIGITS).read_bytes())
    (tmp_path / "models.toml").write_text(f'''
target = "c"
output = "out"
optimize = "size"
[[models]]
path = "copy.onnx"
[[models]]
path = {json.dumps(DIGITS)}
name = "batches"
dispatch = "image[0]=1..4"
optimize = "speed"
''')
    pytest.importorskip("tomllib")
    assert main(["compile", "--config", str(tmp_path / "models.toml"), "--embed"]) == 0
    first, second = read_manifest(tmp_path / "out")["models"]
    assert (first["name"], first["options"]["optimize"], first["buckets"]) == ("copy", "size", [{}])
    assert (second["name"], second["options"]["optimize"]) == ("batches", "speed") and second["buckets"] != [{}]
    assert (tmp_path / "out" / "copy_data.c").exists() and "copy" in capsys.readouterr().out


def test_the_command_line_goes_first(tmp_path):
    file = tmp_path / "m.json"
    file.write_text(json.dumps({"target": "arm64", "threads": 4, "output": "there", "state": "a=b",
                                "models": [{"path": "x.onnx", "threads": 2}, {"path": "/y.onnx", "name": "why"}]}))
    folder, models = source.described(str(file), options("--config", str(file), "--target", "c"))
    assert (folder.target, folder.output) == ("c", str(tmp_path / "there"))
    assert [(path, name, own.threads) for path, name, own in models] == [
        (str(tmp_path / "x.onnx"), "x", 2), ("/y.onnx", "why", 4)]
    assert all(own.states == {"a": "b"} for _, _, own in models)
    _, models = source.described(str(file), options("--config", str(file), "--threads", "3"))
    assert [own.threads for _, _, own in models] == [3, 3]


@pytest.mark.parametrize(("text", "message"), [
    ("{", "is no JSON"), ("[" * 100_000, "is no JSON"), ("[]", "has no 'models'"), ("{}", "has no 'models'"),
    ('{"models": []}', "has no 'models'"), ('{"models": [1]}', "has no 'models'"),
    ('{"models": [{}]}', r"models\[0\] has no 'path'"), ('{"models": [{"path": 1}]}', "'path' is a string"),
    ('{"models": [{"path": "a", "optimise": "size"}]}', "'optimise' is no key, did you mean 'optimize'"),
    ('{"models": [{"path": "a", "\\u001b[2J": 1}]}', "is no key; there are optimize, input-shapes"),
    ('{"models": [{"path": "a", "target": "c"}]}', "'target' is no key"),
    ('{"threads": true, "models": [{"path": "a"}]}', "'threads' is a number of at least 1"),
    ('{"threads": 0, "models": [{"path": "a"}]}', "'threads' is a number of at least 1"),
    ('{"optimize": ["size"], "models": [{"path": "a"}]}', "'optimize' is speed or size"),
    ('{"state": {"a": 1}, "models": [{"path": "a"}]}', "'state' is a string or a list of strings"),
    ('{"embed": 1, "models": [{"path": "a"}]}', "'embed' is true or false"),
    ('{"models": [{"path": "m.onnx\\u0000"}]}', "'path' has a character that no name can have"),
    ('{"output": "\\ud800", "models": [{"path": "m.onnx"}]}', "'output' has a character that no name can have"),
    ('{"models": [{"path": "m.onnx", "extern": ["a\\u0000"]}]}', "'extern' has a character that no name can have"),
    ('{"models": [{"path": "a/n.onnx"}, {"path": "b/n.onnx"}]}', "two models have the same name")])
def test_what_is_wrong_is_said(text, message, tmp_path):
    file = tmp_path / "m.json"
    file.write_text(text)
    with pytest.raises(MegccError, match=message) as found:
        source.described(str(file), options("--config", str(file)))
    assert "\x1b" not in str(found.value)


def test_other_mistakes(tmp_path, capsys):
    assert main(["compile", "--config", str(tmp_path / "none.json")]) == 1
    assert "none.json cannot be read: No such file" in capsys.readouterr().err
    assert main(["compile", "--name", "a", "--config", "x.json"]) == 1 and "leave out --name" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compile", DIGITS, "--config", "x.json"])
    assert "not allowed with argument" in capsys.readouterr().err
    (tmp_path / "m.toml").write_text("a = ")
    assert main(["compile", "--config", str(tmp_path / "m.toml")]) == 1
    assert "TOML" in capsys.readouterr().err


def test_the_table_of_the_page():
    page = (Path(__file__).parents[3] / "docs" / "command.md").read_text()
    assert config.page() in page


@pytest.mark.parametrize("number", ["9" * 5000, "\u0663", "", "-1", "2147483648"])
def test_bounds_that_are_no_extent(number: str):
    """More digits than Python converts, and digits of another script, are refused as words are."""
    with pytest.raises(MegccError, match="expected NAME=NUMBER"):
        parse_bounds(f"boxes={number}")
