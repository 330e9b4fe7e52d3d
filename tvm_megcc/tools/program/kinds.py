# SPDX-License-Identifier: Apache-2.0
"""The kinds of steps that are functions with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from . import detections, labels, searches, text_lines
from .functions import Function
from .steps import Detection, NamedFunction, Search, Text

#: Kind -> its step and its functions.
KINDS: dict[str, tuple[type[NamedFunction], Mapping[str, Function]]] = {
    step.kind: (step, functions) for step, functions in (
        (Detection, {**detections.FUNCTIONS, **text_lines.FUNCTIONS}), (Search, searches.FUNCTIONS),
        (Text, labels.FUNCTIONS))}
