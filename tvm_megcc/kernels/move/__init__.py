# SPDX-License-Identifier: Apache-2.0
"""Copies of elements: concat, pad, slice, transpose, and changes of layout."""
