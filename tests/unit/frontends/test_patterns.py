# SPDX-License-Identifier: Apache-2.0
"""Every row of the pattern table becomes one kernel, and is found where it stands."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_megcc import ops  # noqa: F401
from tvm_megcc.compiler import lower
from tvm_megcc.context import Context
from tvm_megcc.ir.graph import Attrs, Graph, Op
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.base import OPERATORS, operator
from tvm_megcc.patterns import COMPOSITES, Any, Call, Const, Opt, match
from tvm_megcc.target import TARGETS

ATTRS = {"matmul": Attrs(trans_a=False, trans_b=False),
         "conv2d": Attrs(strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1)}
SHAPES = {"conv2d": {"x": (1, 8, 6, 6), "w": (8, 8, 3, 3), "b": (1, 8, 1, 1), "residual": (1, 8, 6, 6)},
          "matmul": {"x": (3, 8), "w": (8, 8), "b": (8,), "residual": (3, 8)}}


class Instance:
    """A graph that is exactly one composite, every optional part present."""

    def __init__(self, composite):
        self.shapes = SHAPES["conv2d" if "conv2d" in composite.name else "matmul"]
        self.types, self.constants, self.ops, self.values = {}, {}, [], {}
        root = self.build(composite.term)
        inputs = tuple(n for n in ("x", "residual") if n in self.types)
        self.graph = Graph("composite", inputs, (root,), tuple(self.ops), self.types, self.constants)

    def build(self, term) -> str:
        if term in self.values:
            return self.values[term]
        if isinstance(term, (Any, Const)):
            name = term.name
            self.types[name] = TensorType("float32", self.shapes[name])
            if isinstance(term, Const):
                self.constants[name] = np.ones(self.shapes[name], np.float32)
        else:
            args = term.args if isinstance(term, Call) else (term.arg, *term.more)
            inputs = [self.build(a) for a in args]
            kind = next(k for k in term.kinds if k in OPERATORS)
            name = f"v{len(self.ops)}"
            attrs = ATTRS.get(kind, Attrs())
            (self.types[name],) = operator(kind).infer(attrs, *(self.types[i] for i in inputs))
            self.ops.append(Op(kind, attrs, tuple(inputs), (name,), origin=kind))
        self.values[term] = name
        return name


@pytest.mark.parametrize("target", ["c", "x86-64-v4", "arm64"])
@pytest.mark.parametrize("composite", COMPOSITES, ids=lambda c: c.name)
def test_composite_becomes_one_call(composite, target):
    plan = lower(Instance(composite).graph, Context(TARGETS[target])).plan
    computing = [s for s in plan.steps if s.op.kind not in ("relayout", "copy")]
    assert len(computing) == 1, [s.spec.symbol for s in plan.steps]


@pytest.mark.parametrize("composite", COMPOSITES, ids=lambda c: c.name)
def test_match_finds_the_composite(composite):
    graph = Instance(composite).graph
    bound = match(composite.term, graph, graph.outputs[0])
    assert bound is not None
    assert {bound[t] for t in bound if isinstance(t, (Any, Const))} == set(graph.inputs) | set(graph.constants)


def test_optional_parts_may_be_absent():
    graph = Instance(COMPOSITES[2]).graph
    conv = graph.with_(ops=graph.ops[:1], outputs=(graph.ops[0].outputs[0],))
    assert match(COMPOSITES[2].term, conv, conv.outputs[0]) is not None
    assert match(COMPOSITES[0].term, conv, conv.outputs[0]) is None
    assert isinstance(COMPOSITES[2].term, Opt)
