# SPDX-License-Identifier: Apache-2.0
"""Every loop of every kernel of the safety profile has a bound."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernels.kernel_harness import C_RUNTIME, jobs_of
from tests.kernels.test_kernels import KINDS
from tvm_megcc.codegen.c_source.bind import KernelSpec
from tvm_megcc.codegen.c_source.render import render_kernel
from tvm_megcc.codegen.headers import kernels_header
from tvm_megcc.ops.base import OPERATORS
from tvm_megcc.target import TARGETS
from tvm_megcc.tools.evidence.loops import Loop, loops
from tvm_megcc.tools.evidence.properties import argument_ranges

#: Operators with loops that end by data, or whose limits are computed.
BY_DATA = ("conv2d_transpose", "count_grams", "ctc_align", "ctc_beam", "ctc_greedy", "db_boxes", "deform_conv",
           "grid_sample", "l2_fixed", "labels", "log_softmax_fixed", "matmul", "non_max_suppression", "pow",
           "roi_align", "roi_max_pool", "sin", "softmax_wide", "top_k", "trees", "unique")


def kernels(kind: str) -> list[KernelSpec]:
    """A kernel of each template that realises an operator for portable C, with all extents known."""
    found: dict[str, KernelSpec] = {}
    for index, case in enumerate(OPERATORS[kind].cases):
        for job in jobs_of(kind, case, index, TARGETS["c"], "speed"):
            if not job.bound.spec.runtime_extents:
                found.setdefault(job.bound.spec.template, replace(job.bound.spec, checked=True))
    return list(found.values())


def loops_of(spec: KernelSpec, folder: Path) -> list[Loop]:
    text = render_kernel(spec)
    for name, content in ((("kernels.h", kernels_header([spec.symbol])), ("kernel.c", text), *spec.params.files)):
        (folder / name).write_text(content)
    printed = subprocess.run(["gcc", "-E", "-std=c99", f"-I{folder}", f"-I{C_RUNTIME / 'include'}",
                              str(folder / "kernel.c")], capture_output=True, text=True, check=True).stdout
    return loops(printed, spec.symbol, argument_ranges(text))


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in BY_DATA else
                                               [pytest.mark.slow, pytest.mark.long]) for kind in KINDS])
def test_every_loop_has_a_bound(kind: str, tmp_path: Path) -> None:
    unknown = [(spec.template, loop.function, loop.head) for spec in kernels(kind) for loop in loops_of(spec, tmp_path)
               if loop.at_most is None]
    assert not unknown
