# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: read from files, and written as tables for the C code that reads them."""
