# SPDX-License-Identifier: Apache-2.0
"""Copies of elements: gather, scatter, concat, pad, slice, transpose, and changes of layout."""
