# SPDX-License-Identifier: Apache-2.0
"""A TVM with Relay has its own tests. The files skip themselves where TVM is not installed."""

from __future__ import annotations

from ..relay.relay_or_skip import HAS_RELAY

#: A TVM that has Relay gets the front end for it.
collect_ignore_glob = ["test_*.py", "*/test_*.py"] if HAS_RELAY else []


def pytest_report_header() -> str | None:
    return "tests/relax: left out, this TVM has Relay (docs/relay.md)" if HAS_RELAY else None
