# SPDX-License-Identifier: Apache-2.0
"""Grammars as tables for C."""
