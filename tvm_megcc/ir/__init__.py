# SPDX-License-Identifier: Apache-2.0
"""The graph: operators, tensor types, dimensions as expressions, scalar expressions, and how they print."""
