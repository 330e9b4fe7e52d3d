# SPDX-License-Identifier: Apache-2.0
"""Generated C where only the macros of IAR's or Arm's compiler are defined.

Neither compiler is here. IAR's is gcc without the macros of gcc, so nothing of GNU C is compiled: it shows that the
code is C99, and what it computes, not how fast. Arm's is clang with its macros.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.compiled.runtime.test_runtime import call, need
from tvm_megcc import paths
from tvm_megcc.runtime.load import load
from tvm_megcc.target import parse_targets

IAR = ("-U__GNUC__", "-U__GNUC_MINOR__", "-U__GNUC_PATCHLEVEL__", "-D__ICCARM__=1", "-D__IAR_SYSTEMS_ICC__=9",
       "-D__VER__=9030001")
ARM = ("--target=arm-none-eabi", "-D__ARMCC_VERSION=6190004", "-D__ARMCOMPILER_VERSION=6190004")
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
MODELS = Path(os.environ.get("MEGCC_MODELS", Path(__file__).resolve().parents[4] / "shared" / "models"))
NETWORKS = {"digits": paths.examples() / "digits.onnx", "kws": MODELS / "kws_dscnn_int8" / "model.tflite"}


@pytest.fixture(scope="module", params=sorted(NETWORKS))
def network(request) -> str:
    if not NETWORKS[request.param].exists():
        pytest.skip(f"{request.param} is not on this machine (set MEGCC_MODELS)")
    return request.param


def _compiled(network: str, target: str, folder: Path) -> Path:
    return tvm_megcc.compile(NETWORKS[network], target, name=network).save(folder / network, embed=True)


@pytest.mark.parametrize("target", ["c", "cortex-m4"])
def test_compiles(network, target, tmp_path):
    """All files of a firmware: kernels, tables, the container as C, the runtime."""
    folder = _compiled(network, target, tmp_path)
    sources = [path for path in folder.rglob("*.c") if path.name not in ("main.c", "host.c", "pool.c")]
    core = parse_targets(target)[0].cflags
    compilers = [(need("arm-none-eabi-gcc" if core else "gcc"), *core, *IAR)]
    if core:
        system = call(["arm-none-eabi-gcc", "-print-sysroot"]).strip()
        compilers.append((need("clang"), *ARM, *core, "-isystem", f"{system}/include"))
    for compiler in compilers:
        call([*compiler, *STRICT, f"-I{folder}", f"-I{folder / 'runtime' / 'include'}", "-fsyntax-only", *sources])


@pytest.mark.slow
def test_computes_the_same(network, tmp_path):
    """Without GNU C: the bits that it has with it."""
    rng, outputs = np.random.default_rng(0), []
    # what reads the system's headers, which are GNU C, stays as it is
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *host.c*|*megcc_py.c*) exec gcc "$@";; esac\n'
                        f'exec {need("gcc")} {" ".join(IAR)} "$@"\n')
    compiler.chmod(0o755)
    for name, cc in (("with", "gcc"), ("without", str(compiler))):
        session = load(_compiled(network, "c", tmp_path / name), cc=cc)
        if not outputs:
            port, = session.inputs
            given = rng.integers(-128, 128, port.shape).astype(port.dtype)
        outputs.append(session.run({port.name: given}))
    for name, values in outputs[0].items():
        assert len(np.unique(values)) > 1
        np.testing.assert_array_equal(values, outputs[1][name])
