# SPDX-License-Identifier: Apache-2.0
"""Streaming networks over recorded sequences: states kept by the session, natively and on emulated arm64."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tvm_megcc
from tvm_megcc.errors import MissingTool

from .networks import Network, assert_close

VAD = (("input", (1, 576)), ("state", (2, 1, 128)))
RATE = (("sr", 16000),)

#: Networks with `sequence_speech.npz` beside them.
STREAMS = {network.name: network for network in (
    Network("dtln_stage1"), Network("dtln_stage2"), Network("silero_vad_16k_static"),
    Network("silero_vad_op18_ifless", VAD, constants=RATE), Network("silero_vad_v5", VAD, constants=RATE),
)}
#: Two of them over a shape other than that of their sequence.
BATCHES = {"silero_vad_op18_ifless": 2, "silero_vad_v5": 3}
#: Largest difference in the outputs and in the states behind the last step.
TOLERANCE = 1e-4


def compiled(network: Network, shapes: dict, states: dict[str, str] | None, target: str, folder):
    artifact = tvm_megcc.compile(network.path, target, input_shapes=shapes, constants=dict(network.constants),
                                 states=states, name=network.name)
    try:
        return tvm_megcc.load(artifact.save(folder / network.name), target)
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("target", ["native", "arm64"])
@pytest.mark.parametrize("name", STREAMS)
def test_sequence(name: str, target: str, tmp_path):
    network = STREAMS[name]
    meta = json.loads((network.path.parent / "meta.json").read_text())
    states = {output: state for state, output in meta["onnx"]["cases"]["sequence_speech"]["state_map"].items()}
    sequence = np.load(network.path.parent / "sequence_speech.npz")
    session = compiled(network, dict(network.shapes), states, target, tmp_path)
    session.reset({state: sequence[f"state0:{state}"] for state in states.values()})
    (given,), (result,) = session.inputs, session.outputs
    for step, (value, expected) in enumerate(zip(sequence[f"in:{given.name}"], sequence[f"out:{result.name}"],
                                                 strict=True)):
        error = float(np.abs(session.run({given.name: value})[result.name] - expected).max())
        assert error <= TOLERANCE, f"step {step}: {error:g}"
    for state, value in session.states.items():
        np.testing.assert_allclose(value, sequence[f"stateN:{state}"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", BATCHES)
def test_batch(name: str, tmp_path):
    network, batch = STREAMS[name], BATCHES[name]
    arrays = np.load(network.path.parent / f"reference_b{batch}.npz")
    session = compiled(network, {"input": (batch, 576), "state": (2, batch, 128)}, None, "native", tmp_path)
    outputs = session.run({port.name: arrays[f"in:{port.name}"] for port in session.inputs})
    assert_close(outputs, {port.name: arrays[f"out:{port.name}"] for port in session.outputs})
