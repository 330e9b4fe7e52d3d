# SPDX-License-Identifier: Apache-2.0
"""Compiled objects of these tests go to a folder of their own. The files skip themselves where TVM is not installed."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def object_cache(tmp_path_factory):
    """Shared by all tests of a run: most modules have the same runtime."""
    before = os.environ.get("MEGCC_CACHE")
    os.environ["MEGCC_CACHE"] = before or str(tmp_path_factory.getbasetemp() / "megcc-cache")
    yield
    if before is None:
        del os.environ["MEGCC_CACHE"]
