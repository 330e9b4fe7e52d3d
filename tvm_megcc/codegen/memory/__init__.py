# SPDX-License-Identifier: Apache-2.0
"""Where tensors and weights lie."""
