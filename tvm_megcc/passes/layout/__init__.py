# SPDX-License-Identifier: Apache-2.0
"""The layout of each tensor, by cost."""
