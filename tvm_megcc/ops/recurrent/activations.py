# SPDX-License-Identifier: Apache-2.0
"""The activation functions that ONNX's recurrent operators (LSTM, GRU, RNN) name in attribute `activations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import MegccError
from ...ir.expr import Expr, X, call, clip, maximum, minimum, substitute
from ..base import OnnxNode


@dataclass(frozen=True)
class Activation:
    """An activation function.

    formula: returns the function as an expression, given alpha and beta.
    alpha, beta: the defaults of the parameters, None for one that the function does not have.
    """

    formula: Callable[[float, float], Expr]
    alpha: float | None = None
    beta: float | None = None


#: Activations by name in lower case. Defaults are those of the ONNX operators with these names.
ACTIVATIONS = {
    "sigmoid": Activation(lambda alpha, beta: call("sigmoid", X)),
    "tanh": Activation(lambda alpha, beta: call("tanh", X)),
    "relu": Activation(lambda alpha, beta: maximum(X, 0)),
    "affine": Activation(lambda alpha, beta: X * alpha + beta, 1.0, 0.0),
    "leakyrelu": Activation(lambda alpha, beta: maximum(X, 0) + alpha * minimum(X, 0), 0.01),
    "thresholdedrelu": Activation(lambda alpha, beta: call("if_lt", alpha, X, X, 0), 1.0),
    "scaledtanh": Activation(lambda alpha, beta: alpha * call("tanh", beta * X), 1.0, 1.0),
    "hardsigmoid": Activation(lambda alpha, beta: clip(X * alpha + beta, 0, 1), 0.2, 0.5),
    "elu": Activation(lambda alpha, beta: maximum(X, 0) + alpha * (call("exp", minimum(X, 0)) - 1), 1.0),
    "softsign": Activation(lambda alpha, beta: X / (1 + call("abs", X))),
    "softplus": Activation(lambda alpha, beta: maximum(X, 0) + call("log", 1 + call("exp", -call("abs", X)))),
}


def default_formulas(names: Sequence[str]) -> tuple[Expr, ...]:
    """Returns the expressions of activations, given by name, with their default parameters."""
    return tuple(_formula(ACTIVATIONS[name.lower()], None, None) for name in names)


def clip_arguments(formulas: Sequence[Expr], count: int, bound: float | None) -> tuple[Expr, ...]:
    """Returns formulas of which the first `count` clip their argument to [-bound, bound]. bound: None for no
    clipping."""
    if bound is None:
        return tuple(formulas)
    return tuple(substitute(formula, [clip(X, -bound, bound)]) if index < count else formula
                 for index, formula in enumerate(formulas))


def activations_of(node: OnnxNode, default: Sequence[str], clip_count: int, directions: int) -> list[tuple[Expr, ...]]:
    """Returns the activations of a recurrent node, as expressions, for each direction. Functions with parameters take
    them in order from the attributes activation_alpha and activation_beta.

    Args:
        default: the names for one direction, if the node has none.
        clip_count: the number of activations, from the first, whose argument attribute `clip` bounds.
        directions: 1 or 2.

    Raises:
        MegccError: for an unknown name, or a wrong number of names.
    """
    names = node.attr("activations") or list(default) * directions
    names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if len(names) != len(default) * directions:
        raise MegccError(f"has {len(names)} activations ({', '.join(names)}) where {len(default)} a direction are "
                         "wanted")
    alphas, betas = iter(node.attr("activation_alpha") or ()), iter(node.attr("activation_beta") or ())
    formulas = []
    for name in names:
        activation = ACTIVATIONS.get(name.lower())
        if activation is None:
            raise MegccError(f"activation '{name}' is not one of {', '.join(sorted(ACTIVATIONS))}")
        formulas.append(_formula(activation, next(alphas, None) if activation.alpha is not None else None,
                                 next(betas, None) if activation.beta is not None else None))
    return [clip_arguments(formulas[first:first + len(default)], clip_count, node.attr("clip"))
            for first in range(0, len(formulas), len(default))]


def _formula(activation: Activation, alpha: float | None, beta: float | None) -> Expr:
    """Returns an activation's expression. alpha, beta: None for the defaults."""
    return activation.formula(activation.alpha if alpha is None else alpha,
                              activation.beta if beta is None else beta)
