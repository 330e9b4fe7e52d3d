# SPDX-License-Identifier: Apache-2.0
"""Relay expressions without TVM: what the importer looks at, under the same names of classes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


class Expr:
    def __init__(self, type_=None, **fields):
        self.checked_type = type_
        self.span = None
        self.__dict__.update(fields)


class Var(Expr):
    pass


class Constant(Expr):
    pass


class Tuple(Expr):
    pass


class TupleGetItem(Expr):
    pass


class Call(Expr):
    pass


class Function(Expr):
    pass


class Op:
    def __init__(self, name: str):
        self.name = name


class Any:
    """An extent that is not known."""


class TensorType:
    def __init__(self, shape, dtype: str = "float32"):
        self.shape, self.dtype = [Any() if extent is None else extent for extent in shape], dtype


class TupleType:
    def __init__(self, fields):
        self.fields = fields


def var(name: str, shape, dtype: str = "float32") -> Var:
    return Var(TensorType(shape, dtype), name_hint=name)


def const(array: np.ndarray) -> Constant:
    array = np.asarray(array)
    return Constant(TensorType(array.shape, array.dtype.name), data=SimpleNamespace(numpy=lambda: array))


def call(name: str, arguments, result, attrs: dict | None = None) -> Call:
    """A call of an operator. result: its type."""
    return Call(result, op=Op(name), args=list(arguments), attrs=None if attrs is None else SimpleNamespace(**attrs))
