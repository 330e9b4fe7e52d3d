# SPDX-License-Identifier: Apache-2.0
"""Relax modules, TFLite files and programs of torch.export compiled by themselves: C, no TVM at run time."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

from tvm import relax, te, tirx
from tvm.relax import op

import tvm_megcc
from tests.tflite_files import Quantized, Tensor, network, written
from tvm_megcc.cli import REFUSED, main
from tvm_megcc.errors import MegccError, ModelError

from .modules import assert_same, f32, megcc, module, random_inputs, reference, run, weights

MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[3] / "shared" / "models"))


def compiled(model, tmp_path, target: str = "c", **options):
    """(artifact, session) of a model, compiled as a stand-alone folder."""
    artifact = tvm_megcc.compile(model, target, **options)
    artifact.save(tmp_path / "out")
    return artifact, tvm_megcc.load(tmp_path / "out", target)


def kinds(artifact) -> set[str]:
    return {call["kind"] for call in artifact.manifest["programs"][0]["calls"]}


@pytest.fixture
def extents():
    return tirx.Var("n", "int64"), tirx.Var("m", "int64")


def test_relax_module(tmp_path):
    """Hand-written kernels where there are some, loops of TVM's for the rest, one model."""
    def build(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(8, 3, 3, 3), padding=1))))
        y = emit(op.nn.avg_pool2d(y, 3, 2, padding=1, ceil_mode=True, count_include_pad=True))
        return emit(op.atan2(y, emit(op.exp(y)))), y

    mod = module(build, f32(1, 3, 8, 9))
    artifact, session = compiled(mod, tmp_path, name="mixed")
    assert kinds(artifact) >= {"conv2d", "tir"}
    inputs = random_inputs(mod)
    assert_same(list(session.run({"x0": inputs[0]}).values()), run(reference(mod), inputs))


def test_symbolic_module(tmp_path, extents):
    """Ranges of shapes."""
    n, _ = extents

    def build(emit, x):
        y = emit(op.cumprod(emit(op.tanh(x)), 1))
        return emit(op.add(emit(op.nn.log_softmax(y)), emit(op.broadcast_to(emit(op.max(y, [0], True)), (n, 6)))))

    mod = module(build, f32(n, 6))
    _, session = compiled(mod, tmp_path, name="open", dispatch={"x0": {0: [(1, 5), (5, 40)]}})
    for value in (1, 4, 7, 39):
        inputs = random_inputs(mod, symbols={"n": value})
        assert_same(list(session.run({"x0": inputs[0]}).values()), run(reference(mod), inputs))


@pytest.mark.slow
def test_extent_among_the_arguments(tmp_path, extents):
    """A TIR function of the user's own that gets an extent of another tensor."""
    n, m = extents

    def turned(x, by):
        return te.compute(x.shape, lambda i, j: x[(i + by) % x.shape[0], j] * 2.0)

    builder = relax.BlockBuilder()
    x, y = relax.Var("x", f32(n, 5)), relax.Var("y", f32(m, 5))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            z = builder.emit_te(turned, builder.emit(op.tanh(x)), m)
            output = builder.emit_output(builder.emit(op.add(z, builder.emit(op.sum(y, [0], True)))))
        builder.emit_func_output(output)
    mod = builder.get()
    artifact, session = compiled(mod, tmp_path, name="turned", dispatch={"x": {0: [(1, 50)]}, "y": {0: [(1, 50)]}})
    assert "tir" in kinds(artifact)
    for rows, by in ((4, 1), (7, 9), (1, 3)):
        inputs = random_inputs(mod, symbols={"n": rows, "m": by})
        assert_same(list(session.run(dict(zip("xy", inputs, strict=True))).values()), run(reference(mod), inputs))


def test_shapes_are_given(tmp_path, extents):
    n, m = extents
    mod = module(lambda emit, x: emit(op.matmul(x, emit(op.permute_dims(x)))), f32(n, m))
    artifact, session = compiled(mod, tmp_path, name="given", input_shapes="x0=(3,7)")
    assert artifact.manifest["outputs"][0]["shape"] == [3, 3]
    inputs = random_inputs(mod, symbols={"n": 3, "m": 7})
    assert_same(list(session.run({"x0": inputs[0]}).values()), run(reference(mod), inputs))
    with pytest.raises(MegccError, match="axis 1 the extent 7"):
        tvm_megcc.compile(module(lambda emit, x: emit(op.exp(x)), f32(n, 8)), "c", input_shapes="x0=(3,7)")
    with pytest.raises(MegccError, match="the inputs are: x0"):
        tvm_megcc.compile(mod, "c", input_shapes="data=(3,7)")


def test_everything_that_is_missing_is_named():
    def build(emit, x):
        y = emit(op.median(emit(op.tanh(x)), [1]))
        return y, emit(op.median(x, [0]))

    with pytest.raises(ModelError) as error:
        tvm_megcc.compile(module(build, f32(4, 6)), "c")
    assert len(error.value.findings) == 2 and all("tvm.contrib.sort.argsort" in line for line in error.value.findings)


def test_tflite_file(tmp_path):
    pytest.importorskip("tflite", reason="the package tflite is not installed")
    from tvm_megcc.frontends.relax.files import load

    path = tmp_path / "small.tflite"
    path.write_bytes(network())
    artifact, session = compiled(path, tmp_path)
    assert [value["name"] for value in artifact.manifest["outputs"]] == ["scores", "sum"]
    assert artifact.name == "small" and artifact.manifest["model"]["file"] == "small.tflite"
    # Channels come first inside: no transpose is left, and biases and activations are in the convolutions.
    assert kinds(artifact) <= {"conv2d", "max_pool", "relayout", "transpose", "matmul", "softmax"}, kinds(artifact)
    mod = load(path)
    inputs = random_inputs(mod)
    assert_same(list(session.run({"image": inputs[0]}).values()), run(reference(mod), inputs))


def residual_block() -> bytes:
    """Convolutions of int8, one of them with an activation, and the sum of both results."""
    import tflite

    generator, scales = np.random.default_rng(0), np.linspace(0.004, 0.01, 8)
    kinds = {"x": Quantized((1, 9, 7, 8), 0.0507, -7)}
    operators = []
    for x, y, scale, activation in (("x", "y", 0.0613, "RELU"), ("y", "z", 0.0917, "NONE")):
        kinds[f"w{x}"] = Quantized((8, 3, 3, 8), scales, [0] * 8,
                                   array=generator.integers(-127, 128, (8, 3, 3, 8)).astype(np.int8))
        kinds[f"b{x}"] = Quantized((8,), scales * kinds[x].scale, [0] * 8, "int32",
                                   array=generator.integers(-999, 999, 8).astype(np.int32))
        kinds[y] = Quantized((1, 9, 7, 8), scale, -128 if activation == "RELU" else 5)
        options = {"Padding": tflite.Padding.SAME, "StrideW": 1, "StrideH": 1, "DilationWFactor": 1,
                   "DilationHFactor": 1, "FusedActivationFunction": getattr(tflite.ActivationFunctionType, activation)}
        operators.append(("CONV_2D", "Conv2DOptions", options, [x, f"w{x}", f"b{x}"], [y]))
    kinds["sum"] = Quantized((1, 9, 7, 8), 0.1039, -3)
    operators.append(("ADD", "AddOptions", {"FusedActivationFunction": tflite.ActivationFunctionType.NONE},
                      ["y", "z"], ["sum"]))
    return written(kinds, operators, ["x"], ["sum"])


def test_quantised_convolutions_of_tflite(tmp_path):
    """As in the same file without TVM, everything is in two convolutions. TVM's importer writes transposes, sums and
    clips around them."""
    pytest.importorskip("tflite", reason="the package tflite is not installed")
    from tvm_megcc.frontends.relax.files import load

    path = tmp_path / "block.tflite"
    path.write_bytes(residual_block())
    mod = load(path)
    partitioned = megcc.partition_for_megcc(mod, target="megcc-c")
    assert len(megcc.report(partitioned).regions) == 1 and not megcc.report(partitioned).theirs
    x = np.random.default_rng(1).integers(-128, 128, (1, 9, 7, 8)).astype(np.int8)
    artifact, session = compiled(mod, tmp_path, name="block")
    found = [call["kind"] for call in artifact.manifest["programs"][0]["calls"]]
    assert found.count("conv2d_integer") == 2 and set(found) <= {"conv2d_integer", "transpose", "relayout"}, found
    (ours,) = session.run({"x": x}).values()
    _, directly = compiled(path, tmp_path / "directly")
    (of_tvm,), (of_tflite,) = run(reference(mod), [x]), directly.run({"x": x}).values()
    for theirs in (of_tvm, of_tflite):
        assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert (ours != of_tvm).mean() < 0.01  # TFLite adds in another precision


def test_tflite_importer():
    """A module of TVM's TFLite importer in TVM's virtual machine."""
    tflite = pytest.importorskip("tflite", reason="the package tflite is not installed")
    from tvm.relax.frontend.tflite import from_tflite

    mod = from_tflite(tflite.Model.GetRootAsModel(network(), 0))
    report = megcc.report(tvm_megcc.partition_for_megcc(mod, target="megcc-c"))
    assert report.share == 1.0 and not report.theirs and len(report.regions) == 1, str(report)
    inputs = random_inputs(mod)
    assert_same(run(tvm_megcc.build(mod, "megcc-c"), inputs), run(reference(mod), inputs))


def test_commands_take_it_too(tmp_path, capsys, monkeypatch):
    pytest.importorskip("tflite", reason="the package tflite is not installed")
    monkeypatch.setenv("MEGCC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "small.tflite"
    path.write_bytes(network())
    assert main(["explain", str(path), "--target", "c"]) == 0
    assert "conv2d" in capsys.readouterr().out
    assert main(["compare", str(path), "--layers", "--target", "c"]) == 0
    assert "no layer differs" in capsys.readouterr().out
    assert main(["compare", str(path), "--reference", "onnxruntime", "--target", "c"]) == REFUSED
    assert "small.tflite is no ONNX file" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ad_autoencoder_f32", "resnet8_cifar10_f32", "mobilenet_v1_025_224_f32",
                                  "dtln_stage1", "dtln_stage2", "deeplab_v3_257", "kws_dscnn_int8",
                                  "ad_autoencoder_int8"])
def test_tflite_networks(name: str, tmp_path):
    """As LiteRT computes them, int8 to the bit."""
    pytest.importorskip("tflite", reason="the package tflite is not installed")
    path = MODELS / name / "model.tflite"
    if not path.exists():
        pytest.skip(f"{name} is not on this machine (set MEGCC_MODELS)")
    stored = path.parent / "reference_tflite.npz"
    arrays = np.load(stored if stored.exists() else path.parent / "reference.npz")
    artifact, session = compiled(path, tmp_path, "native")
    assert "tir" not in kinds(artifact) or name.endswith("int8")
    results = session.run({key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")})
    for key in arrays.files:
        if key.startswith("out:"):
            np.testing.assert_allclose(results[key[4:]], arrays[key], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_exported_program(tmp_path):
    """From memory and from a file; a layer of a transformer whose length is open."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(50, 16)
            self.layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)

        def forward(self, ids, mask):
            y = self.layer(self.words(ids))
            return (y * mask[..., None]).cumsum(1), torch.atan2(y[..., 0], y[..., 1]), torch.sort(y, dim=-1)[0]

    torch.manual_seed(0)
    model, generator = Layer().eval(), torch.Generator().manual_seed(1)

    def operands(count: int):
        return torch.randint(0, 50, (2, count), generator=generator), torch.rand(2, count, generator=generator)

    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(model, operands(7), dynamic_shapes={"ids": {1: length}, "mask": {1: length}})
    torch.export.save(program, tmp_path / "layer.pt2")
    artifact, session = compiled(tmp_path / "layer.pt2", tmp_path, dispatch={"ids": {1: [(1, 9), (9, 65)]}})
    assert artifact.name == "layer" and "tir" in kinds(artifact)
    again = tvm_megcc.compile(program, "c", name="layer", dispatch={"ids": {1: [(1, 9), (9, 65)]}})
    assert again.container == artifact.container and again.sources == artifact.sources
    for count in (7, 3, 30):
        ids, mask = operands(count)
        with torch.no_grad():
            expected = [value.numpy() for value in model(ids, mask)]
        results = session.run({"ids": ids.numpy(), "mask": mask.numpy()})
        assert_same(list(results.values()), expected)


WITHOUT = """\
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])

sys.meta_path.insert(0, Missing())
import tvm_megcc
try:
    tvm_megcc.compile({path!r}, "c")
except tvm_megcc.MegccError as error:
    print(error)
"""


@pytest.mark.parametrize(("name", "missing", "advice"), [
    ("m.pt2", ("tvm", "tvm_ffi"), "pip install 'tvm_megcc[tvm]' torch"),
    pytest.param("m.pt2", ("torch",), "pip install torch", marks=pytest.mark.slow)])
def test_missing_packages_are_named(name: str, missing: tuple[str, ...], advice: str, tmp_path):
    path = tmp_path / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive_format", "pt2")
    script = WITHOUT.format(missing=missing, path=str(path))
    text = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert advice in text and name in text


def averages() -> bytes:
    """An average pool of int8."""
    import tflite

    same = tflite.Padding.SAME
    pool = {"Padding": same, "StrideW": 2, "StrideH": 2, "FilterWidth": 4, "FilterHeight": 3}
    kinds = {name: Quantized(shape, 0.1, -3) for name, shape in {"x": (1, 16, 16, 3), "y": (1, 8, 8, 3)}.items()}
    return written(kinds, [("AVERAGE_POOL_2D", "Pool2DOptions", pool, ["x"], ["y"])], ["x"], ["y"])


def test_averages_of_integers_are_rounded(tmp_path):
    """As TFLite does it, in files that come in through TVM: to the nearest, halves away from zero."""
    pytest.importorskip("tflite", reason="the package tflite is not installed")
    from tvm_megcc.frontends.relax.files import load

    path = tmp_path / "pool.tflite"
    path.write_bytes(averages())
    try:
        mod = load(path)
    except MegccError as error:
        if "OpNotImplemented" not in str(error):
            raise
        pytest.skip("this TVM's importer does not take quantised pools")
    _, session = compiled(mod, tmp_path, name="pool")
    x = np.random.default_rng(0).integers(-128, 128, (1, 16, 16, 3)).astype(np.int8)
    expected = np.empty((8, 8, 3))
    for row in range(8):
        for column in range(8):
            window = x[0, 2 * row:2 * row + 3, max(2 * column - 1, 0):2 * column + 3].reshape(-1, 3).astype(np.int64)
            total, count = window.sum(axis=0), len(window)
            expected[row, column] = np.sign(total) * ((np.abs(total) + count // 2) // count)
    assert np.array_equal(session.run({"x": x})["y"][0], expected)


def test_operators_that_only_tvm_reads(tmp_path):
    """A TFLite file with one of them comes in through TVM's importer; with one that nobody reads, both say so."""
    path = tmp_path / "angle.tflite"
    path.write_bytes(written({"x": (3, 4), "y": (3, 4), "z": (3, 4)}, [("ATAN2", "", {}, ["x", "y"], ["z"])],
                             ["x", "y"], ["z"]))
    _, session = compiled(path, tmp_path)
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(session.run({"x": x, "y": y})["z"], np.arctan2(x, y), atol=1e-6)
    path.write_bytes(written({"x": (3, 4), "y": (3, 4)}, [("SKIP_GRAM", "", {}, ["x"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError, match=r"SKIP_GRAM 'y': this operator is not supported\n  TVM's importer does not "
                                         r"take it either \(-v shows why\)$"):
        tvm_megcc.compile(path, "c")
    path.write_bytes(written({"x": (3, 4), "y": Tensor((3, 4), "int32")}, [("BITCAST", "", {}, ["x"], ["y"])], ["x"],
                             ["y"]))
    with pytest.raises(ModelError, match=r"BITCAST 'y': this operator is not supported\n  TVM"):
        tvm_megcc.compile(path, "c")


@pytest.mark.slow
def test_a_wide_concat_opens(tmp_path):
    """What torch.export makes of a recurrent layer: the results of all steps, joined."""
    def build(emit, x):
        steps = [emit(op.strided_slice(x, [1], [step], [step + 1])) for step in range(100)]
        return emit(op.concat([emit(op.tanh(step)) for step in steps], axis=1))

    mod = module(build, f32(2, 100, 3))
    artifact, session = compiled(mod, tmp_path, name="steps")
    assert "tir" not in kinds(artifact)
    inputs = random_inputs(mod)
    assert_same(list(session.run({"x0": inputs[0]}).values()), [np.tanh(inputs[0])])


def test_a_recurrent_layer_that_is_written_out(recwarn):
    """A hint before minutes are spent, whatever the importer makes of it."""
    from tvm_megcc.frontends.relax.files import _hint_at_recurrent

    def program(*targets: str):
        return SimpleNamespace(graph=SimpleNamespace(nodes=[SimpleNamespace(target=target) for target in targets]))

    _hint_at_recurrent(program("aten.relu.default", "x", "output"), "the program")
    assert not recwarn
    with pytest.warns(UserWarning, match=r"recurrent layers \(gru\) .*dynamo=False"):
        _hint_at_recurrent(program("x", "aten.gru.input", "aten.gru.input"), "the program")


def test_loops_that_the_scheduler_calls_ill_formed(tmp_path):
    """A Fourier transform whose complex numbers are an output: what TVM makes of it has buffers within buffers."""
    pytest.importorskip("tflite", reason="the package tflite is not installed")
    path = tmp_path / "small.tflite"
    path.write_bytes(written({"x": (1, 1, 16), "n": np.array([1, 16], np.int32), "y": Tensor((1, 1, 9), "complex64")},
                             [("RFFT2D", "Rfft2dOptions", {}, ["x", "n"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError, match=r"is not supported|does not take it"):
        tvm_megcc.compile(path, "c")
