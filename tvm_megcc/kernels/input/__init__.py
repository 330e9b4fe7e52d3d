# SPDX-License-Identifier: Apache-2.0
"""Conversion of inputs from the format that the caller has."""
