# SPDX-License-Identifier: Apache-2.0
"""TFLite's recurrent layers on floats with features that ONNX's lack: 8-bit weights with states that are quantised
dynamically in each step (hybrid operators; He et al. 2018), projections, and layer-normalised gates (Ba et al.
2016)."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, register
from ..rules import require_operands

RESULTS = ("Y", "Y_h", "Y_c")
#: The epsilon that is added to a variance before its root is taken.
EPSILON = np.float32(1e-8)
#: The largest float32 and float64 below 0.5, for rounding: floor(x + 0.5) would round 0.49999997 up.
_HALF, _HALF64 = np.float32(0.49999997), 0.49999999999999994


def _round_and_clip(values: np.ndarray, lower: int, upper: int) -> np.ndarray:
    """Rounds float32 to the nearest, ties away from zero, and clips to [lower, upper]; NaN becomes `upper`. Returns
    int64."""
    bounded = np.where(values < upper, values, np.float32(upper))
    bounded = np.where(bounded > lower, bounded, np.float32(lower)).astype(np.float32)
    magnitude = np.floor(np.abs(bounded) + _HALF)
    return np.where(bounded < 0, -magnitude, magnitude).astype(np.int64)


def quantize_rows_dynamically(rows: np.ndarray, asymmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Quantises each row of floats [N,K] dynamically, by its own range, as LiteRT's PortableSymmetricQuantizeFloats and
    PortableAsymmetricQuantizeFloats do. Returns 8-bit numbers minus their zero point, int64 [N,K], and scales float32
    [N,1].

    asymmetric: with a zero point; else it is 0.
    """
    if not asymmetric:
        magnitude = np.abs(rows).max(1, keepdims=True)
        scale = np.where(magnitude > 0, magnitude / np.float32(127), np.float32(1)).astype(np.float32)
        inverse = np.divide(np.float32(127), magnitude, out=np.zeros_like(magnitude), where=magnitude > 0)
        return _round_and_clip(rows * inverse, -127, 127), scale
    smallest = np.minimum(rows.min(1, keepdims=True), 0).astype(np.float64)
    largest = np.maximum(rows.max(1, keepdims=True), 0).astype(np.float64)
    step = np.where(smallest < largest, (largest - smallest) / 255, 1)
    # The zero point follows from either end of the range; LiteRT takes the one with the smaller rounding error.
    below, above = smallest / step, largest / step
    point = np.where(128 + np.abs(below) < 127 + np.abs(above), -128 - below, 127 - above)
    rounded_zero = np.clip(np.sign(point) * np.floor(np.abs(point) + _HALF64), -128, 127)
    zero = np.where(smallest < largest, rounded_zero, 0)
    scale = step.astype(np.float32)
    return _round_and_clip(zero.astype(np.float32) + rows * (1 / scale), -128, 127) - zero.astype(np.int64), scale


def _activation(name: str, x: np.ndarray) -> np.ndarray:
    """Computes the activation of this name in float64, rounded to float32."""
    wide = x.astype(np.float64)
    results = {"sigmoid": lambda: 1 / (1 + np.exp(-wide)), "tanh": lambda: np.tanh(wide),
               "relu": lambda: np.maximum(wide, 0), "affine": lambda: wide}[name]()
    return np.asarray(results).astype(np.float32)


def _product(rows: np.ndarray, weights: np.ndarray, scale: np.ndarray | float, asymmetric: bool) -> np.ndarray:
    """Returns rows [N,K] times the transpose of weights [R,K], float32 [N,R]. 8-bit weights are multiplied by rows that
    are quantised dynamically. scale: those of 8-bit weights, one or R."""
    if weights.dtype == np.float32:
        return rows @ weights.T
    centred, row_scales = quantize_rows_dynamically(rows, asymmetric)
    return (centred @ weights.T.astype(np.int64)).astype(np.float32) * (row_scales * scale).astype(np.float32)


def _layer_norm(gate: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Normalises each row of gate [N,U], times weight [U], plus bias [U]."""
    mean = gate.astype(np.float64).mean(1, keepdims=True).astype(np.float32)
    variance = np.square(gate - mean).astype(np.float64).mean(1, keepdims=True).astype(np.float32)
    return (gate - mean) * (np.float32(1) / np.sqrt(variance + EPSILON)) * weight + bias


@register
class RecurrentSteps(Operator):
    """The recurrent steps of TFLite's LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and RNN layers with float activations.

    T: steps, N: batch, U: units, G: gates, O: size of the output, which is U without a projection. The gates are i, f,
    c, o; without an input gate f, c, o, and i is 1 - f; or one gate, for a layer without cells.

    Operands: x float32 [T,N,G*U], the part of the gates that the inputs give, with the biases unless gates are
    normalised; r, recurrent weights, int8 or float32 [G*U,O]; scales float32 [G+1] of r for each gate and of the
    projection, if they are int8; peepholes float32 [3,U] for i, f, o; norms float32 [2,G*U], scales and biases of
    normalised gates; projection [O,U] of the dtype of r, and its bias float32 [O]; initial_h float32 [N,O] and
    initial_c float32 [N,U], zeros if absent. Results, float32: some of Y [T,N,O], the output of each step; Y_h [N,O]
    and Y_c [N,U], output and cell after the last step.

    Attributes: `gates`: G; `activation` of the cell and its gate, "tanh", "relu" or "affine"; `cell_clip`,
    `projection_clip`: the bounds of cells and of projected outputs, 0 for none; `asymmetric`: states are quantised with
    a zero point; `results`: the names of the results.
    """

    kind = "recurrent_steps"
    operands = ("x", "r", "scales?", "peepholes?", "norms?", "projection?", "projection_bias?", "initial_h?",
                "initial_c?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, r: TensorType, scales: TensorType | None = None,
              peepholes: TensorType | None = None, norms: TensorType | None = None,
              projection: TensorType | None = None, bias: TensorType | None = None,
              initial_h: TensorType | None = None, initial_c: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 3 or r.rank != 2 or (projection is not None and projection.rank != 2):
            raise ShapeError(f"requires operands of rank 3 and 2, not {x}, {r} and {projection}")
        (steps, batch, columns), (rows, h_size), gates = x.shape, r.shape, attrs.gates
        units = h_size if projection is None else projection.shape[1]
        require_shape((columns, rows), (gates * units, gates * units),
                      f"weights {r} do not make {gates} gates of {units} units with input {x}")
        if gates not in (1, 3, 4) or (gates == 1 and (projection, peepholes, norms, initial_c) != (None,) * 4):
            raise ShapeError(f"{gates} gates with these operands")
        if r.dtype not in ("int8", "float32") or (r.dtype == "int8") != (scales is not None):
            raise ShapeError(f"requires weights of int8 with scales or of float32, not {r} with {scales}")
        if not all(0 <= clip < float("inf") for clip in (attrs.cell_clip, attrs.projection_clip)):
            raise ShapeError(f"clips cells at {attrs.cell_clip}, projections at {attrs.projection_clip}")
        wanted = [(x, "float32", x.shape), (scales, "float32", (gates + 1,)), (peepholes, "float32", (3, units)),
                  (norms, "float32", (2, rows)), (projection, r.dtype, (h_size, units)), (bias, "float32", (h_size,)),
                  (initial_h, "float32", (batch, h_size)), (initial_c, "float32", (batch, units))]
        require_operands(wanted)
        types = {"Y": TensorType("float32", (steps, batch, h_size)), "Y_h": TensorType("float32", (batch, h_size)),
                 "Y_c": TensorType("float32", (batch, units))}
        if gates == 1:
            del types["Y_c"]
        return tuple(types[name] for name in attrs.results)

    @staticmethod
    def compute(attrs: Attrs, x, r, scales=None, peepholes=None, norms=None, projection=None, bias=None,
                initial_h=None, initial_c=None):
        steps, batch, _ = x.shape
        h_size, gates = r.shape[1], attrs.gates
        units = h_size if projection is None else projection.shape[1]
        h = np.zeros((batch, h_size), np.float32) if initial_h is None else initial_h
        c = np.zeros((batch, units), np.float32) if initial_c is None else initial_c
        weight_scales = 1.0 if scales is None else np.repeat(scales[:gates], units)
        forget_index, cell_index, output_index = gates - 3, gates - 2, gates - 1
        y = np.zeros((steps, batch, h_size), np.float32)
        for step in range(steps):
            sums = (x[step] + _product(h, r, weight_scales, attrs.asymmetric)).reshape(batch, gates, units)
            if gates == 1:
                y[step] = h = _activation(attrs.activation, sums[:, 0])
                continue

            def gate(index: int, function: str, peephole: int = -1, sums=sums, cell=c) -> np.ndarray:
                """Returns a gate [N,U]. peephole: its row of peepholes, which are for i, f, o; -1 for none."""
                value = sums[:, index]
                if peepholes is not None and peephole >= 0:
                    value = value + peepholes[peephole] * cell
                if norms is not None:
                    part = slice(index * units, (index + 1) * units)
                    value = _layer_norm(value, *(row[part] for row in norms))
                return _activation(function, value)

            forget, candidate = gate(forget_index, "sigmoid", peephole=1), gate(cell_index, attrs.activation)
            input_gate = np.float32(1) - forget if gates == 3 else gate(0, "sigmoid", peephole=0)
            c = forget * c + candidate * input_gate
            if attrs.cell_clip:
                c = np.clip(c, np.float32(-attrs.cell_clip), np.float32(attrs.cell_clip))
            h = gate(output_index, "sigmoid", peephole=2, cell=c) * _activation(attrs.activation, c)
            if projection is not None:
                h = _product(h, projection, 1.0 if scales is None else scales[gates], attrs.asymmetric)
                h = h if bias is None else bias + h
                if attrs.projection_clip:
                    h = np.clip(h, np.float32(-attrs.projection_clip), np.float32(attrs.projection_clip))
            y[step] = h
        results = {"Y": y, "Y_h": h, "Y_c": c}
        return tuple(np.asarray(results[name], np.float32) for name in attrs.results)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return inputs[0].size * inputs[1].shape[-1]


def _case(steps: int, batch: int, units: int, projected: int = 0, gates=4, dtype="int8", asymmetric=False,
          peepholes=False, norms=False, clips=(0.0, 0.0), activation="tanh", states=False, bias=False,
          results=RESULTS) -> Case:
    """Returns a case of random operands. projected: O of a layer with a projection, 0 for none. dtype: that of the
    weights. clips: cell_clip and projection_clip. bias: of the projection."""
    random, rows, outputs = np.random.default_rng(units + projected), gates * units, projected or units
    shapes = {0: (steps, batch, rows), 1: (rows, outputs), 2: (gates + 1,) if dtype == "int8" else None,
              3: (3, units) if peepholes else None, 4: (2, rows) if norms else None,
              5: (outputs, units) if projected else None, 6: (outputs,) if bias else None,
              7: (batch, outputs) if states else None, 8: (batch, units) if states and gates > 1 else None}
    dtypes = {index: dtype if index in (1, 5) else "float32" for index in shapes}
    inputs = tuple(shape and (shape, dtypes[index]) for index, shape in shapes.items())
    values = {}
    for index, shape in shapes.items():
        if shape:
            count = int(np.prod(shape))
            values[index] = (random.integers(-127, 128, count) if dtypes[index] == "int8" else
                             random.uniform(0.001, 0.01, count) if index == 2 else random.standard_normal(count))
    attrs = {"gates": gates, "activation": activation, "cell_clip": clips[0], "projection_clip": clips[1],
             "asymmetric": asymmetric, "results": results}
    return Case(inputs, attrs, tuple(index for index in range(1, 7) if shapes[index]), values)


RecurrentSteps.cases = (
    _case(4, 2, 7), _case(3, 1, 20, 5, asymmetric=True, bias=True, clips=(0.7, 0.5), states=True),
    _case(3, 2, 9, 13, gates=3, peepholes=True, norms=True, results=("Y",)),
    _case(4, 2, 6, 3, dtype="float32", norms=True, bias=True, states=True),
    _case(3, 3, 5, 0, gates=3, dtype="float32", peepholes=True, clips=(0.4, 0.0), activation="relu"),
    _case(5, 2, 11, gates=1, asymmetric=True, states=True, results=("Y", "Y_h")),
    _case(1, 1, 1, gates=1, activation="affine", results=("Y",)),
)
