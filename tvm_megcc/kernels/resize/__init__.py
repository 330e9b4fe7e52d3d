# SPDX-License-Identifier: Apache-2.0
"""Resizing and resampling."""
