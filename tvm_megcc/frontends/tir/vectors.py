# SPDX-License-Identifier: Apache-2.0
"""Prints innermost loops of elementary functions with vectors, since C compilers leave them scalar."""

from __future__ import annotations

from tvm import ir

from ...ir.c_text import ATOM, PRODUCT, SUM
from ...ir.expr import c_float
from ..tvm_versions import TENSOR_READ, Var, buffer_of, element_type
from .expr import Expressions
from .values import Value, any_part, int_value

#: TIR's float32 functions -> their vector versions in megcc_math.h and megcc_simd.h.
_FUNCTIONS = {"exp": "mgc_exp", "log": "mgc_log", "tanh": "mgc_tanh", "sigmoid": "mgc_sigmoid", "erf": "mgc_erf",
              "pow": "mgc_pow", "sqrt": "mgc_sqrt", "fabs": "mgc_abs", "abs": "mgc_abs", "floor": "mgc_floor",
              "ceil": "mgc_ceil", "nearbyint": "mgc_round"}
#: Functions that are slow enough for a loop over vectors.
_SLOW = ("exp", "log", "tanh", "sigmoid", "erf", "pow", "sqrt")
_INFIX = {"Add": ("+", SUM), "Sub": ("-", SUM), "Mul": ("*", PRODUCT), "Div": ("/", PRODUCT)}


class _Scalar(Exception):
    """Raised if an expression cannot be printed with vectors."""


class Vectors(Expressions):
    """Prints the value of an elementwise store as vectors.

    moving: the variables that differ from lane to lane. loaded: loads that the current store has printed, and their
    names.
    """

    moving: tuple[Var, ...] = ()
    loaded: dict[str, str] = {}

    def vector_store(self, store, moving) -> list[str] | None:
        """Returns statements that store `lanes` neighbours along the loop of the first moving variable; None if the
        store cannot be printed so."""
        memory = self.memory(store.buffer)
        if memory.dtype != "float32" or memory.single or not any_part(store.value, _is_slow) \
                or any_part(store.value, lambda part: _is_load(part) and buffer_of(part).same_as(store.buffer)):
            return None
        self.moving, self.loaded = tuple(moving), {}
        try:
            start, value = self._start(store.buffer, store.indices), self._lanes(store.value)
            loads = [f"const mgc_v {name} = {load};" for load, name in self.loaded.items()]
            return [*loads, f"mgc_store_n({memory.name} + {start}, {value.text}, lanes);"]
        except _Scalar:
            return None
        finally:
            self.moving = ()

    def _moves(self, expr) -> bool:
        return any_part(expr, lambda part: any(part.same_as(variable) for variable in self.moving))

    def _start(self, buffer, indices) -> str:
        """Returns the address of the first lane, if the other lanes follow it in memory."""
        indices = [self.simplified(index) for index in indices]
        *outer, last = indices
        shape = self.memory(buffer).shape
        if any(map(self._moves, outer)) or len(indices) - 1 in self.memory(buffer).dropped \
                or not all(self.inside(index, extent) for index, extent in zip(indices, shape, strict=True)):
            raise _Scalar
        parts = [last.a, last.b] if type(last).__name__ == "Add" else [last]
        if sum(map(self._moves, parts)) != 1 or not any(part.same_as(self.moving[0]) for part in parts):
            raise _Scalar
        return self.offset(buffer, indices)

    def _lanes(self, expr) -> Value:
        kind = type(expr).__name__
        if element_type(expr) != "float32":
            raise _Scalar
        if kind == "FloatImm":
            return _called("mgc_set1", c_float(float(expr.value)))
        if not self._moves(expr):
            return _called("mgc_set1", self.text(expr))
        if kind == TENSOR_READ:
            name = self.memory(buffer_of(expr)).name
            load = f"mgc_load_n({name} + {self._start(buffer_of(expr), expr.indices)}, lanes)"
            if load not in self.loaded:
                self.loaded[load] = self.name(f"{name}_lanes")
            return Value(self.loaded[load], ATOM, "float32")
        if kind in _INFIX:
            symbol, level = _INFIX[kind]
            text = f"{self._lanes(expr.a).at(level)} {symbol} {self._lanes(expr.b).at(level + 1)}"
            return Value(text, level, "float32")
        if kind in ("Max", "Min"):
            return _called(f"mgc_{kind.lower()}", *self._strings(expr.a, expr.b))
        if kind == "Select" and type(expr.condition).__name__ in ("LT", "GT"):
            sides = self._strings(expr.condition.a, expr.condition.b)
            sides = sides if type(expr.condition).__name__ == "LT" else sides[::-1]
            return _called("mgc_if_lt", *sides, *self._strings(expr.true_value, expr.false_value))
        short = expr.op.name.rpartition(".")[2] if kind == "Call" and isinstance(expr.op, ir.Op) else ""
        if short not in _FUNCTIONS:
            raise _Scalar
        return _called(_FUNCTIONS[short], *self._strings(*expr.args))

    def _strings(self, *exprs) -> list[str]:
        return [self._lanes(expr).text for expr in exprs]

    def vector_loop(self, loop, store_of) -> bool:
        """Prints a loop with vectors, if possible; returns whether it did.

        store_of: returns the loop's only store and the variables that change in the loop, or None.
        """
        if loop.step is not None or int_value(loop.min) != 0 or int_value(loop.extent) == 1:
            return False
        found = store_of(loop)
        if found is None:
            return False
        store, moving = found
        statements = self.vector_store(store, moving)
        if statements is None:
            return False
        name, stop = self.variables[loop.loop_var].text, self.value(self.simplified(loop.extent))
        self.lines += [f"for (int32_t {name} = 0; {name} < {stop.at(SUM + 1)}; {name} += MGC_LANES) {{",
                       f"const int32_t lanes = {stop.at(SUM)} - {name} < MGC_LANES ? {stop.at(SUM)} - {name} : "
                       "MGC_LANES;", *statements, "}"]
        return True


def _called(name: str, *arguments: str) -> Value:
    return Value(f"{name}({', '.join(arguments)})", ATOM, "float32")


def _is_load(expr) -> bool:
    return type(expr).__name__ == TENSOR_READ


def _is_slow(expr) -> bool:
    return type(expr).__name__ == "Call" and getattr(expr.op, "name", "").rpartition(".")[2] in _SLOW
