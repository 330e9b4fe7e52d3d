# SPDX-License-Identifier: Apache-2.0
"""docs/seven-machines.md on what is installed: one hash for a network of floats and one of integers."""

from __future__ import annotations

import warnings

import pytest

from scripts.seven_machines import digests
from tests.onnx_models import saved
from tvm_megcc import paths

from ..tools.test_verify import integers


@pytest.mark.long
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_one_hash(kind, tmp_path):
    if kind == "int8":
        rows = list(digests(saved(integers(), tmp_path / "sums.onnx"), "sums", states={"n": "h"}))
    else:
        rows = list(digests(paths.examples() / "digits.onnx", "digits", reproducible=True))
    found = {machine: hash_ for machine, _, _, hash_ in rows if not hash_.startswith("no ")}
    assert len(rows) == 7 and len(set(found.values())) == 1, found
    assert all(len(hash_) == 64 for hash_ in found.values())
    missing = [f"{machine}: {hash_}" for machine, *_, hash_ in rows if machine not in found]
    if len(found) < 2:
        pytest.skip(f"nothing to compare: {'; '.join(missing)}")
    if missing:
        warnings.warn(f"left out: {'; '.join(missing)}", stacklevel=1)
