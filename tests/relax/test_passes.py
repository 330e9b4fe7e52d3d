# SPDX-License-Identifier: Apache-2.0
"""Modules that went through passes of TVM before ours, or go through some afterwards; other code generators beside
ours."""

from __future__ import annotations

import importlib
import subprocess

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="TVM is not installed")

import tvm_ffi  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.relax import op  # noqa: E402
from tvm.relax.backend import get_patterns_with_prefix  # noqa: E402
from tvm.relax.dpl import is_op, wildcard  # noqa: E402
from tvm.relax.transform import FusionPattern  # noqa: E402

from tvm_megcc import build_megcc_kernels, partition_for_megcc  # noqa: E402
from tvm_megcc.frontends.tvm_versions import RelaxTensor, value_of  # noqa: E402
from tvm_megcc.runtime.toolchain import find_compiler  # noqa: E402
from tvm_megcc.target import TARGETS  # noqa: E402

from .modules import assert_same, f32, megcc, module, random_inputs, reference, run, weights  # noqa: E402

TARGET = "megcc-c"
STATISTICS = tuple(np.linspace(low, high, 8, dtype="float32") for low, high in
                   ((0.5, 1.5), (-1, 1), (-0.2, 0.2), (0.7, 1.3)))


def typed(dtype: str):
    """Weights of an element type."""
    return lambda *shape: relax.const(value_of(weights(*shape)).numpy().astype(dtype), dtype)


def network(emit, x, weight=weights, dtype: str = "float32"):
    """Two convolutions, a batch norm, pools, a product."""
    y = emit(op.nn.relu(emit(op.nn.conv2d(x, weight(8, 3, 3, 3), padding=1))))
    normalised = emit(op.nn.batch_norm(y, *(relax.const(s.astype(dtype), dtype) for s in STATISTICS), axis=1,
                                       training=False))
    y = emit(op.nn.conv2d(emit(relax.TupleGetItem(normalised, 0)), weight(12, 8, 3, 3)))
    y = emit(op.mean(emit(op.nn.max_pool2d(y, 2, 2)), [2, 3]))
    return emit(op.nn.softmax(emit(op.matmul(y, weight(12, 5)))))


@pytest.fixture(scope="module")
def mod():
    return module(network, f32(2, 3, 10, 8))


@pytest.fixture(scope="module")
def expected(mod):
    return run(reference(mod), random_inputs(mod))


#: How far results may be off: half of a unit in the last of 11 bits for each of a few roundings of probabilities.
PASSES = {
    "DecomposeOpsForInference": (relax.transform.DecomposeOpsForInference(), 1e-5),
    "ConvertLayout": (relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}), 1e-5),
    "ToMixedPrecision to float32": (relax.transform.ToMixedPrecision(out_dtype="float32"), 4e-3),
    "ToMixedPrecision to float16": (relax.transform.ToMixedPrecision(out_dtype="float16"), 4e-3),
}


@pytest.mark.parametrize("name", PASSES)
def test_before(mod, expected, name):
    passed, tolerance = PASSES[name]
    partitioned = partition_for_megcc(passed(mod), target=TARGET)
    report = megcc.report(partitioned)
    assert len(report.regions) == 1 and not report.theirs, str(report)
    assert_same(run(tvm.compile(partitioned, target=TARGET), random_inputs(mod)), expected, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 4e-3), ("bfloat16", 3e-2)])
def test_floats_of_16_bits(expected, dtype, tolerance):
    """One region, which computes in float32 between its ends: nearer to the network of float32 than its type asks."""
    half = module(lambda emit, x: network(emit, x, typed(dtype), dtype), RelaxTensor((2, 3, 10, 8), dtype))
    partitioned = partition_for_megcc(half, target=TARGET)
    report = megcc.report(partitioned)
    assert len(report.regions) == 1 and not report.theirs, str(report)
    (x,) = random_inputs(module(network, f32(2, 3, 10, 8)))
    (got,) = run(tvm.compile(partitioned, target=TARGET), [x.astype(np.dtype(dtype))])
    assert got.dtype == np.dtype(dtype)
    assert_same([got.astype(np.float32)], expected, tolerance)


@pytest.mark.parametrize("annotated", [False, True], ids=["MergeCompositeFunctions", "annotate_codegen"])
def test_by_hand(mod, expected, annotated):
    """TVM's own passes with our patterns, step by step."""
    mod = relax.transform.FuseOpsByPattern(get_patterns_with_prefix("megcc"), bind_constants=True,
                                           annotate_codegen=annotated)(mod)
    if not annotated:
        mod = relax.transform.MergeCompositeFunctions()(mod)
    mod = relax.transform.RunCodegen({"megcc": {"target": "c"}})(mod)
    assert all("Codegen" not in (function.attrs or {}) for function in mod.functions.values())
    assert_same(run(tvm.compile(mod, target="llvm"), random_inputs(mod)), expected)


def between(emit, x):
    """An operator that is not ours between two that are."""
    y = emit(op.nn.relu(emit(op.nn.conv2d(x, weights(4, 3, 3, 3)))))
    y = emit(op.atan2(y, relax.const(np.float32(0.5))))
    return emit(op.matmul(emit(op.tanh(y)), weights(6, 5)))


def test_schedules_of_what_stays_with_tvm():
    """Our regions are compiled first; then the rest is TVM's to schedule."""
    from tvm.s_tir import dlight

    mod = module(between, f32(1, 3, 8, 8))
    built = build_megcc_kernels(partition_for_megcc(mod, target=TARGET))
    with tvm.target.Target("llvm"):
        built = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV())(relax.transform.LegalizeOps()(built))
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(built, target="llvm"), inputs), run(reference(mod), inputs))


def test_records_of_meta_schedule_for_what_stays_with_tvm():
    """Only what stays with TVM is a task; its record is applied, and our regions stay as they are."""
    meta_schedule = pytest.importorskip("tvm.s_tir.meta_schedule", reason="this TVM has meta_schedule elsewhere")
    from tvm.s_tir import Schedule

    mod, target = module(between, f32(1, 3, 8, 8)), tvm.target.Target({"kind": "llvm", "num-cores": 1})
    built = relax.transform.LegalizeOps()(build_megcc_kernels(partition_for_megcc(mod, target=TARGET)))
    (task,) = meta_schedule.relax_integration.extract_tasks(built, target)
    assert task.task_name == "atan2"
    (loops,) = task.dispatched
    schedule = Schedule(loops)
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.parallel(schedule.fuse(*schedule.get_loops(block)))
    database = meta_schedule.database.MemoryDatabase()
    database.commit_tuning_record(meta_schedule.database.TuningRecord(
        schedule.trace, database.commit_workload(loops), [1e-3], target,
        meta_schedule.arg_info.ArgInfo.from_prim_func(loops["main"])))
    with target, database:
        applied = relax.transform.MetaScheduleApplyDatabase()(built)
    assert "T.parallel(" in applied["atan2"].script() and "T.parallel(" not in built["atan2"].script()
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(applied, target="llvm"), inputs), run(reference(mod), inputs))


#: A function of TVM's FFI on tensors of float32. %s: its body.
FUNCTION = """
#include <math.h>
#include <stdint.h>
typedef struct {{ int32_t index, zero; void *pointer; }} any;
typedef struct {{ void *data; int32_t device, id, ndim, type; int64_t *shape; }} tensor;
static tensor *of(const any *a) {{ return (tensor *)(void *)((char *)a->pointer + (a->index == 7 ? 0 : 24)); }}
int __tvm_ffi_{name}(void *self, const any *given, int32_t count, any *result);
int __tvm_ffi_{name}(void *self, const any *given, int32_t count, any *result)
{{
    tensor *x = of(given), *y = of(given + count - 1);
    int64_t size = 1;
    for (int axis = 0; axis < y->ndim; axis++) size *= y->shape[axis];
    for (int64_t i = 0; i < size; i++) %s
    (void)self, (void)result;
    return 0;
}}
"""
#: Code generator -> what its functions compute.
BODIES = {"other": "((float *)y->data)[i] = tanhf(((float *)x->data)[i]);", "cublas": """{{
        const tensor *w = of(given + 1);
        const int64_t columns = w->shape[1], depth = w->shape[0];
        const float *row = (const float *)x->data + i / columns * depth, *column = (const float *)w->data + i % columns;
        double sum = 0;
        for (int64_t k = 0; k < depth; k++) sum += (double)row[k] * column[k * columns];
        ((float *)y->data)[i] = (float)sum;
    }}"""}


@pytest.fixture(params=["other", "cublas"])
def other(request, tmp_path):
    """A second code generator: `relax.ext.other`, or one in place of TVM's for cuBLAS, which the wheel has only the
    patterns of. Gives its name and its patterns."""
    name, body = request.param, FUNCTION % BODIES[request.param]

    def codegen(functions, _options, _constants):
        made = []
        for symbol in (str(function.attrs["global_symbol"]) for function in functions):
            source = tmp_path / f"{symbol}.c"
            source.write_text(body.format(name=symbol))
            subprocess.run([*find_compiler(TARGETS["c"]).command, "-fPIC", "-c", source, "-o",
                            source.with_suffix(".o")], check=True)
            made.append(tvm.runtime.load_static_library(str(source.with_suffix(".o")), [f"__tvm_ffi_{symbol}"]))
        return made

    importlib.import_module("tvm.relax.backend.cuda.cublas")
    tvm_ffi.register_global_func(f"relax.ext.{name}", codegen, override=True)
    yield name, [FusionPattern("other.tanh", is_op("relax.tanh")(wildcard()), {}, None)] if name == "other" \
        else get_patterns_with_prefix("cublas")
    tvm_ffi.registry.remove_global_func(f"relax.ext.{name}")


def test_another_code_generator(other, tmp_path):
    """What it took stays its own, one library holds both."""
    mod, (name, patterns) = module(between, f32(1, 3, 8, 8)), other
    taken = {"other": "tanh", "cublas": "matmul"}[name]
    inputs = random_inputs(mod)
    theirs = relax.transform.FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(mod)
    partitioned = partition_for_megcc(theirs, target=TARGET)
    report = megcc.report(partitioned)
    assert dict(report.theirs) == {"relax.atan2": 1, f"relax.{taken}": 1} and len(report.regions) == 2, str(report)
    assert f"it is in fused_relax_{taken}_{name}, which is for {name}" in str(report)
    executable = tvm.compile(partitioned, target=TARGET)
    assert_same(run(executable, inputs), run(reference(mod), inputs))
    executable.export_library(str(tmp_path / "both.so"))
    assert_same(run(tvm.runtime.load_module(str(tmp_path / "both.so")), inputs), run(reference(mod), inputs))


@pytest.mark.parametrize("by", ["value", "symbol"])
def test_extents_that_a_cast_names(by):
    """TVM's importers give a result whose extents only the run knows a name by match_cast; the value of the cast may
    not be used, only the name."""
    builder, x, n = relax.BlockBuilder(), relax.Var("x", f32(2, 8)), tvm.tirx.Var("n", "int64")
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(op.nonzero(builder.emit(op.nn.relu(op.matmul(x, weights(8, 8))))))
            places = builder.match_cast(found, RelaxTensor((2, n), "int64"))
            rows = op.astype(places, "float32") if by == "value" else op.full((2, n), relax.const(np.float32(3)))
            result = builder.emit_output(op.nn.relu(op.matmul(weights(3, 2), builder.emit(rows))))
        builder.emit_func_output(result)
    mod = builder.get()
    parted = partition_for_megcc(mod, target="c")
    assert sum("megcc_region" in str(name) for name in parted.get_global_vars()) == 2
    inputs = random_inputs(mod)
    assert_same(run(tvm.compile(parted, target="megcc-c"), inputs), run(tvm.compile(mod, target="llvm"), inputs))
