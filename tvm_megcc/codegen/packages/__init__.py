# SPDX-License-Identifier: Apache-2.0
"""The packages of `megcc export`."""
