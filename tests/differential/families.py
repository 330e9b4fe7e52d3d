# SPDX-License-Identifier: Apache-2.0
"""All families of cases, by name. A new one is a row here."""

from __future__ import annotations

from functools import partial

from .cases import drawn
from .chains.family import Chains
from .family import Family, OnnxFamily
from .other import contrib, ml, node
from .other.relax.family import Relax
from .other.tflite import TFLite

FAMILIES: dict[str, Family] = {each.name: each for each in (
    OnnxFamily("onnx", drawn),
    Chains(),
    OnnxFamily("ml", partial(node.drawn, ml.DOMAIN, ml.RULES)),
    OnnxFamily("contrib", partial(node.drawn, contrib.DOMAIN, contrib.RULES)),
    TFLite(),
    Relax(),
)}
