# SPDX-License-Identifier: Apache-2.0
"""The real networks that the tests run, where they are, and what the compiler promises for each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Network:
    """arena_kb: largest arena for target arm64. shapes: for inputs that the file leaves open."""

    name: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    arena_kb: int | None = None
    emulated: bool = True

    @property
    def path(self) -> Path:
        """The ONNX file; skips the test where it is absent."""
        if self.name.startswith("light_"):
            path = Path(onnx.__file__).parent / "backend/test/data/light" / f"{self.name}.onnx"
        else:
            base = Path(os.environ.get("MEGCC_MODELS", CHECKOUT.parent / "shared" / "models"))
            path = base / self.name / "model.onnx"
        if not path.exists():
            pytest.skip(f"{self.name} is not on this machine (set MEGCC_MODELS)")
        return path

    def references(self) -> list[tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """(file, inputs, outputs) of every stored reference whose shapes are those of `shapes`."""
        found = []
        for path in sorted(self.path.parent.glob("reference*.npz")):
            if "tflite" in path.name:
                continue
            arrays = np.load(path)
            inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
            outputs = {key[4:]: arrays[key] for key in arrays.files if key.startswith("out:")}
            if all(inputs[name].shape == shape for name, shape in self.shapes):
                found.append((path.name, inputs, outputs))
        return found


NETWORKS = {network.name: network for network in (
    Network("mnist8"),
    Network("resnet8_cifar10_f32", (("input_1", (1, 32, 32, 3)),), arena_kb=192),
    Network("kws_dscnn_f32", (("input_1", (1, 49, 10, 1)),), arena_kb=63),
    Network("mobilenet_v1_025_224_f32", arena_kb=1176),
    Network("ultraface_rfb320", arena_kb=3600),
    Network("yolox_nano_416", arena_kb=5408),
    Network("light_squeezenet", arena_kb=3837),
    Network("light_resnet50", arena_kb=9408, emulated=False),
)}


def seeded_inputs(inputs: list[dict], seed: int) -> dict[str, np.ndarray]:
    """Standard normal inputs for the descriptions in a manifest."""
    generator = np.random.default_rng(seed)
    return {i["name"]: generator.standard_normal(i["shape"]).astype(i["dtype"]) for i in inputs}


def onnxruntime_outputs(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes on one thread with its optimiser off."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """≤ 1e-4 of the output's largest magnitude, and cosine ≥ 0.99999, per output."""
    assert set(actual) == set(expected)
    for name, want in expected.items():
        got = actual[name]
        assert got.shape == want.shape and got.dtype == want.dtype, f"{name}: {got.dtype}{got.shape}"
        largest = float(np.abs(want).max())
        error = float(np.abs(got - want).max())
        assert error <= 1e-4 * largest, f"{name}: max error {error:g}, largest magnitude {largest:g}"
        a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
        cosine = a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-300)
        assert cosine >= 0.99999, f"{name}: cosine {cosine}"
