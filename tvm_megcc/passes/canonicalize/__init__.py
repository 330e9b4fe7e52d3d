# SPDX-License-Identifier: Apache-2.0
"""One spelling for what models spell in several ways."""
