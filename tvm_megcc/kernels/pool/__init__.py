# SPDX-License-Identifier: Apache-2.0
"""Pooling of floats, global pooling, and its inverses."""
