# SPDX-License-Identifier: Apache-2.0
"""The entries of loops and branches in place of a kernel."""

from __future__ import annotations

from ...errors import InternalError
from ..base import Kernel, Lowered
from ..site import Site


class Inlined(Kernel):
    """The calls of the graphs in it; operands and results are plain."""

    name = "inlined"

    def lower(self, site: Site) -> Lowered:
        raise InternalError(f"{site.kind} is no kernel")
