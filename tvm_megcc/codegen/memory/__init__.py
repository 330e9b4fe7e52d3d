# SPDX-License-Identifier: Apache-2.0
"""Memory plans of tensors and weights."""
