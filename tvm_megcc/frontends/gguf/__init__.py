# SPDX-License-Identifier: Apache-2.0
"""GGUF files of language models into our graph."""

from .importer import import_gguf, input_dims

__all__ = ["import_gguf", "input_dims"]
