# SPDX-License-Identifier: Apache-2.0
"""An LSTM layer of 8 bits with gates and cells of 16, as TFLite's reference kernel computes it: sigmoid and tanh are
series and Newton's method in gemmlowp's fixed-point numbers (Jacob et al. 2018)."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..ir.conditions import require_shape
from ..ir.dims import Dim
from ..ir.expr import FUNCTIONS
from ..ir.graph import Attrs
from ..ir.types import TensorType
from .base import Case, Operator, Types, register
from .softmax_fixed import halved

#: Rows of the operand `factors`: a significand and a shift, as `rescale_fixed` takes them.
RECURRENT, PEEPHOLES, HIDDEN, FACTORS = slice(0, 4), slice(4, 7), 7, 8
LIMIT = 2**15 - 1
#: Whole bits that cells may have, and those of the gates.
MOST_BITS, GATE_BITS = 6, 3
RESULTS = ("Y", "Y_h", "Y_c")

#: exp(-1/8), 1/3 and exp(-2^k) for k from -2 on, in Q0.15; 48/17 and -32/17 in Q2.13.
EIGHTH, THIRD = 28918, 10923
POWERS = (25520, 19875, 12055, 4435, 600, 11, 0)
NEWTON = (23130, -15420)


def high(a: np.ndarray, b) -> np.ndarray:
    """(a * b) / 2^15 to the nearest, halves up: the product of two fixed-point numbers of 16 bits."""
    return (np.asarray(a, np.int64) * b + (1 << 14)) >> 15


def bounded(a: np.ndarray) -> np.ndarray:
    return np.clip(a, -LIMIT - 1, LIMIT)


def exponential(a: np.ndarray, bits: int) -> np.ndarray:
    """exp of numbers up to 0 with `bits` whole bits, in Q0.15: a series in what is left of the quarter, factors for the
    bits above."""
    fraction = 15 - bits
    quarter = np.int64(1) << max(fraction - 2, 0)
    rest = (a & (quarter - 1)) - quarter
    x = bounded(rest << bits) + (1 << 12)
    square = high(x, x)
    series = halved(high(halved(high(square, square), 2) + high(square, x), THIRD) + square, 1)
    result = bounded(EIGHTH + high(x + series, EIGHTH))
    above = rest - a
    for index, factor in enumerate(POWERS):
        if bits > index - 2:
            result = np.where(above >> (fraction + index - 2) & 1, high(result, factor), result)
    if bits > 5:
        result = np.where(a < -(1 << (20 - bits)), 0, result)
    return np.where(a == 0, LIMIT, result)


def _newton(a: np.ndarray) -> np.ndarray:
    """2 / (1 + a) of a in [0, 1] in Q0.15, as Q2.13."""
    half = (a + LIMIT + 1) >> 1
    x = NEWTON[0] + high(half, NEWTON[1])
    for _ in range(3):
        x = x + bounded(4 * high(x, (1 << 13) - high(half, x)))
    return x


def sigmoid(a: np.ndarray) -> np.ndarray:
    """Of Q3.12, in Q0.15."""
    a = np.asarray(a, np.int64)
    upper = bounded(2 * _newton(exponential(-np.abs(a), GATE_BITS)))
    return np.where(a == 0, 1 << 14, np.where(a > 0, upper, LIMIT - upper))


def tanh(a: np.ndarray, bits: int) -> np.ndarray:
    """Of numbers with `bits` whole bits, in Q0.15."""
    a = np.asarray(a, np.int64)
    size = bounded(4 * (_newton(exponential(-np.abs(a), bits + 1)) - (1 << 13)))
    return np.where(a == 0, 0, np.where(a > 0, size, -size))


def _rescaled(a: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return FUNCTIONS["rescale_fixed"].numpy(a.astype(np.int32), *factor.astype(np.int64)).astype(np.int64)


@register
class LstmFixed(Operator):
    """Steps of a layer. T: steps, N: batch, H: units; gates are i, f, c, o, and without an input gate f, c, o.

    Operands: x int16 [T,N,G*H], what inputs and biases add to the gates, in Q3.12; r int8 [G*H,H]; bias int32 [G*H],
    what the zero point of the results takes off the products with r; factors int32 [8,2]: significand and shift of the
    products with r for i, f, c, o, of those with the peepholes for i, f, o, and of the results; peepholes int16 [3,H]
    for i, f, o; initial_h int8 [N,H], the zero point if absent; initial_c int16 [N,H], 0 if absent.
    Attributes: `cell_bits`, whole bits of a cell, 0 to 6; `cell_clip`, 0 for none; `zero`, the results' zero point;
    `coupled`: there is no input gate, it is 1 - f; `results`, of Y int8 [T,N,H], Y_h int8 [N,H] and Y_c int16 [N,H].
    """

    kind = "lstm_fixed"
    operands = ("x", "r", "bias", "factors", "peepholes?", "initial_h?", "initial_c?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, r: TensorType, bias: TensorType, factors: TensorType,
              peepholes: TensorType | None = None, initial_h: TensorType | None = None,
              initial_c: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 3 or r.rank != 2:
            raise ShapeError(f"wants operands of rank 3 and 2, not {x} and {r}")
        (steps, batch, columns), (rows, units) = x.shape, r.shape
        gates = 3 if attrs.coupled else 4
        require_shape((columns, rows), (gates * units, gates * units),
                      f"weights {r} do not make {gates} gates of {units} units with input {x}")
        wanted = [(x, "int16", x.shape), (r, "int8", r.shape), (bias, "int32", (rows,)),
                  (factors, "int32", (FACTORS, 2)), (peepholes, "int16", (3, units)),
                  (initial_h, "int8", (batch, units)), (initial_c, "int16", (batch, units))]
        for operand, dtype, shape in wanted:
            if operand is not None:
                if operand.dtype != dtype:
                    raise ShapeError(f"wants {dtype}, not {operand}")
                require_shape(operand.shape, shape, f"operand {operand} should be {list(shape)}")
        if not 0 <= attrs.cell_bits <= MOST_BITS:
            raise ShapeError(f"cells of {attrs.cell_bits} whole bits; 0 to {MOST_BITS} are supported")
        types = {"Y": TensorType("int8", (steps, batch, units)), "Y_h": TensorType("int8", (batch, units)),
                 "Y_c": TensorType("int16", (batch, units))}
        return tuple(types[name] for name in attrs.results)

    @staticmethod
    def compute(attrs: Attrs, x, r, bias, factors, peepholes=None, initial_h=None, initial_c=None):
        (steps, batch, _), units = x.shape, r.shape[1]
        h = np.full((batch, units), attrs.zero, np.int64) if initial_h is None else initial_h.astype(np.int64)
        c = np.zeros((batch, units), np.int64) if initial_c is None else initial_c.astype(np.int64)
        gates, y = 3 if attrs.coupled else 4, np.zeros((steps, batch, units), np.int8)
        own = factors[RECURRENT][4 - gates:]
        for step in range(steps):
            sums = (h @ r.T.astype(np.int64) + bias).reshape(batch, gates, units)
            parts = [bounded(x[step].reshape(batch, gates, units)[:, gate].astype(np.int64)
                             + _rescaled(sums[:, gate], own[gate])) for gate in range(gates)]

            def peeped(gate: int, index: int, cell: np.ndarray, parts=parts) -> np.ndarray:
                if peepholes is None:
                    return parts[gate]
                return bounded(parts[gate] + _rescaled(cell * peepholes[index].astype(np.int64),
                                                       factors[PEEPHOLES][index]))

            forget = sigmoid(peeped(gates - 3, 1, c))
            enter = LIMIT - forget if attrs.coupled else sigmoid(peeped(0, 0, c))
            fresh = halved(enter * tanh(parts[gates - 2], GATE_BITS), 15 + attrs.cell_bits)
            c = bounded(halved(forget * c, 15) + fresh)
            if attrs.cell_clip:
                c = np.clip(c, -attrs.cell_clip, attrs.cell_clip)
            out = sigmoid(peeped(gates - 1, 2, c)) * tanh(c, attrs.cell_bits)
            h = np.clip(_rescaled(out, factors[HIDDEN]) + attrs.zero, -128, 127)
            y[step] = h
        results = {"Y": y, "Y_h": h.astype(np.int8), "Y_c": c.astype(np.int16)}
        return tuple(results[name] for name in attrs.results)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return inputs[0].size * inputs[1].shape[-1]


def _case(steps: int, batch: int, units: int, bits: int, clip=0, zero=0, coupled=False, peepholes=False, states=False,
          results=RESULTS) -> Case:
    random = np.random.default_rng(units + bits)
    rows = (3 if coupled else 4) * units
    shifts = [-4] * 4 + [-12] * 3 + [-21]
    factors = np.stack([random.integers(2**30, 2**31, FACTORS), shifts], 1)
    wide = {0: random.integers(-2**15, 2**15, steps * batch * rows), 1: random.integers(-127, 128, rows * units),
            2: random.integers(-2**12, 2**12, rows), 3: factors, 4: random.integers(-2**15, 2**15, 3 * units),
            5: random.integers(-128, 128, batch * units), 6: random.integers(-2**15, 2**15, batch * units)}
    inputs = (((steps, batch, rows), "int16"), ((rows, units), "int8"), ((rows,), "int32"), ((FACTORS, 2), "int32"),
              ((3, units), "int16") if peepholes else None, ((batch, units), "int8") if states else None,
              ((batch, units), "int16") if states else None)
    return Case(inputs, {"cell_bits": bits, "cell_clip": clip, "zero": zero, "coupled": coupled, "results": results},
                (1, 2, 3, 4), {index: value for index, value in wide.items() if inputs[index] is not None})


LstmFixed.cases = (
    _case(5, 2, 7, 4, clip=20000, zero=3), _case(6, 1, 20, 3, zero=-5, states=True, results=("Y",)),
    _case(4, 3, 5, 6, coupled=True, peepholes=True), _case(3, 1, 33, 0, peepholes=True, states=True, zero=127),
    _case(1, 2, 4, 1, results=("Y", "Y_c")), _case(2, 1, 3, 4, zero=-7),
)
