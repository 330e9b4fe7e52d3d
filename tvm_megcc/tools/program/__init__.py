# SPDX-License-Identifier: Apache-2.0
"""Programs of several networks: their description, compilation to one folder, and the descriptions that ship."""
