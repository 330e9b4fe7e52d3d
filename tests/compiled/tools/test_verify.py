# SPDX-License-Identifier: Apache-2.0
"""`megcc verify`: the same hash on every target for integers, and what is said where there is another."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node, saved
from tvm_megcc import paths
from tvm_megcc.cli import main
from tvm_megcc.codegen.bundle import read_manifest
from tvm_megcc.errors import MegccError, MissingTool, ToolError
from tvm_megcc.runtime.session import Port
from tvm_megcc.target import TARGETS, machine
from tvm_megcc.tools import verify

DIGITS = paths.examples() / "digits.onnx"


def integers():
    """A state that takes 8-bit products: three runs give what one does not."""
    weights = np.random.default_rng(0).integers(-128, 128, (16, 16)).astype(np.int8)
    return model([node("MatMulInteger", "x w", "p"), node("Add", "p h", "y"), node("Identity", "y", "n")],
                 {"x": ("int8", [2, 16]), "h": ("int32", [2, 16])},
                 {"y": ("int32", [2, 16]), "n": ("int32", [2, 16])}, {"w": weights})


def test_integers_have_one_hash(tmp_path, capsys):
    """With vectors and without, and by numpy, which knows nothing of our C."""
    levels = "native,c" if machine() != "x86_64" else "x86-64,c"
    compiled = tvm_megcc.compile(saved(integers(), tmp_path / "sums.onnx"), levels, states={"n": "h"})
    folder = compiled.save(tmp_path / "sums")
    assert main(["verify", str(folder), "--record"]) == 0
    assert "written into manifest.json" in capsys.readouterr().out
    recorded = json.loads((folder / "manifest.json").read_text())["models"][0]["digests"]
    assert "c" in recorded and len(recorded) == 2
    weights = np.random.default_rng(0).integers(-128, 128, (16, 16)).astype(np.int8)
    total, said = np.zeros((2, 16), np.int32), verify.hashlib.sha256()
    port = Port("x", "int8", (2, 16))
    for run in range(verify.RUNS):
        total = total + verify.test_input(port, 0, run).astype(np.int32) @ weights.astype(np.int32)
        said.update(total.tobytes())
    assert set(recorded.values()) == {said.hexdigest()}
    assert main(["verify", str(folder), "--target", "c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"] == [
        {"target": "c", "sha256": said.hexdigest(), "equal": True}]


@pytest.mark.slow
def test_another_hash_is_refused(tmp_path, capsys):
    """Of integers on any target; of floats on the one that it was recorded for."""
    for source, states, other in ((DIGITS, {}, False), (saved(integers(), tmp_path / "i.onnx"), {"n": "h"}, True)):
        folder = tvm_megcc.compile(source, "c", states=states).save(tmp_path / f"out{other:d}")
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        for target, refused in (("c", True), ("arm64", other)):
            manifest["models"][0]["digests"] = {target: "0" * 64}
            path.write_text(json.dumps(manifest))
            assert main(["verify", str(folder), "--record"]) == (1 if refused else 0)
            said = capsys.readouterr().out
            assert ("OTHER BITS" in said) == refused and ("written" in said) != refused
    manifest["models"][0]["digests"] = {"c": "*/"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(MegccError, match="the hash of outputs is invalid"):
        verify.verify(folder)


def test_inputs_are_what_a_device_makes():
    """In steps that C has: the first numbers, worked out by hand with its arithmetic of 32 bits."""
    def mixed(x):
        x = (x ^ x >> 16) * 0x85ebca6b % 2 ** 32
        x = (x ^ x >> 13) * 0xc2b2ae35 % 2 ** 32
        return x ^ x >> 16
    bits = [mixed(i + (3 << 20) + (2 << 28)) for i in range(6)]
    floats = [(b >> 24) / 128 - 1 for b in bits]
    for dtype, wanted in (("float32", floats), ("bfloat16", floats), ("bool", [b & 1 for b in bits]),
                          ("uint8", [b >> 24 for b in bits]), ("int64", [b % 10 for b in bits])):
        assert verify.test_input(Port("x", dtype, (2, 3)), 3, 2).ravel().tolist() == wanted, dtype
    ranged = Port("x", "int32", (6,), range=(-2, 4))
    assert verify.test_input(ranged, 3, 2).tolist() == [b % 7 - 2 for b in bits]


@pytest.mark.parametrize("dtype, bits", [("float32", np.uint32), ("bfloat16", np.uint16)])
def test_nans_of_all_signs_have_one_hash(dtype, bits):
    def digest(sign):
        values = (np.array([np.nan], dtype).view(bits) & bits(np.iinfo(bits).max >> 1)
                  | bits(sign << np.iinfo(bits).bits - 1)).view(dtype)
        return verify.digest(SimpleNamespace(inputs=(), outputs=(Port("y", dtype, (1,)),), state_of={},
                                             reset=lambda: None, run=lambda feeds: {"y": values}))
    assert digest(0) == digest(1)


def test_what_cannot_be_hashed(tmp_path, monkeypatch):
    folder = tvm_megcc.compile(DIGITS, "c", dispatch="image[0]=1..4").save(tmp_path / "dynamic")
    with pytest.raises(MegccError, match="no fixed shape"):
        verify.verify(folder)

    def none(*_):
        raise MissingTool("no compiler")
    monkeypatch.setattr(verify, "load", none)
    with pytest.raises(MissingTool, match=r"none of the targets .* no compiler"):
        verify.verify(folder)

    def failing(*_):
        raise ToolError("error: 1 is 2")
    monkeypatch.setattr(verify, "load", failing)
    with pytest.raises(ToolError, match=r"^error: 1 is 2"):
        verify.verify(folder)


@pytest.mark.slow
def test_floats_without_fused_products_have_one_hash_too(tmp_path):
    """Portable C, SSE2 and WebAssembly; what differs in docs/reproducible.md is said there."""
    if machine() != "x86_64":
        pytest.skip("of x86-64")
    targets = [TARGETS[name] for name in ("c", "x86-64", "wasm32", "wasm32-simd128")]
    folder = tvm_megcc.compile(DIGITS, ",".join(map(str, targets))).save(tmp_path / "digits")
    report = verify.verify(folder, targets)
    found = {row["sha256"] for row in report["targets"] if "sha256" in row}
    assert report["floats"] and len(found) == 1, report


@pytest.mark.slow
def test_a_reproducible_model_has_one_hash_on_all_targets(tmp_path):
    """With and without an instruction for products and sums, of one lane to sixteen."""
    if machine() != "x86_64":
        pytest.skip("of x86-64")
    folder = tvm_megcc.compile(DIGITS, "c,x86-64-v3,x86-64-v4,arm64,wasm32-simd128", reproducible=True).save(tmp_path)
    assert read_manifest(folder)["models"][0]["options"]["reproducible"]
    report = verify.verify(folder, record=True)
    found = {row["sha256"] for row in report["targets"] if "sha256" in row}
    assert len(found) == 1 and report["equal"] and not report["floats"], report
    assert len([row for row in report["targets"] if "sha256" in row]) >= 2
