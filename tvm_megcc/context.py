# SPDX-License-Identifier: Apache-2.0
"""The context of kernel selection: the CPU, the limits and the options. The compiler makes it once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import MegccError, quoted
from .ir.limits import MAX_REGIONS
from .target import Isa, Target
from .tuning_log import Measured

#: A number of bytes, such as 4096, 64K (1024 bytes each) or 1MiB.
_BYTES = re.compile(r"\s*(\d{1,15})([KM]?)(?:i?B)?\s*", re.ASCII | re.IGNORECASE)
#: The profile of code for systems that are certified (docs/safety.md).
SAFETY = "safety"
#: The region that holds constants; all others can be written.
FLASH = "flash"


def bytes_of(text: str) -> int | None:
    """Returns the number of bytes of a string such as 4096, 64K or 1MiB; None for any other string."""
    found = _BYTES.fullmatch(text)
    return int(found[1]) << {"": 0, "K": 10, "M": 20}[found[2].upper()] if found else None


@dataclass(frozen=True)
class Regions:
    """The memory regions that a session may use, in order of preference.

    ram: name and size of each region that can be written; the session's own block is in the first.
    faster_than_flash: the number of leading regions that are faster than flash: constants are copied there while they
        fit.
    flash: the largest number of bytes of the model's data; None: no limit.
    """

    ram: tuple[tuple[str, int], ...]
    faster_than_flash: int
    flash: int | None = None

    @property
    def bytes(self) -> int:
        """The size of all regions that can be written."""
        return sum(size for _, size in self.ram)

    def __str__(self) -> str:
        rows: list[tuple[str, int | None]] = list(self.ram)
        if self.flash is not None or self.faster_than_flash < len(rows):
            rows.insert(self.faster_than_flash, (FLASH, self.flash))
        return ",".join(name if size is None else f"{name}={size}" for name, size in rows)

    @classmethod
    def parse(cls, text: str) -> Regions:
        """Parses `dtcm=64K,sram=256K,flash=1M`. Without flash, flash is the last region and has no limit.

        Raises:
            MegccError: for an invalid name or number of bytes, for a name that occurs twice, and for no region or too
                many.
        """
        sizes: dict[str, int] = {}
        for part in text.split(","):
            name, _, size = (word.strip() for word in part.partition("="))
            count = bytes_of(size)
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,23}", name, re.ASCII) or count is None:
                raise MegccError(f"region {quoted(part)}: it is NAME=SIZE, the name small letters, digits and _, the "
                                 "size bytes, such as dtcm=64K,sram=256K,flash=1M")
            if name in sizes:
                raise MegccError(f"region {name} is there twice")
            sizes[name] = count
            if not 0 < count < 1 << 31:
                raise MegccError(f"region {name} has {count:,} bytes: it has at least one, and fewer than 2 GB")
        names = list(sizes)
        faster_than_flash = names.index(FLASH) if FLASH in sizes else len(names)
        flash = sizes.pop(FLASH, None)
        if not 1 <= len(sizes) <= MAX_REGIONS:
            raise MegccError(f"regions: {len(sizes)} besides {FLASH}, there are 1 to {MAX_REGIONS}")
        return cls(tuple(sizes.items()), faster_than_flash, flash)


@dataclass(frozen=True)
class Context:
    """The context that kernels are chosen for.

    optimize: "speed" prints known extents as constants; "size" shares kernels between layers, and weights take no more
        bytes than the model's.
    weight_bytes: bytes of the whole model's weights; 0 if they are not known.
    times: measured times of kernels on this CPU, from a tuning log; None: the cost model decides.
    ram: the largest number of bytes that a session may need; None: no limit.
    caller_inputs: inputs are in the caller's memory, not in the arena.
    regions: the memory regions that a session may use, instead of `ram`; None: a single one.
    activations: dtype of activations in products with block-quantised weights of 4 to 8 bits: "int8", quantised at run
        time, "float32", or "model", as the model says.
    weight_dtype: dtype of weights of float products: "model", the model's, or "int8", in blocks.
    half: computes and stores floats as float16 if the CPU has float16 arithmetic.
    profile: "default", or `SAFETY`: kernels check their arguments and have constant extents only.
    reproducible: results have the same bits on every CPU; kernels that sum floats in another order are refused.
    """

    target: Target
    optimize: str = "speed"
    weight_bytes: int = 0
    times: Measured | None = None
    ram: int | None = None
    caller_inputs: bool = False
    regions: Regions | None = None
    reproducible: bool = False
    half: bool = False
    activations: str = "model"
    weight_dtype: str = "model"
    profile: str = "default"

    @property
    def isa(self) -> Isa:
        return self.target.isa

    @property
    def safe(self) -> bool:
        """Returns whether the code has the safety profile."""
        return self.profile == SAFETY

    @property
    def compact(self) -> bool:
        """Returns whether code is optimised for size rather than speed."""
        return self.optimize == "size"
