# SPDX-License-Identifier: Apache-2.0
"""Whether there is a TVM with Relay, for files whose other tests need none."""

from __future__ import annotations

import importlib.util

import pytest

WITHOUT = "TVM with Relay (0.9 to 0.19) is not installed"
HAS_RELAY = bool(importlib.util.find_spec("tvm") and importlib.util.find_spec("tvm.relay"))
needs_relay = pytest.mark.skipif(not HAS_RELAY, reason=WITHOUT)
