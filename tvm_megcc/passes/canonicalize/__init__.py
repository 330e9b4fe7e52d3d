# SPDX-License-Identifier: Apache-2.0
"""Brings equivalent forms of a graph to one form."""
