# SPDX-License-Identifier: Apache-2.0
"""Convolutions of volumes."""
