# SPDX-License-Identifier: Apache-2.0
"""One drawn Relax operator: alone in a module, or beside others, and what TVM's own build of it gives."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tvm
from tvm import relax, tirx

from tvm_megcc.frontends.tvm_versions import RelaxTensor, Tuple

from ...draw import Undrawn
from . import elementwise, moves, windows
from .draw import Draw

RULES = {**elementwise.RULES, **moves.RULES, **windows.RULES}
#: Operators that LLVM has no intrinsic for, or that TVM 0.27 does not lower; and not_equal, where its LLVM code has an
#: ordered comparison, by which a number is not different from NaN, and its C code an unordered one.
NUMPY = {"acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
         "atanh": np.arctanh, "cosh": np.cosh, "sinh": np.sinh, "ewise_fma": lambda a, b, c: a * b + c,
         "not_equal": np.not_equal}
#: Extents of an open axis.
RANGE = (1, 12)
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class RelaxCase:
    """open: places (operand, axis) whose extent is a symbol, one for all of them."""

    number: int
    label: str
    draw: Draw
    open: frozenset[tuple[int, int]] = frozenset()

    @property
    def symbol(self) -> str:
        return f"n{self.number}"

    @cached_property
    def feeds(self) -> Outputs:
        return {f"x{self.number}_{place}": array for place, array in enumerate(self.draw.operands)
                if place not in self.draw.constants}

    @property
    def dims(self) -> dict[str, list[tuple[int, int]]]:
        """The range of the symbol, as options of compiling have it."""
        return {self.symbol: [RANGE]} if self.open else {}

    def operands(self) -> list:
        """Variables and constants."""
        symbol, found = tirx.Var(self.symbol, "int64"), []
        for place, array in enumerate(self.draw.operands):
            if place in self.draw.constants:
                found.append(relax.const(array))
            else:
                shape = [symbol if (place, axis) in self.open else extent for axis, extent in enumerate(array.shape)]
                found.append(relax.Var(f"x{self.number}_{place}", RelaxTensor(shape, array.dtype.name)))
        return found

    @cached_property
    def expected(self) -> list[np.ndarray]:
        """By LLVM, without its optimiser; by numpy, where TVM has no code for an operator.

        Raises:
            ValueError: TVM's result has another dtype than TVM says.
        """
        if self.draw.kind in NUMPY:
            with np.errstate(all="ignore"):
                return [NUMPY[self.draw.kind](*self.draw.operands)]
        target, whole = tvm.target.Target({"kind": "llvm", "opt-level": 0}), module([self])
        vm = relax.VirtualMachine(tvm.compile(whole, target=target), tvm.cpu())
        found = flattened(vm["main"](*(tvm.runtime.tensor(array) for array in self.feeds.values())))
        declared = whole["main"].ret_ty
        for array, type_ in zip(found, getattr(declared, "fields", [declared]), strict=True):
            if array.dtype.name != str(type_.dtype):
                raise ValueError(f"TVM gives {array.dtype} where it says {type_.dtype}")
        return found

    @property
    def tolerance(self) -> float:
        """The least: TVM resizes and normalises numbers of float64 in float32."""
        return 2e-5 if self.draw.kind.startswith("image.") or self.draw.kind == "nn.rms_norm" else 0


def flattened(result) -> list[np.ndarray]:
    return [result.numpy()] if hasattr(result, "numpy") else [array for each in result for array in flattened(each)]


def module(cases: Sequence[RelaxCase]) -> tvm.IRModule:
    """One function that has the parameters of all cases, and a tuple of their results."""
    operands = [case.operands() for case in cases]
    builder = relax.BlockBuilder()
    with builder.function("main", [each for row in operands for each in row if isinstance(each, relax.Var)]):
        with builder.dataflow():
            results = [builder.emit(case.draw.expression(row)) for case, row in zip(cases, operands, strict=True)]
            output = builder.emit_output(results[0] if len(results) == 1 else Tuple(results))
        builder.emit_func_output(output)
    return builder.get()


def drawn(seed: int, number: int, operator: str = "") -> RelaxCase:
    """
    Raises:
        Undrawn: TVM's rules of shapes refuse what was drawn, or there is no such operator.
    """
    rng = np.random.default_rng([seed, number, zlib.crc32(f"relax {operator}".encode())])
    kind = operator or sorted(RULES)[int(rng.integers(len(RULES)))]
    if kind not in RULES:
        raise Undrawn(f"no rule draws {kind}")
    draw = Draw(rng, kind)
    RULES[kind](draw)
    if len(draw.constants) == len(draw.operands):
        draw.constants.discard(0)
    case = RelaxCase(number, "", draw)
    try:
        module([case])
    except Exception as error:
        raise Undrawn(f"{kind}: {str(error).splitlines()[-1]}") from None
    case = _opened(case) if draw.chance(0.25) else case
    return RelaxCase(number, f"{seed}:{number} {kind} {_text(case)}", draw, case.open)


def _opened(case: RelaxCase) -> RelaxCase:
    """With an open axis, if TVM knows the shape of the result then."""
    draw = case.draw
    places = [(place, axis, extent) for place, array in enumerate(draw.operands) if place not in draw.constants
              for axis, extent in enumerate(array.shape) if 1 < extent <= RANGE[1]]
    if not places:
        return case
    first = draw.one(*places)
    same = frozenset((place, axis) for place, axis, extent in places if extent == first[2])
    for chosen in (same, frozenset([first[:2]])):
        opened = RelaxCase(case.number, "", draw, chosen)
        try:
            type_ = module([opened])["main"].ret_ty
        except Exception:  # the operator has to know it
            continue
        if all(getattr(each, "shape", None) is not None for each in getattr(type_, "fields", [type_])):
            return opened
    return case


def _text(case: RelaxCase) -> str:
    draw = case.draw
    shapes = [f"{'const ' * (place in draw.constants)}{array.dtype}[" + ", ".join(
        f"n={extent}" if (place, axis) in case.open else str(extent) for axis, extent in enumerate(array.shape)) + "]"
        for place, array in enumerate(draw.operands)]
    return " ".join([", ".join(shapes), *(f"{name}={str(value)[:60]}" for name, value in draw.attributes.items())])
