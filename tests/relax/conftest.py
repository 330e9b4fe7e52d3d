# SPDX-License-Identifier: Apache-2.0
"""Compiled objects of these tests go to a folder of their own. The files skip themselves where TVM is not installed."""

from __future__ import annotations

import os

import pytest

from ..relay.relay_or_skip import HAS_RELAY

#: A TVM that has Relay gets the front end for it.
collect_ignore_glob = ["test_*.py"] if HAS_RELAY else []


def pytest_report_header() -> str | None:
    return "tests/relax: left out, this TVM has Relay (docs/relay.md)" if HAS_RELAY else None


@pytest.fixture(autouse=True, scope="session")
def object_cache(tmp_path_factory):
    """Shared by all tests of a run and its workers: most modules have the same runtime."""
    before = os.environ.get("MEGCC_CACHE")
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["MEGCC_CACHE"] = before or str(base / "megcc-cache")
    yield
    if before is None:
        del os.environ["MEGCC_CACHE"]
