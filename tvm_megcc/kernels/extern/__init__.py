# SPDX-License-Identifier: Apache-2.0
"""Calls of the user's own C functions."""
