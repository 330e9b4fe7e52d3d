# SPDX-License-Identifier: Apache-2.0
"""Libraries for other CPUs: linked by their compilers, and equal, bit for bit, to the stand-alone artifact."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.compiler import compile_graph
from tvm_megcc.errors import MissingTool
from tvm_megcc.frontends.relay.importer import import_region
from tvm_megcc.runtime.toolchain import PACKAGES, find_compiler, find_emulator
from tvm_megcc.target import TARGETS

from .modules import assert_same, conv_relu, evaluated, megcc, module, random_inputs, relay, weights
from .test_models import MODELS, imported

#: Machine of the ELF header by target.
MACHINES = {"arm64": 0xb7, "armv7": 0x28, "riscv64": 0xf3}


def compiler_of(name: str):
    try:
        return find_compiler(TARGETS[name])
    except MissingTool as missing:
        pytest.skip(str(missing))


def library_for(mod, name: str, folder: Path) -> Path:
    path = folder / "model.so"
    partitioned = megcc.partition_for_megcc(mod, target=f"megcc-{name}")
    relay.build(partitioned, target=f"megcc-{name}").export_library(str(path))
    return path


CROSS = [pytest.param(name, marks=[pytest.mark.slow] * (name != "arm64")) for name in MACHINES]


@pytest.mark.parametrize("name", CROSS)
def test_export(name, tmp_path):
    """A network with a function of TVM's in it, linked by the compiler of the target."""
    compiler_of(name)
    header = library_for(module(lambda x: relay.trunc(conv_relu(x)), (1, 3, 8, 6)), name, tmp_path).read_bytes()[:20]
    assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == MACHINES[name]


def run_entry(library: Path, name: str, x: np.ndarray, shape: tuple[int, ...], folder: Path) -> np.ndarray:
    """The only region of a library, called through its C entry in the emulator of a target."""
    target = TARGETS[name]
    roots = [root for root in (f"/usr/{triple.removesuffix('-')}" for triple in target.triples) if Path(root).is_dir()]
    if not roots:
        pytest.skip(f"there is no C library for {name} (install {PACKAGES[target.machine][0]})")
    try:
        emulator = find_emulator(target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    text = [",".join(map(str, dims)) for dims in (x.shape, shape)]
    subprocess.run([*compiler_of(name).command, "-O1", f"-DIN_SHAPE={text[0]}", f"-DIN_SIZE={x.size}",
                    f"-DOUT_SHAPE={text[1]}", f"-DOUT_SIZE={int(np.prod(shape))}",
                    "-DRELAY", str(Path(__file__).parents[1] / "relax" / "entry.c"), "-rdynamic", "-ldl", "-pthread",
                    "-o", str(folder / "entry")], check=True)
    x.tofile(folder / "in.bin")
    subprocess.run([*emulator, *(["-L", roots[0]] if emulator else []), str(folder / "entry"), str(library),
                    "tvmgen_default_megcc_main_0", str(folder / "in.bin"), str(folder / "out.bin")], check=True)
    return np.fromfile(folder / "out.bin", "float32").reshape(shape)


def same_by_both_routes(mod, params, name: str, inputs: dict[str, np.ndarray], shape, folder: Path) -> np.ndarray:
    """Region and stand-alone artifact have the same bytes, and give the same results under the emulator."""
    compiler_of(name)
    partitioned = megcc.partition_for_megcc(mod, params, target=f"megcc-{name}")
    (region,) = [function for function in partitioned.functions.values() if megcc.is_ours(function)]
    inside = compile_graph(import_region(region, "model"), [TARGETS[name]], name="model")
    alone = tvm_megcc.compile(mod, name, params=params, name="model")
    assert inside.container == alone.container and inside.sources == alone.sources
    library = folder / "model.so"
    relay.build(partitioned, target=f"megcc-{name}").export_library(str(library))
    ((_, x),) = inputs.items()
    through_tvm = run_entry(library, name, x, shape, folder)
    alone.save(folder / "alone")
    (by_itself,) = tvm_megcc.load(folder / "alone", name).run(inputs).values()
    np.testing.assert_array_equal(through_tvm.view("uint32"), by_itself.view("uint32"))
    return by_itself


def test_same_bits_as_the_stand_alone_artifact(tmp_path):
    mod = module(lambda x: relay.nn.dense(relay.nn.batch_flatten(conv_relu(x)), weights(5, 8 * 8 * 6)), (1, 3, 8, 6))
    inputs = random_inputs(mod)
    result = same_by_both_routes(mod, None, "arm64", {"x0": inputs[0]}, (1, 5), tmp_path)
    assert_same([result], evaluated(mod["main"], inputs))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mnist8", "resnet8_cifar10_f32"])
def test_same_bits_of_a_network(model, tmp_path):
    if not (MODELS / model).is_dir():
        pytest.skip(f"{model} is not on this machine (set MEGCC_MODELS)")
    mod, params, inputs, outputs = imported(model)
    (expected,) = outputs
    result = same_by_both_routes(mod, params, "arm64", inputs, expected.shape, tmp_path)
    assert_same([result], [expected])


def test_partitioned_for_another_machine_than_built_for(tmp_path):
    for ours, theirs in (("megcc-arm64", "megcc-x86-64"), ("megcc-x86-64", "megcc-arm64")):
        partitioned = megcc.partition_for_megcc(module(lambda x: relay.trunc(conv_relu(x)), (1, 3, 8, 6)), target=ours)
        library = relay.build(partitioned, target=theirs)
        with pytest.raises(megcc.MegccError, match=f"was partitioned for {ours.removeprefix('megcc-')} and built for"):
            library.export_library(str(tmp_path / "model.so"))
