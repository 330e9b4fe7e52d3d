# SPDX-License-Identifier: Apache-2.0
"""Streams and states."""
