# SPDX-License-Identifier: Apache-2.0
"""Softmax and log-softmax of floats and of integers."""
