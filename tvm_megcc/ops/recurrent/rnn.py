# SPDX-License-Identifier: Apache-2.0
"""ONNX's recurrent layers LSTM, GRU and RNN; each layer is an operator.

The part of the gates that the inputs give does not depend on earlier steps, so the importer computes it by one matrix
product before the layer. The operators here compute the steps, which depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from ...errors import ShapeError
from ...ir import lanes
from ...ir.conditions import require_shape
from ...ir.dims import Dim
from ...ir.expr import Expr, X, evaluate
from ...ir.graph import Attrs
from ...ir.types import TensorType
from ..base import Case, OnnxNode, Operator, Types, f32, register
from ..quantized.conv_matmul import INT8_TYPES, requantize_expr
from ..rules import shape_text
from .activations import activations_of, clip_arguments, default_formulas

#: direction -> whether each of the layer's passes over the sequence runs backwards.
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


class _Onnx(IntEnum):
    """The operands of ONNX's LSTM, GRU and RNN; the last two are those of an LSTM."""

    X, W, R, B, SEQUENCE_LENS, INITIAL_H, INITIAL_C, P = range(8)


class Recurrent(Operator):
    """The base of the recurrent steps of a layer. T: steps, N: batch, D: directions, G: gates, H: units.

    Operands: x [T,N,D*G*H], the part of the gates that inputs and biases give, in ONNX's order of gates; r, recurrent
    weights, [D,G*H,H]; lengths int32 [N], the steps of each sequence, which begins at the front of x in both
    directions; initial_h [D,N,H], zero if absent; then operands of the subclass; at last r_scale [D,G*H] or [1,1]: int8
    or uint8 weights r stand for (r - r_zero) * r_scale. Results, of x's dtype: some of Y [T,D,N,H], the output of each
    step; Y_h and (LSTM) Y_c [D,N,H], output and cell after the last step. After the end of a sequence Y is zero. For an
    empty sequence Y_h and Y_c are zero too, as in ONNX Runtime.

    Attributes: `direction`: "forward", "reverse" or "bidirectional"; `activations`: expressions; `results`: the names
    of the results; `quantised`, optional: (result, dtype, expression of it) for results that are stored as integers;
    `r_zero`, optional.

    gates: the number of gates.
    default_activations: names, for one direction.
    clipped_activations: the number of activations, from the first, whose argument ONNX's attribute `clip` bounds. The
        argument of an LSTM's h, its cell, is not bounded, as in ONNX Runtime.
    states: the results after Y; their initial values are the first operands from initial_h on.
    """

    gates: int
    default_activations: tuple[str, ...]
    clipped_activations: int
    states: tuple[str, ...] = ("Y_h",)

    @classmethod
    def infer(cls, attrs: Attrs, x: TensorType, r: TensorType, lengths: TensorType | None = None,
              *others: TensorType | None) -> tuple[TensorType, ...]:
        if x.rank != 3 or r.rank != 3:
            raise ShapeError(f"requires operands of rank 3, not {x} and {r}")
        (steps, batch, columns), (directions, rows, units) = x.shape, r.shape
        scale_index = cls.operands.index("r_scale?") - 3  # in `others`, which begin with the fourth operand
        scale = others[scale_index] if len(others) > scale_index else None
        if (r.dtype in INT8_TYPES) != (scale is not None):
            raise ShapeError(f"weights {r} {'without' if scale is None else 'with'} scales")
        if directions != len(DIRECTIONS[attrs.direction]):
            raise ShapeError(f"weights {r} are not for direction '{attrs.direction}'")
        require_shape((rows, columns), (cls.gates * units, directions * rows),
                      f"weights {r} do not make {cls.gates} gates of {units} units with input {x}")
        scales = (1, 1) if scale is not None and scale.size == 1 else (directions, rows)
        wanted = [(lengths, (batch,)), *zip(others, (*cls.shapes(directions, batch, units), scales), strict=False)]
        for operand, shape in wanted:
            if operand is not None:
                require_shape(operand.shape, shape, f"operand {operand} should be {shape_text(shape)}")
        results = {"Y": (steps, directions, batch, units)}
        stored = {name: dtype for name, dtype, _ in attrs.get("quantised", ())}
        return tuple(TensorType(stored.get(name, x.dtype), results.get(name, (directions, batch, units)))
                     for name in attrs.results)

    @staticmethod
    def accepted(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        return {2: (0, inputs[0].shape[0])}  # lengths: up to T

    @classmethod
    def shapes(cls, directions: Dim, batch: Dim, units: Dim) -> tuple[tuple[Dim, ...], ...]:
        """Returns the shapes of the operands from initial_h on, except r_scale."""
        raise NotImplementedError

    @classmethod
    def compute(cls, attrs: Attrs, x: np.ndarray, r: np.ndarray, lengths: np.ndarray | None = None,
                *others: np.ndarray | None) -> tuple[np.ndarray, ...]:
        """Computes in float64. Raises ShapeError for lengths that are not in [0, T]."""
        (steps, batch), (directions, _, units) = x.shape[:2], r.shape
        if lengths is None:
            lengths = np.full(batch, steps)
        if batch and not 0 <= lengths.min() <= lengths.max() <= steps:
            raise ShapeError(f"sequence lengths {lengths.tolist()} of {steps} steps")
        inputs = x.astype(np.float64).reshape(steps, batch, directions, cls.gates, units)
        operands = [None if operand is None else operand.astype(np.float64) for operand in others]
        *operands, scale = operands + [None] * (len(cls.operands) - 3 - len(operands))  # r_scale is the last
        if scale is not None:
            r = (r.astype(np.float64) - attrs.get("r_zero", 0)) * scale[..., None]
        y = np.zeros((steps, directions, batch, units))
        last = {name: np.zeros((directions, batch, units)) for name in cls.states}
        for d, backwards in enumerate(DIRECTIONS[attrs.direction]):
            own_operands = [None if operand is None else operand[d] for operand in operands]
            state = [np.zeros((batch, units)) if value is None else value for value in own_operands[:len(cls.states)]]
            for step in range(steps):
                active = np.flatnonzero(lengths > step)  # the sequences that have this step
                time = lengths[active] - 1 - step if backwards else np.full(len(active), step)
                with np.errstate(all="ignore"):
                    after = cls.step(attrs, inputs[time, active, d], r[d].astype(np.float64),
                                     [value[active] for value in state], own_operands[len(cls.states):])
                for value, new in zip(state, after, strict=True):
                    value[active] = new
                y[time, d, active] = state[0][active]
            for name, value in zip(cls.states, state, strict=True):
                last[name][d] = np.where(lengths[:, None] > 0, value, 0)
        results = {name: value.astype(x.dtype) for name, value in {"Y": y, **last}.items()}
        results |= {name: lanes.evaluate(expr, [results[name]], dtype) for name, dtype, expr in
                    attrs.get("quantised", ())}
        return tuple(results[name] for name in attrs.results)

    @classmethod
    def step(cls, attrs: Attrs, x: np.ndarray, r: np.ndarray, state: Sequence[np.ndarray], optional) -> tuple:
        """Returns the states after a step of n sequences, [n,H] each.

        x: [n,G,H]. r: [G*H,H]. state: the states before it. optional: the operands after the initial states, one
        direction of each.
        """
        raise NotImplementedError

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        return inputs[0].size * inputs[1].shape[-1]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        return _RecurrentImporter(cls, node).run()

    @classmethod
    def onnx_state_operands(cls, layer: _RecurrentImporter) -> list[str]:
        """Emits the operands of our operator from initial_h on, without r_scale; "" for an absent one."""
        return [layer.state(_Onnx.INITIAL_H)]


def _gate(attrs: Attrs, index: int, value: np.ndarray) -> np.ndarray:
    """Applies an activation, by its index, to a sum."""
    return evaluate(attrs.activations[index], [value])


@register
class Lstm(Recurrent):
    """ONNX's LSTM, with the gates i, o, f, c (Hochreiter and Schmidhuber 1997, with the forget gate and peepholes of
    Gers et al.).

    Further operands: initial_c [D,N,H]; peepholes [D,3*H], weights from the cell to the gates i, o, f. Further
    attributes: `input_forget`: the forget gate is 1 - i; `cell_clip`, optional: the bound of the cell's magnitude. The
    activations are f, of the gates; g, of the cell's input; h, of the cell.
    """

    kind = "lstm"
    operands = ("x", "r", "lengths?", "initial_h?", "initial_c?", "peepholes?", "r_scale?")
    onnx = ("LSTM",)
    gates = 4
    default_activations = ("Sigmoid", "Tanh", "Tanh")
    clipped_activations = 2
    states = ("Y_h", "Y_c")

    @classmethod
    def shapes(cls, directions, batch, units):
        state = (directions, batch, units)
        return state, state, (directions, 3 * units)

    @classmethod
    def step(cls, attrs, x, r, state, optional):
        (h, c), units = state, r.shape[1]
        i, o, f, g = np.moveaxis(x + (h @ r.T).reshape(x.shape), 1, 0)
        pi, po, pf = (0, 0, 0) if optional[0] is None else optional[0].reshape(3, units)
        i = _gate(attrs, 0, i + pi * c)
        f = 1 - i if attrs.input_forget else _gate(attrs, 0, f + pf * c)
        c = f * c + i * _gate(attrs, 1, g)
        if attrs.get("cell_clip", 0.0):
            c = np.clip(c, -attrs.cell_clip, attrs.cell_clip)
        o = _gate(attrs, 0, o + po * c)
        return o * _gate(attrs, 2, c), c

    @classmethod
    def onnx_state_operands(cls, layer):
        return [layer.state(_Onnx.INITIAL_H), layer.state(_Onnx.INITIAL_C), layer.optional(_Onnx.P)]


@register
class Gru(Recurrent):
    """ONNX's GRU, with the gates z, r, h (Cho et al. 2014).

    Further attribute `linear_before_reset`: the reset gate r multiplies the recurrent product of h, plus operand bias
    [D,H]; else it multiplies the previous output, and there is no bias.
    """

    kind = "gru"
    operands = ("x", "r", "lengths?", "initial_h?", "bias?", "r_scale?")
    onnx = ("GRU",)
    gates = 3
    default_activations = ("Sigmoid", "Tanh")
    clipped_activations = 2

    @classmethod
    def shapes(cls, directions, batch, units):
        return (directions, batch, units), (directions, units)

    @classmethod
    def step(cls, attrs, x, r, state, optional):
        (h,), units = state, r.shape[1]
        gates = x[:, :2] + (h @ r[:2 * units].T).reshape(-1, 2, units)
        z, reset = (_gate(attrs, 0, gates[:, gate]) for gate in range(2))
        if attrs.linear_before_reset:
            bias = 0 if optional[0] is None else optional[0]
            recurrent = reset * (h @ r[2 * units:].T + bias)
        else:
            recurrent = (reset * h) @ r[2 * units:].T
        new = _gate(attrs, 1, x[:, 2] + recurrent)
        return ((1 - z) * new + z * h,)

    @classmethod
    def onnx_state_operands(cls, layer):
        return [layer.state(_Onnx.INITIAL_H), layer.hidden_bias() if layer.attrs["linear_before_reset"] else ""]


@register
class Rnn(Recurrent):
    """ONNX's RNN, with one gate (Elman 1990): h = f(x + h @ rᵀ)."""

    kind = "rnn"
    operands = ("x", "r", "lengths?", "initial_h?", "r_scale?")
    onnx = ("RNN",)
    gates = 1
    default_activations = ("Tanh",)
    clipped_activations = 1

    @classmethod
    def shapes(cls, directions, batch, units):
        return ((directions, batch, units),)

    @classmethod
    def step(cls, attrs, x, r, state, optional):
        return (_gate(attrs, 0, x[:, 0] + state[0] @ r.T),)


class _RecurrentImporter:
    """Imports an ONNX node LSTM, GRU or RNN, with the operands of `_Onnx`."""

    def __init__(self, declaration: type[Recurrent], node: OnnxNode):
        self.declaration, self.node, self.gates = declaration, node, declaration.gates
        x, w, r = (node.type(index) for index in (_Onnx.X, _Onnx.W, _Onnx.R))
        if x.rank != 3 or w.rank != 3 or r.rank != 3:
            raise ShapeError(f"X, W and R have three axes, not {x}, {w}, {r}")
        self.directions, _, self.units = r.shape
        self.batch_first = bool(node.attr("layout", 0))
        self.steps = x.shape[1 if self.batch_first else 0]
        direction = node.attr("direction", "forward").lower()
        if direction not in DIRECTIONS or len(DIRECTIONS[direction]) != self.directions:
            raise ShapeError(f"has direction '{direction}' and weights for {self.directions} directions")
        if node.attr("hidden_size", self.units) != self.units:
            raise ShapeError(f"has hidden_size {node.attr('hidden_size')} and weights R {r}")
        self.attrs = {"direction": direction, "results": ("Y", *declaration.states)}
        if declaration is Lstm:
            self.attrs["input_forget"] = bool(node.attr("input_forget", 0))
            if node.attr("cell_clip", 0.0):  # our own attribute, not ONNX's
                self.attrs["cell_clip"] = node.attr("cell_clip")
        if declaration is Gru:
            self.attrs["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))

    def run(self) -> tuple[str, ...]:
        """Emits the layer, and returns the values of the node's outputs."""
        node, declaration = self.node, self.declaration
        activations = activations_of(node, declaration.default_activations, declaration.clipped_activations,
                                     self.directions)
        operands = [self.projection(), node.inputs[_Onnx.R], self.lengths(), *declaration.onnx_state_operands(self)]
        if len(set(activations)) == 1:
            results = node.emit(declaration.kind, operands, activations=activations[0], **self.attrs)
        else:
            results = self.split(operands, activations)
        if not self.batch_first:
            return results
        # From [T,D,N,H] and [D,N,H] to [N,T,D,H] and [N,D,H].
        return tuple(node.emit("transpose", (value,), perm=perm)[0]
                     for value, perm in zip(results, ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2)), strict=False))

    def split(self, operands: Sequence[str], activations: Sequence[tuple[Expr, ...]]) -> tuple[str, ...]:
        """Emits two directions with different activations as two layers."""
        axes = (2, 0, None, 0, 0, 0)  # the axis of directions in x, r, lengths, initial states, peepholes or bias
        parts = []
        for d, direction in enumerate(("forward", "reverse")):
            operands_of_layer = [value if not value or axis is None else self.part(value, axis, index=d, count=2)
                                 for value, axis in zip(operands, axes, strict=False)]
            attrs = {**self.attrs, "direction": direction}
            parts.append(self.node.emit(self.declaration.kind, operands_of_layer, activations=activations[d], **attrs))
        # The axis of directions in Y, Y_h and Y_c is 1, 0 and 0.
        return tuple(self.node.emit("concat", values, axis=axis)[0]
                     for values, axis in zip(zip(*parts, strict=True), (1, 0, 0), strict=False))

    def part(self, value: str, axis: int, index: int, count: int) -> str:
        """Emits part `index` of `count` equal parts of a value along an axis."""
        size = self.node.type_of(value).shape[axis] // count
        return self.node.emit("slice", (value,), axes=(axis,), starts=(index * size,), ends=((index + 1) * size,),
                              steps=(1,))[0]

    def reshape(self, value: str, *shape: Dim) -> str:
        """Emits a value in another shape."""
        return self.node.emit("reshape", (value,), shape=shape)[0]

    def projection(self) -> str:
        """Emits the part of the gates that inputs and biases give, for all steps and directions: [T,N,D*G*H]."""
        node, columns = self.node, self.directions * self.gates * self.units
        x = node.inputs[_Onnx.X]
        if self.batch_first:
            (x,) = node.emit("transpose", (x,), perm=(1, 0, 2))
        w = node.type(_Onnx.W)
        inputs = w.shape[2]
        if w.shape != (self.directions, self.gates * self.units, inputs):
            raise ShapeError(f"W is {w} and R {node.type(_Onnx.R)}")
        weights = self.reshape(node.inputs[_Onnx.W], columns, inputs)
        operands = [x, weights]
        if node.has(_Onnx.B):
            bias = self.bias(recurrent=True)
            if self.attrs.get("linear_before_reset"):
                # The reset gate multiplies the bias of gate h too, so the kernel adds it.
                mask = np.array([1, 1, 0], np.dtype(node.type(_Onnx.B).dtype)).reshape(1, 1, 3, 1)
                (bias,) = node.emit("mul", (bias, node.constant(mask)))
            (bias,) = node.emit("add", (self.bias(recurrent=False), bias))
            operands.append(self.reshape(bias, columns))
        return node.emit("matmul", operands, trans_a=0, trans_b=1)[0]

    def bias(self, recurrent: bool) -> str:
        """Emits the bias of the recurrent product, or that of the inputs: [D,1,G,H]."""
        both = self.reshape(self.node.inputs[_Onnx.B], self.directions, 2, self.gates, self.units)
        return self.part(both, axis=1, index=int(recurrent), count=2)

    def hidden_bias(self) -> str:
        """Returns the recurrent bias of a GRU's gate h, the last of its three: [D,H]; "" if there is none."""
        if not self.node.has(_Onnx.B):
            return ""
        return self.reshape(self.part(self.bias(recurrent=True), axis=2, index=2, count=3), self.directions, self.units)

    def lengths(self) -> str:
        """Returns sequence_lens, "" if every sequence is known to have full length."""
        node = self.node
        if node.is_const(_Onnx.SEQUENCE_LENS) and isinstance(self.steps, int) \
                and (node.const(_Onnx.SEQUENCE_LENS) == self.steps).all():
            return ""
        return node.inputs[_Onnx.SEQUENCE_LENS] if node.has(_Onnx.SEQUENCE_LENS) else ""

    def optional(self, index: int) -> str:
        """Returns an operand whose default is zero, "" if it is absent or zero."""
        absent = not self.node.has(index) or (self.node.is_const(index) and not self.node.const(index).any())
        return "" if absent else self.node.inputs[index]

    def state(self, index: int) -> str:
        """Emits initial_h or initial_c: [D,N,H]."""
        value = self.optional(index)
        if value and self.batch_first:
            (value,) = self.node.emit("transpose", (value,), perm=(1, 0, 2))
        return value


def _case(declaration: type[Recurrent], units: int, batch: int = 1, steps: int = 7, direction: str = "forward",
          lengths: Sequence[int] = (), states: bool = False, extra: bool = False, constant: bool = True,
          results: Sequence[str] = (), activations: Sequence[str] = (), clip: float | None = None, weights: str = "",
          has_one_scale: bool = True, stored: Sequence[str] = (), **attrs) -> Case:
    """Returns a case of random operands.

    states: with initial states. extra: with peepholes or the bias of a GRU's gate h. constant: r is. weights: the 8-bit
    dtype of quantised weights, "" for floats. has_one_scale: of quantised weights, else one for each row. stored: the
    dtypes of results, if they are quantised.
    """
    directions = len(DIRECTIONS[direction])
    columns = declaration.gates * units
    operands = [f32(steps, batch, directions * columns), f32(directions, columns, units),
                ((batch,), "int32") if lengths else None]
    shapes = declaration.shapes(directions, batch, units)
    operands += [f32(*shape) if (states if index < len(declaration.states) else extra) else None
                 for index, shape in enumerate(shapes)]
    if weights:
        operands[1] = ((directions, columns, units), weights)
        operands.append(f32(1, 1) if has_one_scale else f32(directions, columns))
    while operands[-1] is None:
        operands.pop()
    formulas = default_formulas(activations or declaration.default_activations)
    attrs = {"direction": direction, "results": tuple(results) or ("Y", *declaration.states),
             "activations": clip_arguments(formulas, declaration.clipped_activations, clip), **attrs}
    generator = np.random.default_rng(units)
    # Weights are so small that errors do not grow from step to step.
    drawn = generator.standard_normal((directions, columns, units)) / (1 + units) ** 0.5
    values = {1: drawn.astype(np.float32)}
    if weights:
        limits, zero = np.iinfo(weights), attrs.get("r_zero", 0)
        largest = np.abs(drawn).max(axis=(0, 1, 2) if has_one_scale else 2, keepdims=True)
        scale = largest.reshape(operands[-1][0]) / 127
        values[1] = np.clip(np.rint(drawn / scale[..., None]) + zero, limits.min, limits.max).astype(weights)
        values[len(operands) - 1] = scale.astype(np.float32)
    if stored:
        attrs["quantised"] = tuple(map(_stored_result, attrs["results"], stored))
    if lengths:
        values[2] = np.array(lengths, np.int32)
    return Case(tuple(operands), attrs, (1,) if constant else (), values)


def _stored_result(name: str, dtype: str) -> tuple[str, str, Expr]:
    """Returns the entry of attribute `quantised` for a result."""
    limits = np.iinfo(dtype)
    zero = int(limits.max) // 3
    return name, dtype, requantize_expr(X / (3.0 / (limits.max - zero)), zero, int(limits.min), int(limits.max))


Lstm.cases = tuple(_case(Lstm, units, **{"input_forget": False, **more}) for units, more in (
    (64, {}), (17, {"batch": 5, "states": True}), (1, {"batch": 2, "steps": 1, "states": True}),
    (3, {"batch": 2, "direction": "reverse", "lengths": (7, 3), "results": ("Y",)}),
    (33, {"batch": 5, "direction": "bidirectional", "lengths": (7, 0, 2, 7, 5), "states": True, "extra": True}),
    (20, {"batch": 2, "states": True, "extra": True, "input_forget": True, "clip": 0.5, "results": ("Y_h", "Y_c")}),
    (19, {"batch": 2, "direction": "bidirectional", "states": True, "extra": True, "constant": False}),
    (18, {"batch": 2, "states": True, "extra": True, "cell_clip": 0.25}),
    (5, {"activations": ("HardSigmoid", "Softsign", "Relu"), "results": ("Y_c",)}),
    (40, {"weights": "int8", "results": ("Y",), "stored": ("int8",)}),
    (35, {"weights": "uint8", "r_zero": 117, "batch": 5, "lengths": (7, 0, 2, 7, 5), "states": True,
          "has_one_scale": False, "extra": True, "direction": "bidirectional", "stored": ("uint8", "int8", "int16")}),
))
Gru.cases = tuple(_case(Gru, units, **{"linear_before_reset": False, **more}) for units, more in (
    (64, {"linear_before_reset": True, "extra": True}), (64, {}), (17, {"batch": 5, "states": True}),
    (1, {"batch": 2, "steps": 1, "states": True}), (3, {"batch": 2, "direction": "reverse", "lengths": (7, 3)}),
    (33, {"batch": 5, "direction": "bidirectional", "lengths": (7, 0, 2, 7, 5), "states": True, "extra": True,
          "linear_before_reset": True}),
    (20, {"batch": 2, "states": True, "linear_before_reset": True, "clip": 0.5, "results": ("Y_h",)}),
    (19, {"batch": 2, "direction": "bidirectional", "states": True, "constant": False}),
    (18, {"states": True, "constant": False, "linear_before_reset": True, "extra": True}),
    (40, {"weights": "int8", "has_one_scale": False, "results": ("Y",), "stored": ("uint8",)}),
    (21, {"weights": "int8", "batch": 2, "lengths": (0, 7), "linear_before_reset": True, "extra": True}),
))
Rnn.cases = tuple(_case(Rnn, units, **more) for units, more in (
    (64, {}), (17, {"batch": 5, "states": True}), (1, {"batch": 2, "steps": 1, "states": True}),
    (3, {"batch": 2, "direction": "reverse", "lengths": (7, 3), "clip": 0.5}),
    (40, {"batch": 3, "direction": "bidirectional", "lengths": (7, 0, 2), "states": True, "results": ("Y_h",)}),
    (9, {"constant": False}), (7, {"weights": "uint8", "r_zero": 255, "has_one_scale": False}),
    (10, {"constant": False, "results": ("Y",), "stored": ("int8",)}),
))
