# SPDX-License-Identifier: Apache-2.0
"""Containers whose rows are all well-formed, but say less, or more, than the code was made for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tvm_megcc
from tests import onnx_models
from tvm_megcc.codegen import container
from tvm_megcc.codegen.container import Bound, CallSlot, DType, Instruction, LayoutKind, Opcode, Program, Storage
from tvm_megcc.errors import MegccError
from tvm_megcc.runtime.load import load

from ..runtime.runtime_models import MODELS, MODULES
from ..runtime.test_runtime import CC, ROOT, SOURCES, build

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def put(rows: tuple, index: int, **fields) -> tuple:
    """The rows with some fields of one of them changed."""
    return (*rows[:index], replace(rows[index], **fields), *rows[index + 1:])


def tensor(index: int, **fields) -> Callable[[Program], Program]:
    return lambda p: replace(p, tensors=put(p.tensors, index, **fields))


def bucket(index: int, **change: Callable) -> Callable[[Program], Program]:
    """Changes fields of a device model, each by a function of what it was."""
    def apply(p: Program) -> Program:
        old = p.device_models[index]
        fields = {field: new(getattr(old, field)) for field, new in change.items()}
        return replace(p, device_models=put(p.device_models, index, **fields))
    return apply


def bound(lo: int, hi: int) -> Callable[[Program], Program]:
    return bucket(0, bounds=lambda rows: (Bound(lo, hi),))


def slot(index: int, offset: int) -> Callable[[Program], Program]:
    return bucket(0, tensors=lambda rows: put(rows, index, offset=offset))


def released(p: Program) -> Program:
    """Gives an output back behind the last call."""
    more = replace(p, instructions=(*p.instructions, Instruction(Opcode.release, 0, 0, 0, p.outputs[0], 0)))
    return bucket(0, calls=lambda rows: (*rows, CallSlot(0, 0)))(more)


def shared_buckets(p: Program) -> Program:
    """The same bucket again and again: written once, see `write`."""
    return replace(p, device_models=p.device_models[:1] * 100)


#: Model, what is changed in its program, the field that is blamed.
REFUSED = {
    "no symbols for a shape function": ("dynamic", lambda p: replace(
        p, symbols=0, values=0, extents=(4, 3, 8, 12), device_models=tuple(
            replace(m, bounds=()) for m in p.device_models)), "Program.symbols"),
    "fewer values": ("dynamic", lambda p: replace(p, values=1, extents=p.extents[:3] + (-2,)), "Program.values"),
    "symbols for code that has none": ("static", lambda p: replace(p, symbols=1), "Program.symbols"),
    "extents below the bounds": ("dynamic", bound(0, 4), "Bound.lo"),
    "negative extents": ("dynamic", bound(-1, 4), "Bound.lo"),
    "bounds turned over": ("dynamic", bound(4, 3), "Bound.lo"),
    "extents above the bounds": ("dynamic", bound(1, 500001), "Bound.hi"),
    "no limit": ("dynamic", bound(1, -1), "Bound.hi"),
    "alignment 4": ("static", lambda p: replace(p, alignment=4), "Program.alignment"),
    "alignment 64": ("dynamic", lambda p: replace(p, alignment=64), "Program.alignment"),
    "wide elements in a narrow root": ("static", tensor(7, dtype=DType.float64), "Tensor.dtype"),
    "elements across their borders": ("static", tensor(7, data=2, bytes=94), "Tensor.data"),
    "inputs exchanged": ("static", lambda p: replace(p, inputs=(1, 0)), "Program.inputs"),
    "an input twice": ("static", lambda p: replace(p, inputs=(0, 0)), "Program.inputs"),
    "outputs elsewhere": ("static", lambda p: replace(p, outputs=(5, 6)), "Program.outputs"),
    "more outputs": ("static", lambda p: replace(p, outputs=(2, 3, 4)), "Program.outputs"),
    "fewer inputs": ("dynamic", lambda p: replace(p, inputs=(0,)), "Program.inputs"),
    "a weight as input": ("static", tensor(0, storage=Storage.weight, data=64, bytes=96), "Tensor.storage"),
    "an input of another type": ("static", tensor(0, dtype=DType.int8), "Tensor.dtype"),
    "an input with another layout": ("static", tensor(0, layout=LayoutKind.nchwc, block=1), "Tensor.dtype"),
    "a smaller input": ("static", tensor(0, dims=3), "Tensor.dims"),
    "a larger output": ("static", lambda p: tensor(2, dims=7)(replace(p, extents=(*p.extents, 25))), "Tensor.dims"),
    "another symbol": ("pair", tensor(0, dims=1), "Tensor.dims"),
    "a state that is no input": ("static", tensor(5, storage=Storage.state), "Tensor.storage"),
    "a state that begins with a value": ("static", tensor(1, root=5), "Tensor.root"),
    "a state that begins with a tensor beyond the last": ("static", tensor(1, root=8), "Tensor.root"),
    "a state that begins with no bytes": ("static", lambda p: tensor(4, bytes=0)(tensor(1, root=4)(p)), "Tensor.root"),
    "an input that begins with a weight": ("static", tensor(0, root=4), "Tensor.root"),
    "an output in a state's place that becomes none": ("static", tensor(2, storage=Storage.state), "Program.states"),
    "an output beside the state that it becomes": ("static", tensor(3, storage=Storage.state), "TensorSlot.offset"),
    "a value below the states": ("static", slot(0, 0), "TensorSlot.offset"),
    "a state above a value": ("static", slot(1, 96), "TensorSlot.offset"),
    "workspace in a state": ("static", bucket(0, calls=lambda rows: put(rows, 0, workspace=80)), "CallSlot.workspace"),
    "an output given back": ("unbounded", released, "Instruction.operands"),
    "an output that nothing writes": ("unbounded", lambda p: bucket(0, calls=lambda rows: rows[:-1])(
        replace(p, instructions=p.instructions[:-1])), "Program.outputs"),
    "more operands than a call can have": ("wide", lambda p: bucket(0, calls=lambda rows: (CallSlot(1, 192),))(replace(
        p, operands=(0,) * 61 + (1,), instructions=(Instruction(Opcode.call, 61, 1, 0, 0, 0),))),
        "Instruction.first_extent"),
    "an output beside the place that it may take": ("half", slot(1, 16), "TensorSlot.offset"),
    "an output that begins inside of an input": ("half", slot(0, 16), "TensorSlot.offset"),
    "buckets that are one": ("dynamic", shared_buckets, "Program.device_models"),
}


def write(model: container.ContainerModel, monkeypatch) -> bytes:
    """The container; equal device models are one table that many offsets lead to."""
    tables: dict = {}
    write_table = container._write_table

    def once(builder, kind, values, where):
        if kind is not container.DeviceModel:
            return write_table(builder, kind, values, where)
        key = repr(values)
        if key not in tables:
            tables[key] = write_table(builder, kind, values, where)
        return tables[key]

    monkeypatch.setattr(container, "_write_table", once)
    return container.write(model)


@pytest.fixture(scope="session")
def runners(tmp_path_factory) -> dict[str, Path]:
    """megcc_run by the model that it runs."""
    folder = tmp_path_factory.mktemp("runners")
    sources = (*SOURCES, ROOT / "tests" / "kernels.c", ROOT / "tools" / "megcc_run.c")
    static, dynamic = (build(folder / name, f"-DMEGCC_MODULE={name}_module", sources=sources)
                       for name in ("static", "dynamic"))
    return {name: static if module == "static_module" else dynamic for name, module in MODULES.items()}


def run(runners, name: str, model: container.ContainerModel, tmp_path: Path, monkeypatch):
    (tmp_path / "model.megcc").write_bytes(write(model, monkeypatch))
    arguments = ["--shape", "a=3,3", "--shape", "b=6"] if name in ("dynamic", "unbounded") else []
    return subprocess.run([runners[name], "--model", "model.megcc", *arguments, "--output", "y=y.bin"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, runners, tmp_path: Path, monkeypatch):
    name, change, field = REFUSED[what]
    model = MODELS[name]()
    changed = replace(model, programs=(*model.programs[:-1], change(model.programs[-1])))
    result = run(runners, name, changed, tmp_path, monkeypatch)
    assert result.returncode == 1 and f": {field} (" in result.stderr, f"{result.returncode} {result.stderr}"


def test_many_buckets_of_their_own_open(runners, tmp_path: Path, monkeypatch):
    """What is not shared is no more than the file has, however much it is."""
    model = MODELS["dynamic"]()
    (p,) = model.programs
    wide = p.device_models[1]
    many = tuple(replace(wide, bounds=(Bound(n, n),)) for n in range(1, 1000))
    result = run(runners, "dynamic", replace(model, programs=(replace(p, device_models=many),)), tmp_path, monkeypatch)
    assert result.returncode == 0, result.stderr


def test_buckets_of_generated_code(tmp_path: Path):
    """The least extent that a kernel was compiled for is part of the code, whatever the container says."""
    pads = onnx_models.node("Constant", "", "pads", value_ints=[2, 0, 2, 0])
    padded = onnx_models.model([pads, onnx_models.node("Pad", "x pads", "y", mode="reflect")], {"x": ["n", 4]}, ["y"],
                               name="pad")
    artifact = tvm_megcc.compile(padded, "native", dispatch="x[0]=3..8,12..16")
    path = artifact.save(tmp_path / "pad_megcc") / "pad.megcc"
    assert load(path.parent) is not None
    own = container.read(path.read_bytes())
    for bounds, field in (((0, 8), "Bound.lo"), ((3, 17), "Bound.hi"), ((3, -1), "Bound.hi")):
        path.write_bytes(container.write(replace(own, programs=tuple(bound(*bounds)(p) for p in own.programs))))
        with pytest.raises(MegccError, match=field):
            load(path.parent)
