# SPDX-License-Identifier: Apache-2.0
"""The front end for language models in GGUF files."""

from .importer import import_gguf, input_dims

__all__ = ["import_gguf", "input_dims"]
