# SPDX-License-Identifier: Apache-2.0
"""Loops of TVM printed as C: each kind of construct under sanitizers over odd shapes, against TVM's own build."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")

from tvm import relax, te, tirx
from tvm.relax import op

from tests.c_braces import braced
from tests.kernels.kernel_harness import Job, Program, jobs_of
from tests.kernels.test_kernels import slow, toolchain
from tvm_megcc.codegen.c_source.format import reindent
from tvm_megcc.errors import MegccError
from tvm_megcc.frontends.relax.importer import is_tensor
from tvm_megcc.frontends.tir import program_of
from tvm_megcc.frontends.tir.legalize import legalized
from tvm_megcc.frontends.tvm_versions import Call, RelaxTensor, parameters_of
from tvm_megcc.ir import dims
from tvm_megcc.ops.base import Case
from tvm_megcc.target import TARGETS

from .modules import number

N = tirx.Var("n", "int64")
M = tirx.Var("m", "int64")
#: Values of the symbolic extents, each a case.
SHAPES = ({"N": 1, "M": 3}, {"N": 7, "M": 1}, {"N": 18, "M": 5})


def f32(*shape):
    return RelaxTensor(shape, "float32")


def i64(*shape):
    return RelaxTensor(shape, "int64")


def f16(*shape):
    return RelaxTensor(shape, "float16")


#: Operators that go through TVM's legalisation, over symbolic extents where these make a difference.
OPERATORS = {
    "attention": (op.nn.attention, f32(2, 5, 3, 8), f32(2, 7, 3, 8), f32(2, 7, 3, 8)),
    "attention of any length": (op.nn.attention, f32(1, N, 2, 8), f32(1, M, 2, 8), f32(1, M, 2, 8)),
    "bucketize": (lambda x, edges: op.bucketize(x, op.cumsum(op.abs(edges), 0)), f32(4, N), f32(9)),
    "convolution in groups": (lambda x, w: op.nn.conv2d(x, w, padding=1, groups=2), f32(1, 4, N, 6), f32(6, 2, 3, 3)),
    "cumprod": (lambda x: op.cumprod(x, 1), f32(3, N)),
    "einsum": (lambda x, y: op.einsum((x, y), "ijk,kl->jil"), f32(3, N, 5), f32(5, M)),
    "gather_nd": (op.gather_nd, f32(4, 3, N), i64(5, 2)),
    "gelu": (op.nn.gelu, f32(3, N)),
    "grid": (lambda x: op.image.affine_grid(x, (5, 6)), f32(2, 2, 3)),
    "grid of any shape, cubic": (lambda x, grid: op.image.grid_sample(x, grid, "bicubic", padding_mode="reflection"),
                                 f32(1, 3, 2, 5), f32(1, 2, 1, N)),
    "half": (op.log_add_exp, f16(3, N), f16(3, N)),
    "layer_norm": (lambda x, a, b: op.nn.layer_norm(x, a, b, axes=[1]), f32(2, 3, N), f32(3), f32(3)),
    "layout_transform": (lambda x: op.layout_transform(x, lambda i, j: (i, j // 4, j % 4)), f32(4, 8)),
    "log_softmax": (op.nn.log_softmax, f32(N, M)),
    "one_hot": (lambda x: op.one_hot(x, number(1), number(0), 5), i64(N)),
    "pool": (lambda x: op.nn.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=True), f32(1, 2, 7, 6)),
    "scatter_elements": (lambda x, i, y: op.scatter_elements(x, i, y, 1, "add"), f32(2, 10), i64(2, N), f32(2, N)),
    "softplus": (lambda x: op.nn.softplus(x, 2.0, 10.0), f32(3, N)),
    "softmax": (lambda x: op.nn.softmax(x, 1), f32(2, N, M)),
    "take": (lambda x, i: op.take(x, i, 0, mode="wrap"), f32(4, N), i64(7)),
    "variance": (lambda x: op.variance(x, [1]), f32(3, N)),
}


def programs(build, *types) -> list:
    """The programs of an operator: its own, where it is one call; of the calls it consists of else."""
    parameters = [relax.Var(f"x{index}", type_) for index, type_ in enumerate(types)]
    builder = relax.BlockBuilder()
    found = []
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(build(*parameters))
        builder.emit_func_output(output)
    for block in builder.get()["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, Call):
                try:
                    main, functions = legalized(binding.value, is_tensor)
                except MegccError as error:  # a release with a mistake in its rule for it: the module keeps the call
                    assert "TVM cannot lower it to loops" in str(error), error
                    continue
                for inner in main.body.blocks[0].bindings:
                    call = inner.value
                    if isinstance(call, Call):
                        name = call.args[0].name_hint
                        found.append(program_of(functions[name], len(call.args[1].fields), name))
    return found


def inputs_of(function: tirx.PrimFunc) -> int:
    """Buffers that a function only reads."""
    written = set()

    def visit(node):
        if type(node).__name__ == "BufferStore":
            written.add(str(node.buffer.name))
        for name in ("body", "then_case", "else_case", "block", "init"):
            if getattr(node, name, None) is not None:
                visit(getattr(node, name))
        for part in getattr(node, "seq", ()):
            visit(part)

    visit(function.body)
    return sum(parameter.name not in written for parameter in parameters_of(function))


def cases(program) -> Iterator[Case]:
    """A case a set of extents."""
    symbolic = any(not type_.is_static for _, type_ in program.inputs)
    for values in SHAPES if symbolic else SHAPES[:1]:
        shapes = [(tuple(dims.evaluate(dim, values) for dim in type_.shape), type_.dtype)
                  for _, type_ in program.inputs]
        # Indices that are inside; of floats around zero those that a cast can hold.
        small = {index: np.random.default_rng(index).integers(0, 3, shape) for index, (shape, dtype) in
                 enumerate(shapes) if dtype in ("int64", "int32")}
        if program.name == "quotients":
            small[1] = np.random.default_rng(1).choice([-3, -1, 1, 4], shapes[1][0])
        yield Case(tuple(shapes), {"program": program, "given": ()}, values=small)


def jobs(found, target: str, optimize: str) -> list[Job]:
    return [job for program in found for index, case in enumerate(cases(program))
            for job in jobs_of("tir", case, index, TARGETS[target], optimize)]


def constructs() -> list:
    from .tir_functions import PRINTED  # parsing them takes seconds, which no other test should wait for
    return [program_of(function, inputs_of(function), name) for name, function in PRINTED.items()]


def operators() -> list:
    found = [programs(build, *types) for build, *types in OPERATORS.values()]
    assert sum(map(bool, found)) >= len(found) - 1
    return [program for some in found for program in some]


#: Values at the ends of what an element type holds.
HOSTILE = {"float32": (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 2.2e9, -2.2e9, 0.5),
           "float16": (np.nan, np.inf, -np.inf, 65504, -65504, 1e-7, -0.0, 0.5),
           "int64": (-2**63, 2**63 - 1, -1, 0, 2**31, -2**31 - 1, 1), "int32": (-2**31, 2**31 - 1, -1, 0, 1, 40),
           "int8": (-128, 127, -1, 0), "bool": (0, 1)}


def hostile(job: Job) -> Job:
    """The job with such values in all of its inputs."""
    generator = np.random.default_rng(len(job.title))
    job.inputs = [generator.choice(np.array(HOSTILE[str(array.dtype)]).astype(array.dtype), array.shape)
                  for array in job.inputs]
    return job


#: Kernels that have to refuse indices that are outside, and some that have none.
CHECKED = {"picked", "added_up", "te_gather_nd", "scatter_elements"}
UNCHECKED = {"picked_where_marked", "take", "log_softmax", "one_hot", "quotients"}


@pytest.mark.parametrize(("found", "name", "optimize"), [
    (constructs, "c", "speed"), slow(operators, "x86-64-v3", "size"),
    slow(constructs, "x86-64-v3", "size"), slow(constructs, "armv7", "speed"),
    *(pytest.param(operators, *target, marks=[pytest.mark.slow, pytest.mark.long])
      for target in (("c", "speed"), ("arm64", "open")))])
def test_kernels(found, name: str, optimize: str, tmp_path):
    """Results are TVM's; on data of every kind no sanitizer finds anything, and an index outside is an error."""
    compiler, flags, runner = toolchain(name)
    program = Program(jobs(found(), name, optimize), tmp_path, compiler, flags, runner)
    failures = program.run(pieces=1) + program.run(pieces=3)
    assert not failures, "\n".join(failures[:10])
    program.jobs = list(map(hostile, program.jobs))
    lines = program.run(pieces=2)
    died = [line for line in lines if "died" in line]
    assert not died, "\n".join(died)
    names = {job.bound.spec.operation for job in program.jobs}
    refused = {job.bound.spec.operation for job in program.jobs for line in lines
               if line.startswith(job.title) and line.endswith("status 65")}
    assert CHECKED & names <= refused and not UNCHECKED & refused, refused


def test_refused_by_name():
    from .tir_functions import REFUSED
    for word, function in REFUSED.items():
        with pytest.raises(MegccError, match=word):
            program_of(function, 1, "refused")


@pytest.mark.parametrize(("given", "name"), [
    ("mgc_x", "x"), ("mgd_mgc_9", "v9"), ("mgc_", "v"), ("mgc__X_", "X"), ("MGC", "vMGC"),
    ("megcc_run", "vmegcc_run"), ("int", "int2"), ("int32_t", "vint32_t"), ("NULL", "NULL2"), ("h_t", "h_t"),
    ("index_in", "index_in2"), ("add_i64", "vadd_i64"), ("i32_of_f64", "vi32_of_f64"), ("temp_i0", "temp_i0"),
    ("é", "v"), ("x", "x")])
def test_names_of_buffers(given: str, name: str):
    """No name is a word of C, a helper, or of the runtime's headers, whose prefixes are theirs."""
    x = te.placeholder((4,), "float32", name=given)
    program = program_of(te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0, name="y")]), 1, "named")
    assert f" = {name}[i] + 1.0f;" in program.body, program.body


def test_temporaries_share_memory():
    """The third of three is where the first was."""
    from .tir_functions import PRINTED
    program = program_of(PRINTED["temporaries"], 1, "temporaries")
    assert program.shared == 2 * 31 * 7 * 4 and "float *const c = a;" in program.body


def test_cheap_temporaries_are_none():
    (program,) = programs(*OPERATORS["gelu"])
    assert program.shared == program.scratch == 0 and program.body.count("for (") == 2


def test_nests_become_one():
    """A softmax keeps one number of each kind a row, and rows are tasks."""
    (program,) = programs(*OPERATORS["log_softmax"])
    assert program.tasks == dims.Symbol("N") and program.shared == program.scratch == 0
    assert program.body.count("for (int32_t") == 4 and "float T_softmax_maxelem = 0;" in program.body


def test_dependent_iterations_are_one_task():
    from .tir_functions import reads_the_iteration_before
    assert program_of(reads_the_iteration_before, 1, "reads").tasks == 1


def test_functions_on_vectors():
    """What compilers leave scalar, with what is read twice loaded once."""
    (program,) = programs(*OPERATORS["softplus"])
    assert program.body.count("mgc_load_n(") == 1 and "mgc_log(mgc_set1(1.0f) + mgc_exp(" in program.body


@pytest.mark.parametrize("found", [constructs, operators])
def test_every_body_has_braces(found):
    for program in found():
        text = "\n".join([*program.helpers, f"void f(int outside)\n{{\n{program.body}\n}}"])
        assert braced(text) == text, program.name


def test_text():
    """What a person reads."""
    (program,) = programs(*OPERATORS["einsum"])
    too_large = [f"megcc_size_mul({size}) > INT32_MAX" for size in ("60, N", "20, M", "12, megcc_size_mul(M, N)")]
    refused = reindent(f"if ({' || '.join(too_large)}) {{\nreturn MEGCC_KERNEL_FAILED;\n}}\n")
    assert reindent(program.body) == refused + """\
for (int32_t ax0 = begin; ax0 < end; ax0++) {
    for (int32_t ax1 = 0; ax1 < 3; ax1++) {
        for (int32_t ax2 = 0; ax2 < M; ax2++) {
            float sum = 0.0f;
            for (int32_t k = 0; k < 5; k++) {
                sum = sum + x0[(ax1 * N + ax0) * 5 + k] * x1[k * M + ax2];
            }
            T_einsum[(ax0 * 3 + ax1) * M + ax2] = sum;
        }
    }
}
return 0;"""
    assert program.extents == (("M", 1, 1), ("N", 0, 1)) and program.macs == 15 * dims.Symbol("N") * dims.Symbol("M")
