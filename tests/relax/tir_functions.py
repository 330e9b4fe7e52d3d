# SPDX-License-Identifier: Apache-2.0
"""TIR functions for the tests: one a construct that has to be printed, and one a construct that is refused."""

from __future__ import annotations

from tvm import te, tirx
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def running_while(x: T.Buffer((7, 9), "float32"), y: T.Buffer((7,), "int64")):
    """The first place in each row where the sum of the elements before passes 1."""
    for i in T.parallel(7):
        total = T.alloc_buffer((1,), "float32", scope="local")
        j = T.alloc_buffer((1,), "int64", scope="local")
        total[0] = T.float32(0)
        j[0] = T.int64(0)
        while j[0] < T.int64(9) and total[0] < T.float32(1):
            total[0] = total[0] + x[i, j[0]]
            j[0] = j[0] + T.int64(1)
        y[i] = j[0]


@T.prim_func(s_tir=True)
def branches(x: T.Buffer((5, 11), "float32"), y: T.Buffer((5, 11), "float32")):
    for i, j in T.grid(5, 11):
        if i == 0:
            y[i, j] = x[i, j]
        else:
            if j % 3 == 1:
                y[i, j] = x[i - 1, j] * T.float32(0.5)
            else:
                y[i, j] = T.max(x[i, j], x[4 - i, 10 - j])


@T.prim_func(s_tir=True)
def reduced_in_the_middle(x: T.Buffer((6, 4, 5), "float32"), y: T.Buffer((6, 5), "float32")):
    """The loop of the reduction is outside one of the others."""
    for i, k, j in T.grid(6, 4, 5):
        with T.sblock("sum"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                y[vi, vj] = T.float32(1)
            y[vi, vj] = y[vi, vj] + x[vi, vk, vj]


@T.prim_func(s_tir=True)
def guarded_block(x: T.Buffer((13,), "float32"), y: T.Buffer((13,), "float32")):
    """Loops that were split: the last turns of the inner one are left out."""
    for outer, inner in T.grid(4, 4):
        with T.sblock("guarded"):
            T.where(outer * 4 + inner < 13)
            v = T.axis.spatial(13, outer * 4 + inner)
            y[v] = x[12 - v] + T.float32(2)


@T.prim_func(s_tir=True)
def bytes_that_wrap(a: T.Buffer((33,), "int8"), b: T.Buffer((33,), "int8"), y: T.Buffer((33,), "int8"),
                    z: T.Buffer((33,), "uint8")):
    for i in T.vectorized(33):
        y[i] = a[i] * b[i] - (a[i] + a[i])
        z[i] = T.Cast("uint8", T.max(a[i], b[i])) + T.uint8(200)


@T.prim_func(s_tir=True)
def words_that_wrap(a: T.Buffer((17,), "int32"), b: T.Buffer((17,), "int64"), y: T.Buffer((17,), "int32"),
                    z: T.Buffer((17,), "int64"), u: T.Buffer((17,), "uint16")):
    for i in T.unroll(17):
        y[i] = a[i] * a[i] + (a[i] << 3) - (a[i] >> 2)
        z[i] = b[i] * b[i] - T.Cast("int64", a[i])
        u[i] = T.Cast("uint16", a[i]) * T.Cast("uint16", a[i])


@T.prim_func(s_tir=True)
def quotients(a: T.Buffer((24,), "int32"), b: T.Buffer((24,), "int32"), y: T.Buffer((4, 24), "int32")):
    for i in range(24):
        y[0, i] = T.floordiv(a[i], b[i])
        y[1, i] = T.floormod(a[i], b[i])
        y[2, i] = T.truncdiv(a[i], b[i])
        y[3, i] = T.truncmod(a[i], b[i])


@T.prim_func(s_tir=True)
def truth(a: T.Buffer((21,), "bool"), b: T.Buffer((21,), "float32"), y: T.Buffer((21,), "bool"),
          z: T.Buffer((21,), "int64")):
    for i in range(21):
        y[i] = (a[i] and b[i] > T.float32(0)) or (not a[i] and b[i] < T.float32(-1))
        z[i] = T.Select(a[i], T.Cast("int64", i), T.int64(-1)) \
            + T.Cast("int64", T.isnan(b[i] * T.float32(2)) or T.isinf(b[i]))


@T.prim_func(s_tir=True)
def conversions(x: T.Buffer((19,), "float32"), a: T.Buffer((19,), "int8"), b: T.Buffer((19,), "int32"),
                c: T.Buffer((19,), "int64"), d: T.Buffer((19,), "float64"), e: T.Buffer((19,), "float16")):
    for i in range(19):
        a[i] = T.Cast("int8", x[i])
        b[i] = T.Cast("int32", x[i] * T.float32(100))
        c[i] = T.Cast("int64", x[i] * T.float32(1000))
        d[i] = T.Cast("float64", x[i]) / T.float64(3)
        e[i] = T.Cast("float16", x[i]) * T.float16(3)


@T.prim_func(s_tir=True)
def picked(x: T.Buffer((9, 5), "float32"), index: T.Buffer((12,), "int64"), y: T.Buffer((12, 5), "float32")):
    for i, j in T.grid(12, 5):
        with T.sblock("picked"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[index[vi], vj]


@T.prim_func(s_tir=True)
def picked_where_marked(x: T.Buffer((9,), "float32"), index: T.Buffer((12,), "int32"), y: T.Buffer((12,), "float32")):
    """Lazy: an index outside is not read."""
    for i in range(12):
        y[i] = T.if_then_else(index[i] >= 0 and index[i] < 9, x[index[i]], T.float32(-1))


@T.prim_func(s_tir=True)
def added_up(x: T.Buffer((12,), "float32"), index: T.Buffer((12,), "int64"), y: T.Buffer((5,), "float32")):
    """A histogram: places that are written follow from data."""
    for i in range(5):
        y[i] = T.float32(0)
    for i in range(12):
        y[index[i]] = y[index[i]] + x[i]


@T.prim_func(s_tir=True)
def largest(x: T.Buffer((8, 10), "float32"), y: T.Buffer((8,), "int64"), z: T.Buffer((8,), "float32")):
    """A reduction of two values at once."""
    for i, k in T.grid(8, 10):
        with T.sblock("largest"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.int64(-1)
                z[vi] = T.float32(-3e38)
            at: T.let[T.int64] = T.Select(z[vi] >= x[vi, vk], y[vi], T.Cast("int64", vk))
            most: T.let[T.float32] = T.Select(z[vi] >= x[vi, vk], z[vi], x[vi, vk])
            y[vi] = at
            z[vi] = most


@T.prim_func(s_tir=True)
def temporaries(x: T.Buffer((31, 7), "float32"), y: T.Buffer((31,), "float32")):
    """Two that share memory, one that does not, one small."""
    a = T.alloc_buffer((31, 7), "float32")
    b = T.alloc_buffer((31, 7), "float32")
    c = T.alloc_buffer((31, 7), "float32")
    few = T.alloc_buffer((3,), "float32")
    for i, j in T.grid(31, 7):
        a[i, j] = x[30 - i, j] * T.float32(2)
    for i, j in T.grid(31, 7):
        b[i, j] = a[i, 6 - j] + a[30 - i, j]
    for i, j in T.grid(31, 7):
        c[i, j] = b[i, j] * b[30 - i, j]
    for j in range(3):
        few[j] = c[j, j]
    for i in range(31):
        y[i] = c[i, 3] + few[i % 3]


@T.prim_func(s_tir=True)
def stops_early(x: T.Buffer((6, 8), "float32"), y: T.Buffer((6,), "float32")):
    for i in range(6):
        y[i] = T.float32(0)
        for j in range(8):
            if x[i, j] < T.float32(-1.5):
                break
            if x[i, j] < T.float32(0):
                continue
            y[i] = y[i] + x[i, j]


@T.prim_func(s_tir=True)
def functions(x: T.Buffer((15,), "float32"), y: T.Buffer((15,), "float32"), z: T.Buffer((15,), "float64"),
              h: T.Buffer((15,), "float16")):
    for i in range(15):
        y[i] = T.exp(T.sin(x[i])) + T.tanh(x[i]) * T.sqrt(T.abs(x[i])) - T.log(x[i] * x[i] + T.float32(1)) \
            + T.sigmoid(x[i]) + T.atan2(x[i], T.float32(-0.5)) + T.floor(x[i]) + T.ceil(x[i]) * T.trunc(x[i]) \
            + T.pow(T.abs(x[i]), T.float32(1.5)) + T.nearbyint(x[i]) + T.exp2(x[i]) + T.erf(x[i])
        z[i] = T.rsqrt(T.Cast("float64", x[i]) * T.Cast("float64", x[i]) + T.float64(0.25)) + T.float64(1e-300)
        h[i] = T.exp(T.Cast("float16", x[i])) + T.float16(0.1)


@T.prim_func(s_tir=True)
def signs_of_zeros(x: T.Buffer((64,), "float32"), y: T.Buffer((3, 64), "float32")):
    """Numbers between -1 and 0 are rounded to -0."""
    for i in range(64):
        y[0, i] = T.copysign(T.float32(1), T.ceil(x[i] * T.float32(0.25)))
        y[1, i] = T.copysign(T.float32(1), T.trunc(x[i] * T.float32(0.25)))
        y[2, i] = T.copysign(T.float32(1), T.nearbyint(x[i] * T.float32(0.25)))


@T.prim_func(s_tir=True)
def ties_to_even(x: T.Buffer((5,), "float32"), y: T.Buffer((5,), "float32"), z: T.Buffer((5,), "float64")):
    for i in range(5):
        y[i] = T.round(x[i] - x[i] + T.float32(2.5))
        z[i] = T.round(T.Cast("float64", x[i] - x[i]) - T.float64(0.5))


@T.prim_func(s_tir=True)
def reads_the_iteration_before(x: T.Buffer((40, 3), "float32"), most: T.Buffer((40,), "float32"),
                               y: T.Buffer((40,), "float32")):
    """The axes of all blocks are spatial, but iterations are not independent."""
    for i in range(40):
        for k in range(3):
            with T.sblock("most"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    most[v] = T.float32(-9)
                most[v] = T.max(most[v], x[v, r])
        with T.sblock("steps"):
            v = T.axis.spatial(40, i)
            y[v] = most[v] - most[T.max(v - 1, 0)]


PRINTED: dict[str, tirx.PrimFunc] = {
    function.attrs.get("global_symbol", ""): function for function in (
        running_while, branches, reduced_in_the_middle, guarded_block, bytes_that_wrap, words_that_wrap, quotients,
        truth, conversions, picked, picked_where_marked, added_up, largest, temporaries, stops_early, functions,
        signs_of_zeros, ties_to_even, reads_the_iteration_before)}


@T.prim_func(s_tir=True)
def calls_a_library(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    T.evaluate(T.call_extern("int32", "memcpy", y.data, x.data, 16))


@T.prim_func(s_tir=True)
def of_bfloat16(x: T.Buffer((4,), "bfloat16"), y: T.Buffer((4,), "bfloat16")):
    for i in range(4):
        y[i] = x[i]


@T.prim_func(s_tir=True)
def on_threads(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="threadIdx.x"):
        y[i] = x[i]


@T.prim_func(s_tir=True)
def counts_bits(x: T.Buffer((4,), "int32"), y: T.Buffer((4,), "int32")):
    for i in range(4):
        y[i] = T.popcount(x[i])


def nested() -> tirx.PrimFunc:
    """Choices within each other, three hundred of them."""
    def choice(i):
        found = x[i]
        for number in range(300):
            found = tirx.if_then_else(x[i] > float(number), found, x[i] * float(number))
        return found

    x = te.placeholder((4,), "float32")
    return te.create_prim_func([x, te.compute((4,), choice)])


def quotients_of_truth_values() -> tirx.PrimFunc:
    """As TVM lowers `relax.divide` of bool."""
    x = te.placeholder((4,), "bool")
    return te.create_prim_func([x, te.compute((4,), lambda i: tirx.Div(x[i], x[3 - i]))])


def of_a_gpu(name: str) -> tirx.PrimFunc:
    """An intrinsic that is not TIR's function of the same name."""
    x = te.placeholder((8, 64), "float32")
    return te.create_prim_func([x, te.compute((8, 64), lambda i, j: tirx.call_intrin("float32", name, x[i, j]))])


#: Functions and a word of the reason that they are refused with.
REFUSED = {"call_extern": calls_a_library, "bfloat16": of_bfloat16, "threads": on_threads, "popcount": counts_bits,
           "within each other": nested(), "there is no div of bool": quotients_of_truth_values(),
           **{name: of_a_gpu(name) for name in ("tirx.ptx.sqrt", "tirx.ptx.tanh")}}
