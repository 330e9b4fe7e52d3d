# SPDX-License-Identifier: Apache-2.0
"""Chooses the layout of each tensor by cost."""
