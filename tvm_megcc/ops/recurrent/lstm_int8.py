# SPDX-License-Identifier: Apache-2.0
"""TFLite's int8 LSTM with int16 gates and cells, as LiteRT's reference kernel computes it: sigmoid and tanh by series
and Newton's method in gemmlowp's fixed-point numbers (Jacob et al. 2018).

Qm.n is a fixed-point number with m integer bits and n fraction bits.
"""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir.conditions import require_at_most, require_shape
from ...ir.dims import Dim
from ...ir.expr import FUNCTIONS
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, Operator, Types, register
from ..quantized.rsqrt import inverse_root
from ..quantized.softmax_int8 import rounding_shift
from ..rules import require_operands

#: The rows of the operand `factors`, each a significand in Q0.31 and a shift, which `rescale_fixed` (ir/expr.py) takes:
#: those of the gates i, f, c, o or of i, f, o, or one row.
RECURRENT, PEEPHOLES, HIDDEN, NORMS, PROJECTION = slice(0, 4), slice(4, 7), 7, slice(8, 12), 12
#: The number of these rows.
FACTOR_COUNT = 13
#: The largest int16, which stands for 1 in Q0.15.
LIMIT = 2**15 - 1
#: The largest number of integer bits of cells, and the number of integer bits of gates.
MAX_CELL_BITS, GATE_BITS = 6, 3
RESULTS = ("Y", "Y_h", "Y_c")

#: exp(-1/8), 1/3, and exp(-2^k) for k = -2 to 4, in Q0.15.
EXP_MINUS_EIGHTH, ONE_THIRD = 28918, 10923
EXP_MINUS_POWERS = (25520, 19875, 12055, 4435, 600, 11, 0)
#: 48/17 and -32/17 in Q2.13: Newton's method for 1 / d, with d in [1/2, 1], begins with 48/17 - 32/17 * d.
NEWTON_START = (23130, -15420)


def multiply_high(a: np.ndarray, b) -> np.ndarray:
    """Returns (a * b) / 2^15 rounded to the nearest, ties up: the product of two 16-bit fixed-point numbers."""
    return (np.asarray(a, np.int64) * b + (1 << 14)) >> 15


def saturate_int16(a: np.ndarray) -> np.ndarray:
    """Clips to the range of int16."""
    return np.clip(a, -LIMIT - 1, LIMIT)


def exponential(a: np.ndarray, bits: int) -> np.ndarray:
    """Returns exp of int16 numbers ≤ 0 with `bits` integer bits, 1 to 7, in Q0.15. Source: gemmlowp's
    exp_on_negative_values.

    A number is q - r, with q in [-1/4, 0) and r a multiple of 1/4. exp(q) is exp(-1/8) times the Taylor polynomial of
    degree 4 of exp(q + 1/8); each bit of r contributes a factor exp(-2^k), k = -2 to 4.
    """
    fraction = 15 - bits
    quarter = np.int64(1) << (fraction - 2)
    q = (a & (quarter - 1)) - quarter
    x = (q << bits) + (1 << 12)  # q + 1/8 in Q0.15
    square = multiply_high(x, x)
    fourth, cube = multiply_high(square, square), multiply_high(square, x)
    # x^4/24 + x^3/6 + x^2/2 as ((x^4/4 + x^3) * 1/3 + x^2) / 2; then exp(-1/8) * (1 + x + …).
    series = rounding_shift(multiply_high(rounding_shift(fourth, 2) + cube, ONE_THIRD) + square, 1)
    result = saturate_int16(EXP_MINUS_EIGHTH + multiply_high(x + series, EXP_MINUS_EIGHTH))
    r = q - a
    for exponent, factor in enumerate(EXP_MINUS_POWERS, start=-2):
        if bits > exponent:
            result = np.where(r >> (fraction + exponent) & 1, multiply_high(result, factor), result)
    if bits > 5:  # numbers below -32 have bits that no factor is for
        result = np.where(a < -(32 << fraction), 0, result)
    return np.where(a == 0, LIMIT, result)


def _two_over_one_plus(a: np.ndarray) -> np.ndarray:
    """Returns 2 / (1 + a) in Q2.13, for a in [0, 1] in Q0.15, by three steps of Newton's method."""
    half_denominator = (a + LIMIT + 1) >> 1  # (1 + a) / 2 in Q0.15
    x = NEWTON_START[0] + multiply_high(half_denominator, NEWTON_START[1])
    for _ in range(3):
        x = x + saturate_int16(4 * multiply_high(x, (1 << 13) - multiply_high(half_denominator, x)))
    return x


def sigmoid(a: np.ndarray) -> np.ndarray:
    """Returns the sigmoid of numbers in Q3.12, in Q0.15: 1 / (1 + exp(-|a|)) for positive numbers."""
    a = np.asarray(a, np.int64)
    upper = saturate_int16(2 * _two_over_one_plus(exponential(-np.abs(a), GATE_BITS)))
    return np.where(a == 0, 1 << 14, np.where(a > 0, upper, LIMIT - upper))


def tanh(a: np.ndarray, bits: int) -> np.ndarray:
    """Returns tanh of numbers with `bits` integer bits, in Q0.15: 2 / (1 + exp(-2 |a|)) - 1 for positive numbers."""
    a = np.asarray(a, np.int64)
    # -|a| with one integer bit more is -2 |a|. 4: from Q2.13 to Q0.15.
    magnitude = saturate_int16(4 * (_two_over_one_plus(exponential(-np.abs(a), bits + 1)) - (1 << 13)))
    return np.where(a == 0, 0, np.where(a > 0, magnitude, -magnitude))


def _requantize(a: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Returns int32 numbers times a factor [2], significand and shift, as int64."""
    return FUNCTIONS["rescale_fixed"].numpy(a.astype(np.int32), *factor.astype(np.int64)).astype(np.int64)


def layer_norm_fixed(gate: np.ndarray, weights: np.ndarray, bias: np.ndarray, factor: np.ndarray,
                     guard: int) -> np.ndarray:
    """Normalises each row of gate [N, H] in fixed point with ten additional fraction bits (units of 1 / 1024), times
    weights [H], plus a bias [H]. Returns int64 [N, H] with values of int16.

    factor: significand and shift from the product to the result. guard: replaces a variance below 1.

    As in TFLite, the sum of squares is multiplied by 2^20 // units, so that the variance is exact only if the number of
    units is a power of two. int32 overflow wraps.
    """
    units = gate.shape[1]
    mean = _divide_truncated(gate.sum(1, keepdims=True) * 1024, units)
    variance = _divide_truncated((gate * gate).sum(1, keepdims=True) * (2**20 // units) - mean * mean, 2**20)
    significand, shift = inverse_root(np.where(variance < 1, guard, variance))
    rescale = FUNCTIONS["rescale_fixed"].numpy
    centred = (1024 * gate - mean).astype(np.int32)
    scaled = rescale(centred, np.broadcast_to(significand, gate.shape), np.broadcast_to(shift, gate.shape))
    scaled = (scaled.astype(np.int64) * weights + bias).astype(np.int32).astype(np.int64)
    rounded = _divide_truncated(scaled + np.where(scaled > 0, 512, -512), 1024)  # to the nearest
    return saturate_int16(_requantize(rounded, factor))


def _divide_truncated(a: np.ndarray, by: int) -> np.ndarray:
    """Divides integers, rounded towards zero."""
    return np.sign(a) * (np.abs(a) // by)


@register
class LstmFixed(Operator):
    """The recurrent steps of TFLite's int8 UNIDIRECTIONAL_SEQUENCE_LSTM.

    T: steps, N: batch, H: units, G: gates, P: size of the output, which is H without a projection. The gates are i, f,
    c, o, without an input gate f, c, o.

    Operands: x int16 [T,N,G*H], the part of the gates that inputs and biases give, in Q3.12 unless they are normalised;
    r, recurrent weights, int8 [G*H,P]; bias int32 [G*H], which corrects the products with r for the results' zero
    point; factors int32 [13,2]: significand and shift of the products with r for i, f, c, o, of those with the
    peepholes for i, f, o, of the hidden state, of normalised i, f, c, o, and of the projection; peepholes int16 [3,H]
    for i, f, o; norms int16 and norm_bias int32 [G,H], of normalised gates; projection int8 [P,H] and projection_bias
    int32 [P]; initial_h int8 [N,P], the zero point if absent; initial_c int16 [N,H], 0 if absent. Results: some of Y
    int8 [T,N,P], the output of each step; Y_h int8 [N,P] and Y_c int16 [N,H], output and cell after the last step.

    Attributes: `cell_bits`: integer bits of a cell, 0 to 6; `cell_clip` and `projection_clip`: the bounds of cells and
    of projected outputs, 0 for none; `zero`: the results' zero point; `hidden_zero`: the zero point of the hidden state
    before the projection; `coupled`: there is no input gate, i is 1 - f; `guards`: the variances of i, f, c, o that
    replace those below 1; `results`: the names of the results.

    With a projection TFLite indexes peepholes and cells as if they were [P] and [N,P]: only the first N*P of the [N,H]
    cells have peepholes, and the weight of each is that of its flat index modulo P. With attribute `batch_major` this
    is done for each sequence separately: the first P units have peepholes.
    """

    kind = "lstm_fixed"
    operands = ("x", "r", "bias", "factors", "peepholes?", "norms?", "norm_bias?", "projection?", "projection_bias?",
                "initial_h?", "initial_c?")

    @staticmethod
    def infer(attrs: Attrs, x: TensorType, r: TensorType, bias: TensorType, factors: TensorType,
              peepholes: TensorType | None = None, norms: TensorType | None = None,
              norm_bias: TensorType | None = None, projection: TensorType | None = None,
              projection_bias: TensorType | None = None, initial_h: TensorType | None = None,
              initial_c: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank != 3 or r.rank != 2 or (projection is not None and projection.rank != 2):
            raise ShapeError(f"requires operands of rank 3 and 2, not {x} and {r}")
        (steps, batch, columns), (rows, h_size) = x.shape, r.shape
        units = h_size if projection is None else projection.shape[1]
        gates = 3 if attrs.coupled else 4
        require_shape((columns, rows), (gates * units, gates * units),
                      f"weights {r} do not make {gates} gates of {units} units with input {x}")
        wanted = [(x, "int16", x.shape), (r, "int8", r.shape), (bias, "int32", (rows,)),
                  (factors, "int32", (FACTOR_COUNT, 2)), (peepholes, "int16", (3, units)),
                  (norms, "int16", (gates, units)), (norm_bias, "int32", (gates, units)),
                  (projection, "int8", (h_size, units)),
                  (projection_bias, "int32", (h_size,)), (initial_h, "int8", (batch, h_size)),
                  (initial_c, "int16", (batch, units))]
        require_operands(wanted)
        if (norms is None) != (norm_bias is None) or (projection is None) != (projection_bias is None):
            raise ShapeError("layer normalization and projection require both weights and a bias")
        if peepholes is not None:
            require_at_most(h_size, units, f"{h_size} results of {units} units with peepholes")
        if not 0 <= attrs.cell_bits <= MAX_CELL_BITS:
            raise ShapeError(f"cells of {attrs.cell_bits} integer bits; 0 to {MAX_CELL_BITS} are supported")
        types = {"Y": TensorType("int8", (steps, batch, h_size)), "Y_h": TensorType("int8", (batch, h_size)),
                 "Y_c": TensorType("int16", (batch, units))}
        return tuple(types[name] for name in attrs.results)

    @staticmethod
    def compute(attrs: Attrs, x, r, bias, factors, peepholes=None, norms=None, norm_bias=None, projection=None,
                projection_bias=None, initial_h=None, initial_c=None):
        (steps, batch, columns), h_size = x.shape, r.shape[1]
        gates = 3 if attrs.coupled else 4
        units = columns // gates
        h = np.full((batch, h_size), attrs.zero, np.int64) if initial_h is None else initial_h.astype(np.int64)
        c = np.zeros((batch, units), np.int64) if initial_c is None else initial_c.astype(np.int64)
        y = np.zeros((steps, batch, h_size), np.int8)
        recurrent_factors = factors[RECURRENT][4 - gates:]
        for step in range(steps):
            sums = (h @ r.T.astype(np.int64) + bias).reshape(batch, gates, units)
            parts = [saturate_int16(x[step].reshape(batch, gates, units)[:, gate].astype(np.int64)
                             + _requantize(sums[:, gate], recurrent_factors[gate])) for gate in range(gates)]

            def gate_sums(gate: int, peephole: int | None = None, cell: np.ndarray = c, parts=parts) -> np.ndarray:
                """Returns the sum of a gate. gate: its index, counted from the end. peephole: its row of peepholes."""
                part = parts[gate]
                if peepholes is not None and peephole is not None:
                    weights = np.zeros((batch, units), np.int64)
                    if attrs.batch_major:
                        weights[:, :h_size] = peepholes[peephole, :h_size]
                    else:
                        weights.reshape(-1)[:batch * h_size] = np.tile(peepholes[peephole, :h_size], batch)
                    added = _requantize(cell * weights, factors[PEEPHOLES][peephole])
                    part = saturate_int16(part + added)
                if norms is None:
                    return part
                return layer_norm_fixed(part, norms[gate], norm_bias[gate], factors[NORMS][gate], attrs.guards[gate])

            forget = sigmoid(gate_sums(-3, 1))
            input_gate = LIMIT - forget if attrs.coupled else sigmoid(gate_sums(-4, 0))
            candidate = rounding_shift(input_gate * tanh(gate_sums(-2), GATE_BITS), 15 + attrs.cell_bits)
            c = saturate_int16(rounding_shift(forget * c, 15) + candidate)
            if attrs.cell_clip:
                c = np.clip(c, -attrs.cell_clip, attrs.cell_clip)
            out = _requantize(sigmoid(gate_sums(-1, 2, c)) * tanh(c, attrs.cell_bits), factors[HIDDEN])
            if projection is None:
                h = np.clip(out + attrs.zero, -128, 127)
            else:
                out = np.clip(out + attrs.hidden_zero, -128, 127) @ projection.T.astype(np.int64) + projection_bias
                h = np.clip(_requantize(out, factors[PROJECTION]) + attrs.zero, -128, 127)
                if attrs.projection_clip:
                    h = np.clip(h, -attrs.projection_clip, attrs.projection_clip)
            y[step] = h
        results = {"Y": y, "Y_h": h.astype(np.int8), "Y_c": c.astype(np.int16)}
        return tuple(results[name] for name in attrs.results)

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return inputs[0].size * inputs[1].shape[-1]


def _case(steps: int, batch: int, units: int, cell_bits: int, clip=0, zero=0, coupled=False, peepholes=False,
          states=False, norms=False, projected=0, batch_major=False, results=RESULTS) -> Case:
    """Returns a case of random operands. clip: the bound of cells; with one, projected outputs have the bound 90.
    projected: P of a layer with a projection, 0 for none."""
    random = np.random.default_rng(units + cell_bits)
    gates, outputs = 3 if coupled else 4, projected or units
    rows = gates * units
    shifts = [-4] * 4 + [-12] * 3 + [-21] + [-2] * 4 + [-7]
    factors = np.stack([random.integers(2**30, 2**31, FACTOR_COUNT), shifts], 1)
    # Shape, dtype, and the bound of the random numbers, or the numbers themselves; false for an absent operand.
    operands: tuple = (
        ((steps, batch, rows), "int16", 2**15), ((rows, outputs), "int8", 127), ((rows,), "int32", 2**12),
        ((FACTOR_COUNT, 2), "int32", factors), peepholes and ((3, units), "int16", 2**15),
        norms and ((gates, units), "int16", 2**15), norms and ((gates, units), "int32", 2**22),
        projected and ((projected, units), "int8", 127), projected and ((projected,), "int32", 2**12),
        states and ((batch, outputs), "int8", 128), states and ((batch, units), "int16", 2**15))
    numbers = {index: given if isinstance(given, np.ndarray) else random.integers(-given, given, np.prod(shape))
               for index, (shape, _, given) in ((index, operand) for index, operand in enumerate(operands) if operand)}
    attrs = {"cell_bits": cell_bits, "cell_clip": clip, "zero": zero, "hidden_zero": -zero // 2, "coupled": coupled,
             "batch_major": batch_major, "projection_clip": clip and 90, "guards": (1, 3, 20, 1), "results": results}
    return Case(tuple(operand[:2] if operand else None for operand in operands), attrs, tuple(range(1, 9)), numbers)


LstmFixed.cases = (
    _case(5, 2, 7, 4, clip=20000, zero=3), _case(6, 1, 20, 3, zero=-5, states=True, results=("Y",)),
    _case(4, 3, 5, 6, coupled=True, peepholes=True), _case(3, 1, 33, 0, peepholes=True, states=True, zero=127),
    _case(1, 2, 4, 1, results=("Y", "Y_c")), _case(2, 1, 3, 4, zero=-7),
    _case(5, 3, 8, 4, clip=20000, zero=3, norms=True), _case(3, 2, 1, 2, norms=True, coupled=True, peepholes=True),
    _case(4, 3, 9, 3, zero=-6, projected=5, peepholes=True, states=True),
    _case(3, 2, 5, 4, clip=9000, zero=11, projected=12),
    _case(4, 2, 17, 4, zero=-128, projected=3, norms=True, coupled=True, states=True, peepholes=True,
          results=("Y", "Y_h")),
    _case(3, 4, 6, 3, zero=9, projected=2, peepholes=True, batch_major=True),
)
