# SPDX-License-Identifier: Apache-2.0
"""The real networks that the tests run, where they are, and what the compiler promises for each."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import onnx
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
_scratch = tempfile.TemporaryDirectory(prefix="megcc-networks-")


@dataclass(frozen=True)
class Network:
    """arena_kb: largest arena for target arm64. shapes: for inputs that the file leaves open. constants: inputs that
    are compiled in.

    emulated: small enough (under 1 GMAC) to run in an emulator.
    pixels: seeded inputs are drawn from [0, 255] as the network was trained on, not from a normal distribution
        (far outside that range executors that are all correct differ by more than the tolerance).
    tokens: seeded integers are drawn from below this number.
    noise: largest difference between ONNX Runtime with and without its optimiser, as meta.json beside the model has
        it (rounded up); tolerated where it is more than the tolerance.
    """

    name: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    arena_kb: int | None = None
    emulated: bool = True
    pixels: bool = False
    tokens: int = 2
    constants: tuple[tuple[str, int], ...] = ()
    noise: float = 0.0

    @property
    def path(self) -> Path:
        """The ONNX file; skips the test where it is absent."""
        if self.name.startswith("light_"):
            path = with_random_weights(self.name)
        else:
            base = Path(os.environ.get("MEGCC_MODELS", CHECKOUT.parent / "shared" / "models"))
            path = base / self.name / "model.onnx"
        if not path.exists():
            pytest.skip(f"{self.name} is not on this machine (set MEGCC_MODELS)")
        return path

    def inputs(self, seed: int) -> dict[str, np.ndarray]:
        """Seeded inputs for the shapes of the file and of `shapes`."""
        generator = np.random.default_rng(seed)
        graph = onnx.load(self.path, load_external_data=False).graph
        compiled_in = {initializer.name for initializer in graph.initializer} | dict(self.constants).keys()
        arrays = {}
        for value in graph.input:
            if value.name not in compiled_in:
                tensor = value.type.tensor_type
                shape = dict(self.shapes).get(value.name, tuple(dim.dim_value for dim in tensor.shape.dim))
                dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                if np.issubdtype(dtype, np.integer):
                    drawn = generator.integers(0, self.tokens, shape)
                else:
                    drawn = generator.uniform(0, 255, shape) if self.pixels else generator.standard_normal(shape)
                arrays[value.name] = drawn.astype(dtype)
        return arrays

    def expected(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What ONNX Runtime computes."""
        return onnxruntime_outputs(self.path, {**inputs, **{n: np.array(v, np.int64) for n, v in self.constants}})

    def references(self) -> list[tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]]]:
        """(file, inputs, outputs) of every stored reference whose shapes are those of `shapes`."""
        found = []
        for path in sorted(self.path.parent.glob("reference*.npz")):
            if "tflite" in path.name:
                continue
            arrays = np.load(path)
            inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
            outputs = {key[4:]: arrays[key] for key in arrays.files if key.startswith("out:")}
            given = {name: array for name, array in inputs.items() if name not in dict(self.constants)}
            if all(inputs[name].shape == shape for name, shape in self.shapes):
                found.append((path.name, given, outputs))
        return found


NETWORKS = {network.name: network for network in (
    Network("mnist8"),
    Network("resnet8_cifar10_f32", (("input_1", (1, 32, 32, 3)),), arena_kb=192),
    Network("kws_dscnn_f32", (("input_1", (1, 49, 10, 1)),), arena_kb=63),
    Network("mobilenet_v1_025_224_f32", arena_kb=1176),
    Network("ultraface_rfb320", arena_kb=3600),
    Network("yolox_nano_416", arena_kb=5408, pixels=True),
    Network("dtln_stage1"), Network("dtln_stage2"), Network("silero_vad_16k_static"),
    Network("light_squeezenet", arena_kb=3837),
    Network("light_resnet50", arena_kb=9408, emulated=False),
)}

#: Networks for what they contain, such as resizes, LRN, shuffles, attention and dense blocks: at -O speed only.
MORE_NETWORKS = {network.name: network for network in (
    Network("deeplab_v3_257", arena_kb=10837),
    Network("sinet_portrait_seg"),
    Network("super_resolution_10", (("input", (1, 1, 224, 224)),), arena_kb=25088, emulated=False),
    Network("lw_person_detector_192", arena_kb=1152),
    Network("yunet_n_dynamic", (("input", (1, 3, 320, 320)),), arena_kb=3200, pixels=True, noise=1.1e-6),
    Network("basic_pitch_nmp", (("serving_default_input_2:0", (1, 43844, 1)),), arena_kb=4730, noise=7e-4),
    Network("ad_autoencoder_f32", (("input_1", (1, 640)),)),
    Network("kwt1_keyword_transformer"),
    Network("minilm_l1_f32", tuple((name, (2, 40)) for name in ("input_ids", "attention_mask", "token_type_ids"))),
    Network("vespa_tiny_transformer", (("input", (3, 13)),), tokens=20),
    Network("silero_vad_op18_ifless", (("input", (2, 576)), ("state", (2, 2, 128))), constants=(("sr", 16000),)),
    Network("light_bvlc_alexnet"),
    Network("light_inception_v1", arena_kb=4538, emulated=False),
    Network("light_inception_v2", emulated=False),
    Network("light_densenet121", arena_kb=7056, emulated=False),
    Network("light_shufflenet", arena_kb=3038),
    Network("light_vgg19", arena_kb=25088, emulated=False),
    Network("light_zfnet512", emulated=False),
)}
ALL_NETWORKS = NETWORKS | MORE_NETWORKS


@cache
def with_random_weights(name: str) -> Path:
    """A `light_` model of the onnx package, whose weights are all zero or one, with seeded weights that keep
    activations in range (He's initialisation; batch norms near the identity)."""
    source = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    model = onnx.load(source)
    graph, generator = model.graph, np.random.default_rng(0)
    shapes = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    use = {operand: (node.op_type, slot) for node in graph.node for slot, operand in enumerate(node.input)}
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        kind, slot = use.get(node.output[0], ("", 0))
        array = _random_weight(tuple(shapes[node.input[0]]), kind, slot, generator)
        graph.initializer.append(onnx.numpy_helper.from_array(array, node.output[0]))
        graph.node.remove(node)
    used = {operand for node in graph.node for operand in node.input}
    for row in [row for row in (*graph.initializer, *graph.input) if row.name not in used]:
        (graph.initializer if isinstance(row, onnx.TensorProto) else graph.input).remove(row)
    model.ir_version = 8  # initializers need not be inputs
    path = Path(_scratch.name) / f"{name}.onnx"
    onnx.save(model, path)
    return path


def _random_weight(shape: tuple[int, ...], kind: str, slot: int, generator) -> np.ndarray:
    if kind == "BatchNormalization":
        low, high = {1: (0.5, 0.8), 2: (-0.1, 0.1), 3: (-0.1, 0.1), 4: (0.7, 1.3)}[slot]
        return generator.uniform(low, high, shape).astype(np.float32)
    if len(shape) > 1:
        fan_in = int(np.prod(shape[1:]))
        return (generator.standard_normal(shape) * np.sqrt(1.6 / fan_in)).astype(np.float32)
    return generator.uniform(-0.05, 0.05, shape).astype(np.float32)


@lru_cache(maxsize=2)
def _onnxruntime_session(path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def onnxruntime_outputs(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes on one thread with its optimiser off."""
    session = _onnxruntime_session(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], noise: float = 0.0) -> None:
    """≤ 1e-4 of the output's largest magnitude, or `noise` where that is more; and cosine ≥ 0.99999, per output."""
    assert set(actual) == set(expected)
    for name, want in expected.items():
        got = actual[name]
        assert got.shape == want.shape and got.dtype == want.dtype, f"{name}: {got.dtype}{got.shape}"
        largest = float(np.abs(want).max())
        error = float(np.abs(got - want).max())
        assert error <= max(1e-4 * largest, noise), f"{name}: max error {error:g}, largest magnitude {largest:g}"
        a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
        cosine = a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-300)
        assert cosine >= 0.99999, f"{name}: cosine {cosine}"
