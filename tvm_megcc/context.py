# SPDX-License-Identifier: Apache-2.0
"""What kernels are chosen for: a CPU, and what there is to know around it. Made once, by the compiler."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import MegccError
from .target import Isa, Target
from .tuning_log import Measured

OPTIMIZE = ("speed", "size")


@dataclass(frozen=True)
class Context:
    """What kernels are chosen for.

    optimize: "speed" prints known extents as constants; "size" shares kernels between layers, and weights take no more
        bytes than the model's.
    weight_bytes: of the whole model; 0: not known.
    times: of kernels on this CPU, from a tuning log; None: costs are guesses.
    ram: most bytes that a session may need; None: what it needs.
    caller_inputs: inputs lie in memory of the caller's, not in the arena.

    Raises:
        MegccError: for an unknown `optimize`.
    """

    target: Target
    optimize: str = "speed"
    weight_bytes: int = 0
    times: Measured | None = None
    ram: int | None = None
    caller_inputs: bool = False

    def __post_init__(self):
        if self.optimize not in OPTIMIZE:
            raise MegccError(f"optimize is one of {', '.join(OPTIMIZE)}, not '{self.optimize}'")

    @property
    def isa(self) -> Isa:
        return self.target.isa

    @property
    def compact(self) -> bool:
        """Whether code is to be small rather than fast."""
        return self.optimize == "size"
