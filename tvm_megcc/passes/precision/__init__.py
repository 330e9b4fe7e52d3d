# SPDX-License-Identifier: Apache-2.0
"""float16, bfloat16 and other storage types."""
