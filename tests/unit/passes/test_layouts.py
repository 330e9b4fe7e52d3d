# SPDX-License-Identifier: Apache-2.0
"""Whatever layouts the kernels around a value ask for, something brings it from one to the other."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.ir.dims import Symbol
from tvm_megcc.ir.graph import Attrs, Op
from tvm_megcc.ir.types import DTYPES, TensorType
from tvm_megcc.kernels import choice, support
from tvm_megcc.kernels.base import possible_layouts
from tvm_megcc.kernels.site import Site
from tvm_megcc.kernels.support import candidates, refusal
from tvm_megcc.target import TARGETS

from ...graphs import Builder

RELAYOUT = Op("relayout", Attrs(), ("x",), ("y",))
SHAPES = ((2, 37, 3, 5), (1, 32, 4, 4), (1, 3, 1, 1), (Symbol("n"), 20, Symbol("h"), 7))


@pytest.mark.parametrize("name", TARGETS)
def test_every_type_has_a_kernel_between_every_two_layouts(name: str):
    target = TARGETS[name]
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        type_ = TensorType(dtype, shape)
        for source, wanted in itertools.permutations(possible_layouts(type_, target), 2):
            inputs, outputs = (type_.with_layout(source),), (type_.with_layout(wanted),)
            site = Site(RELAYOUT, inputs, outputs, Context(target))
            reasons = [refusal(site, kernel) for kernel in candidates("relayout")]
            assert None in reasons, f"{inputs[0]} to {outputs[0]}: {reasons}"


@pytest.mark.parametrize("name", ["x86-64-v3", "arm64", "c"])
def test_quantised_parts_of_a_convolution_are_compiled(name: str):
    """A convolution wants blocks, slices of other channels and their concat as uint8 do not."""
    b = Builder()
    scale = b.const("scale", value=np.array(0.02, np.float32))
    value = b.op("quantize_linear", b.conv(b.input("x", 1, 16, 8, 8), 32), scale, axis=1, block=0, dtype="uint8")
    parts = [b.op("slice", value, axes=(1,), starts=(start,), ends=(start + 12,), steps=(1,)) for start in (0, 12)]
    back = b.op("dequantize_linear", b.op("concat", parts[1], parts[0], axis=1), scale, axis=1, block=0,
                dtype="float32")
    plan = lower(b.graph(b.conv(back, 32), value), Context(TARGETS[name])).plan
    assert plan.steps


def test_a_kernel_is_asked_for_once(monkeypatch):
    """The choice of layouts asks each operator's candidates once a combination of layouts; nothing asks again, but for
    the operators that are inserted afterwards."""
    b = Builder()
    x = b.input("x", 1, 16, 8, 8)
    graph = b.graph(b.op("reshape", b.op("transpose", b.conv(b.conv(x, 16), 16), perm=(0, 2, 3, 1)), shape=(1, 1024)))
    asked: Counter = Counter()
    ask = support.refusal
    monkeypatch.setattr(choice, "refusal", lambda site, kernel: asked.update(
        [(site.op.outputs, kernel.name, site.layouts)]) or ask(site, kernel))
    plan = lower(graph, Context(TARGETS["x86-64-v3"])).plan
    assert len(plan.steps) >= 3 and set(asked.values()) == {1}
