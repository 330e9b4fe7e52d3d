# SPDX-License-Identifier: Apache-2.0
"""Single operators of Relax, beside what TVM itself makes of them."""
