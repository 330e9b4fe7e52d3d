# SPDX-License-Identifier: Apache-2.0
"""Every row of the pattern table is found in Relay under all of Relay's names for its operators, and becomes the graph
that the row describes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tvm_megcc import patterns
from tvm_megcc.frontends.relay.expressions import post_order
from tvm_megcc.frontends.relay.importer import import_region
from tvm_megcc.frontends.relay.ops import IMPORTERS
from tvm_megcc.frontends.relay.terms import matched_calls, relay_names
from tvm_megcc.frontends.tvm_common.support import why_unsupported
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import TARGETS

from . import stand_in
from .relay_or_skip import needs_relay

CONV = {"strides": [1, 1], "padding": [1, 1, 1, 1], "dilation": [1, 1], "groups": 1, "channels": 8,
        "kernel_size": [3, 3], "data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "out_dtype": ""}
PRODUCT = {"transpose_a": False, "transpose_b": True}
ATTRS = {"nn.conv2d": CONV, "nn.batch_matmul": PRODUCT, "nn.matmul": PRODUCT, "nn.dense": {"units": 8},
         "nn.bias_add": {"axis": 1}, "clip": {"a_min": 0.0, "a_max": 6.0}, "nn.leaky_relu": {"alpha": 0.1},
         "nn.prelu": {"axis": 1}}
#: Shapes by the operator that everything is about: of the operands x, w, b of a sum, b of nn.bias_add.
SHAPES = {"nn.conv2d": ((1, 8, 6, 6), (8, 8, 3, 3), (8, 1, 1), (8,)), "nn.dense": ((3, 8), (8, 8), (8,), (8,)),
          "nn.matmul": ((3, 8), (8, 8), (8,), (8,)), "nn.batch_matmul": ((2, 3, 8), (2, 8, 8), (8,), (3,))}


class Instance:
    """An expression that is exactly one composite, with these names for its producer, its sums and its activation.

    optional: whether what may be there is there.
    """

    def __init__(self, term, producer: str, bias: str, activation: str, optional: bool):
        self.producer, self.bias, self.activation, self.optional = producer, bias, activation, optional
        self.x, self.w, self.b, self.channels = SHAPES[producer]
        self.inputs, self.values, self.calls = [], {}, []
        self.root = self.build(term)

    def build(self, term):
        if term not in self.values:
            self.values[term] = self._new(term)
        return self.values[term]

    def _new(self, term):
        if isinstance(term, patterns.Any):
            self.inputs.append(stand_in.var(term.name, self.x))
            return self.inputs[-1]
        if isinstance(term, patterns.Const):
            shape = {"w": self.w, "b": self.channels if self.bias == "nn.bias_add" else self.b}[term.name]
            return stand_in.const(np.ones(shape, "float32"))
        if isinstance(term, patterns.Opt) and not self.optional:
            return self.build(term.arg)
        terms = term.args if isinstance(term, patterns.Call) else (term.arg, *term.more)
        name = self._name(term, terms)
        extra = [stand_in.const(np.full(self.x[1], 0.1, "float32"))] if name == "nn.prelu" else []
        call = stand_in.call(name, [*map(self.build, terms), *extra], stand_in.TensorType(self.x), ATTRS.get(name))
        self.calls.append(call)
        return call

    def _name(self, term, terms) -> str:
        names = [name for kind in term.kinds for name in relay_names(kind, terms)]
        wanted = (self.producer, self.bias if isinstance(terms[-1], patterns.Const) else "add", self.activation)
        return next((name for name in wanted if name in names), names[0])


def activations() -> list[str]:
    declared = {name for kind in patterns.ACTIVATIONS if kind in OPERATORS for name in OPERATORS[kind].relay}
    return sorted(declared & {"nn.relu", "clip", "nn.leaky_relu", "sigmoid", "tanh", "nn.prelu"})


def instances():
    for row in patterns.COMPOSITES:
        producers = [name for name in SHAPES if ("conv2d" in name) == ("conv2d" in row.name)]
        acts = activations() if row.name.endswith("act") else ["sigmoid"]
        for producer, bias, activation, optional in itertools.product(
                producers, ("add", "nn.bias_add"), acts, (True, False)):
            if optional or (activation == acts[0] and bias == "add"):
                yield pytest.param(row, Instance(row.term, producer, bias, activation, optional),
                                   id=f"{row.name} {producer} {bias} {activation}{'' if optional else ' bare'}")


INSTANCES = list(instances())


@pytest.mark.parametrize(("row", "instance"), INSTANCES)
def test_row_is_found(row, instance):
    calls = matched_calls(row.term, instance.root)
    assert calls is not None and set(calls) == set(instance.calls)


@pytest.mark.parametrize(("row", "instance"), INSTANCES)
def test_row_becomes_the_graph_it_describes(row, instance):
    graph = import_region(stand_in.Function(None, params=instance.inputs, body=instance.root), "row")
    assert why_unsupported(graph, TARGETS["c"]) is None
    kinds = [op.kind for op in graph.ops]
    assert kinds.count("conv2d") + kinds.count("matmul") == 1
    if "transpose" not in kinds:  # of a weight that has an axis of batches
        assert patterns.match(row.term, graph, graph.outputs[0]) is not None, kinds


@pytest.mark.parametrize("row", patterns.COMPOSITES, ids=lambda row: row.name)
def test_other_expressions_are_not_found(row):
    x = stand_in.var("x", (3, 8))
    relu = stand_in.call("nn.relu", [stand_in.call("exp", [x], stand_in.TensorType((3, 8)))],
                         stand_in.TensorType((3, 8)))
    assert matched_calls(row.term, relu) is None


def test_one_value_at_two_places():
    """SiLU multiplies a value with its own sigmoid, not with that of another."""
    row = next(row for row in patterns.COMPOSITES if row.name == "megcc.matmul_bias_silu")
    instance = Instance(row.term, "nn.dense", "add", "sigmoid", True)
    assert matched_calls(row.term, instance.root) is not None
    other = Instance(row.term, "nn.dense", "add", "sigmoid", True)
    mixed = stand_in.call("multiply", [instance.root.args[0], other.root.args[1]], stand_in.TensorType((3, 8)))
    assert matched_calls(row.term, mixed) is None


def test_operands_come_first_and_once():
    row = patterns.COMPOSITES[0]
    instance = Instance(row.term, "nn.conv2d", "nn.bias_add", "nn.relu", True)
    order = list(post_order(instance.root))
    assert order[-1] is instance.root and len(order) == len(set(order))
    assert all(order.index(argument) < order.index(call) for call in instance.calls for argument in call.args)


def test_names_of_patterns_have_importers():
    names = {name for row in patterns.COMPOSITES for name in _names(row.term)}
    assert {"nn.conv2d", "nn.dense", "nn.bias_add", "nn.relu"} <= names
    assert all(name in IMPORTERS or any(name in declared.relay for declared in OPERATORS.values()) for name in names)


def _names(term) -> set[str]:
    if isinstance(term, (patterns.Any, patterns.Const)):
        return set()
    terms = term.args if isinstance(term, patterns.Call) else (term.arg, *term.more)
    own = {name for kind in term.kinds for name in relay_names(kind, terms)}
    return own.union(*map(_names, terms))


@needs_relay
def test_tables_of_tvm():
    from tvm.ir import Op
    from tvm.relay.op.contrib import get_pattern_table

    import tvm_megcc  # noqa: F401

    assert [name for name, _pattern, _check in get_pattern_table("megcc")] == [row.name for row in patterns.COMPOSITES]
    assert all(Op.get(name).get_attr("target.megcc") is not None
               for name in ("nn.relu", "concatenate", "image.resize2d"))
    assert Op.get("sort").get_attr("target.megcc") is None


@needs_relay
@pytest.mark.parametrize(("row", "instance"), [p for p in INSTANCES if " bare" not in p.id])
def test_tvm_finds_the_row_too(row, instance):
    """TVM's matcher and ours agree on real expressions."""
    from tvm.relay.op.contrib import get_pattern_table

    from .modules import relay

    made: dict = {}
    for expr in post_order(instance.root):
        kind = type(expr).__name__
        if kind == "Var":
            made[expr] = relay.var(expr.name_hint, shape=expr.checked_type.shape)
        elif kind == "Constant":
            made[expr] = relay.const(expr.data.numpy())
        else:
            made[expr] = BUILDERS[expr.op.name](relay, *(made[argument] for argument in expr.args))
    root = made[instance.root]
    pattern = next(pattern for name, pattern, _check in get_pattern_table("megcc") if name == row.name)
    assert pattern.match(root)
    assert len(matched_calls(row.term, root)) == len(instance.calls)


BUILDERS = {
    "nn.conv2d": lambda relay, a, b: relay.nn.conv2d(a, b, padding=(1, 1)),
    "nn.dense": lambda relay, a, b: relay.nn.dense(a, b), "nn.matmul": lambda relay, a, b: relay.nn.matmul(
        a, b, transpose_b=True),
    "nn.batch_matmul": lambda relay, a, b: relay.nn.batch_matmul(a, b), "add": lambda relay, a, b: relay.add(a, b),
    "nn.bias_add": lambda relay, a, b: relay.nn.bias_add(a, b), "nn.relu": lambda relay, a: relay.nn.relu(a),
    "multiply": lambda relay, a, b: relay.multiply(a, b), "sigmoid": lambda relay, a: relay.sigmoid(a),
    "tanh": lambda relay, a: relay.tanh(a), "clip": lambda relay, a: relay.clip(a, 0.0, 6.0),
    "nn.leaky_relu": lambda relay, a: relay.nn.leaky_relu(a, 0.1),
    "nn.prelu": lambda relay, a, slope: relay.nn.prelu(a, slope),
}

