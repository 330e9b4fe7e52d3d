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
#: Networks that `make test` runs in all these ways, and on this machine at -O speed only; `make test-all` has the rest.
IN_ALL_WAYS = {"mnist8", "resnet8_cifar10_f32", "kws_dscnn_f32", "dtln_stage1"}
AT_SPEED = {"mobilenet_v1_025_224_f32", "ultraface_rfb320", "super_resolution_10", "vespa_tiny_transformer",
            "silero_vad_op18_ifless", "ad_autoencoder_f32", "dtln_stage2"}


def marks(name: str, target: str = "native", optimize: str = "speed") -> list:
    made = name in IN_ALL_WAYS or (name in AT_SPEED and (target, optimize) == ("native", "speed"))
    return [] if made else [pytest.mark.long]


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
    pytest.param(*run, id="-".join(run), marks=marks(*run)) for run in RUNS])
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


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in ALL_NETWORKS])
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
