# SPDX-License-Identifier: Apache-2.0
"""The kinds of steps that are functions with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import detections, labels, regions, searches, text_lines
from .functions import Function
from .steps import Detection, NamedFunction, Search, Text


class Kind(NamedTuple):
    """A kind of steps, and its functions by name."""

    step: type[NamedFunction]
    functions: Mapping[str, Function]


KINDS: dict[str, Kind] = {
    step.kind: Kind(step, functions) for step, functions in (
        (Detection, {**detections.FUNCTIONS, **text_lines.FUNCTIONS, **regions.FUNCTIONS}),
        (Search, searches.FUNCTIONS), (Text, labels.FUNCTIONS))}
