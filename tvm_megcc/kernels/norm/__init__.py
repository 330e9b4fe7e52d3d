# SPDX-License-Identifier: Apache-2.0
"""Normalisation over an axis or over neighbouring channels."""
