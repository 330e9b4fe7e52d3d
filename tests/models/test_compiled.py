# SPDX-License-Identifier: Apache-2.0
"""Real networks end to end: compiled, built, run on this machine and on emulated arm64."""

from __future__ import annotations

import pytest

import tvm_megcc
from tvm_megcc.errors import MissingTool

from .networks import ALL_NETWORKS, NETWORKS, assert_close

#: Every network at -O speed, those with promises of their own at -O size too; in the emulator what is small enough.
RUNS = [(name, target, optimize)
        for optimize, networks in (("speed", ALL_NETWORKS), ("size", NETWORKS))
        for name, network in networks.items()
        for target in (("native", "arm64") if network.emulated else ("native",))]
#: Those that take longest in the emulator, and on this machine.
LONG = {("arm64", name) for name in ("ultraface_rfb320", "light_squeezenet", "minilm_l1_f32")} \
    | {("native", name) for name in ("lw_person_detector_192", "sinet_portrait_seg", "light_inception_v1",
                                     "basic_pitch_nmp", "light_shufflenet")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Compiled folders by (network, optimize), made on first use."""
    made = {}

    def get(name: str, optimize: str):
        if (name, optimize) not in made:
            network = ALL_NETWORKS[name]
            artifact = tvm_megcc.compile(network.path, "native,arm64", input_shapes=dict(network.shapes),
                                         constants=dict(network.constants), optimize=optimize, name=name)
            folder = artifact.save(tmp_path_factory.mktemp(name) / f"{name}_{optimize}")
            made[name, optimize] = (artifact.manifest, folder)
        return made[name, optimize]

    return get


@pytest.mark.parametrize(("name", "target", "optimize"), [
    pytest.param(*run, id="-".join(run), marks=[pytest.mark.long] * ((run[1], run[0]) in LONG))
    for run in RUNS])
def test_network(name: str, target: str, optimize: str, folders):
    network = ALL_NETWORKS[name]
    _, folder = folders(name, optimize)
    try:
        session = tvm_megcc.load(folder, target)
    except MissingTool as missing:
        pytest.skip(str(missing))
    for _file, inputs, outputs in network.references():
        assert_close(session.run(inputs), outputs, network.noise)
    for seed in (1, 2):
        inputs = network.inputs(seed)
        assert_close(session.run(inputs), network.expected(inputs), network.noise)


@pytest.mark.parametrize("name", ALL_NETWORKS)
def test_arena(name: str, folders):
    """The arena on arm64 is the lower bound (in two digits), and no larger than promised."""
    manifest, _ = folders(name, "speed")
    program = next(p for p in manifest["programs"] if p["target"] == "arm64")
    assert program["arena_bytes"] < 1.005 * program["lower_bound"]
    if promised := ALL_NETWORKS[name].arena_kb:
        assert program["arena_bytes"] <= promised * 1024 * 1.05


@pytest.mark.parametrize("name", ["resnet8_cifar10_f32", "ultraface_rfb320"])
def test_compiling_twice_gives_the_same_bytes(name: str):
    network = NETWORKS[name]
    first, again = (tvm_megcc.compile(network.path, "native,arm64", input_shapes=dict(network.shapes), name=name)
                    for _ in range(2))
    assert again.container == first.container and again.sources == first.sources
