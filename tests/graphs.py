# SPDX-License-Identifier: Apache-2.0
"""Constructs small operator graphs for tests, and compares strings with golden files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tvm_megcc import ops  # noqa: F401  (registers the operators)
from tvm_megcc.ir.graph import Attrs, Graph, Op
from tvm_megcc.ir.types import TensorType
from tvm_megcc.ops.base import operator

GOLDEN = Path(__file__).parent / "golden"


class Builder:
    """Adds inputs, constants and operators, and infers types: `b.op("relu", b.input("x", 1, 8))`.

    All methods return the name of the new value. seed: of the random constants.
    """

    def __init__(self, seed: int = 0):
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[str] = []
        self.ops: list[Op] = []
        self.generator = np.random.default_rng(seed)

    def input(self, name: str, *shape: int, dtype: str = "float32") -> str:
        self.types[name] = TensorType(dtype, shape)
        self.inputs.append(name)
        return name

    def const(self, name: str, *shape: int, value: np.ndarray | None = None) -> str:
        """Adds a constant: an array, or random numbers of float32 of a shape."""
        array = self.generator.standard_normal(shape).astype(np.float32) if value is None else value
        self.constants[name] = array
        self.types[name] = TensorType(str(array.dtype), array.shape)
        return name

    def op(self, kind: str, *inputs: str, name: str = "", **attrs) -> str:
        """Adds an operator with one result. inputs: names of values, "" for an absent operand."""
        name = name or f"{kind}{len(self.ops)}"
        types = operator(kind).infer(Attrs(attrs), *(self.types[i] if i else None for i in inputs))
        self.types[name] = types[0]
        self.ops.append(Op(kind, Attrs(attrs), inputs, (name,), origin=name))
        return name

    def conv(self, x: str, channels: int, kernel: int = 3, stride: int = 1, name: str = "", groups: int = 1) -> str:
        """Adds a conv2d with random weights and pads of half the kernel. channels: of the result."""
        name = name or f"conv{len(self.ops)}"
        w = self.const(f"{name}.w", channels, self.types[x].shape[1] // groups, kernel, kernel)
        pad = kernel // 2
        return self.op("conv2d", x, w, name=name, strides=(stride, stride), pads=(pad,) * 4, dilations=(1, 1),
                       groups=groups)

    def graph(self, *outputs: str, name: str = "test") -> Graph:
        return Graph(name, tuple(self.inputs), outputs, tuple(self.ops), self.types, self.constants)


def assert_golden(name: str, text: str) -> None:
    """Compares a text with the file tests/golden/<name>.txt; with MEGCC_UPDATE_GOLDEN=1, writes that file."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("MEGCC_UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden text {path.name}; set MEGCC_UPDATE_GOLDEN=1 to write it"
    assert text == path.read_text()
