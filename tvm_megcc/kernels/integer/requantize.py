# SPDX-License-Identifier: Apache-2.0
"""Epilogues that only requantize sums as TFLite does. Kernels compute them in fewer instructions than others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.expr import Arg, Call, Const, Expr
from ...ir.lanes import LIMITS
from ...ir.types import DTYPES
from ...ops.base import operator
from ..parameters import Parameters
from ..site import Site


@dataclass(frozen=True)
class Requantization(Parameters):
    """The requantization of sums to 8 bits, as an epilogue.

    kind: "fixed", rounded twice as in TFLite (mgc_rescale_fixed), or "once", rounded once (mgc_rescale_once of
        megcc_integer.h); "" for any other epilogue.
    multiplier, shift: C expressions for channel `c`.
    int8_shifts: the array of shifts has elements of int8, not int32.
    zero: the zero point that is added.
    lower, upper: limits of the result.
    adds_zero_last: the zero point is added after the shift, as it does not fit in 32 bits with the sum's scale.
    """

    kind: str = ""
    multiplier: str = ""
    shift: str = ""
    int8_shifts: bool = False
    zero: int = 0
    lower: int = 0
    upper: int = 0
    adds_zero_last: bool = False

    @property
    def name(self) -> str:
        """Returns the requantization's part of a kernel's name."""
        return f"_{self.kind}" * bool(self.kind) + "_zero_last" * self.adds_zero_last

    def factors(self, channel: str) -> str:
        """Declares the factors of a channel, a C expression, for `store`; nothing for another epilogue."""
        if not self.kind:
            return ""
        multiplier, shift = (text.replace("[c]", f"[{channel}]") for text in (self.multiplier, self.shift))
        # k adds a half for rounding, and the zero point, before the shift by r: 2^(r - 1) + zero * 2^r, which is
        # (2 * zero + 1) * 2^(r - 1). mgc_requantize_sum_once works with half of that (simd/dsp_integer.h).
        factor = f"{2 * self.zero + 1} * " * (self.zero != 0 and not self.adds_zero_last)
        return f"""const int32_t m = {multiplier}, r = -({shift});
const int32_t k = {factor}(1 << (r - {1 if self.kind == "fixed" else 2}));"""

    def store(self, ep, result: str, pointer: str, index: str, total: str, channel: str, joined: bool = False,
              exists: str = "") -> str:
        """Stores a sum.

        result: the C type of an element of y. pointer, index: C, where the result lies in y. total: C, the sum. joined:
        the sum is 256 times as large, as that of joined weights is (simd/dsp_integer.h). exists: C, whether the element
        exists; a requantization stores without this test, which other epilogues need.
        """
        is_fixed = joined and self.kind == "fixed"
        total = f"mgc_div_256({total})" if joined and not is_fixed else total
        if not self.kind:
            y_index = index if pointer == "y" else f"({pointer} - y)" + f" + {index}" * (index != "0")
            statement = f"{ep.store('y', y_index, total, channel=channel)};"
            return f"if ({exists}) {{\n{statement}\n}}" if exists else statement
        value = f"mgc_requantize_sum_{self.kind}{'_joined' * is_fixed}({total}, m, k, r)"
        value += f" + {self.zero}" * self.adds_zero_last
        dtype = result.removesuffix("_t")
        within = f"mgc_within_{DTYPES[dtype].short}({value})" if (self.lower, self.upper) == LIMITS[dtype] else \
            f"mgc_imin(mgc_imax({value}, {self.lower}), {self.upper})"
        return f"{pointer}[{index}] = ({result}){within};"

    # Requantization by Helium, whose operands are in a C struct `requantize_args` (simd/helium_integer.h).

    def channel_operands(self, bias: bool) -> list[tuple[str, str]]:
        """Returns (field of `requantize_args`, array in C) of the operands with an element for each channel."""
        factors = [("multiplier", self.multiplier), ("shift", self.shift)]
        return [("requantize_args.bias", "b")] * bias + [(f"requantize_args.{name}", text.removesuffix("[c]"))
                                                         for name, text in factors if text.endswith("[c]")]

    def declare(self, max_sums: int, bias: bool) -> str:
        """Declares `requantize_args` with the operands that all calls share. max_sums: the most sums of one call."""
        if not self.kind:
            return ""
        single = [f"const int32_t {name} = {text};\nrequantize_args.{name} = &{name};"
                  for name, text in (("multiplier", self.multiplier), ("shift", self.shift))
                  if not text.endswith("[c]")]
        no_bias = [f"static const int32_t none[{max_sums}] = {{ 0 }};\nrequantize_args.bias = none;"] * (not bias)
        return "\n".join(["mgc_requantize_args requantize_args;",
                          f"requantize_args.zero = {self.zero}, requantize_args.low = {self.lower}, "
                          f"requantize_args.high = {self.upper};", *no_bias, *single])

    def function(self, rows: int, int8_shifts: bool) -> str:
        """Returns the name of the function for `rows` rows of sums."""
        # mgc_rescale_positive is exact for positive results only, which suffices if others become the lower limit.
        kind = "positive" if self.kind == "fixed" and self.lower >= self.zero else self.kind
        # Whether multiplier and shift are the same for all channels, or each channel has its own; bytes: in int8.
        multipliers = "all" if not self.multiplier.endswith("[c]") else "bytes" if int8_shifts else "each"
        return f"mgc_requantize_sums_{kind}_{multipliers}_{rows}"

    def call(self, channel: str, n: str, rows: int, bias: bool) -> str:
        """Requantizes n channels of `rows` rows. The fields y and y2 of `requantize_args` must be set."""
        return "\n".join([f"requantize_args.sums = sums, requantize_args.n = {n};",
                          *(f"{name} = {address} + {channel};" for name, address in self.channel_operands(bias)),
                          f"{self.function(rows, self.int8_shifts)}(&requantize_args);"])

    @staticmethod
    def store_four(ep, y_index: str, sum_index: str, channel: str, n: str, bias: bool) -> str:
        """Stores n of four neighbouring sums to y, with an epilogue that is no requantization."""
        four = ep.fits_int32x4
        total = f"mgc_int32x4_load(sums + {sum_index}, 4)" if four else f"mgc_iload_i32(sums + {sum_index})"
        if bias:
            total = f"mgc_int32x4_add({total}, mgc_int32x4_load(b + {channel}, {n}))" if four else \
                f"mgc_iadd({total}, mgc_iload_i32_n(b + {channel}, {n}))"
        return (ep.store_four if four else ep.store)("y", y_index, total, channel, n) + ";"


#: The smallest and the largest right shift that `mgc_requantize_sum_*` supports, by the function of the expression.
_SHIFTS = {"rescale_fixed": (1, 30), "rescale_down": (1, 30), "rescale_once": (2, 30)}


def requantization(site: Site, zeros: tuple[int, int], outputs_first: bool, any_sum: bool = False) -> Requantization:
    """Returns the epilogue as a requantization of sums of products; `Requantization()` if it is another one.

    zeros: zero points of x and of the weights. outputs_first: a weight matrix is [O, I]. any_sum: also if sums may
    reach 2^30.
    """
    split = _split(site.op.epilogue, site.y.dtype)
    if split is None:
        return Requantization()
    rescale, zero, lower, upper = split
    multiplier, shift = (_factor_values(site, argument) for argument in rescale.args[1:])
    min_shift, max_shift = _SHIFTS[rescale.fn]
    if multiplier is None or shift is None or multiplier.min() < 0:
        return Requantization()
    if -shift.max() < min_shift or -shift.min() > max_shift:
        return Requantization()
    # rescale_down is rescale_fixed for right shifts.
    kind = "once" if rescale.fn == "rescale_once" else "fixed"
    if kind == "fixed" and not any_sum:
        greatest = greatest_sum(site, zeros, outputs_first)
        if greatest is None or greatest >= 2**30:
            return Requantization()
    c_multiplier, c_shift = (_c_factor(site, argument) for argument in rescale.args[1:])
    # `Requantization.factors` adds zero * 2^r to a scaled sum in 32 bits.
    adds_zero_last = abs(zero) << -int(shift.min()) > 2**29
    return Requantization(kind=kind, multiplier=c_multiplier, shift=c_shift,
                          int8_shifts=_is_int8(site, rescale.args[2]), zero=zero, lower=lower, upper=upper,
                          adds_zero_last=adds_zero_last)


def _split(expr: Expr | None, dtype: str) -> tuple[Call, int, int, int] | None:
    """Returns (rescaled sum, zero point, lower limit, upper limit) of an expression; None if it has another form."""
    if dtype not in LIMITS:
        return None
    lower, upper = LIMITS[dtype]
    zero = 0
    while isinstance(expr, Call) and isinstance(expr.args[-1], Const) and expr.fn in ("min", "max", "add", "sub"):
        number = int(expr.args[-1].value)
        if expr.fn in ("add", "sub"):
            number = number if expr.fn == "add" else -number
            zero, lower, upper = zero + number, lower - number, upper - number
        else:
            # Outer limits apply to an inner one.
            bound = min(max(number, lower), upper)
            lower, upper = (lower, bound) if expr.fn == "min" else (bound, upper)
        expr = expr.args[0]
    if not isinstance(expr, Call) or expr.fn not in _SHIFTS or expr.args[0] != Arg(0):
        return None
    return expr, zero, lower + zero, upper + zero


def _factor_values(site: Site, argument: Expr) -> np.ndarray | None:
    """Returns multipliers or shifts, int64 [1] or [O]; None if they are unknown."""
    if isinstance(argument, Const):
        return np.array([int(argument.value)], np.int64)
    if not isinstance(argument, Arg):
        return None
    value = site.values.get(site.op.epilogue_start + argument.index - 1)
    axis = operator(site.kind).channel_axis
    if value is None or axis is None or value.size not in (1, site.y.shape[axis]):
        return None
    return value.astype(np.int64).reshape(-1)


def _c_factor(site: Site, argument: Expr) -> str:
    """Returns a multiplier or shift for channel `c` in C."""
    if isinstance(argument, Const):
        return str(int(argument.value))
    assert isinstance(argument, Arg)
    type_ = site.types[site.op.epilogue_start + argument.index - 1]
    # An operand of one element is read at index 0, one with an element per channel at index c. With one pixel and one
    # channel it is both: index c, so that at -O size the call shares the kernel of calls with more channels.
    return f"e{argument.index}[{'c' if type_.size != 1 or type_.size == site.y.size else '0'}]"


def _is_int8(site: Site, argument: Expr) -> bool:
    """Returns whether an operand of the epilogue has elements of int8."""
    return isinstance(argument, Arg) and site.types[site.op.epilogue_start + argument.index - 1].dtype == "int8"


def greatest_sum(site: Site, zeros: tuple[int, int], outputs_first: bool) -> int | None:
    """Returns the greatest magnitude of a sum of products and its bias; None if weights or bias are unknown. zeros:
    zero points of x and of the weights."""
    weights, bias = site.values.get(1), site.values.get(2) if site.has(2) else np.zeros(1)
    if weights is None or bias is None or not weights.size:
        return None
    rows = weights if outputs_first else weights.T
    rows = rows.reshape(rows.shape[0], -1).astype(np.int64) - zeros[1]
    limits = np.iinfo(site.x.dtype)
    products = [rows * (limit - zeros[0]) for limit in (limits.min, limits.max)]
    upper = np.maximum(*products).sum(axis=1) + bias.reshape(-1).astype(np.int64)
    lower = np.minimum(*products).sum(axis=1) + bias.reshape(-1).astype(np.int64)
    return int(max(upper.max(), -lower.min()))
