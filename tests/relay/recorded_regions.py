# SPDX-License-Identifier: Apache-2.0
"""The regions that TVM 0.19 makes of the networks in `tests/tvm_cases.py`, so that what we compile of them can be
compared with what we compile of Relax's where there is no Relay.

`python -m tests.relay.recorded_regions` writes them, where TVM has Relay.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tvm_megcc.frontends.relay.expressions import post_order

from ..tvm_cases import GRAPHS, TARGET, Graph
from . import stand_in
from .recorded import plain, stand_in_type, type_text

REGIONS, WEIGHTS = Path(__file__).with_name("regions.json"), Path(__file__).with_name("regions.npz")


class _Written:
    """A function as a list of its expressions, each naming others by their places; weights apart."""

    def __init__(self):
        self.nodes: list[dict] = []
        self.weights: dict[int, np.ndarray] = {}
        self.places: dict = {}

    def function(self, function) -> dict:
        parameters = [self.place(parameter) for parameter in function.params]
        return {"parameters": parameters, "body": self.place(function.body)}

    def place(self, root) -> int:
        for expr in post_order(root):
            if expr not in self.places:
                node = getattr(self, type(expr).__name__.lower())(expr)
                self.places[expr] = len(self.nodes)
                self.nodes.append(node)
                if "weights" in node:
                    self.weights[self.places[expr]] = expr.data.numpy()
        return self.places[root]

    def var(self, expr) -> dict:
        return {"var": expr.name_hint, "type": type_text(expr.checked_type)}

    def constant(self, expr) -> dict:
        return {"weights": True}

    def tuple(self, expr) -> dict:
        return {"tuple": [self.places[field] for field in expr.fields]}

    def tuplegetitem(self, expr) -> dict:
        return {"field": int(expr.index), "of": self.places[expr.tuple_value]}

    def call(self, expr) -> dict:
        args = [self.places[argument] for argument in expr.args]
        if type(expr.op).__name__ == "Function":
            return {"function": self.function(expr.op), "args": args}
        attrs = None if expr.attrs is None else {key: plain(getattr(expr.attrs, key)) for key in expr.attrs.keys()}
        return {"op": expr.op.name, "attrs": attrs, "type": type_text(expr.checked_type), "args": args}


def region_of(graph: Graph) -> stand_in.Function:
    """The region of a network, from the recording."""
    text, weights = json.loads(REGIONS.read_text())[graph.name], np.load(WEIGHTS)
    made: list = []
    for place, node in enumerate(text["nodes"]):
        if "var" in node:
            made.append(stand_in.Var(stand_in_type(node["type"]), name_hint=node["var"]))
        elif "weights" in node:
            made.append(stand_in.const(weights[f"{graph.name}/{place}"]))
        elif "tuple" in node:
            made.append(stand_in.Tuple(None, fields=[made[field] for field in node["tuple"]]))
        elif "field" in node:
            made.append(stand_in.TupleGetItem(None, tuple_value=made[node["of"]], index=node["field"]))
        elif "function" in node:
            made.append(stand_in.Call(None, op=_function(node["function"], made), attrs=None,
                                      args=[made[argument] for argument in node["args"]]))
        else:
            made.append(stand_in.call(node["op"], [made[argument] for argument in node["args"]],
                                      stand_in_type(node["type"]), node["attrs"]))
    return _function(text, made)


def _function(text: dict, made: list) -> stand_in.Function:
    return stand_in.Function(None, params=[made[place] for place in text["parameters"]], body=made[text["body"]])


def partitioned_region(graph: Graph):
    from .modules import megcc, relay

    mod, _params = relay.frontend.from_onnx(graph.model())
    partitioned = megcc.partition_for_megcc(mod, target=TARGET)
    (region,) = [function for function in partitioned.functions.values() if megcc.is_ours(function)]
    return region


def record() -> None:
    strings, weights = {}, {}
    for graph in GRAPHS:
        written = _Written()
        strings[graph.name] = {**written.function(partitioned_region(graph)), "nodes": written.nodes}
        weights.update({f"{graph.name}/{place}": array for place, array in written.weights.items()})
    REGIONS.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(text)}" for name, text in strings.items())
                       + "\n}\n")
    np.savez_compressed(WEIGHTS, **weights)


if __name__ == "__main__":
    record()
