# SPDX-License-Identifier: Apache-2.0
"""A case of one operator of a domain that has no rules of schemas: the caller names operands and attributes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ..cases import Case
from ..draw import Undrawn, element_type

#: Version of ONNX's own domain in these models.
OPSET = 18


@dataclass
class Node:
    """What a rule draws into. results: names of outputs, "" for one that is not asked for."""

    rng: np.random.Generator
    kind: str
    operands: list[np.ndarray | None] = field(default_factory=list)
    constants: set[int] = field(default_factory=set)
    attributes: dict[str, object] = field(default_factory=dict)
    results: Sequence[str] = ("y",)
    version: int = 1

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        """From low to high, both among them."""
        return int(self.rng.integers(low, high + 1))

    def shape(self, low: int = 1, high: int = 4) -> tuple[int, ...]:
        return tuple(1 if self.chance(0.2) else self.whole(1, 9) for _ in range(self.whole(low, high)))

    def reals(self, *shape: int, dtype: str = "float32") -> np.ndarray:
        return np.asarray(self.rng.standard_normal(shape)).astype(dtype)

    def integers(self, dtype: str, *shape: int, low: int | None = None, high: int | None = None) -> np.ndarray:
        """From low to high, the ends of the dtype if there is none."""
        ends = np.iinfo(dtype)
        return np.asarray(self.rng.integers(ends.min if low is None else low, (ends.max if high is None else high) + 1,
                                            shape)).astype(dtype)

    def scale(self, *shape: int) -> np.ndarray:
        """Of quantised numbers."""
        return np.asarray(np.exp(self.rng.uniform(-5, -1, shape))).astype(np.float32)

    def add(self, array: np.ndarray | None, constant: float = 0.0) -> np.ndarray | None:
        """An operand. constant: the chance that it is an initializer."""
        if array is not None and self.chance(constant):
            self.constants.add(len(self.operands))
        self.operands.append(array)
        return array

    def maybe(self, name: str, value, share: float = 0.5) -> None:
        """An attribute that may stay away."""
        if self.chance(share):
            self.attributes[name] = value


Rule = Callable[[Node], None]


def drawn(domain: str, rules: Mapping[str, Rule], seed: int, number: int, operator: str = "") -> Case:
    """
    Raises:
        Undrawn: there is no rule for the operator.
    """
    rng = np.random.default_rng([seed, number, zlib.crc32(f"{domain} {operator}".encode())])
    kind = operator or sorted(rules)[int(rng.integers(len(rules)))]
    if kind not in rules:
        raise Undrawn(f"no rule draws {kind}")
    node = Node(rng, kind)
    rules[kind](node)
    return case_of(domain, node, seed, number)


def case_of(domain: str, drawn: Node, seed: int, number: int) -> Case:
    names = [f"x{place}" if array is not None else "" for place, array in enumerate(drawn.operands)]
    while names and not names[-1]:
        names.pop()
    arrays = {name: np.asarray(array) for name, array in zip(names, drawn.operands, strict=False) if name}
    constants = [numpy_helper.from_array(arrays[f"x{place}"], f"x{place}") for place in sorted(drawn.constants)]
    feeds = {name: array for name, array in arrays.items() if int(name[1:]) not in drawn.constants}
    inputs = [helper.make_tensor_value_info(name, element_type(array), array.shape) for name, array in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in drawn.results if name]
    made = helper.make_node(drawn.kind, names, list(drawn.results), domain=domain, **drawn.attributes)
    graph = helper.make_graph([made], "case", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(domain, drawn.version)]
    shapes = ", ".join("-" if array is None else f"{'const ' * (place in drawn.constants)}{array.dtype}"
                       f"{list(array.shape)}" for place, array in enumerate(drawn.operands))
    attributes = " ".join(f"{name}={str(value)[:40]}" for name, value in drawn.attributes.items())
    return Case(seed, number, drawn.kind, drawn.version, f"{seed}:{number} {drawn.kind} {shapes} {attributes}",
                helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds)
