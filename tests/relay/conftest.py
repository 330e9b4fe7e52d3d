# SPDX-License-Identifier: Apache-2.0
"""Compiled objects of these tests go to a folder of their own."""

from ..relax.conftest import object_cache  # noqa: F401
