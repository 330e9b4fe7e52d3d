# SPDX-License-Identifier: Apache-2.0
"""Shapes and control flow at run time."""
