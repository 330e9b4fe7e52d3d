# SPDX-License-Identifier: Apache-2.0
"""The base class of operators, their registry, and the interface of the ONNX node that importers see.

One class below `ops/<family>/` is the whole declaration of an operator. Everything else is derived from it: the
importers, shape inference, constant folding, the reference interpreter, kernel tests, the operator table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ShapeError
from ..ir.dims import Dim, dim_min
from ..ir.expr import Expr
from ..ir.graph import Attrs, Op
from ..ir.types import TensorType

Types = Sequence["TensorType | None"]


@dataclass(frozen=True)
class Case:
    """One test of an operator: shapes and dtypes of its operands, and its attributes.

    inputs: a (shape, dtype) pair for each operand, None for an absent one. Floats are drawn from a seeded normal
        distribution, integers from [0, 10).
    constant: indices of the operands that are constants at compile time (weights).
    values: index -> the array of an operand that is not to be random.
    """

    inputs: tuple[tuple[tuple[int, ...], str] | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    values: Mapping[int, ArrayLike] = field(default_factory=dict)


def f32(*shape: int) -> tuple[tuple[int, ...], str]:
    """Returns an operand of a `Case`, float32 of this shape."""
    return shape, "float32"


class Operator:
    """The declaration of an operator; subclass it, then decorate the class with `@register`.

    A subclass states its attributes in its docstring; the methods get them as `Attrs`.

    kind: the name in our graphs.
    operands: names of the inputs, "?" after optional ones, "*" after a variadic one.
    onnx, relax, relay: the names it is imported from. Those of other domains of ONNX have the domain before them:
        "com.microsoft::Inverse".
    channel_axis: axis of the output that per-channel epilogue operands follow, None where there is none.
    commutative: whether the operands may be swapped; only elementwise operators declare it.
    fan_in: of an operator with f(a, b, c) = f(f(a, b), c): the operands that one kernel takes; more become a tree
        (passes/canonicalize/variadic.py). 0 for all others.
    folds: whether the importer folds it on constants. If not, it is left for a later pass, or for the run.
    on_bits: whether `compute` gets storage-only dtypes (ir/narrow.py) unconverted; if not, they are widened first.
    kernels: the candidate kernels, which the decorator `kernels.base.realise` adds.
    cases: test cases, which every candidate kernel computes on every ISA.
    """

    kind: ClassVar[str]
    operands: ClassVar[tuple[str, ...]] = ("x",)
    onnx: ClassVar[tuple[str, ...]] = ()
    relax: ClassVar[tuple[str, ...]] = ()
    relay: ClassVar[tuple[str, ...]] = ()
    channel_axis: ClassVar[int | None] = None
    fan_in: ClassVar[int] = 0
    folds: ClassVar[bool] = True
    on_bits: ClassVar[bool] = False
    kernels: ClassVar[tuple[Any, ...]] = ()  # kernels.base.realise fills it
    cases: ClassVar[tuple[Case, ...]] = ()

    @classmethod
    def require_operands(cls, given: Sequence[str]) -> None:
        """Raises ShapeError if the number of operands is wrong, or a required one is absent ("")."""
        needed = [index for index, name in enumerate(cls.operands) if name[-1] not in "?*"]
        too_many = len(given) > len(cls.operands) and not any(name.endswith("*") for name in cls.operands)
        if too_many or any(index >= len(given) or not given[index] for index in needed):
            raise ShapeError(f"has operands ({', '.join(map(repr, given))}), where {cls.kind} has "
                             f"({', '.join(cls.operands)})")

    @staticmethod
    def infer(attrs: Attrs, *inputs: Any, **named: Any) -> tuple[TensorType, ...]:
        """Infers the types of the results from the types of the operands. Shapes are logical; layouts do not matter.

        Args:
            inputs: a `TensorType` for each operand, None for an absent one; subclasses name them.

        Raises:
            ShapeError: if shapes or dtypes contradict each other; the message names the operands.
        """
        raise NotImplementedError

    @staticmethod
    def compute(attrs: Attrs, *inputs: Any, **named: Any) -> tuple[np.ndarray, ...]:
        """Computes the results with numpy, for constant folding and as the reference of tests.

        Args:
            inputs: a logical array for each operand, None for an absent one; subclasses name them.
        """
        raise NotImplementedError

    @staticmethod
    def evaluates(attrs: Attrs) -> bool:
        """Returns whether `compute` is available; some operators exist only as C code."""
        return True

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> tuple[str, ...]:
        """Emits our operators for an ONNX node and returns the names of the values of its outputs.

        The default emits one operator of this kind with the node's inputs and `onnx_attrs`.

        Raises:
            MegccError: if an attribute or a constant operand is not supported.
            ShapeError: as `infer`.
        """
        return node.emit(cls.kind, node.inputs, **cls.onnx_attrs(node))

    @classmethod
    def onnx_attrs(cls, node: OnnxNode) -> dict[str, Any]:
        """Returns the attributes of our operator for an ONNX node."""
        return {}

    @staticmethod
    def indexed(attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, ...]]:
        """Returns the operands that are indices, as a mapping from the operand's number to the extents that it indexes.

        There is one extent, or one for each coordinate if the operand's last axis holds coordinates. Negative indices
        count from the end.
        """
        return {}

    @classmethod
    def accepted(cls, attrs: Attrs, inputs: Types) -> Mapping[int, tuple[Dim, Dim]]:
        """Returns the operands whose values are restricted, such as indices, as a mapping from the operand's number to
        the least and the largest valid value."""
        return {index: (0, reduce(dim_min, extents) - 1) for index, extents in cls.indexed(attrs, inputs).items()}

    @staticmethod
    def overwrites(attrs: Attrs) -> bool:
        """Returns whether the result is operand 0 with some elements replaced, independent of their old values. Then
        computing it in place is idempotent."""
        return False

    @staticmethod
    def macs(attrs: Attrs, inputs: Types, outputs: Types) -> Dim:
        """Returns the number of multiply-accumulates, for reports and cost models; 0 except for convolutions, matrix
        products and recurrent layers."""
        return 0

    @classmethod
    def expression(cls, attrs: Attrs) -> Expr | None:
        """Returns the operator as an elementwise expression over its operands, if it is one."""
        return None

    @staticmethod
    def view_offset(attrs: Attrs, inputs: Types, outputs: Types) -> Dim | None:
        """Returns the byte offset in input 0 at which the output is a view of it, in their current layouts; None if it
        is not a view."""
        return None


class OnnxNode:
    """A node of an ONNX graph as importers (`Operator.from_onnx`, `decomposes`) see it, and the graph that they emit
    operators into. frontends/onnx/builder.py implements it.

    A value is a name in our graph. Operands and outputs of the node are given by their numbers: `type`, `const` and
    `is_const` are for an operand, `type_of`, `constant_of` and `is_constant` for any value.

    op_type: ONNX's name of the operator. name: that of the node. opset: the version of the operator set.
    inputs: the values of the operands, "" for an absent one. outputs: the model's names of the results, "" for one that
    it does not use. num_outputs: the number of outputs that the model uses.
    """

    op_type: str
    name: str
    opset: int
    inputs: tuple[str, ...]
    outputs: Sequence[str]
    num_outputs: int

    def attr(self, name: str, default: Any = None) -> Any:
        """Returns an attribute's value as int, float, str, list or numpy array, or `default`."""
        raise NotImplementedError

    def type(self, index: int) -> TensorType | None:
        """Returns the type of operand `index`; None if it is absent."""
        raise NotImplementedError

    def const(self, index: int, what: str = "") -> np.ndarray | None:
        """Returns the value of a constant operand; None if it is absent. what: its name, for the message.

        Raises:
            MegccError: if the operand is present but not constant.
        """
        raise NotImplementedError

    def has(self, index: int) -> bool:
        """Returns whether operand `index` is present."""
        raise NotImplementedError

    def is_const(self, index: int) -> bool:
        """Returns whether operand `index` is present and constant."""
        raise NotImplementedError

    def is_known(self, index: int) -> bool:
        """Returns whether operand `index` is present, and constant or dependent on shape symbols only."""
        raise NotImplementedError

    def is_shape_derived(self, index: int) -> bool:
        """Returns whether operand `index` is absent, or computed from constants and extents alone. The extents may be
        unbacked symbols."""
        raise NotImplementedError

    def extent(self, dim: Dim) -> str:
        """Emits an extent as a value, int64 []."""
        raise NotImplementedError

    def declared_shape(self, output: int = 0) -> tuple[int, ...] | None:
        """Returns the shape that the model declares for an output; None unless every extent is a number."""
        raise NotImplementedError

    def declared_if_unknown(self, index: int, output: int = 0) -> tuple[int, ...] | None:
        """Returns the shape that the model declares for an output if operand `index`, which determines that shape, is
        known only at run time.

        The importer uses the declared shape instead of the operand: another shape would contradict the model. Returns
        None if the operand is known or absent, or the model declares no shape; the importer then reads the operand.
        """
        return self.declared_shape(output) if self.has(index) and not self.is_known(index) else None

    def dims(self, index: int, what: str = "", limit: Dim | None = None) -> tuple[Dim, ...] | None:
        """Returns the elements of an integer operand as extents; None if it is absent.

        Elements that are computed at run time become unbacked symbols.

        Args:
            what: the operand's name, for the message.
            limit: upper bound of these symbols, None for no limit.

        Raises:
            MegccError: if the operand is not a list of extents.
        """
        raise NotImplementedError

    def extent_bound(self, limit: Dim | None) -> Dim | None:
        """Returns the upper bound of the extent that `unbacked_extent` returns: the smaller of `limit` and the user's
        bound; None for no limit."""
        raise NotImplementedError

    def resolve_dims(self, value: str, limit: Dim | None, resolve: Callable[[Collection[int]], str]) -> tuple[Dim, ...]:
        """Returns the elements of an integer value as `dims` does, for values whose run-time elements need not be
        extents: a shape may contain -1, pads may be negative.

        resolve: gets the positions of the run-time elements; emits an int64 tensor with the extent that each element
            stands for, such as the inferred one for -1.

        Raises:
            MegccError: if the value is not a list of a few integers.
        """
        raise NotImplementedError

    def unbacked_extent(self, value: str, limit: Dim | None, element: int = 0, name: str = "") -> Dim:
        """Returns an element of an integer value as an extent: an unbacked symbol of at most `limit` (None for no
        limit), called `name` or, by default, like the node's first output."""
        raise NotImplementedError

    def type_of(self, value: str) -> TensorType:
        """Returns the type of any value, such as one that `emit` returned."""
        raise NotImplementedError

    def is_constant(self, value: str) -> bool:
        """Returns whether any value, such as one that `emit` returned, is constant."""
        raise NotImplementedError

    def extents(self, value: str) -> tuple[Dim, ...]:
        """Returns the elements of any integer value as extents; those that are computed at run time become unbacked
        symbols."""
        raise NotImplementedError

    def constant_of(self, value: str) -> np.ndarray:
        """Returns the array of a constant, given by its name."""
        raise NotImplementedError

    def random_key(self) -> tuple[str, int]:
        """Returns what a random operator without a `seed` attribute draws from: the value of the key, int64 [], and the
        operator's index, by which operators with the same key differ.

        Raises:
            MegccError: if the front end has none.
        """
        raise NotImplementedError

    def strings(self, *names: str) -> np.ndarray | None:
        """Returns the strings of the first of these attributes that exists, as int64 indices in the model's string
        table; None if none exists."""
        raise NotImplementedError

    def string_index(self, text: str) -> int:
        """Returns the index of a string in the model's string table, and adds it there if it is new."""
        raise NotImplementedError

    def is_string(self, index: int) -> bool:
        """Returns whether operand `index` is a string tensor, whose elements are int64 indices in the model's string
        table."""
        raise NotImplementedError

    def as_strings(self, value: str) -> str:
        """Marks the value as a string tensor. It must not be used as numbers elsewhere."""
        raise NotImplementedError

    def producer(self, value: str) -> Op | None:
        """Returns the operator that computes a value; None for inputs and constants."""
        raise NotImplementedError

    def constant(self, array: np.ndarray) -> str:
        """Adds a constant and returns the name of its value."""
        raise NotImplementedError

    def require_budget(self, *extents: Dim) -> None:
        """Checks the size of an array that is to be computed at compile time from attributes and extents. A node of
        forty bytes could ask for gigabytes.

        Raises:
            ShapeError: if an array of these extents is too large.
        """
        raise NotImplementedError

    def emit(self, kind: str, inputs: Sequence[str], **attrs: Any) -> tuple[str, ...]:
        """Adds an operator, infers the types of its results, and folds it if all operands are constant. Returns the
        names of the results.

        Raises:
            ShapeError: if the operator refuses the types of its operands.
        """
        raise NotImplementedError


#: All operators by their kind.
OPERATORS: dict[str, type[Operator]] = {}

#: ONNX operators that are imported as several of ours: name -> the function that emits them.
DECOMPOSITIONS: dict[str, Callable[[OnnxNode], tuple[str, ...]]] = {}
Decomposition = TypeVar("Decomposition", bound=Callable[[OnnxNode], tuple[str, ...]])


def decomposes(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Returns a decorator that registers a function as the importer of the ONNX operators `names`. Those of other
    domains are named "domain::name".

    The function emits our operators for a node and returns the values of the node's outputs, as `Operator.from_onnx`.
    """
    def add(function: Decomposition) -> Decomposition:
        DECOMPOSITIONS.update(dict.fromkeys(names, function))
        return function
    return add


def register(cls: type[Operator]) -> type[Operator]:
    """Adds an operator to `OPERATORS` under its kind.

    Raises:
        ValueError: if there is one of this kind.
    """
    if cls.kind in OPERATORS:
        raise ValueError(f"operator '{cls.kind}' is declared twice")
    OPERATORS[cls.kind] = cls
    return cls


def operator(kind: str) -> type[Operator]:
    """Returns the declaration of an operator."""
    return OPERATORS[kind]


def bytes_of(*types: TensorType | None) -> Dim:
    """Returns the number of bytes of tensors of these types together; None counts as none."""
    return sum((t.bytes for t in types if t is not None), start=0)
