# SPDX-License-Identifier: Apache-2.0
"""The rows of `megcc bench` on a microcontroller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tvm_megcc.tools.board.instructions import rows_of


def test_instructions_that_are_no_calls_have_rows():
    """A decoder reads the length of its past before the calls after it: that is an instruction of the runtime."""
    call = {"origin": "layer", "kind": "softmax", "kernel": "softmax_rows", "macs": 0}
    session = SimpleNamespace(instructions=[5, 30, 15], cycles=[4, 20, 10], chip=None,
                              calls=[{**call, "instruction": 0}, {**call, "instruction": 2}])
    rows = rows_of(cast(Any, session))
    assert [(row["name"], row["instructions"], row["cycles"], row["share"]) for row in rows] == [
        ("layer", 5, 4, 0.1), ("the runtime", 30, 20, 0.6), ("layer", 15, 10, 0.3)]
