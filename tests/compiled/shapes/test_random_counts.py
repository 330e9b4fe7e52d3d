# SPDX-License-Identifier: Apache-2.0
"""Random graphs with extents that a run computes, compiled, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_megcc
from tests.onnx_models import model, node

ROWS, COLUMNS = 6, 4


class Drawn:
    """A graph under construction. values: float tensors [count, COLUMNS] by name; all of them are outputs."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes: list = []
        self.weights = {"columns": np.array([COLUMNS]), "zero": np.array([0]), "one": np.array([1]),
                        "two": np.array([2]), "all": np.array([-1]), "rest": np.array([-1, COLUMNS]),
                        "half": np.array(0.5, np.float32), "far": np.array([2**40]),
                        "matrix": self.random.normal(size=(COLUMNS, COLUMNS)).astype(np.float32)}
        self.values = ["x"]
        self.made = 0

    def name(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def add(self, kind: str, inputs: str, **attributes) -> str:
        result = self.name()
        self.nodes.append(node(kind, inputs, result, **attributes))
        return result

    def step(self) -> None:
        source = self.values[self.random.integers(len(self.values))]
        self.values.append(getattr(self, self.random.choice(STEPS))(source))

    def unary(self, x: str) -> str:
        return self.add(str(self.random.choice(["Tanh", "Neg", "Abs", "Sigmoid"])), x)

    def product(self, x: str) -> str:
        return self.add("MatMul", f"{x} matrix")

    def doubled(self, x: str) -> str:
        return self.add("Concat", f"{x} {self.add('Mul', f'{x} half')}", axis=0)

    def compressed(self, x: str) -> str:
        total = self.add("ReduceSum", f"{x} one", keepdims=0)
        return self.add("Compress", f"{x} {self.add('Less', f'{total} half')}", axis=0)

    def found(self, x: str) -> str:
        indices = self.add("Transpose", self.add("NonZero", self.add("Relu", x)))
        picked = self.add("GatherND", f"{x} {indices}")
        wide = self.add("Unsqueeze", f"{picked} one")
        shape = self.add("Concat", f"{self.add('Shape', picked)} columns", axis=0)
        return self.add("Expand", f"{wide} {shape}")

    def best(self, x: str) -> str:
        count = self.add("Slice", f"{self.add('Shape', x)} zero one")
        share = self.add("Div", f"{count} two")
        values, indices = self.name(), self.name()
        self.nodes.append(node("TopK", f"{x} {share}", f"{values} {indices}", axis=0))
        return values

    def sliced(self, x: str) -> str:
        start, end = self.random.choice(["start", "zero"]), self.random.choice(["end", "far"])
        return self.add("Slice", f"{x} {start} {end} zero")

    def reshaped(self, x: str) -> str:
        return self.add("Reshape", f"{self.add('Reshape', f'{x} all')} rest")

    def counted_up(self, x: str) -> str:
        size = self.add("Reshape", f"{self.add('Slice', self.add('Shape', x) + ' zero one')} nothing")
        steps = self.add("Cast", self.add("Range", f"origin {size} unit"), to=1)
        return self.add("Add", f"{x} {self.add('Unsqueeze', f'{steps} one')}")


STEPS = ["unary", "product", "doubled", "compressed", "found", "best", "sliced", "reshaped", "counted_up"]


def drawn(seed: int):
    graph = Drawn(seed)
    graph.weights |= {"origin": np.array(0), "unit": np.array(1), "nothing": np.array([], np.int64)}
    for _ in range(graph.random.integers(2, 8)):
        graph.step()
    outputs = {name: [f"n{name}", COLUMNS] for name in graph.values[1:]}
    return model(graph.nodes, {"x": [ROWS, COLUMNS], "start": ("int64", [1]), "end": ("int64", [1])}, outputs,
                 graph.weights)


def check(seed: int, folder) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    source = drawn(seed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    artifact = tvm_megcc.compile(source, "native", name="drawn", optimize="size" if seed % 2 else "speed")
    random = np.random.default_rng(seed)
    with tvm_megcc.load(artifact.save(folder / f"drawn{seed}")) as compiled:
        for shift in (0.0, 9.0, -9.0, 0.5):
            inputs = {"x": (random.normal(size=(ROWS, COLUMNS)) + shift).astype(np.float32),
                      "start": random.integers(-7, 7, 1), "end": random.integers(-7, 7, 1)}
            given = {port.name: inputs[port.name] for port in compiled.inputs}
            try:
                expected = session.run(None, inputs)
            except Exception:  # it cannot broadcast, or reduce, nothing
                continue
            results = compiled.run(given)
            for value, wanted in zip(source.graph.output, expected, strict=True):
                assert results[value.name].shape == wanted.shape, (seed, value.name)
                np.testing.assert_allclose(results[value.name], wanted, rtol=1e-4, atol=1e-4, err_msg=f"{seed}")


@pytest.mark.slow
def test_some_random_graphs(tmp_path):
    for seed in range(4):
        check(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 100, 8))
def test_random_graphs(seed: int, tmp_path):
    for number in range(seed, seed + 8):
        check(number, tmp_path)
