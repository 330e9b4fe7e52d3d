# SPDX-License-Identifier: Apache-2.0
"""Imports the optimisers of ai.onnx.preview.training (Adagrad, Adam, Momentum) as elementwise operators."""

from __future__ import annotations

from collections.abc import Callable

from ..base import OnnxNode, decomposes
from ..elementwise import cast_to
from ..emit_onnx import number


class _Arithmetic:
    """Emits arithmetic on values and numbers, in one dtype."""

    def __init__(self, node: OnnxNode, dtype: str):
        self.node, self.dtype = node, dtype

    def value(self, operand: str | float) -> str:
        """Returns the value of an operand; a number becomes a constant."""
        return number(self.node, operand, self.dtype) if isinstance(operand, float) else operand

    def __call__(self, kind: str, *operands: str | float) -> str:
        """Emits the operator `kind` on values and numbers."""
        return self.node.emit(kind, tuple(map(self.value, operands)))[0]

    def where(self, condition: str, yes: str | float, no: str | float) -> str:
        """Emits `yes` where the condition is true, else `no`."""
        return self.node.emit("where", (condition, self.value(yes), self.value(no)))[0]

    def mixed(self, old_weight: float, old: str, new: str, new_weight: float) -> str:
        """Emits old_weight * old + new_weight * new."""
        return self("add", self("mul", old_weight, old), self("mul", new_weight, new))


#: Emits the update of one parameter: (arithmetic, learning rate, step number, (parameter, gradient, states …)) ->
#: (new parameter, new states …).
_Step = Callable[[_Arithmetic, str, str, tuple[str, ...]], tuple[str, ...]]


def _import_optimizer(node: OnnxNode, kinds: int, step: _Step) -> tuple[str, ...]:
    """Imports an optimiser whose operands are the learning rate R, the step number T, and equally many of each kind:
    parameters, gradients, and one or two kinds of states. Returns the new parameters, then the new states of each kind.

    kinds: the number of kinds.
    """
    count = (len(node.inputs) - 2) // kinds
    results = []
    for index in range(count):
        operands = node.inputs[2 + index::count][:kinds]
        a = _Arithmetic(node, node.type_of(operands[0]).dtype)
        rate, time = (node.emit("reshape", cast_to(node, value, a.dtype), shape=())[0] for value in node.inputs[:2])
        results.append(step(a, rate, time, operands))
    return tuple(value for results_of_kind in zip(*results, strict=True) for value in results_of_kind)


def _regularise(node: OnnxNode, a: _Arithmetic, x: str, gradient: str) -> str:
    """Emits the gradient with L2 regularisation, norm_coefficient * x + gradient."""
    return a("add", a("mul", float(node.attr("norm_coefficient", 0.0)), x), gradient)


def _is_later(a: _Arithmetic, time: str) -> str:
    """Emits whether it is not the first step."""
    return a.node.emit("greater", (time, a.value(0.0)))[0]


@decomposes("ai.onnx.preview.training::Adagrad")
def adagrad(node: OnnxNode) -> tuple[str, ...]:
    """Imports Adagrad (Duchi, Hazan and Singer 2011): squares += g²; x -= R / (1 + T * decay_factor) * g /
    (sqrt(squares) + epsilon), with g the regularised gradient. Kinds of operands: parameters, gradients, accumulated
    squares."""
    decay, epsilon = float(node.attr("decay_factor", 0.0)), float(node.attr("epsilon", 0.0))

    def step(a: _Arithmetic, rate: str, time: str, operands: tuple[str, ...]) -> tuple[str, ...]:
        x, gradient, squares = operands
        gradient = _regularise(node, a, x, gradient)
        squares = a("add", squares, a("mul", gradient, gradient))
        decayed_rate = a("div", rate, a("add", 1.0, a("mul", time, decay)))
        change = a("div", a("mul", decayed_rate, gradient), a("add", a("sqrt", squares), epsilon))
        return a("sub", x, change), squares
    return _import_optimizer(node, 3, step)


@decomposes("ai.onnx.preview.training::Adam")
def adam(node: OnnxNode) -> tuple[str, ...]:
    """Imports Adam (Kingma and Ba 2015): mean = alpha * mean + (1 - alpha) * g; squares = beta * squares +
    (1 - beta) * g²; x = (1 - norm_coefficient_post) * (x - R' * mean / (sqrt(squares) + epsilon)), with g the
    regularised gradient, and R' = R * sqrt(1 - beta^T) / (1 - alpha^T), or R if T is 0. Kinds of operands: parameters,
    gradients, running averages of the gradients, running averages of their squares."""
    alpha, beta = float(node.attr("alpha", 0.9)), float(node.attr("beta", 0.999))
    epsilon, decay = float(node.attr("epsilon", 0.0)), float(node.attr("norm_coefficient_post", 0.0))

    def step(a: _Arithmetic, rate: str, time: str, operands: tuple[str, ...]) -> tuple[str, ...]:
        x, gradient, mean, squares = operands
        gradient = _regularise(node, a, x, gradient)
        mean = a.mixed(alpha, mean, gradient, 1 - alpha)
        squares = a.mixed(beta, squares, a("mul", gradient, gradient), 1 - beta)
        corrected = a("div", a("mul", rate, a("sqrt", a("sub", 1.0, a("pow", beta, time)))),
                      a("sub", 1.0, a("pow", alpha, time)))
        rate = a.where(_is_later(a, time), corrected, rate)
        change = a("mul", rate, a("div", mean, a("add", a("sqrt", squares), epsilon)))
        return a("mul", 1 - decay, a("sub", x, change)), mean, squares
    return _import_optimizer(node, 4, step)


@decomposes("ai.onnx.preview.training::Momentum")
def momentum(node: OnnxNode) -> tuple[str, ...]:
    """Imports stochastic gradient descent with momentum, standard or Nesterov's (attribute `mode`): velocity = alpha *
    velocity + beta * g, without beta if T is 0; x -= R * velocity or, for Nesterov's, R * (g + alpha * velocity), with
    g the regularised gradient. Kinds of operands: parameters, gradients, velocities."""
    alpha, beta = float(node.attr("alpha")), float(node.attr("beta"))

    def step(a: _Arithmetic, rate: str, time: str, operands: tuple[str, ...]) -> tuple[str, ...]:
        x, gradient, velocity = operands
        gradient = _regularise(node, a, x, gradient)
        old_weight = a.where(_is_later(a, time), beta, 1.0)
        velocity = a("add", a("mul", alpha, velocity), a("mul", old_weight, gradient))
        direction = velocity if node.attr("mode") == "standard" else a("add", gradient, a("mul", alpha, velocity))
        return a("sub", x, a("mul", rate, direction)), velocity
    return _import_optimizer(node, 3, step)
