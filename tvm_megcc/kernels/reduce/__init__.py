# SPDX-License-Identifier: Apache-2.0
"""Reductions, arg max and min, cumulative sums."""
