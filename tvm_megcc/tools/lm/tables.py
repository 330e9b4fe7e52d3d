# SPDX-License-Identifier: Apache-2.0
"""Deprecated: use `tvm_megcc.tools.lm.tokenizers.tables`, which has the same names. It works for one release."""

from __future__ import annotations

import warnings

from .tokenizers.tables import byte_letters, classes, tables, token_bytes

__all__ = ["byte_letters", "classes", "tables", "token_bytes"]

warnings.warn("tvm_megcc.tools.lm.tables is deprecated and will be removed in the next release: use "
              "tvm_megcc.tools.lm.tokenizers.tables", DeprecationWarning, stacklevel=2)
