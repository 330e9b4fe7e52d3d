# SPDX-License-Identifier: Apache-2.0
"""8-bit products and convolutions on Helium (M-profile vectors)."""
