# SPDX-License-Identifier: Apache-2.0
"""Real networks through TVM's ONNX importer: every multiply-accumulate in kernels of ours, results as stored; and small
ones that the tests of Relay have too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

import tvm_megcc
from tests.models.networks import ALL_NETWORKS
from tests.onnx_models import model, node
from tvm_megcc.dispatch import Dispatch
from tvm_megcc.errors import MegccWarning

from ..tvm_cases import PARAMETERS, TARGET, FrontEnd, check_graph, check_open
from .modules import RELEASE, arrays_of, assert_same, megcc, run, tensors

MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[3] / "shared" / "models"))


@dataclass(frozen=True)
class Network:
    """slow, long: its C takes long to compile. regions: that it is partitioned into. since: the first release whose
    importer takes it; those before want another shape of PRelu's slope, or lose an axis before Split."""

    name: str
    slow: bool = True
    regions: int = 1
    long: bool = False
    since: tuple[int, ...] = ()


NETWORKS = (
    Network("mnist8", slow=False), Network("resnet8_cifar10_f32"), Network("kws_dscnn_f32"),
    Network("mobilenet_v1_025_224_f32"), Network("super_resolution_10"), Network("sinet_portrait_seg", since=(0, 27)),
    Network("lw_person_detector_192", long=True), Network("yolox_nano_416", long=True), Network("yunet_n_dynamic"),
    Network("ad_autoencoder_f32"), Network("dtln_stage2", since=(0, 26)), Network("kwt1_keyword_transformer"),
    Network("minilm_l1_f32"), Network("minilm_l2_int8dyn", long=True),
    Network("ad_autoencoder_int8"), Network("resnet8_cifar10_int8"), Network("kws_dscnn_int8"),
    Network("mobilenet_v1_025_224_uint8"),
)


def load(name: str):
    """(Relax module, inputs in order, outputs in order) of a stored model with its reference."""
    path = MODELS / name / "model.onnx"
    if not path.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    model, arrays = onnx.load(path), np.load(path.parent / "reference.npz")
    inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
    mod = from_onnx(model, shape_dict={key: list(array.shape) for key, array in inputs.items()})
    order = [value.name for value in model.graph.input if value.name in inputs]
    return mod, [inputs[key] for key in order], [arrays[f"out:{value.name}"] for value in model.graph.output]


@pytest.mark.parametrize("network", [
    pytest.param(n, id=n.name, marks=[pytest.mark.slow] * n.slow + [pytest.mark.long] * n.long) for n in NETWORKS])
def test_network(network, tmp_path):
    """Integers are those of the reference, not one differs."""
    if RELEASE < network.since:
        pytest.skip(f"the importer of TVM {tvm.__version__} does not take it")
    mod, inputs, outputs = load(network.name)
    noise = ALL_NETWORKS[network.name].noise if network.name in ALL_NETWORKS else 0.0
    mod = tvm_megcc.partition_for_megcc(mod)
    report = megcc.report(mod)
    assert report.share == 1.0 and len(report.regions) == network.regions, str(report)
    assert not report.theirs and not report.tir, str(report)
    executable = tvm.compile(mod, target="megcc-native", relax_pipeline="megcc")
    assert_same(run(executable, inputs), outputs, noise=noise)
    executable.export_library(str(tmp_path / "model.so"))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / "model.so")), tvm.cpu())
    again = machine["main"](*[tvm.runtime.tensor(array) for array in inputs])
    assert_same([array.numpy() for array in (again if len(outputs) > 1 else [again])], outputs, noise=noise)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist8", "mobilenet_v1_025_224_f32", "kwt1_keyword_transformer", pytest.param(
    "sinet_portrait_seg", marks=pytest.mark.skipif(RELEASE < (0, 27), reason="TVM's importer does not take it"))])
def test_bits_are_those_of_the_file_compiled_by_itself(name, tmp_path):
    """The importer writes operators of ONNX as others of TVM; here both ways end in the same arithmetic."""
    mod, inputs, _ = load(name)
    inside = run(tvm.compile(mod, target="megcc-native"), inputs)
    shapes = ";".join(f"{key}=({','.join(map(str, array.shape))})" for key, array in named(name, inputs).items())
    alone = tvm_megcc.compile(MODELS / name / "model.onnx", "native", input_shapes=shapes)
    results = tvm_megcc.load(alone.save(tmp_path / "alone")).run(named(name, inputs)).values()
    for got, want in zip(inside, results, strict=True):
        np.testing.assert_array_equal(got, want)


def named(name: str, inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs of a stored model by name."""
    stored = {key[3:] for key in np.load(MODELS / name / "reference.npz").files if key.startswith("in:")}
    graph = onnx.load(MODELS / name / "model.onnx").graph
    return dict(zip([value.name for value in graph.input if value.name in stored], inputs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True], ids=["attached", "detached"])
def test_initialisers_that_are_inputs_too(apart, tmp_path):
    """TVM's importer has each of them among the parameters twice where they are kept there, and compiles no such
    module itself."""
    generator = np.random.default_rng(3)
    weights = {"w": generator.standard_normal((4, 8, 3, 3), np.float32), "b": generator.standard_normal(4, np.float32)}
    made = model([node("Conv", "x w", "h", pads=[1, 1, 1, 1]), node("Add", "h b1", "y")],
                 {"x": [1, 8, 6, 6], "b1": [4, 1, 1], "w": [4, 8, 3, 3]}, {"y": [1, 4, 6, 6]},
                 {"w": weights["w"], "b1": weights["b"].reshape(4, 1, 1)})
    mod = from_onnx(made, keep_params_in_input=True)
    assert len(mod["main"].params) == 5
    mod, params = (relax.frontend.detach_params(mod) if apart else (mod, {"main": mod["main"].attrs["params"]}))
    given = generator.standard_normal((1, 8, 6, 6), np.float32)
    expected = run(tvm.compile(from_onnx(made), target="llvm"), [given])
    apart_arrays = [array.numpy() for array in params["main"]]
    assert_same(run(tvm_megcc.build(tvm_megcc.partition_for_megcc(mod)), [given, *apart_arrays]), expected)
    assert_same(run(tvm.compile(mod, target="megcc-native"), [given, *apart_arrays]), expected)
    assert_same(run(tvm_megcc.build(tvm_megcc.partition_for_megcc(mod, params)), [given]), expected)
    with pytest.warns(MegccWarning, match=r"weights of the module are inputs \(\w+, \w+\).*detach_params"):
        assert len(tvm_megcc.compile(mod, "c", name="m").manifest["inputs"]) == 3
    session = tvm_megcc.load(tvm_megcc.compile(mod, params=params, name="m").save(tmp_path / "m"))
    assert_same([*session.run([given]).values()], expected)


@pytest.fixture(scope="module")
def front_end() -> FrontEnd:
    def session(partitioned):
        machine = relax.VirtualMachine(tvm.compile(partitioned, target=TARGET, relax_pipeline="megcc"), tvm.cpu())
        return lambda data: arrays_of(machine["main"](*tensors([data])))

    return FrontEnd(from_onnx, megcc.partition_for_megcc, megcc.report, session,
                    lambda mod, shape, ranges: Dispatch("main", {"data": shape}, ranges)(mod))


@pytest.mark.parametrize("graph", PARAMETERS)
def test_graph(front_end, graph):
    check_graph(front_end, graph, assert_same)


@pytest.mark.slow
def test_open_batch(front_end):
    check_open(front_end, assert_same)
