# SPDX-License-Identifier: Apache-2.0
"""Networks of whole sequences in blocks: equal to the whole, and refused by name where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.streams_models import NETWORKS, REFUSED, Network, Writer, blocks_of, imported, window
from tvm_megcc.compiler import context_of
from tvm_megcc.errors import MegccError, ModelError, ShapeError
from tvm_megcc.frontends.models import import_model
from tvm_megcc.ir.streams import Stream
from tvm_megcc.ir.verify import verify
from tvm_megcc.passes import before_layouts
from tvm_megcc.passes.streaming.states import first_states
from tvm_megcc.passes.streaming.streams import streamed
from tvm_megcc.runtime import reference
from tvm_megcc.target import TARGETS


def _in_blocks(graph, blocks):
    """The outputs of the blocks one behind the other."""
    states = first_states(graph)
    parts = []
    for block in blocks:
        results = reference.run(graph, {graph.inputs[0]: block, **states})
        states = {target: results[source] for source, target in graph.states}
        parts.append(results)
    return {output.name: np.concatenate([part[output.name] for part in parts], output.axis)
            for output in graph.stream.outputs}


@pytest.mark.parametrize("block", [4, 12, 48])
@pytest.mark.parametrize("name", NETWORKS)
def test_blocks_are_equal_to_the_whole(name, block):
    network = NETWORKS[name]
    whole = imported(network)
    graph = streamed(whole, Stream(network.axis, block))
    verify(graph)
    x = np.random.default_rng(7).standard_normal(whole.types[whole.inputs[0]].shape).astype(np.float32)
    expected, found = reference.run(whole, {whole.inputs[0]: x}), _in_blocks(graph, blocks_of(x, network.axis, block))
    for output in graph.stream.outputs:
        along = np.moveaxis(found[output.name], output.axis, 0)[output.latency:]
        wanted = np.moveaxis(expected[output.name], output.axis, 0)[:len(along)]
        assert len(wanted) > len(along) / 2 and len(wanted)
        np.testing.assert_allclose(along[:len(wanted)], wanted, rtol=1e-5, atol=1e-6)
        assert (output.latency, output.receptive_field) == network.expected.get(
            output.name, (output.latency, output.receptive_field))
    assert len(graph.states) == graph.stream.states == network.states
    # What passes make of it means the same.
    lowered = before_layouts(graph, context_of(graph, TARGETS["x86-64-v3"]))
    again = _in_blocks(lowered, blocks_of(x, network.axis, block))
    for name, values in found.items():
        np.testing.assert_allclose(again[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(200), np.uint16(30000)], ids=str)
def test_zero_points_before_the_first_element(zero):
    """States of bytes begin with them; of wider integers reals are kept."""
    w = Writer((1, 3, 24))
    how = w.constant(np.float32(0.01)), w.constant(zero)
    x = w.add("DequantizeLinear", w.add("QuantizeLinear", "x", *how), *how)
    whole = imported(Network(lambda: w.model(w.conv(x, 3, 4, 4, pads=[3, 0]), opset=21)))
    graph = streamed(whole, Stream(2, 6))
    assert {graph.types[target].dtype for _, target in graph.states} == {"uint8" if zero.itemsize == 1 else "float32"}
    x = np.random.default_rng(7).standard_normal((1, 3, 24)).astype(np.float32)
    expected, found = reference.run(whole, {"x": x}), _in_blocks(graph, blocks_of(x, 2, 6))
    np.testing.assert_allclose(found["y0"], expected["y0"], rtol=1e-5, atol=1e-6)


def test_padding_that_bytes_of_another_zero_point_read():
    """Behind a convolution of one dimension, zeros come before the sequence: 3 as bytes, which are then read from 7."""
    w = Writer((1, 3, 24))
    scale, zeros = w.constant(np.float32(0.05)), [w.constant(np.int8(zero)) for zero in (3, 7)]
    x = w.add("Pad", w.conv("x", 3, 4, 3, pads=[2, 0]), w.constant(np.array([0, 0, 1, 0, 0, 0])))
    for kind, zero in zip(("QuantizeLinear", "DequantizeLinear"), zeros, strict=True):
        x = w.add(kind, x, scale, zero)
    whole = imported(Network(lambda: w.model(w.conv(x, 4, 4, 3, pads=[2, 0]), opset=21)))
    graph = streamed(whole, Stream(2, 6))
    verify(graph)
    x = np.random.default_rng(7).standard_normal((1, 3, 24)).astype(np.float32)
    expected, found = reference.run(whole, {"x": x})["y0"], _in_blocks(graph, blocks_of(x, 2, 6))["y0"]
    along = found[:, :, graph.stream.outputs[0].latency:]
    np.testing.assert_allclose(along, expected[:, :, :along.shape[2]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", [1, 3])
def test_windows_that_follow_each_other(block, tmp_path):
    """A network of one window, which ends in rows: a row for each window, the last `block` of them in each run."""
    (tmp_path / "window.tflite").write_bytes(window())
    whole, _ = import_model(tmp_path / "window.tflite")
    graph = streamed(whole, Stream(1, block))
    verify(graph)
    x = np.random.default_rng(6).integers(-128, 128, (1, 24, 1, 4)).astype(np.int8)
    found = _in_blocks(graph, blocks_of(x, 1, block))[whole.outputs[0]]
    (output,) = graph.stream.outputs
    assert (output.axis, output.block, output.latency, output.receptive_field) == (0, block, 11, 12)
    expected = [reference.run(whole, {whole.inputs[0]: x[:, first:first + 12]})[whole.outputs[0]]
                for first in range(24 - 11)]
    np.testing.assert_array_equal(found[11:], np.concatenate(expected))
    assert len(np.unique(found[11:])) > 6
    assert sum(graph.types[target].bytes for _, target in graph.states) < 300, "bytes, of 12 frames and 10 steps"


def test_an_output_depends_on_its_receptive_field_and_on_nothing_else():
    network = NETWORKS["wavenet"]
    whole = imported(network)
    (output,) = streamed(whole, Stream(network.axis, 4)).stream.outputs
    x = np.random.default_rng(3).standard_normal(whole.types[whole.inputs[0]].shape).astype(np.float32)
    place = x.shape[2] // 2
    x[:, :, place] = np.nan
    (y,) = reference.run(whole, {whole.inputs[0]: x}).values()
    touched = np.flatnonzero(np.isnan(y[0, 0]))
    assert touched[-1] - touched[0] + 1 == output.receptive_field


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_streamed_is_refused_with_its_name_and_why(name):
    network, why = REFUSED[name]
    with pytest.raises(ModelError, match=why) as refused:
        streamed(imported(network), Stream(network.axis, 6))
    assert "culprit" in str(refused.value)


@pytest.mark.parametrize("text", ["", "axis", "axis=-1", "block=3", "axis=1,block=0", "axis=2,axis=2", "axis=2,block=x",
                                  "axis=2;block=3", "axis=2,input="])
def test_a_text_that_is_no_stream(text):
    with pytest.raises(MegccError, match="expected axis=N"):
        Stream.parse(text)


def test_strings():
    assert Stream.parse("axis=2") == Stream(2)
    assert Stream.parse(" block = 64, axis=1, input=a,input=b") == Stream(1, 64, ("a", "b"))


def test_axes_and_inputs_that_are_none():
    whole = imported(NETWORKS["causal"])
    with pytest.raises(ShapeError, match="no axis 3"):
        streamed(whole, Stream(3, 4))
    with pytest.raises(ModelError, match="no input 'y'"):
        streamed(whole, Stream(2, 4, ("y",)))


def test_an_axis_of_one_element_is_no_sequence():
    """What came to the axis of the batch is told which axes there are."""
    with pytest.raises(ModelError, match="one element along axis 0: axis=1 or axis=2"):
        streamed(imported(REFUSED["batch"][0]), Stream(0, 1))
