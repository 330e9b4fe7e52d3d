# SPDX-License-Identifier: Apache-2.0
"""All families of cases, by name. A new one is a row here."""

from __future__ import annotations

from .cases import drawn
from .chains.family import Chains
from .family import Family, OnnxFamily

FAMILIES: dict[str, Family] = {each.name: each for each in (
    OnnxFamily("onnx", drawn),
    Chains(),
)}
