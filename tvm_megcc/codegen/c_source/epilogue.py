# SPDX-License-Identifier: Apache-2.0
"""Prints the epilogue of a kernel: the elementwise operators that are applied to its results in registers, and the
stores of the results. Templates and microkernels get an `Epilogue` as the variable `ep`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...foreign import printable
from ...ir import expr as expressions
from ...ir import lanes
from ...ir.types import DTYPES
from .bind import KernelSpec, Parameter
from .element_access import ElementAccess

#: Functions that Helium computes on int32x4 (simd/helium_integer.h).
_INT32X4 = {"add", "sub", "mul", "min", "max", "rescale_fixed", "rescale_down"}
#: C types of vectors by the kind of their lanes: "f" for float32, "i" for int32.
_VECTOR_TYPES = {"f": "mgc_v", "i": "mgc_i"}


class Epilogue:
    """The epilogue of one kernel.

    `ep('acc', channel='oc', offset='y_offset')` is the C expression that applies it to a vector, `ep.store(…)` also
    stores the result. Without an epilogue both leave the vector as it is.

    present: whether the kernel has one. params, args: the epilogue's operands as C parameters and as arguments, each
    with a comma in front, for functions of a template that apply it. lane_kinds: "f" (float32) or "i" (int32) for the
    lanes of the kernel's result and of each operand (ir/lanes.py). tail: the end of an integer epilogue (a rounding
    shift, a zero point, a clamp) that the stores of some headers compute themselves; None if it does not end so.
    uses_head, uses_int32x4: whether a store printed so far calls `epilogue_head`, `epilogue_of_four`.
    """

    def __init__(self, spec: KernelSpec):
        self.expression = expressions.X if spec.epilogue is None else spec.epilogue
        self.operands = [p for p in spec.inputs if p.kind != "own"]
        self.present = spec.epilogue is not None
        self.half = spec.half
        self.lane_kinds = [spec.lane_kind, *("f" if p.dtype == "float16" else lanes.KINDS.get(p.dtype, "")
                                    for p in self.operands)]
        self.result = spec.outputs[0].dtype if spec.outputs else ""
        self.uses_head, self.uses_int32x4, self._loads = False, False, 0
        self.tail = lanes.store_tail(self.expression, self.lane_kinds, self.result) if self.present else None
        self.params = "".join(f", const {ElementAccess.of(p.dtype, spec.half).type} *{p.name}" for p in self.operands)
        self.args = "".join(f", {p.name}" for p in self.operands)

    def preloaded(self, channel: str, suffix: str, n: str = "") -> list[str]:
        """Returns declarations that load the scalar and per-channel operands for a vector of channels once, to be used
        for several results. The variables have the operands' names with a suffix.

        Args:
            channel: C expression of the first channel.
            n: C expression of the number of valid lanes; empty: all.
        """
        return [f"const {_VECTOR_TYPES[lanes.KINDS.get(p.dtype, '')]} {p.name}{suffix} = "
                f"{self._load(p, channel, '', n, False)}" for p in self.operands if _is_preloadable(p)]

    def __call__(self, value: str, channel: str = "", offset: str = "", n: str = "", one_channel: bool = False,
                 preloaded: str = "") -> str:
        """Returns the C expression of the epilogue applied to the vector `value`.

        Args:
            channel: C expression of the vector's first channel.
            offset: C expression of its offset in output 0, in elements.
            n: C expression of the number of valid lanes; empty: all.
            one_channel: all lanes belong to `channel`.
            preloaded: the suffix of the variables that `preloaded` declared; empty: there are none.
        """
        return self._applied("epilogue", value, channel, offset, n, one_channel, preloaded)

    def _applied(self, function: str, value: str, channel: str, offset: str, n: str, one_channel: bool, preloaded: str,
                 loaded: Mapping[str, str] = MappingProxyType({})) -> str:
        """Returns a call of the C function `function`. loaded: C expressions of operands that are in registers."""
        if not self.present:
            return value

        def argument(p: Parameter) -> str:
            if p.name in loaded:
                return loaded[p.name]
            if preloaded and _is_preloadable(p):
                return p.name + preloaded
            return self._load(p, channel, offset, n, one_channel)

        return f"{function}({', '.join([value, *map(argument, self.operands)])})"

    def store(self, pointer: str, offset: str, value: str, channel: str = "", n: str = "", preloaded: str = "") -> str:
        """Returns the statement that applies the epilogue to the vector `value` and stores it at `pointer + offset`,
        in output 0. The other arguments are those of `__call__`."""
        kind = lanes.kind_of(self.expression, self.lane_kinds)
        function = "mgc_store" if kind == "f" else f"mgc_istore_{DTYPES[self.result].short}"
        result = self(value, channel=channel, offset=offset, n=n, preloaded=preloaded)
        address = f"{pointer} + {offset}"
        return f"{function}_n({address}, {result}, {n})" if n else f"{function}({address}, {result})"

    # The next two functions get a list for each argument of `store`, with one element for each vector.

    def store_scattered(self, pointer: str, offsets: list[str], values: list[str], channels: list[str], ns: list[str],
                        preloaded: list[str]) -> list[str]:
        """Returns statements that store vectors at any offsets in output 0: four vectors in one call, where their
        results have 8 bits and all lanes are valid."""
        statements = []
        for first in range(0, len(values), 4):
            four = slice(first, first + 4)
            vectors = list(zip(offsets[four], values[four], channels[four], ns[four], preloaded[four], strict=True))
            if self.present and self.result in lanes.LIMITS and len(vectors) == 4 and not any(ns[four]):
                addresses = ", ".join(f"{pointer} + {offset}" for offset, *_ in vectors)
                results = ", ".join(self(value, channel=channel, offset=offset, preloaded=suffix)
                                    for offset, value, channel, _, suffix in vectors)
                statements.append(f"mgc_istore4_{DTYPES[self.result].short}({addresses}, {results})")
            else:
                statements += [self.store(pointer, offset, value, channel=channel, n=n, preloaded=suffix)
                               for offset, value, channel, n, suffix in vectors]
        return statements

    @property
    def fits_int32x4(self) -> bool:
        """Whether `store_four` is possible: the result is int8, the operands are int8 or int32, and Helium has all
        functions of the expression."""
        fits = all(p.dtype == "int8" or (p.dtype == "int32" and p.kind != "full") for p in self.operands)
        return self.present and self.result == "int8" and fits and expressions.functions_of(self.expression) <= _INT32X4

    def store_four(self, pointer: str, offset: str, value: str, channel: str, n: str) -> str:
        """Returns the same statement as `store`, for `value` as an int32x4 of Helium (simd/helium_integer.h)."""
        self.uses_int32x4 = True
        # Loads by operand kind, of: {0} the operand, {1} the channel, {2} the offset, {3} n, {4} a suffix for int8.
        loads = {"scalar": "mgc_int32x4_dup({0}[0])", "channel": "mgc_int32x4_load{4}({0} + {1}, {3})",
                 "full": "mgc_int32x4_load_i8({0} + {2}, {3})"}
        values = [value, *(loads[p.kind].format(p.name, channel, offset, n, "_i8" * (p.dtype == "int8"))
                           for p in self.operands)]
        # The epilogue includes the zero point and all clamps: the store adds 0 and keeps the range of int8.
        zero_point, (lower, upper) = 0, lanes.LIMITS["int8"]
        result = f"epilogue_of_four({', '.join(values)})"
        return f"mgc_int32x4_store({pointer} + {offset}, {result}, {zero_point}, {lower}, {upper}, {n})"

    def store_adjacent(self, pointer: str, offsets: list[str], values: list[str], channels: list[str], ns: list[str],
                       preloaded: list[str]) -> list[str]:
        """Returns statements that store vectors that are neighbours in output 0: four or two vectors in one call, where
        their results have 8 bits and all lanes are valid (NEON)."""
        statements, first = [], 0
        while first < len(values):
            sizes = (size for size in (4, 2) if self.result in lanes.LIMITS and len(values) - first >= size
                     and not any(ns[first:first + size]))
            count = next(sizes, 1)
            if count == 1:
                statements.append(self.store(pointer, offsets[first], values[first], channels[first], ns[first],
                                             preloaded[first]))
            else:
                vectors = slice(first, first + count)
                statements += self._requantizing_store(pointer, offsets[vectors], values[vectors], channels[vectors],
                                                       preloaded[vectors])
            first += count
        return statements

    def _requantizing_store(self, pointer: str, offsets: list[str], values: list[str], channels: list[str],
                            preloaded: list[str]) -> list[str]:
        """Returns statements that store two or four neighbouring vectors with one function of the header. If the
        epilogue has a tail, the function computes it as well, and the C function `epilogue_head` what precedes it."""
        self.uses_head = self.tail is not None
        loaded, declarations = self._loaded(offsets[0], len(values))
        part = "epilogue_head" if self.tail else "epilogue"
        results = [self._applied(part, value, channel, offset, "", one_channel=False, preloaded=suffix,
                                 loaded={name: f"{vectors}.v[{i}]" for name, vectors in loaded.items()})
                   for i, (value, channel, offset, suffix) in enumerate(zip(values, channels, offsets, preloaded,
                                                                            strict=True))]
        tail = self.tail or lanes.StoreTail(self.expression, 0, 0, *lanes.LIMITS[self.result])
        function = f"mgc_requantize_store{len(values)}_{DTYPES[self.result].short}"
        return [*declarations, f"{function}({pointer} + {offsets[0]}, {', '.join(results)}, {tail.down}, {tail.zero}, "
                               f"{tail.lower}, {tail.upper})"]

    def _loaded(self, offset: str, count: int) -> tuple[dict[str, str], list[str]]:
        """Loads the 8-bit operands of kind "full" for `count` neighbouring vectors.

        Returns:
            {name of an operand: name of the variable with its vectors}, and the declarations of these variables.
        """
        operands = [p for p in self.operands if p.kind == "full" and p.dtype in lanes.LIMITS]
        names = {p.name: f"{p.name}_{self._loads + i}" for i, p in enumerate(operands)}
        self._loads += len(operands)
        return names, [f"const mgc_i{count} {names[p.name]} = "
                       f"mgc_iload{count}_{DTYPES[p.dtype].short}({p.name} + {offset})" for p in operands]

    def _load(self, p: Parameter, channel: str, offset: str, n: str, one_channel: bool) -> str:
        """Returns the C expression that loads an operand for one vector."""
        access = ElementAccess.of(p.dtype, self.half)
        load, broadcast = (access.load, access.set1) if p.dtype in ("float32", "float16") else \
            (f"mgc_iload_{DTYPES[p.dtype].short}", "mgc_iset1")
        if p.kind == "scalar":
            return f"{broadcast}({p.name}[0])"
        if p.kind == "channel" and one_channel:
            return f"{broadcast}({p.name}[{channel}])"
        address = f"{p.name} + {channel if p.kind == 'channel' else offset}"
        return f"{load}_n({address}, {n})" if n else f"{load}({address})"

    def function(self) -> str:
        """Returns the definitions of the C functions that the template's stores call: `epilogue`, and `epilogue_head`
        and `epilogue_of_four` if they are used. So the template must have been printed before."""
        if not self.present:
            return ""
        names = ["x", *(p.name for p in self.operands)]
        params = ", ".join(f"{_VECTOR_TYPES[kind]} {name}" for kind, name in zip(self.lane_kinds, names, strict=True))
        if self.lane_kinds[0] == "f":
            text = expressions.to_c(self.expression, names)
            return self._definition("epilogue", self.expression, "mgc_v", params, text)
        result = _VECTOR_TYPES[lanes.kind_of(self.expression, self.lane_kinds)]
        # The store saturates to the dtype's range, so that values below its lower limit need not be exact (`floor`).
        floor = lanes.lower_limit(self.result)
        text = self._definition("epilogue", self.expression, result, params,
                                lanes.to_c(self.expression, names, self.lane_kinds, floor=floor))
        if self.uses_head and self.tail:
            inner = self.tail.inner
            text += self._definition("epilogue_head", inner, "mgc_i", params,
                                     lanes.to_c(inner, names, self.lane_kinds, floor=self.tail.floor))
        if self.uses_int32x4:
            text += self._definition("epilogue_of_four", self.expression, "mgc_int32x4",
                                     ", ".join(f"mgc_int32x4 {name}" for name in names),
                                     lanes.to_int32x4(self.expression, names, self.lane_kinds, floor))
        return text

    @staticmethod
    def _definition(name: str, expression: expressions.Expr, result: str, params: str, text: str) -> str:
        return (f"/* {printable(expression)} */\n"
                f"static MGC_INLINE {result} {name}({params})\n"
                f"{{\n    return {text};\n}}\n\n")


def _is_preloadable(operand: Parameter) -> bool:
    """Whether an operand is the same for several vectors of one channel block, so that it can stay in registers."""
    return operand.kind in ("scalar", "channel")
