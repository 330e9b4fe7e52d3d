# SPDX-License-Identifier: Apache-2.0
"""Small modules: what is partitioned, and that the result is TVM's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax, te, tirx, topi
from tvm.relax import op
from tvm.script import relax as R

import tvm_megcc
from tests.qdq_models import random_model
from tvm_megcc.compiler import compile_graph
from tvm_megcc.context import Context
from tvm_megcc.frontends.models import import_model
from tvm_megcc.frontends.relax import backend
from tvm_megcc.frontends.relax.importer import import_region
from tvm_megcc.frontends.tvm_versions import RelaxTensor, Tuple, type_of
from tvm_megcc.options import CompileOptions
from tvm_megcc.passes import before_layouts
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS

from . import modules
from .modules import assert_same, f32, megcc, module, run, weights


@pytest.fixture(params=["megcc-c", pytest.param("megcc-native", marks=pytest.mark.slow)])
def check(request):
    """`modules.check` on scalar code, which compiles fast, and on the best of this machine."""
    return partial(modules.check, target=request.param)


def conv_bn_relu(emit, x, channels=8, **conv):
    y = emit(op.nn.conv2d(x, weights(channels, 3, 3, 3), padding=1, **conv))
    statistics = [relax.const(np.linspace(low, high, channels, dtype="float32"))
                  for low, high in ((0.5, 1.5), (-1, 1), (-0.2, 0.2), (0.7, 1.3))]
    y = emit(op.nn.batch_norm(y, *statistics, axis=1, training=False))
    return emit(op.nn.relu(emit(relax.TupleGetItem(y, 0))))


def test_convolution_batch_norm_relu(check):
    report = check(module(conv_bn_relu, f32(1, 3, 10, 12)))
    assert not report.theirs and len(report.regions) == 1


def test_residual(check):
    def build(emit, x):
        y = emit(op.nn.conv2d(x, weights(16, 16, 3, 3), padding=1))
        y = emit(op.add(y, relax.const(np.ones((1, 16, 1, 1), "float32"))))
        return emit(op.nn.relu(emit(op.add(x, y))))
    report = check(module(build, f32(2, 16, 7, 7)))
    assert not report.theirs and len(report.regions) == 1


def test_channels_last(check):
    """NHWC with its weights as HWIO, pooled and resized in that layout."""
    def build(emit, x):
        y = emit(op.nn.conv2d(x, weights(3, 3, 4, 24), strides=2, padding=1, data_layout="NHWC", kernel_layout="HWIO"))
        y = emit(op.nn.relu(emit(op.add(y, weights(24)))))
        y = emit(op.nn.max_pool2d(y, 2, 2, layout="NHWC"))
        return emit(op.image.resize2d(y, (9, 7), layout="NHWC", method="linear"))
    assert not check(module(build, f32(1, 16, 20, 4))).theirs


def test_mixed_layouts(check):
    def build(emit, x):
        y = emit(op.nn.conv2d(x, weights(3, 3, 8, 1), padding=1, groups=8, data_layout="NHWC", kernel_layout="HWOI"))
        y = emit(op.permute_dims(y, [0, 3, 1, 2]))
        return emit(op.nn.avg_pool2d(y, 3, 2, padding=1, count_include_pad=True))
    assert not check(module(build, f32(1, 9, 9, 8))).theirs


def test_tuples(check):
    """A split whose parts go different ways; results in a nested tuple, one of them a parameter."""
    def build(emit, x):
        parts = emit(op.split(x, [2, 6], axis=1))
        a, b, c = (emit(relax.TupleGetItem(parts, index)) for index in range(3))
        joined = emit(op.concat([c, emit(op.nn.relu(b)), a], axis=1))
        return relax.Tuple([joined, relax.Tuple([b, emit(op.exp(c))])]), x
    report = check(module(build, f32(3, 9)))
    assert not report.theirs


def test_several_functions(check):
    """Each function is partitioned; regions of one module share its pool."""
    mod = module(conv_bn_relu, f32(1, 3, 6, 6), name="first")
    mod = module(lambda emit, x: emit(op.nn.softmax(emit(op.matmul(x, weights(12, 7))))), f32(5, 12), name="second",
                 mod=mod)
    for name in ("first", "second"):
        assert len(check(mod, name=name).regions) == 2


def test_function_that_calls_a_function(check):
    builder = relax.BlockBuilder()
    x = relax.Var("x", f32(2, 6))
    with builder.function("inner", [x], private=True):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(op.nn.relu(builder.emit(op.matmul(x, weights(6, 6))))))
        inner = builder.emit_func_output(out)
    y = relax.Var("y", f32(2, 6))
    with builder.function("main", [y]):
        with builder.dataflow():
            z = builder.emit(relax.Call(inner, [builder.emit(op.exp(y))]))
            out = builder.emit_output(builder.emit(op.negative(z)))
        builder.emit_func_output(out)
    assert len(check(builder.get()).regions) == 3


def test_symbolic_batch(check):
    """Regions with and without symbolic extents beside each other."""
    builder = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x, y = relax.Var("x", RelaxTensor((n, 3, 8, 8), "float32")), relax.Var("y", f32(4, 6))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            z = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, weights(4, 3, 3, 3)))))
            out = builder.emit_output(relax.Tuple([z, builder.emit(op.matmul(y, weights(6, 5)))]))
        builder.emit_func_output(out)
    report = check(builder.get(), symbols={"n": 3})
    assert len(report.regions) == 2 and not report.theirs


@pytest.mark.parametrize("tir", [False, True])
def test_custom_tir(check, tir):
    """A function that is loops stays with TVM and splits the module, or is in the region; results are right."""
    def twisted(x):
        return te.compute(x.shape, lambda i, j: te.sin(x[i, (j * 7) % 13]) + 1)

    builder = relax.BlockBuilder()
    x = relax.Var("x", f32(4, 13))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.matmul(x, weights(13, 13)))))
            y = builder.emit_te(twisted, y)
            y = builder.emit(op.multiply(y, y))
            out = builder.emit_output(builder.emit(op.subtract(y, x)))
        builder.emit_func_output(out)
    report = check(builder.get(), tir=tir)
    name = {"relax.call_tir twisted": 1}
    assert (report.theirs, report.tir, len(report.regions)) == (({}, name, 1) if tir else (name, {}, 2)), str(report)


def test_clips_and_pads_that_importers_write_as_loops(check):
    builder = relax.BlockBuilder()
    x = relax.Var("x", f32(1, 3, 8, 8))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(topi.nn.pad, x, [0, 0, 1, 0], [0, 0, 2, 1], 0.0)
            y = builder.emit(op.nn.conv2d(y, weights(4, 3, 3, 3)))
            y = builder.emit_te(topi.maximum, y, relax.const(0.0, "float32"))
            out = builder.emit_output(builder.emit_te(topi.minimum, y, relax.const(6.0, "float32")))
        builder.emit_func_output(out)
    report = check(builder.get())
    assert not report.theirs and len(report.regions) == 1


@pytest.mark.parametrize("loops", [
    lambda x, y: te.compute((8, 3), lambda i, j: tirx.if_then_else(i < 4, x[i], tirx.const(0.0, "float32"))),
    lambda x, y: te.compute((2, 3), lambda i, j: y() + y()),
], ids=["rows that are padded and repeated", "scalars that are broadcast"])
def test_loops_that_add_axes_stay_loops(check, loops):
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", f32(4)), relax.Var("y", f32())
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.relu(builder.emit_te(loops, x, y)))
        builder.emit_func_output(out)
    assert check(builder.get(), tir=True).tir


def test_parameters_are_bound():
    mod = module(lambda emit, x, w, b: emit(op.add(emit(op.matmul(x, w)), b)), f32(2, 8), f32(8, 3), f32(3))
    params = {"x1": np.ones((8, 3), "float32"), "x2": np.ones(3, "float32")}
    bound = megcc.partition_for_megcc(mod, params)
    assert len(bound["main"].params) == 1 and megcc.report(bound).share == 1.0
    with pytest.raises(megcc.MegccError, match="main has no parameter weight; it has x0, x1, x2"):
        megcc.partition_for_megcc(mod, {"weight": params["x1"]})
    with pytest.raises(megcc.MegccError, match="tir is True or False, not 'yes'"):
        megcc.partition_for_megcc(mod, tir="yes")


def test_a_module_that_is_not_partitioned():
    """The report says that, not reasons of operators."""
    mod = module(lambda emit, x, w: emit(op.matmul(x, w)), f32(2, 8), f32(8, 3))
    assert megcc.report(mod).reasons == {
        "relax.matmul": {"the module has not been partitioned: partition_for_megcc(mod)": 1}}
    assert not megcc.report(megcc.partition_for_megcc(mod)).reasons


def test_share_of_products_that_cannot_be_counted():
    """Without the multiply-accumulates of an attention there is no share, not one of 100 %."""
    mod = module(lambda emit, q: emit(op.nn.attention(q, q, q, causal_mask="TopLeft", window_size=2)), f32(1, 6, 2, 8))
    report = megcc.report(megcc.partition_for_megcc(mod))
    assert report.share is None and list(report.theirs) == ["relax.nn.attention"]


def test_unbound_weights_are_ours_too(check):
    """Weights that arrive with every call: other kernels, the same result."""
    mod = module(lambda emit, x, w: emit(op.nn.conv2d(x, w, padding=1)), f32(1, 5, 6, 6), f32(7, 5, 3, 3))
    check(mod)


def test_constants_that_depend_on_constants_are_folded(check):
    def build(emit, x):
        scale = emit(op.exp(emit(op.reshape(weights(4), (1, 4)))))
        return emit(op.multiply(x, scale))
    report = check(module(build, f32(3, 4)))
    assert sum(report.ours.values()) == 1


@pytest.mark.parametrize("reduction,operator", [("sum", "add"), ("max", "maximum"), ("min", "minimum")])
def test_a_stack_that_is_reduced_is_an_operator_of_two_operands(check, reduction, operator):
    """As TVM's ONNX importer writes Sum, Max and Min, with known and with symbolic extents."""
    def build(emit, x, y):
        same = [emit(op.broadcast_to(value, type_of(x).shape)) for value in (x, y)]
        return emit(op.nn.relu(emit(getattr(op, reduction)(emit(op.stack(same, axis=0)), axis=[0]))))
    n = tvm.tirx.Var("n", "int64")
    for shape in ((3, 4), (n, 4)):
        report = check(module(build, f32(*shape), f32(*shape)), symbols={"n": 3})
        assert report.ours == {f"relax.{operator}": 1, "relax.nn.relu": 1} and not report.theirs


def test_element_types(check):
    """Integers and truth values in and out of regions."""
    def build(emit, x, i, flag):
        positive = emit(op.greater(x, relax.const(0.0, "float32")))
        both = emit(op.logical_and(positive, flag))
        chosen = emit(op.where(both, x, emit(op.negative(x))))
        doubled = emit(op.add(i, emit(op.astype(chosen, "int64"))))
        return both, chosen, doubled, emit(op.argmax(x, 1))
    mod = module(build, f32(3, 7), RelaxTensor((3, 7), "int64"), RelaxTensor((3, 7), "bool"))
    assert not check(mod).theirs


def test_a_nan_stays_a_nan(check):
    mod = module(lambda emit, x: emit(op.tanh(emit(op.add(x, x)))), f32(2, 9))
    x = np.linspace(-3, 3, 18, dtype="float32").reshape(2, 9)
    x[0, 4], x[1, 2], x[1, 3] = np.nan, np.inf, -np.inf
    check(mod, inputs=[x])


def test_products_of_bytes(check):
    """As TVM's ONNX importer writes MatMulInteger: of int32, less zero points, of which one is measured. They are
    8-bit products; those of other numbers stay products of int32."""
    values = np.random.default_rng(0).integers(-127, 128, (8, 5)).astype("int32")

    def build(emit, x, z, wide):
        centred = emit(op.subtract(emit(op.astype(x, "int32")), emit(op.astype(z, "int32"))))
        return [emit(op.matmul(operand, relax.const(weight))) for operand, weight in (
            (centred, values), (emit(op.astype(x, "int32")), values - 30), (centred, 2 * values), (wide, values))]

    types = RelaxTensor((3, 8), "uint8"), RelaxTensor((), "uint8"), RelaxTensor((3, 8), "int32")
    mod = module(build, *types)
    check(mod, share=None)
    regions = filter(megcc.is_ours, megcc.partition_for_megcc(mod, target="megcc-c").functions.values())
    made = [op.kind for region in regions for op in import_region(region, "region").ops]
    assert made.count("matmul_integer") == 2 and made.count("matmul") == 2, made


@tvm.script.ir_module
class Loop:
    @R.function
    def again(i: R.Tensor((), "int32"), x: R.Tensor((3, 8), "float32")) -> R.Tensor((3, 8), "float32"):
        cls = Loop
        more = R.less(i, R.const(5, "int32"))
        if more:
            n = R.add(i, R.const(1, "int32"))
            y = R.tanh(R.add(x, x))
            z: R.Tensor((3, 8), "float32") = cls.again(n, y)
        else:
            z: R.Tensor((3, 8), "float32") = x
        return z

    @R.function
    def main(x: R.Tensor((3, 8), "float32")) -> R.Tensor((3, 8), "float32"):
        cls = Loop
        y: R.Tensor((3, 8), "float32") = cls.again(R.const(0, "int32"), x)
        z = R.exp(y)
        return z


def test_a_loop_is_a_function_that_calls_itself():
    """As Relax writes `while`: condition, count with body, and what follows are ours, the calls are TVM's."""
    x = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    partitioned = megcc.partition_for_megcc(Loop, target="megcc-c")
    report = megcc.report(partitioned)
    assert not report.theirs and len(report.regions) == 3, str(report)
    expected = x
    for _ in range(5):
        expected = np.tanh(expected + expected)
    assert_same(run(megcc.build(partitioned, "megcc-c"), [x]), [np.exp(expected)])


@pytest.mark.parametrize("seed", [3, pytest.param(5, marks=pytest.mark.slow), pytest.param(16, marks=pytest.mark.slow)])
def test_integers_of_a_quantised_model(seed, tmp_path):
    """An ONNX file with nodes that quantise becomes one region, in which convolutions and products work on integers;
    the bits are those of the file compiled by itself."""
    from_onnx = pytest.importorskip("tvm.relax.frontend.onnx").from_onnx
    proto, inputs = random_model(seed)
    partitioned = megcc.partition_for_megcc(from_onnx(proto, shape_dict={"x": inputs["x"].shape}), target="megcc-c")
    report = megcc.report(partitioned)
    assert not report.theirs and len(report.regions) == 1, str(report)
    (region,) = filter(megcc.is_ours, partitioned.functions.values())
    made = compile_graph(import_region(region, "region"), [TARGETS["c"]], name="region")
    kinds = {call["kind"] for call in made.manifest["programs"][0]["calls"]}
    assert "conv2d_integer" in kinds and not {"conv2d", "matmul"} & kinds, kinds
    tvm_megcc.compile(proto, "c", name="alone").save(tmp_path / "alone")
    (expected,) = tvm_megcc.load(tmp_path / "alone", "c").run(inputs).values()
    np.testing.assert_array_equal(run(megcc.build(partitioned, "megcc-c"), [inputs["x"]]), [expected])


@pytest.mark.parametrize("way", ["detached", "BindParams"])
def test_weights_are_bound_by_passes_of_tvm(way):
    """Weights as `detach_params` returns them, or bound by TVM's own pass before ours."""
    mod = module(lambda emit, x, w: emit(op.matmul(x, w)), f32(2, 8), f32(8, 3))
    x, values = np.arange(16, dtype="float32").reshape(2, 8), np.arange(24, dtype="float32").reshape(8, 3)
    bound = megcc.partition_for_megcc(mod, {"main": [tvm.runtime.tensor(values)]}) if way == "detached" \
        else megcc.partition_for_megcc(relax.transform.BindParams("main", {"x1": values})(mod))
    assert len(bound["main"].params) == 1 and len(megcc.report(bound).regions) == 1
    assert_same(run(megcc.build(bound, "megcc-c"), [x]), [x @ values])


def test_the_picture_shows_regions_and_what_is_not_ours():
    mod = module(lambda emit, x: emit(op.sort(emit(op.nn.relu(x)))), f32(2, 4))
    svg = megcc.picture(megcc.partition_for_megcc(mod))
    assert "megcc_region0" in svg and "relax.nn.relu" in svg and "relax.sort" in svg


def test_regions_have_the_options_of_kernels(monkeypatch):
    """From keywords, as attributes of the regions; those of the code generator count more."""
    found = []
    original = backend.compile_graph
    monkeypatch.setattr(backend, "compile_graph", lambda graph, targets, options, **more: (
        found.append(options), original(graph, targets, options, **more))[1])
    mod = module(lambda emit, x: emit(op.nn.softmax(x)), f32(2, 8))
    parted = megcc.partition_for_megcc(mod, reproducible=True, optimize="size", activations="int8")
    megcc.build_megcc_kernels(parted)
    tvm.relax.transform.RunCodegen({"megcc": {"reproducible": "0", "activations": "model"}})(parted)
    assert found == [CompileOptions(reproducible=True, optimize="size", activations="int8"),
                     CompileOptions(optimize="size")]
    with pytest.raises(megcc.MegccError, match="either half or reproducible"):
        megcc.partition_for_megcc(mod, half=True, reproducible=True)
    with pytest.raises(megcc.MegccError, match="half is True or False, not 'yes'"):
        megcc.partition_for_megcc(mod, half="yes")
    with pytest.raises(megcc.MegccError, match="has no option 'ram'; it has target, tir, optimize, repro"):
        megcc.partition_for_megcc(mod, ram="64K")


def test_options_are_checked():
    mod = module(lambda emit, x: emit(op.nn.relu(x)), f32(2, 2))
    with pytest.raises(megcc.MegccError, match="has no option 'optimise'"):
        megcc.partition_for_megcc(mod, optimise="size")
    with pytest.raises(megcc.MegccError, match="optimize is one of speed, size, not 'fast'"):
        megcc.partition_for_megcc(mod, optimize="fast")
    with pytest.raises(megcc.MegccError, match="no operating system"):
        megcc.partition_for_megcc(mod, target="cortex-m4")
    assert megcc.report(megcc.partition_for_megcc(mod, optimize="size")).regions


def test_an_open_axis_turns_round_without_loops():
    """Of float16, whose loops are computed in numpy, too."""
    n = tirx.Var("n", "int64")
    x = np.arange(12, dtype=np.float16).reshape(4, 3)
    mod = module(lambda emit, x: emit(op.flip(x, 0)), RelaxTensor((n, 3), "float16"))
    graph, _ = import_model(mod)
    assert all(node.kind != "tir" for node in graph.ops)
    np.testing.assert_array_equal(reference.run(graph, {"x0": x})["output0"], x[::-1])
    loops = module(lambda emit, x: emit(op.nn.softplus(x, 2.0, 10.0)), RelaxTensor((n, 3), "float16"))
    graph, _ = import_model(loops)
    assert [node.kind for node in graph.ops] == ["tir"]
    (found,) = reference.run(before_layouts(graph, Context(TARGETS["x86-64-v3"])), {"x0": x}).values()
    np.testing.assert_allclose(found, np.log1p(np.exp(2 * x.astype("f4"))) / 2, rtol=2e-3)


def test_selu_of_float64():
    x = np.linspace(-3, 3, 7)
    graph, _ = import_model(module(lambda emit, x: emit(op.nn.selu(x)), RelaxTensor((7,), "float64")))
    expected = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
    np.testing.assert_allclose(reference.run(graph, {"x0": x})["output0"], expected, rtol=1e-12)


def test_results_that_are_listed_twice():
    """A parameter among them: each is a result of its own."""
    x = relax.Var("x", f32(4))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.abs(x))
        builder.emit_func_output(Tuple([y, x, y]))
    graph, _ = import_model(builder.get())
    found = reference.run(graph, {"x": np.array([-1, 2, -3, 4], np.float32)})
    assert [found[name].tolist() for name in graph.outputs] == [[1, 2, 3, 4], [-1, 2, -3, 4], [1, 2, 3, 4]]


def test_branches_that_share_nothing_are_one_region(check):
    def build(emit, x, y):
        a = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(8, 3, 3, 3)))))
        b = emit(op.split(emit(op.exp(y)), 2, axis=1))
        return emit(Tuple([a, emit(relax.TupleGetItem(b, 0)), emit(relax.TupleGetItem(b, 1))]))
    report = check(module(build, f32(1, 3, 8, 8), f32(4, 6)))
    assert not report.theirs and len(report.regions) == 1


def test_branches_with_an_operator_of_tvm_each(check):
    """What is before these operators is one region, and what is behind them."""
    def build(emit, x, y):
        branches = []
        for branch in (x, y):
            inner = emit(op.exp(branch))
            branches.append(emit(op.nn.relu(emit(op.atan2(inner, branch)))))
        return emit(Tuple(branches))
    report = check(module(build, f32(3, 5), f32(7)))
    assert len(report.theirs) and len(report.regions) == 2


def test_regions_that_would_need_each_other(check):
    """The second of one branch is joined with the first of the other, so the two that are left are not independent."""
    n = tirx.Var("n", "int64")

    def build(emit, x, y, z, row):
        first = emit(op.nn.relu(emit(op.atan2(emit(op.exp(x)), y))))
        place = emit(op.bucketize(row, emit(op.abs(z))))
        return emit(Tuple([first, emit(op.add(place, place))]))
    report = check(module(build, f32(1, 5), f32(n, 5), RelaxTensor((n,), "int64"), RelaxTensor((1, 5), "int64")),
                   symbols={"n": 3})
    assert report.theirs == {"relax.atan2": 1, "relax.bucketize": 1} and len(report.regions) == 3


def test_functions_that_differ_in_constants_only(check):
    """TVM 0.25 takes them for one: composites, and regions."""
    def build(emit, x):
        for value in (1, 5):
            x = emit(op.atan2(emit(op.add(x, relax.const(np.full((3, 5), value, np.float32)))), x))
        for value in (2, 7):
            x = emit(op.multiply(x, relax.const(np.full((3, 5), value, np.float32))))
        return x
    report = check(module(build, f32(3, 5)), share=None)
    assert report.theirs == {"relax.atan2": 2} and len(report.regions) == 3


def test_equal_regions_of_which_two_are_joined(check):
    def build(emit, x, y):
        first, other = (emit(op.nn.relu(emit(op.exp(value)))) for value in (x, y))
        between = emit(op.atan2(first, x))
        return emit(Tuple([emit(op.nn.relu(emit(op.exp(between)))), other]))
    report = check(module(build, f32(3, 5), f32(3, 5)))
    assert report.theirs == {"relax.atan2": 1} and len(report.regions) == 2


def test_independent_regions_with_symbols(check):
    """Those with the same symbols are joined; one of known extents stays by itself."""
    def build(emit, x, y, z):
        return emit(Tuple([emit(op.exp(x)), emit(op.nn.relu(y)), emit(op.sigmoid(z))]))
    n = tirx.Var("n", "int64")
    report = check(module(build, f32(n, 5), f32(2, n), f32(7)), symbols={"n": 3})
    assert len(report.regions) == 2
