# SPDX-License-Identifier: Apache-2.0
"""Real networks end to end: compiled, built, run on this machine and on emulated arm64."""

from __future__ import annotations

import pytest

import tvm_megcc
from tvm_megcc.errors import ToolError

from .networks import MORE_NETWORKS, NETWORKS, assert_close, onnxruntime_outputs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Compiled folders by (network, optimize), made on first use."""
    made = {}

    def get(name: str, optimize: str):
        if (name, optimize) not in made:
            network = NETWORKS[name]
            artifact = tvm_megcc.compile(network.path, "native,arm64", input_shapes=dict(network.shapes),
                                         optimize=optimize, name=name)
            folder = artifact.save(tmp_path_factory.mktemp(name) / f"{name}_{optimize}")
            made[name, optimize] = (artifact, folder)
        return made[name, optimize]

    return get


@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("target", ["native", "arm64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, target: str, optimize: str, folders):
    network = NETWORKS[name]
    if target != "native" and not network.emulated:
        pytest.skip(f"{name} is too large for the emulator")
    _, folder = folders(name, optimize)
    try:
        session = tvm_megcc.load(folder, target)
    except ToolError as missing:
        pytest.skip(str(missing))
    for _file, inputs, outputs in network.references():
        assert_close(session.run(inputs), outputs)
    for seed in (1, 2):
        inputs = network.inputs(seed)
        assert_close(session.run(inputs), onnxruntime_outputs(network.path, inputs))


@pytest.mark.parametrize("name", MORE_NETWORKS)
def test_more_networks(name: str, tmp_path):
    """Natively, against the stored references and ONNX Runtime; the arena for arm64 as promised."""
    network = MORE_NETWORKS[name]
    artifact = tvm_megcc.compile(network.path, "native,arm64", input_shapes=dict(network.shapes), name=name)
    session = tvm_megcc.load(artifact.save(tmp_path / name), "native")
    for _file, inputs, outputs in network.references():
        assert_close(session.run(inputs), outputs, network.noise)
    inputs = network.inputs(1)
    assert_close(session.run(inputs), onnxruntime_outputs(network.path, inputs), network.noise)
    if network.arena_kb:
        program = next(p for p in artifact.manifest["programs"] if p["target"] == "arm64")
        assert program["arena_bytes"] <= network.arena_kb * 1024 * 1.05


@pytest.mark.parametrize("name", [n.name for n in NETWORKS.values() if n.arena_kb])
def test_arena(name: str, folders):
    """The arena on arm64 is the lower bound, and no larger than promised."""
    artifact, _ = folders(name, "speed")
    program = next(p for p in artifact.manifest["programs"] if p["target"] == "arm64")
    assert program["arena_bytes"] == program["lower_bound"]
    assert program["arena_bytes"] <= NETWORKS[name].arena_kb * 1024 * 1.05


@pytest.mark.parametrize("name", ["resnet8_cifar10_f32", "ultraface_rfb320"])
def test_compiling_twice_gives_the_same_bytes(name: str, folders):
    network = NETWORKS[name]
    first, _ = folders(name, "speed")
    again = tvm_megcc.compile(network.path, "native,arm64", input_shapes=dict(network.shapes), name=name)
    assert again.container == first.container and again.sources == first.sources
