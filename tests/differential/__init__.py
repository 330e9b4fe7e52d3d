# SPDX-License-Identifier: Apache-2.0
"""Drawn models beside the references of their formats: `python -m tests.differential --help`."""
