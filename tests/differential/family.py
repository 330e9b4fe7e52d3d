# SPDX-License-Identifier: Apache-2.0
"""A family of cases: how they are drawn, checked in numpy, compiled many at a time, and compared with a reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tvm_megcc
from tvm_megcc.runtime.session import Session

from . import comparison
from .cases import Case
from .operands import operands
from .result import Feature, Result

Outputs = dict[str, np.ndarray]


class Failed(Exception):
    """What was compiled does not run."""


class Family(ABC):
    """name: of the command line and the logs. targets: that it is compiled for; () stands for all."""

    name: str
    targets: tuple[str, ...] = ()
    #: Cases from one multiple of this to the next can be compiled into one folder.
    batch = 100

    def missing(self) -> str:
        """What this machine lacks for the family; "" for nothing."""
        return ""

    @abstractmethod
    def draw(self, seed: int, number: int, operator: str = "") -> Any:
        """A case, which has a `number` and a `label`. The same seed and number make the same one.

        Args:
            operator: draw this one only; "" for any.

        Raises:
            Undrawn: there is no such case.
        """

    @abstractmethod
    def check(self, case) -> Result:
        """Imports the case, runs the passes and computes the graph in numpy; compares that with the reference."""

    def make(self, cases: Sequence, target: str) -> object:
        """Compiles cases into one program, which is not built. Raises MegccError where one of them is refused."""
        return None  # a family whose `refusal` knows them all need not

    @abstractmethod
    def run(self, cases: Sequence, target: str, folder: Path) -> list[Outputs]:
        """The outputs of each case, all of them compiled into one folder and run for a target.

        Raises:
            MegccError: one of them is refused. Failed: it was compiled, and does not run.
        """

    @abstractmethod
    def compare(self, case, found: Outputs) -> str:
        """How outputs differ from those of every reference; "" where one of them agrees."""

    def alone(self, case) -> Iterator:
        """The case as cases of one run each."""
        yield case

    def again(self, case):
        """A case whose model or feeds have changed, with what is wanted of it now."""
        return case

    def refusal(self, case) -> str:
        """Why a case that is right in numpy is not compiled; "" where it is."""
        return ""

    def features(self, case) -> tuple[Feature, ...]:
        """Operators of the case with dtypes and attributes, for the page of coverage."""
        return ()


class OnnxFamily(Family):
    """Cases that are ONNX models: a name and a function that draws is all that they need."""

    def __init__(self, name: str, draw):
        self.name, self._draw = name, draw

    def draw(self, seed: int, number: int, operator: str = "") -> Case:
        return self._draw(seed, number, operator)

    def check(self, case: Case) -> Result:
        return comparison.check(case)

    def again(self, case: Case) -> Case:
        return replace(case, **described(case))

    def make(self, cases: Sequence[Case], target: str) -> tvm_megcc.Artifact:
        model, feeds = merged(cases)
        # In a file an extent of 0 means that it is open.
        empty = {name: array.shape for name, array in feeds.items() if array.size == 0}
        return tvm_megcc.compile(model, target, input_shapes=empty or None)

    def run(self, cases: Sequence[Case], target: str, folder: Path) -> list[Outputs]:
        _, feeds = merged(cases)
        self.make(cases, target).save(folder / target, force=True)
        with tvm_megcc.load(folder / target, target) as session:
            found = run_session(session, feeds)
        return [{value.name: found[prefix(case) + value.name] for value in case.model.graph.output} for case in cases]

    def compare(self, case: Case, found: Outputs) -> str:
        return comparison.compare(case, found)

    def refusal(self, case: Case) -> str:
        return ""

    def features(self, case: Case) -> tuple[Feature, ...]:
        return features_of(case.model)


def run_session(session: Session, feeds: Outputs) -> Outputs:
    """The outputs of a run, every error of which is a failure: the case was right in numpy."""
    try:
        return session.run(feeds)
    except Exception as error:
        raise Failed(str(error)) from error


def prefix(case: Case) -> str:
    return f"c{case.number}_"


def merged(cases: Sequence[Case]) -> tuple[onnx.ModelProto, Outputs]:
    """One model of all cases side by side, which have the same versions of the domains that they share.

    The names of a case begin with `c`, its number and `_`.
    """
    nodes, inputs, outputs, constants, feeds, opsets = [], [], [], [], {}, {}
    for case in cases:
        graph = onnx.GraphProto()
        graph.CopyFrom(case.model.graph)
        opsets |= {each.domain: each.version for each in case.model.opset_import}
        _rename(graph, prefix(case))
        nodes += graph.node
        inputs += graph.input
        outputs += graph.output
        constants += graph.initializer
        feeds |= {prefix(case) + name: array for name, array in case.feeds.items()}
    graph = helper.make_graph(nodes, "merged", inputs, outputs, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def _rename(graph: onnx.GraphProto, prefix: str) -> None:
    """Puts a prefix before the name of every value, in graphs within the graph as well."""
    for node in graph.node:
        node.input[:] = [name and prefix + name for name in node.input]
        node.output[:] = [name and prefix + name for name in node.output]
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _rename(inner, prefix)
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = prefix + value.name


def described(case: Case) -> dict[str, dict]:
    """Attributes and dtypes of a case, by the one node of its model; {} if that is no operator of ONNX alone."""
    if len(case.model.graph.node) != 1 or case.model.graph.node[0].domain:
        return {}
    (node,), known = case.model.graph.node, operands(case)
    formals = onnx.defs.get_schema(node.op_type, case.opset, "").inputs
    variables = [formals[min(place, len(formals) - 1)].type_str for place in range(len(known))]
    dtypes = {variable: array.dtype.name for variable, array in zip(variables, known, strict=True)
              if array is not None and "(" not in variable}
    values = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return {"dtypes": case.dtypes | dtypes,
            "attributes": {name: value.decode() if isinstance(value, bytes) else value
                           for name, value in values.items()}}


def features_of(model: onnx.ModelProto) -> tuple[Feature, ...]:
    """Each node: its operator, the dtypes of those operands whose dtype the file says, its attributes."""
    dtypes = {value.name: value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.value_info)}
    dtypes |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    found = []
    for node in model.graph.node:
        known = [dtypes[name] for name in node.input if name in dtypes]
        names = [onnx.TensorProto.DataType.Name(number).lower() for number in known]
        attributes = [f"{each.name}={value_class(helper.get_attribute_value(each))}" for each in node.attribute]
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        found.append(Feature(operator, tuple(dict.fromkeys(names)), tuple(attributes)))
    return tuple(found)


def value_class(value: object) -> str:
    """An attribute as the page of coverage has it: words and small numbers as they are, others by their kind."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")[:24]
    if isinstance(value, (int, float)):
        if isinstance(value, float) and value != value:
            return "nan"
        return f"{value:g}" if value in range(-3, 9) else "< 0" if value < 0 else "> 0"
    if isinstance(value, Sequence):
        return f"{len(value)} values"
    return "a tensor" if isinstance(value, onnx.TensorProto) else "a graph"
