# SPDX-License-Identifier: Apache-2.0
"""Prints innermost loops of elementary functions with vectors (megcc_simd.h), since C compilers leave them scalar."""

from __future__ import annotations

from ...ir.c_text import ATOM, PRODUCT, SUM
from ...ir.expr import c_float
from ..tvm_versions import TENSOR_READ, Var, buffer_of, element_type
from .expr import Expressions
from .values import Value, any_subexpression, function_of_tir, int_value

#: TIR's float32 functions -> their vector versions in megcc_math.h and megcc_simd.h.
_FUNCTIONS = {"exp": "mgc_exp", "log": "mgc_log", "tanh": "mgc_tanh", "sigmoid": "mgc_sigmoid", "erf": "mgc_erf",
              "pow": "mgc_pow", "sqrt": "mgc_sqrt", "fabs": "mgc_abs", "abs": "mgc_abs", "floor": "mgc_floor",
              "ceil": "mgc_ceil", "nearbyint": "mgc_round", "round": "mgc_round"}
#: Functions that are slow enough for a loop over vectors.
_SLOW = ("exp", "log", "tanh", "sigmoid", "erf", "pow", "sqrt")
_INFIX = {"Add": ("+", SUM), "Sub": ("-", SUM), "Mul": ("*", PRODUCT), "Div": ("/", PRODUCT)}


class _NotVectorizable(Exception):
    """Raised if an expression cannot be printed with vectors."""


class Vectors(Expressions):
    """Prints an elementwise store as one of vectors of MGC_LANES float32.

    lane_variables: the variables whose values differ from lane to lane: that of the loop, then axes of a block that
        depend on it.
    load_names: the vector loads of the current store, in C -> the names of the variables that hold them.
    """

    lane_variables: tuple[Var, ...] = ()
    load_names: dict[str, str]

    def vector_store(self, store, lane_variables) -> list[str] | None:
        """Returns the C that stores `lanes` neighbours along the loop of the first of `lane_variables`; None if the
        store cannot be printed with vectors."""
        memory = self.memory(store.buffer)

        def is_own_load(part) -> bool:
            return _is_load(part) and buffer_of(part).same_as(store.buffer)

        # Elements of the stored buffer that the value reads may be results of earlier iterations.
        if memory.dtype != "float32" or memory.is_variable or not any_subexpression(store.value, _is_slow) \
                or any_subexpression(store.value, is_own_load):
            return None
        self.lane_variables, self.load_names = tuple(lane_variables), {}
        try:
            start, value = self._first_lane_offset(store.buffer, store.indices), self._vector_value(store.value)
            loads = [f"const mgc_v {name} = {load};" for load, name in self.load_names.items()]
            return [*loads, f"mgc_store_n({memory.name} + {start}, {value.text}, lanes);"]
        except _NotVectorizable:
            return None
        finally:
            self.lane_variables = ()

    def _varies(self, expr) -> bool:
        """Whether an expression differs from lane to lane."""
        return any_subexpression(expr, lambda part: any(part.same_as(variable) for variable in self.lane_variables))

    def _first_lane_offset(self, buffer, indices) -> str:
        """Returns the offset of the first lane's element.

        Raises:
            _NotVectorizable: unless the elements of the other lanes follow it in memory, within bounds.
        """
        indices = [self.simplified(index) for index in indices]
        *outer, last = indices
        shape = self.memory(buffer).shape
        if any(map(self._varies, outer)) or len(indices) - 1 in self.memory(buffer).dropped_axes \
                or not all(self.inside(index, extent) for index, extent in zip(indices, shape, strict=True)):
            raise _NotVectorizable
        parts = [last.a, last.b] if type(last).__name__ == "Add" else [last]
        if sum(map(self._varies, parts)) != 1 or not any(part.same_as(self.lane_variables[0]) for part in parts):
            raise _NotVectorizable
        return self.offset(buffer, indices)

    def _vector_value(self, expr) -> Value:
        """Returns a float32 expression as a vector in C.

        Raises:
            _NotVectorizable: if a part of it has no vector version.
        """
        kind = type(expr).__name__
        if element_type(expr) != "float32":
            raise _NotVectorizable
        if kind == "FloatImm":
            return _vector_call("mgc_set1", c_float(float(expr.value)))
        if not self._varies(expr):
            return _vector_call("mgc_set1", self.text(expr))
        if kind == TENSOR_READ:
            name = self.memory(buffer_of(expr)).name
            load = f"mgc_load_n({name} + {self._first_lane_offset(buffer_of(expr), expr.indices)}, lanes)"
            if load not in self.load_names:
                self.load_names[load] = self.name(f"{name}_lanes")
            return Value(self.load_names[load], ATOM, "float32")
        if kind in _INFIX:
            symbol, level = _INFIX[kind]
            a, b = self._vector_value(expr.a), self._vector_value(expr.b)
            return Value(f"{a.operand(level)} {symbol} {b.operand(level + 1)}", level, "float32")
        if kind in ("Max", "Min"):
            return _vector_call(f"mgc_{kind.lower()}", *self._vector_strings(expr.a, expr.b))
        if kind == "Select" and type(expr.condition).__name__ in ("LT", "GT"):
            sides = self._vector_strings(expr.condition.a, expr.condition.b)
            sides = sides if type(expr.condition).__name__ == "LT" else sides[::-1]
            return _vector_call("mgc_if_lt", *sides, *self._vector_strings(expr.true_value, expr.false_value))
        function = function_of_tir(expr)
        if function not in _FUNCTIONS:
            raise _NotVectorizable
        return _vector_call(_FUNCTIONS[function], *self._vector_strings(*expr.args))

    def _vector_strings(self, *exprs) -> list[str]:
        return [self._vector_value(expr).text for expr in exprs]

    def vector_loop(self, loop, store_of) -> bool:
        """Prints a loop with vectors, if possible; returns whether it did.

        Args:
            store_of: returns the loop's only store and the variables that change in the loop; None if it has other
                statements.
        """
        if loop.step is not None or int_value(loop.min) != 0 or int_value(loop.extent) == 1:
            return False
        found = store_of(loop)
        if found is None:
            return False
        store, lane_variables = found
        statements = self.vector_store(store, lane_variables)
        if statements is None:
            return False
        name, stop = self.variables[loop.loop_var].text, self.value(self.simplified(loop.extent))
        left = f"{stop.operand(SUM)} - {name}"
        self.lines += [f"for (int32_t {name} = 0; {name} < {stop.operand(SUM + 1)}; {name} += MGC_LANES) {{",
                       f"const int32_t lanes = {left} < MGC_LANES ? {left} : MGC_LANES;", *statements, "}"]
        return True


def _vector_call(name: str, *arguments: str) -> Value:
    return Value(f"{name}({', '.join(arguments)})", ATOM, "float32")


def _is_load(expr) -> bool:
    return type(expr).__name__ == TENSOR_READ


def _is_slow(expr) -> bool:
    return function_of_tir(expr) in _SLOW
