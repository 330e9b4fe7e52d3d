# SPDX-License-Identifier: Apache-2.0
"""Graph dispatch inside TVM, and regions whose extents are symbolic: same results as the module as it was."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import typing

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

import tvm
from tvm import relax, tirx
from tvm.relax import op

import tvm_megcc
from tvm_megcc.dispatch import Dispatch, log_dispatcher, uniform_dispatcher
from tvm_megcc.frontends.relax.dispatch import covered_ranges, intersect, segments
from tvm_megcc.frontends.tvm_versions import Constant, name_of, number_of, result_type_of, type_of, value_of
from tvm_megcc.ir.shapes import Bucket

from ..models.networks import assert_close, onnxruntime_outputs, with_random_weights
from .modules import arrays_of, assert_same, f32, megcc, module, random_inputs, reference, tensors, weights

CELLS = {"x0": {0: [(1, 2), (2, 5)], 2: [(4, 9), (9, 20)]}}
BORDERS = [dict(zip("nh", extents, strict=True)) for extents in itertools.product((1, 2, 4), (4, 8, 9, 19))]


def extents(*names: str) -> list[tirx.Var]:
    return [tirx.Var(name, "int64") for name in names]


def network(bounds: dict | None = None) -> tvm.IRModule:
    """Images of any number and height; what is pooled is half as high."""
    n, h = extents("n", "h")

    def build(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(8, 3, 3, 3), padding=1))))
        return emit(op.mean(y, [2, 3])), emit(op.nn.max_pool2d(y, 2, 2))
    mod = module(build, f32(n, 3, h, 8))
    for key, values in (bounds or {}).items():
        mod["main"] = mod["main"].with_attr(key, values)
    return mod


def build(mod, target: str = "megcc-c"):
    partitioned = tvm_megcc.partition_for_megcc(mod, target=target)
    executable = tvm.compile(partitioned, target=target, relax_pipeline="megcc")
    return relax.VirtualMachine(executable, tvm.cpu()), megcc.report(partitioned)


def agree(mod, machines, symbols, **more) -> None:
    """The results of machines are those of TVM's build of the module, for all these values of symbols in turn."""
    expected = relax.VirtualMachine(reference(mod), tvm.cpu())
    for values in symbols:
        inputs = random_inputs(mod, symbols=values)
        want = arrays_of(expected["main"](*tensors(inputs)))
        for machine in machines:
            assert_same(arrays_of(machine["main"](*tensors(inputs))), want, **more)


def clones(mod, name: str = "main") -> list[str]:
    return [var.name_hint for var in mod.functions if var.name_hint.startswith(f"{name}_")
            and not any(part in var.name_hint for part in ("_check_", "_outside_"))]


def ifs_of(function) -> int:
    found = []
    relax.analysis.post_order_visit(function, lambda e: found.append(e) if isinstance(e, relax.If) else None)
    return len(found)


def constants(function) -> list:
    found = []
    relax.analysis.post_order_visit(
        function, lambda e: found.append(value_of(e)) if isinstance(e, Constant) else None)
    return found


def shape_of(function) -> list:
    """Extents of the first parameter, symbolic ones as their names."""
    return [int(dim) if isinstance(dim, tirx.IntImm) else dim.name for dim in type_of(function.params[0]).shape.values]


# --- the pass --------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def dispatched():
    return Dispatch("main", {"x0": (typing.Any, 3, "any", 8)}, CELLS)(network())


def test_clones(dispatched):
    """One a cell, extents of one value known, bounds as TVM's planner reads them, constants shared."""
    assert sorted(clones(dispatched)) == ["main_n_1_1_h_4_8", "main_n_1_1_h_9_19", "main_n_2_4_h_4_8",
                                          "main_n_2_4_h_9_19"]
    known, open_ = dispatched["main_n_1_1_h_4_8"], dispatched["main_n_2_4_h_9_19"]
    assert shape_of(known) == [1, 3, "h", 8]
    assert dict(known.attrs["tir_var_upper_bound"]) == {"h": 8}
    assert dict(open_.attrs["tir_var_upper_bound"]) == {"n": 4, "h": 19}
    assert dict(open_.attrs["tir_var_lower_bound"]) == {"n": 2, "h": 9}
    (one,), (other,) = constants(known), constants(open_)
    assert one.same_as(other)


def test_it_says_what_it_did(dispatched, caplog):
    """Buckets, and what becomes of other shapes: in the log, and in the report of a module that is partitioned."""
    text = ("main: 4 buckets over n, h (n 1, h 4 to 8; n 1, h 9 to 19; n 2 to 4, h 4 to 8; n 2 to 4, h 9 to 19); "
            "another n or h is a ValueError")
    with caplog.at_level("INFO", logger="tvm_megcc"):
        Dispatch("main", {"x0": (typing.Any, 3, "any", 8)}, CELLS)(network())
    assert f"dispatch: {text}" in caplog.messages
    partitioned = tvm_megcc.partition_for_megcc(dispatched, target="megcc-c")
    assert f"  dispatch {text}\n" in str(megcc.report(partitioned))
    whole = Dispatch("main", {"x0": (None, 3, None, 8)}, log_dispatcher(2))(network())
    assert "81 buckets over n, h (n 1, h 1; " in str(megcc.report(whole)) \
        and "… 73 more); every shape is in one" in str(megcc.report(whole))


def test_tree(dispatched):
    """Comparisons in a tree; a branch is a call and nothing else. The result keeps its type."""
    main = dispatched["main"]
    assert ifs_of(main) == 2 + 2 * 3  # n <= 1, n <= 4; each with h <= 8, h <= 3, h <= 19
    assert "global_symbol" in main.attrs
    assert str(result_type_of(main)) == str(result_type_of(network()["main"]))
    tree = main.body.blocks[0].bindings[0].value
    assert str(number_of(tree.cond)) == "n <= T.int64(1)"


def test_eighty_one_cells():
    mod = Dispatch("main", {"x0": (None, 3, None, 8)}, log_dispatcher(2))(network())
    assert len(clones(mod)) == 81 and ifs_of(mod["main"]) == 80  # the least that a tree of 81 leaves has
    assert not any("outside" in var.name_hint for var in mod.functions)


@pytest.mark.parametrize(("buckets", "cut", "ranges"), [
    ([(1, 1), (2, 4)], [(1, [0]), (4, [1]), (None, [])], ((1, 4),)),
    ([(3, 4), (7, None)], [(2, []), (4, [0]), (6, []), (None, [1])], ((3, 4), (7, None))),
    ([(4, 9), (2, 5)], [(1, []), (3, [1]), (5, [0, 1]), (9, [0]), (None, [])], ((2, 9),)),
    ([(1, None)], [(None, [0])], ((1, None),)),
    ([(0, 0), (1, 7)], [(0, [0]), (7, [1]), (None, [])], ((0, 7),)),
    ([(0, None)], [(None, [0])], ((0, None),)),
])
def test_segments(buckets, cut, ranges):
    buckets = [Bucket((("n", *bounds),)) for bounds in buckets]
    found = segments(buckets, "n")
    assert [(last, [buckets.index(bucket) for bucket in inside]) for last, inside in found] == cut
    assert covered_ranges(buckets, "n") == ranges


def test_bounds_cut_the_grid():
    mod = network({"tir_var_upper_bound": {"n": 1, "h": 12}, "tir_var_lower_bound": {"h": 5}})
    mod = Dispatch("main", {"x0": (None, 3, None, 8)}, CELLS)(mod)
    assert clones(mod) == ["main_n_1_1_h_5_8", "main_n_1_1_h_9_12"]
    assert intersect([Bucket((("n", 1, None),))], {"n": (2, 7)}) == (Bucket((("n", 2, 7),)),)


def test_tvm_plans_the_memory_of_a_clone_for_its_largest_shape(dispatched):
    """What the clones' bounds are good for without us."""
    planned = tvm.transform.Sequential([
        relax.transform.LegalizeOps(), relax.transform.ToNonDataflow(), relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(), relax.transform.StaticPlanBlockMemory()])(dispatched)
    for name, images, height in (("main_n_1_1_h_4_8", 1, 8), ("main_n_2_4_h_9_19", 4, 19)):
        storages = re.findall(r"alloc_storage\(R.shape\(\[(.*?)\]\)", planned[name].script())
        assert str(images * 8 * height * 8 * 4) in storages and all(size.isdigit() for size in storages)


def test_users_dispatcher():
    """It sees the shapes with names where they are open; a dictionary that it could have given does as well."""
    seen = {}

    def dispatcher(shapes):
        seen.update(shapes)
        return CELLS
    mod = Dispatch("main", {"x0": (None, 3, None, 8)}, dispatcher)(network())
    assert seen == {"x0": ("n", 3, "h", 8)}
    assert clones(mod) == clones(Dispatch("main", {"x0": (None, 3, None, 8)}, CELLS)(network()))


def test_an_int_fixes_an_axis():
    mod = Dispatch("main", {"x0": (2, 3, None, 8)}, uniform_dispatcher(8, 1, 17))(network())
    assert clones(mod) == ["main_h_1_8", "main_h_9_16"]
    assert shape_of(mod["main"]) == [2, 3, "h", 8]


@pytest.mark.parametrize(("function", "shapes", "cells", "message"), [
    ("second", {"x0": (None, 3, None, 8)}, CELLS, "there is no function 'second'; the module has main"),
    ("main", {"image": (None, 3, None, 8)}, CELLS, "main has no input 'image'; it has x0"),
    ("main", {"x0": (None, 3, None)}, CELLS, "input_shape has 3 axes for input 'x0' of main, which has 4"),
    ("main", {"x0": (None, None, None, 8)}, CELLS, "axis 1 of input 'x0' of main is 3, so it cannot be open"),
    ("main", {"x0": (None, 4, None, 8)}, CELLS, "axis 1 of input 'x0' of main is 3, input_shape says 4"),
    ("main", {"x0": (None, 3, None, 8)}, {"x0": {1: [(1, 2)]}}, "axis 1 of input .x0. of main is 3, so it has no"),
    ("main", {"x0": (None, 3, None, 8)}, {"x0": {0: [(2, 2)]}}, "is no range of sizes"),
])
def test_contradictions(function, shapes, cells, message):
    with pytest.raises(megcc.MegccError, match=message):
        Dispatch(function, shapes, cells)(network())


@pytest.mark.slow
def test_it_may_be_the_first_import():
    """The module that needs no TVM gives the pass, which imports TVM, which registers us."""
    code = ("import sys, tvm_megcc.dispatch; assert 'tvm' not in sys.modules; from tvm_megcc.dispatch import Dispatch; "
            "import tvm; print(tvm.target.Target('megcc-c').attrs['model'])")
    result = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True,
                            check=False)
    assert result.stdout == "c\n", result.stderr


# --- what it computes ------------------------------------------------------------------------------------------

def test_results_on_all_borders(dispatched):
    """TVM's LLVM build of the dispatched module, ours, and the module as it was; what no bucket holds is an error of
    the call, and the next call works."""
    plain = relax.VirtualMachine(reference(dispatched), tvm.cpu())
    ours, report = build(dispatched)
    assert len(report.regions) == 4 and not report.theirs and report.share == 1.0
    agree(network(), [plain, ours], BORDERS)
    for machine, (shape, message) in itertools.product((plain, ours), (
            ((5, 3, 4, 8), r"main: input 'x0' has an extent on axis 0 \(n\) that no bucket holds; it may be 1 to 4"),
            ((1, 3, 3, 8), r"on axis 2 \(h\) that no bucket holds; it may be 4 to 19"),
            ((4, 3, 20, 8), r"on axis 2 \(h\) that no bucket holds"))):
        with pytest.raises(ValueError, match=message):
            machine["main"](*tensors([np.zeros(shape, "float32")]))
    agree(network(), [plain, ours], BORDERS[:2])


@pytest.mark.slow
def test_two_inputs_with_the_same_symbol():
    (n,) = extents("n")
    mod = module(lambda emit, x, y: emit(op.nn.softmax(emit(op.add(x, y)), -1)), f32(n, 5), f32(n, 5))
    mod = Dispatch("main", {"x0": (None, 5), "x1": (None, 5)}, log_dispatcher(2, 1, 9))(mod)
    assert clones(mod) == ["main_n_1_1", "main_n_2_3", "main_n_4_7", "main_n_8_8"]
    ours, _ = build(mod)
    agree(mod, [ours], [{"n": n} for n in (1, 2, 3, 4, 7, 8)])
    with pytest.raises(ValueError, match="input 'x0' has an extent on axis 0"):
        ours["main"](*tensors([np.zeros((9, 5), "float32")] * 2))
    with pytest.raises(RuntimeError, match="mismatch"):
        ours["main"](*tensors([np.zeros((2, 5), "float32"), np.zeros((3, 5), "float32")]))


@pytest.mark.slow
def test_weights_are_there_once(tmp_path):
    """Regions of clones that differ in bounds are one model with some buckets. Extents of one value are known, so 16
    cells are four models: nine cells with both extents open, three with one, three with the other, and one."""
    n, h = extents("n", "h")
    mod = module(lambda emit, x: emit(op.matmul(x, weights(64, 999))), f32(n, h, 64))
    sizes = []
    for cells in (1, 4):
        intervals = [(1, 2), (2, 4), (4, 8), (8, 16)][-cells:]
        one = Dispatch("main", {"x0": (None, None, 64)}, {"x0": {0: intervals, 1: intervals}})(mod)
        path = tmp_path / f"cells{cells}.so"
        tvm_megcc.build(one, "megcc-c").export_library(str(path))
        sizes.append(path.stat().st_size)
    assert len(clones(one)) == 16
    assert 2.9 < (sizes[1] - sizes[0]) / (64 * 999 * 4) < 3.6
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
    agree(mod, [machine], [{"n": n, "h": h} for n, h in ((1, 1), (1, 9), (15, 1), (8, 15), (3, 4), (4, 3))])


# --- regions with symbolic extents -----------------------------------------------------------------------------

def moving(emit, x, y):
    """Operators whose result takes its shape from symbols."""
    n, _, h = type_of(x).shape.values
    product = emit(op.matmul(x, emit(op.permute_dims(x, [0, 2, 1]))))
    halves = emit(op.split(x, 2, axis=1))
    return (emit(op.reshape(x, (n * 6, h))), emit(op.flatten(x)), emit(op.concat([x, x], axis=2)),
            emit(op.nn.softmax(product, -1)), emit(relax.TupleGetItem(halves, 1)), emit(op.sum(x, [1, 2])),
            emit(op.multiply(x, y)), emit(op.broadcast_to(y, (n, 6, h))))


def halved(emit, x):
    """Behind an operator of TVM's the extents are expressions, and the symbol itself is none of them."""
    y = emit(op.sort(emit(op.nn.max_pool2d(x, 2, 2)), axis=2))
    y = emit(op.nn.relu(emit(op.nn.conv2d(y, weights(4, 3, 3, 3), padding=1))))
    return emit(op.nn.avg_pool2d(y, 2, 2))


def sliced(emit, x):
    """Bounds that are symbols stay with TVM, which cannot even pass them by otherwise."""
    n = type_of(x).shape.values[0]
    return emit(op.nn.relu(emit(op.strided_slice(emit(op.exp(x)), [0], [0], [n]))))


@pytest.mark.parametrize(("build_network", "types", "symbols", "theirs"), [
    (moving, lambda n, h: [f32(n, 6, h), f32(1, 6, 1)], [(1, 3), (2, 8), (1, 3), (5, 1), (7, 65)],
     {"relax.broadcast_to": 1}),
    (halved, lambda n, h: [f32(n, 3, h, 8)], [(1, 16), (3, 6), (2, 9)], {"relax.sort": 1}),
    (sliced, lambda n, h: [f32(n, h)], [(1, 4), (3, 2)], {"relax.strided_slice": 1}),
], ids=["moving", "halved", "sliced"])
def test_without_dispatch(build_network, types, symbols, theirs):
    """Extents without bounds: what they need is allocated."""
    mod = module(build_network, *types(*extents("n", "h")))
    ours, report = build(mod)
    assert report.theirs == theirs, str(report)
    agree(mod, [ours], [{"n": n, "h": h} for n, h in symbols])


def test_shapes_that_are_operands_stay_with_tvm():
    (n,) = extents("n")
    mod = module(lambda emit, x: (emit(op.nn.relu(x)), emit(op.broadcast_to(weights(1, 4), (n, 4)))), f32(n, 4))
    ours, report = build(mod)
    assert "its shape is a symbolic operand" in str(report)
    agree(mod, [ours], [{"n": 3}])


@pytest.fixture(scope="module")
def bounded_region():
    """The function of a region with bounds."""
    mod = network({"tir_var_upper_bound": {"n": 4, "h": 12}, "tir_var_lower_bound": {"h": 4}})
    partitioned = tvm_megcc.partition_for_megcc(mod, target="megcc-c")
    (name,) = megcc.report(partitioned).regions
    executable = tvm.compile(partitioned, target="megcc-c", relax_pipeline="megcc")
    return executable.jit().get_function(name, query_imports=True)


def results(n: int, h: int):
    return tensors([np.full((n, 8), np.nan, "float32"), np.full((n, 8, h // 2, 4), np.nan, "float32")])


@pytest.mark.parametrize(("shape", "made_for", "message"), [
    ((5, 3, 6, 8), (5, 6), r"input 0 has shape \(5, 3, 6, 8\), which this was not compiled for; extents are n 0 to 4, "
                           "h 4 to 12"),
    ((1, 3, 13, 8), (1, 13), r"input 0 has shape \(1, 3, 13, 8\)"),
    ((1, 4, 6, 8), (1, 6), "input 0 has extent 4 on axis 1, not 3"),
    ((2, 3, 6, 8), (1, 6), "output 0 has extent 1 on axis 0, not 2"),
    ((2, 3, 6, 8), (2, 8), "output 1 has extent 4 on axis 2, not 3"),
])
def test_wrong_shapes_of_a_region(bounded_region, shape, made_for, message):
    """Refused with a text, whatever was called before; the next call works."""
    x = tensors([np.ones(shape, "float32")])
    good = tensors([np.ones((2, 3, 6, 8), "float32")])
    first, again = results(2, 6), results(2, 6)
    bounded_region(*good, *first)
    with pytest.raises(ValueError, match=message):
        bounded_region(*x, *results(*made_for))
    bounded_region(*good, *again)
    assert_same(arrays_of(again), arrays_of(first), 0.0)


# --- a network -------------------------------------------------------------------------------------------------

@pytest.mark.slow
def test_eighty_one_cells_of_a_network():
    """All nine logarithmic intervals of height and width, the last ones without a limit."""
    h, w = extents("h", "w")

    def build_network(emit, x):
        y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(8, 3, 3, 3), strides=2, padding=1))))
        return emit(op.matmul(emit(op.mean(y, [2, 3])), weights(8, 10)))
    mod = module(build_network, f32(1, 3, h, w))
    dispatched = Dispatch("main", {"x0": (1, 3, None, None)}, log_dispatcher(2))(mod)
    assert len(clones(dispatched)) == 81
    ours, report = build(dispatched)
    assert len(report.regions) == 81 and not report.theirs
    ends = (1, 2, 3, 4, 7, 8, 63, 64, 255, 256, 300)
    shapes = [*zip(ends, reversed(ends), strict=True), *zip(ends, ends, strict=True)]
    agree(mod, [ours], [{"h": h, "w": w} for h, w in shapes])


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """The RFC's example with random weights, for images of any size: the mean of 7 × 7 becomes that of all."""
    model = onnx.load(with_random_weights("light_resnet50"))
    for node in model.graph.node:
        if node.op_type == "AveragePool":
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]
    for axis, name in ((2, "height"), (3, "width")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    path = tmp_path_factory.mktemp("resnet") / "resnet50.onnx"
    onnx.save(model, path)
    return path


#: Nine logarithmic intervals, of which these limits leave two.
LEAST, MOST = 40, 90
SIZES = [(40, 40), (63, 64), (64, 63), (90, 90)]


def limited(shapes):
    """Nine logarithmic intervals of every open axis, within limits."""
    return {name: {axis: [(max(low, LEAST), min(high or MOST + 1, MOST + 1)) for low, high in intervals
                          if low <= MOST and (high is None or high > LEAST)] for axis, intervals in axes.items()}
            for name, axes in log_dispatcher(2)(shapes).items()}


def image(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).standard_normal((1, 3, height, width)).astype("float32")


@pytest.mark.slow
@pytest.mark.long
def test_resnet_inside_tvm(resnet):
    from tvm.relax.frontend.onnx import from_onnx

    mod = from_onnx(onnx.load(resnet))
    (name,) = [name_of(parameter) for parameter in mod["main"].params]
    limits = {dim.name: MOST for dim in type_of(mod["main"].params[0]).shape.values if isinstance(dim, tirx.Var)}
    mod["main"] = mod["main"].with_attrs({"tir_var_upper_bound": limits,
                                          "tir_var_lower_bound": dict.fromkeys(limits, LEAST)})
    mod = Dispatch("main", {name: (1, 3, None, None)}, log_dispatcher(2))(mod)
    assert len(clones(mod)) == 4
    ours, report = build(mod, "megcc-native")
    assert len(report.regions) == 4 and not report.theirs, str(report)
    for size in SIZES:
        (output,) = arrays_of(ours["main"](*tensors([image(*size)])))
        want = onnxruntime_outputs(resnet, {"gpu_0/data_0": image(*size)})
        assert_close(dict(zip(want, [output], strict=True)), want)


@pytest.mark.slow
def test_resnet_in_a_container(resnet, tmp_path):
    """Four buckets cost next to nothing: weights, kernels and instructions are there once."""
    one = tvm_megcc.compile(resnet, "native", dispatch=f"gpu_0/data_0[2,3]={LEAST}..{MOST}")
    four = tvm_megcc.compile(resnet, "native", dispatch=limited)
    assert len(four.manifest["buckets"]) == 4
    assert len(four.container) <= 1.1 * len(one.container)
    session = tvm_megcc.load(four.save(tmp_path / "resnet"))
    for size in SIZES:
        inputs = {"gpu_0/data_0": image(*size)}
        assert_close(session.run(inputs), onnxruntime_outputs(resnet, inputs))
