# SPDX-License-Identifier: Apache-2.0
"""The C text of kernels and calls."""
