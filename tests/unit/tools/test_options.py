# SPDX-License-Identifier: Apache-2.0
"""Values of options that are no strings: those that Python takes, and others, which are refused by name."""

from pathlib import Path

import numpy as np
import pytest

from tvm_megcc import CompileOptions, Input, MegccError
from tvm_megcc.context import Regions
from tvm_megcc.dispatch import log_dispatcher
from tvm_megcc.ir.streams import Stream
from tvm_megcc.tuning_log import TuningLog


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


@pytest.mark.parametrize("name, value", [
    ("input_shapes", 3), ("input_shapes", {"x": 3}), ("input_shapes", {0: (1, 3)}), ("input_shapes", [{"x": 3}]),
    ("dims", 3), ("dims", {0: 1}), ("dims", [1, 2]), ("inputs", {"x": 3}), ("inputs", [3]),
    ("output_names", {"y": "z"}), ("output_names", [1]), ("constants", 3.0), ("bounds", [5]), ("states", {"new": 1}),
    ("dispatch", 3), ("dispatch", {0: {}}), ("log", 3), ("log", {}), ("regions", {"dtcm": 64}), ("stream", 64),
    ("extern", 3), ("extern", {"own.py": 1}), ("extern", [3]), ("signature", 3), ("signature", ["a"]),
])
def test_refused(name, value):
    with pytest.raises(MegccError, match=f"^{name} is a string, or what help"):
        CompileOptions(**{name: value})
