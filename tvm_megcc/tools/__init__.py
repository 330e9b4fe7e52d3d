# SPDX-License-Identifier: Apache-2.0
"""Implements the verbs of the command `megcc` that are more than one call of the API. `cli/` parses and prints."""
