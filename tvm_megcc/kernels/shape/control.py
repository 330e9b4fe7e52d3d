# SPDX-License-Identifier: Apache-2.0
"""Loops and branches, which are executed by the runtime and have no kernel."""

from __future__ import annotations

from ...errors import InternalError
from ..base import Kernel, Lowered
from ..site import Site


class Inlined(Kernel):
    """Replaced by the calls of a loop's or branch's graphs. Operands and results are plain."""

    name = "inlined"

    def lower(self, site: Site) -> Lowered:
        raise InternalError(f"{site.kind} is no kernel")
