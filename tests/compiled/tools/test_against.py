# SPDX-License-Identifier: Apache-2.0
"""`megcc bench --against` with real engines, on the network that ships with the package. No time decides anything."""

import json

import pytest

from tvm_megcc import paths
from tvm_megcc.cli import main

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

#: The `onnx` package's interpreter: right but for what `load` adds to the result.
OWN = """
import peers
from onnx.reference import ReferenceEvaluator

class Engine(peers.Engine):
    def load(self):
        interpreter = ReferenceEvaluator(self.job.model)

        def run():
            self.result = interpreter.run(None, self.inputs)[0] + {added}
        return run

    def output(self):
        return self.result
"""


@pytest.mark.slow
def test_ours_beside_onnxruntime(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    for name, added in (("slow", 0), ("wrong", 1e6)):
        (tmp_path / f"{name}.py").write_text(OWN.format(added=added))
    engines = f"onnxruntime,slow={tmp_path}/slow.py,litert,wrong={tmp_path}/wrong.py"
    assert main(["bench", str(paths.examples() / "digits.onnx"), "--against", engines, "--rounds", "2", "--json",
                 "-O", "size"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert report["engines"] == ["megcc", "onnxruntime", "slow", "litert", "wrong"]
    assert set(row["engines"]) == {"megcc", "onnxruntime", "slow"}
    for found in row["engines"].values():
        assert len(found["rounds"]) == 2 and all(seconds > 0 for seconds in found["rounds"])
        assert found["error"] < 1e-5
    assert row["best"] in ("onnxruntime", "slow") and row["speed"]["low"] <= row["speed"]["high"]
    assert row["macs"] > 0
    assert set(row["absent"]) == {"litert", "wrong"} and "its output differs" in row["absent"]["wrong"]
