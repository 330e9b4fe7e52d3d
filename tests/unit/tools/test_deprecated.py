# SPDX-License-Identifier: Apache-2.0
"""Old names of the public interface go on, and say which name is new."""

import sys

import pytest

import tvm_megcc
from tvm_megcc import deprecated, reports
from tvm_megcc.cli.options import command_line
from tvm_megcc.runtime.session import Port, Session
from tvm_megcc.target import TARGETS, Target

OWNERS = {"Port": Port, "Session": Session, "Target": Target, "quantize": reports.quantize}


def test_every_owner_is_tested():
    assert OWNERS.keys() == deprecated.RENAMED.keys()


@pytest.mark.parametrize(("owner", "old", "new"), [
    (owner, old, new) for owner in ("Port", "Session", "Target") for old, new in deprecated.RENAMED[owner].items()])
def test_attributes(owner, old, new):
    session = object.__new__(Session)
    session.state_of = {"y": "x"}
    value = {"Port": Port("x", "float32", (2,)), "Session": session, "Target": TARGETS["arm64-v82"]}[owner]
    with pytest.warns(DeprecationWarning, match=f"{owner}.{old} is deprecated .*: use {new}") as found:
        assert getattr(value, old) == getattr(value, new)
    assert found[0].filename == __file__


@pytest.mark.parametrize(("old", "new"), deprecated.RENAMED["quantize"].items())
def test_keywords(old, new):
    with pytest.warns(DeprecationWarning, match=rf"quantize\({old}=…\) is deprecated .*: use {new}"), \
            pytest.raises(TypeError, match=f"{new} and its old name"):
        tvm_megcc.quantize("m.onnx", "s.npz", "q.onnx", **{old: 1, new: 1})
    with pytest.warns(DeprecationWarning), pytest.raises(tvm_megcc.MegccError):
        tvm_megcc.quantize("m.onnx", "s.npz", "q.onnx", **{old: 1})


@pytest.mark.parametrize("line", [
    "run m --real", "quantize m --calibrate s --enough 30", "quantize m --calibrate s --enough=30",
    "export m --for npm --beside"])
def test_options(line, capsys):
    old = next(flag for flag in deprecated.FLAGS if flag in line)
    read = command_line().parse_args(line.split())
    assert f"{old} is deprecated" in capsys.readouterr().err
    assert read == command_line().parse_args(line.replace(old, deprecated.FLAGS[old]).split())
    assert capsys.readouterr().err == ""


def test_a_module_that_moved():
    sys.modules.pop("tvm_megcc.tools.lm.tables", None)
    with pytest.warns(DeprecationWarning, match=r"use tvm_megcc\.tools\.lm\.tokenizers\.tables"):
        from tvm_megcc.tools.lm.tables import tables

    from tvm_megcc.tools.lm.tokenizers import tables as moved
    assert tables is moved.tables
