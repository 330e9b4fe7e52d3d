# SPDX-License-Identifier: Apache-2.0
"""The generated C of real networks under several compilers: no warnings, the same bits, nothing for a sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tests.c_flags import WARNINGS
from tvm_megcc import paths
from tvm_megcc.runtime.precompiled import intrinsics
from tvm_megcc.runtime.toolchain import find_compiler
from tvm_megcc.target import native

from .networks import NETWORKS

STRICT = ["-std=c99", *WARNINGS]
FRAMES = ["-Wframe-larger-than=1024"]
SANITIZE = ["-g", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
CLANGS = ("clang-19", "clang", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14")


def compiler(name: str) -> str:
    """The compiler's command; skips the test where it is missing."""
    found = next((c for c in (CLANGS if name == "clang" else (name,)) if shutil.which(c)), None)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def get(name: str) -> Path:
        if name not in made:
            network = NETWORKS[name]
            artifact = tvm_megcc.compile(network.path, "native", input_shapes=dict(network.shapes), name=name)
            made[name] = artifact.save(tmp_path_factory.mktemp("built") / name)
        return made[name]

    return get


#: Object files of the runtime, which every folder has a copy of, by compiler, flags and text.
_runtime_objects: dict[tuple, Path] = {}


def program(folder: Path, cc: str, flags: list[str]) -> Path:
    """megcc_run with the model of a generated folder, every file compiled with the same flags."""
    name = folder.name
    sources = [*folder.glob("kernels/*.c"), folder / "kernels.c", *folder.glob("runtime/src/*.c"),
               paths.c_runtime() / "tools" / "megcc_run.c"]
    build = folder / "build" / f"test-{cc}-{abs(hash(tuple(flags)))}"
    build.mkdir(parents=True, exist_ok=True)
    found, all_flags = find_compiler(native(), cc), (*flags, "-ffp-contract=off")
    include = [f"-DMEGCC_MODULE={name}_module", f"-I{folder / 'runtime/include'}", f"-I{folder / 'runtime/src'}"]

    def one(source: Path) -> str:
        made = build / f"{source.stem}.o"
        key = (cc, all_flags, source.read_bytes())
        if key in _runtime_objects:
            if _runtime_objects[key] != made:
                shutil.copy(_runtime_objects[key], made)
            return ""
        extra = FRAMES if "runtime" in source.parts and "-Werror" in flags else []
        done = subprocess.run([cc, *all_flags, *intrinsics(found, all_flags, source.read_text()), *include, *extra,
                               "-c", str(source), "-o", str(made)], capture_output=True, text=True)
        if done.returncode or done.stderr:
            return done.stderr or f"{source}: the compiler failed"
        if "runtime" in source.parts:
            _runtime_objects[key] = made
        return ""

    with ThreadPoolExecutor(2) as pool:
        complaints = [text for text in pool.map(one, sources) if text]
    assert not complaints, "\n".join(complaints[:3])
    binary = build / "megcc_run"
    subprocess.run([cc, *flags, *map(str, build.glob("*.o")), "-lpthread", "-o", str(binary)], check=True)
    return binary


def outputs(binary: Path, folder: Path, inputs: dict[str, np.ndarray], manifest_outputs) -> dict[str, bytes]:
    """Raw bytes of every output of one run."""
    work = binary.parent
    command = [str(binary), "--model", str(folder / f"{folder.name}.megcc")]
    for index, (name, array) in enumerate(inputs.items()):
        (work / f"in{index}").write_bytes(array.tobytes())
        command += ["--input", f"{name}={work / f'in{index}'}"]
    for index, name in enumerate(manifest_outputs):
        command += ["--output", f"{name}={work / f'out{index}'}"]
    # The runner's buffers live as long as its process: leaks are not what is looked for.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: (work / f"out{index}").read_bytes() for index, name in enumerate(manifest_outputs)}


def output_names(folder: Path) -> list[str]:
    from tvm_megcc.codegen.bundle import read_manifest
    return [row["name"] for row in read_manifest(folder)["models"][0]["outputs"]]


#: Networks that `make test` builds; `make test-all` builds all.
FEW = {"mnist8", "kws_dscnn_f32", "dtln_stage1"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long] * (name not in FEW)) for name in NETWORKS])
def test_gcc_and_clang_agree_bit_by_bit(name: str, folders):
    """Both without a warning; -O3 and -O1, so that optimisation shows if it changes anything."""
    folder, inputs = folders(name), NETWORKS[name].inputs(1)
    by_gcc = outputs(program(folder, compiler("gcc"), [*STRICT, "-O3"]), folder, inputs, output_names(folder))
    by_clang = outputs(program(folder, compiler("clang"), [*STRICT, "-O1"]), folder, inputs, output_names(folder))
    assert by_gcc == by_clang


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long] * (name not in FEW)) for name in NETWORKS])
def test_sanitizers_find_nothing(name: str, folders):
    """Also on inputs that no network was trained on."""
    folder = folders(name)
    binary = program(folder, compiler("gcc"), ["-O1", *SANITIZE])
    inputs = NETWORKS[name].inputs(1)
    for value in (None, np.nan, np.inf, -3e38):
        odd = {n: a if value is None else np.where(np.arange(a.size).reshape(a.shape) % 7 == 0, np.float32(value), a)
               for n, a in inputs.items()}
        outputs(binary, folder, odd, output_names(folder))


@pytest.mark.parametrize("flags", [
    ["-O0"], *(pytest.param(flags, marks=pytest.mark.long) for flags in (
        ["-Os"], ["-O2", "-flto"], ["-O2", "-fno-strict-aliasing"]))],
                         ids=" ".join)
def test_any_optimisation_gives_the_same_bits(flags, folders):
    name = "kws_dscnn_f32"
    folder, inputs = folders(name), NETWORKS[name].inputs(1)
    expected = outputs(program(folder, compiler("gcc"), ["-O2"]), folder, inputs, output_names(folder))
    assert outputs(program(folder, compiler("gcc"), flags), folder, inputs, output_names(folder)) == expected


