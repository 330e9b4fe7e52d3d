# SPDX-License-Identifier: Apache-2.0
"""Functions of expressions over vectors of integers, as C."""

import re

import pytest

from tvm_megcc import paths
from tvm_megcc.ir import lanes
from tvm_megcc.ir.expr import FUNCTIONS, Call, X, arg


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.takes])
def test_functions_are_in_the_headers(name):
    """What only the text has is an error of the linker."""
    operands = [X, *map(arg, range(1, 8))]
    for count in range(1, 5):
        try:
            text = lanes.to_c(Call(name, tuple(operands[:count])), ["x", "a", "b", "c"], ["i"] * 4)
        except (TypeError, ValueError, IndexError):
            continue
        headers = "".join(path.read_text() for path in (paths.c_runtime() / "include").rglob("*.h"))
        assert all(re.search(rf"\b{called}\b", headers) for called in re.findall(r"mgc_\w+", text)), text
        return
    raise AssertionError(f"no text of {name}")
