# SPDX-License-Identifier: Apache-2.0
"""docs/adding-an-operator.md, followed literally: its blocks, with other names, are a new operator of a copy of the
package, and what they are is all that it takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tvm_megcc import paths

from ...unit.project.test_docs import BLOCK, ROOT

#: The operator of the page, and what it is called here, in a domain that ONNX knows nothing of. The last is numpy's.
NAMES = {'"CumSum", "CumProd"': '"test::RunSum"', "CumSum": "RunSum", "cumsum": "runsum",
         "Cumulative": "Running", "cumulative": "running", "np.runsum": "np.cumsum"}
PROGRAM = """
import numpy as np
from onnx import TensorProto, helper, numpy_helper
import tvm_megcc
from tvm_megcc.tools.bench.candidates import candidates

(row,) = candidates("runsum", ["3x5x4"], attrs="axis=1", time=True)["candidates"]
assert row["kernel"] == "scalar" and row["us"] > 0, row  # timed only where the result is numpy's

node = helper.make_node("RunSum", ["x", "axis"], ["y"], reverse=1, domain="test")
graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
                          [numpy_helper.from_array(np.array(1, np.int64), "axis")])
opsets = [helper.make_opsetid("", 18), helper.make_opsetid("test", 1)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
x = np.arange(10, dtype=np.float32).reshape(2, 5)
session = tvm_megcc.load(tvm_megcc.compile(model, name="running").save("running"))
np.testing.assert_array_equal(session.run({"x": x})["y"], x[:, ::-1].cumsum(1)[:, ::-1])
"""


@pytest.mark.slow
def test_the_page_is_all_that_it_takes(tmp_path):
    shutil.copytree(paths.PACKAGE, tmp_path / "tvm_megcc", ignore=shutil.ignore_patterns("__pycache__"))
    if paths.PACKAGE.parent == ROOT:  # a checkout, whose runtime lies beside the package
        for folder in ("c_runtime", "schema"):
            shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("build"))
    added = []
    for name, block in BLOCK.findall((ROOT / "docs" / "adding-an-operator.md").read_text()):
        renamed = name, block
        for old, new in NAMES.items():
            renamed = tuple(text.replace(old, new) for text in renamed)
        if renamed != (name, block):  # else it is there already, as what kernels along an axis share
            path = tmp_path / renamed[0]
            path.write_text((path.read_text() + "\n\n" if path.exists() else "") + renamed[1])
            added.append(renamed[0])
    assert len(added) == 7 and re.search(r"running\.c\.j2", " ".join(added)), added
    result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
