# SPDX-License-Identifier: Apache-2.0
"""Random TFLite files of one hybrid operator: float32 operands and weights of 8 bits or less. `FLOATS` has a function
for each operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.tflite_draws import Draw, windowed
from tests.tflite_files import Quantized, Tensor


def narrow(draw: Draw, weights: Quantized) -> Quantized:
    """Returns weights of int8 or, where LiteRT has such kernels, of 4 or 2 bits."""
    narrower = {"DEPTHWISE_CONV_2D": (), "CONV_2D": ("int4", "int4")}.get(draw.kind, ("int4", "int2"))
    dtype = draw.one_of("int8", "int8", *narrower)
    return replace(weights, dtype=dtype, array=weights.array >> {"int8": 0, "int4": 4, "int2": 6}[dtype])


def hybrid_weights(draw: Draw, shape, axis: int) -> None:
    """Adds w of int8, int4 or int2 and b of float32."""
    scales = [draw.scale(1e-3, 0.1) for _ in range(draw.one_of(1, shape[axis]))]
    array = np.maximum(draw.numbers(shape, "int8"), -127)  # LiteRT's products with -128 are wrong
    draw.tensors["w"] = narrow(draw, Quantized(shape, scales, 0, "int8", axis, array))
    draw.tensors["b"] = draw.random.standard_normal(shape[axis]).astype(np.float32)


def hybrid_conv(draw: Draw) -> bytes:
    depthwise, channels = draw.kind == "DEPTHWISE_CONV_2D", draw.number(1, 5)
    kernel, outputs = (draw.number(1, 4), draw.number(1, 3)), channels * draw.number(1, 3)
    draw.tensors["x"] = (2, 7, 6, channels)
    shape, axis = ((1, *kernel, outputs), 3) if depthwise else ((outputs, *kernel, channels), 0)
    hybrid_weights(draw, shape, axis)
    if depthwise:  # LiteRT reads a scale for each channel
        draw.tensors["w"] = replace(draw.tensors["w"], scale=list(np.resize(draw.tensors["w"].scale, outputs)))
    fields, sizes = windowed(draw, kernel)
    draw.tensors["y"] = (2, *sizes, outputs)
    options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    more = {"DepthMultiplier": outputs // channels} if depthwise else {}
    return draw.file(options, {**fields, **more}, ["x", "w", "b"], ["y"])


def hybrid_product(draw: Draw) -> bytes:
    rows, inputs, outputs = draw.number(1, 3), draw.number(1, 40), draw.number(1, 9)
    draw.tensors["x"] = (rows, inputs)
    hybrid_weights(draw, (outputs, inputs), 0)
    draw.tensors["y"] = (rows, outputs)
    fields = {"FusedActivationFunction": draw.number(0, 3), "AsymmetricQuantizeInputs": draw.one_of(True, False)}
    return draw.file("FullyConnectedOptions", fields, ["x", "w", draw.one_of("b", "b", "")], ["y"])


def hybrid_matrices(draw: Draw) -> bytes:
    left, right = draw.one_of(False, True), draw.one_of(False, True)
    rows, depth, columns = draw.number(1, 5), draw.number(1, 30), draw.number(1, 6)
    draw.tensors["x"] = (2, *((depth, rows) if left else (rows, depth)))
    shape = (2, *((columns, depth) if right else (depth, columns)))
    array = np.maximum(draw.numbers(shape, "int8"), -127)
    scale = draw.one_of(draw.scale(1e-3, 0.1), [draw.scale(1e-3, 0.1) for _ in range(columns)])
    draw.tensors.update(w=Quantized(shape, scale, 0, "int8", 1 if right else 2, array), y=(2, rows, columns))
    fields = {"AdjX": left, "AdjY": right, "AsymmetricQuantizeInputs": draw.one_of(True, False)}
    return draw.file("BatchMatMulOptions", fields, ["x", "w"], ["y"])


def hybrid_lookup(draw: Draw) -> bytes:
    columns = draw.one_of(5, 8)  # LiteRT begins rows of 4 bits at a byte
    draw.tensors.update(rows=np.array([3, 0, 3], np.int32), y=(3, columns))
    scales = [draw.scale() for _ in range(draw.one_of(1, 4))]
    weights = Quantized((4, columns), scales, 0, "int8", array=draw.numbers((4, columns), "int8"))
    draw.tensors["w"] = weights if columns == 5 else narrow(draw, weights)
    return draw.file("", {}, ["rows", "w"], ["y"])


def hybrid_layer(draw: Draw) -> bytes:
    """Returns a file of an LSTM layer with random optional parts, also with float32 weights, or of an RNN layer."""
    time, batch, inputs, units = (draw.number(1, high) for high in (4, 3, 9, 20))
    simple, major = draw.kind == "UNIDIRECTIONAL_SEQUENCE_RNN", draw.one_of(True, False)
    floats, coupled, peepholes, normalised = (draw.one_of(True, False) for _ in range(4))
    projects = not simple and draw.one_of(True, False)
    results = draw.number(1, 9) if projects else units

    def weights(name: str, *shape: int, spread: float = 1.0) -> str:
        numbers = np.maximum(draw.numbers(shape, "int8"), -127)
        draw.tensors[name] = (numbers * np.float32(spread / 127)).astype(np.float32) if floats and not simple else \
            Quantized(shape, spread / 127, 0, "int8", 0, numbers)
        return name

    def reals(name: str, *shape: int) -> str:
        draw.tensors[name] = draw.random.standard_normal(shape).astype(np.float32)
        return name

    draw.tensors["x"] = (time, batch, inputs) if major else (batch, time, inputs)
    draw.tensors["y"] = (*draw.tensors["x"][:2], results)
    draw.tensors["h"] = Tensor((batch, results), variable=True)
    fields = {"FusedActivationFunction": 4, "TimeMajor": major,
              "AsymmetricQuantizeInputs": draw.one_of(True, False) and not floats}
    if simple:
        read = ["x", weights("w", units, inputs), weights("r", units, units), reals("b", units), "h"]
        return draw.file("SequenceRNNOptions", fields, read, ["y"])
    draw.tensors["c"] = Tensor((batch, units), variable=True)
    gates = range(int(coupled), 4)

    def named(make, mark: str, *shape: int, which=range(4)) -> list[str]:
        return [make(f"{mark}{gate}", *shape) if gate in gates else "" for gate in which]

    read = ["x", *named(weights, "w", units, inputs), *named(weights, "r", units, results),
            *(named(weights, "p", units, which=(0, 1, 3)) if peepholes else [""] * 3), *named(reals, "b", units),
            weights("p", results, units, spread=0.5) if projects else "",
            reals("q", results) if projects and draw.one_of(True, False) else "", "h", "c",
            *(named(reals, "n", units) if normalised else [""] * 4)]
    # The range of clipped cells is symmetric, so that its zero point lies halfway between two integers and depends on
    # the last bit.
    clip = 0.0 if fields["AsymmetricQuantizeInputs"] else draw.one_of(0.0, 0.7)
    fields |= {"CellClip": clip, "ProjClip": draw.one_of(0.0, 0.6)}
    return draw.file("UnidirectionalSequenceLSTMOptions", fields, read, ["y"])


#: Operator -> the function that returns a random file of it.
FLOATS: dict[str, Callable[[Draw], bytes]] = {
    "CONV_2D": hybrid_conv, "DEPTHWISE_CONV_2D": hybrid_conv, "FULLY_CONNECTED": hybrid_product,
    "EMBEDDING_LOOKUP": hybrid_lookup, "BATCH_MATMUL": hybrid_matrices,
    **dict.fromkeys(("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"), hybrid_layer)}
