# SPDX-License-Identifier: Apache-2.0
"""The functions of megcc_math.h and megcc_double.h against numpy in a wider type, within the errors they state."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.c_flags import WARNINGS
from tvm_megcc import paths
from tvm_megcc.target import TARGETS

from .test_kernels import SANITIZE, toolchain

#: Instrumented code stops at undefined behaviour; a library cannot have the address sanitizer of its host.
UNDEFINED = [SANITIZE[0].replace("address,", ""), *SANITIZE[1:]]

erf = np.vectorize(math.erf, otypes=[np.float64])
NUMPY = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
         "atanh": np.arctanh, "erf": erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "pow": np.power, "mod": np.mod,
         "round": np.rint, "exp_nonpositive": np.exp}

#: Functions of doubles: stated error in ULP, and the interval of arguments beside those of WIDE.
DOUBLES = {"sqrt": (0.5, (0, 1e300)), "exp": (1, (-745, 709)), "log": (1, (0.5, 2)), "log1p": (2, (-0.9, 3)),
           "sin": (2, (-9, 9)), "cos": (2, (-9, 9)), "tan": (4, (-9, 9)), "asin": (4, (-1, 1)), "acos": (4, (-1, 1)),
           "atan": (2, (-9, 9)), "sinh": (4, (-710, 710)), "cosh": (4, (-710, 710)), "tanh": (4, (-20, 20)),
           "asinh": (4, (-9, 9)), "acosh": (4, (1, 3)), "atanh": (4, (-1, 1)), "erf": (8, (-6.5, 6.5)),
           "sigmoid": (4, (-700, 40)), "floor": (0, (-9, 9)), "ceil": (0, (-9, 9)), "trunc": (0, (-9, 9)),
           "round": (0, (-9, 9))}

#: Functions of vectors: stated error in ULP where the CPU has fused products, and the interval of arguments.
VECTORS = {"exp": (1.5, (-104, 89)), "log": (1.5, (0, 9)), "tanh": (2, (-12, 12)), "sigmoid": (3, (-1, 90)),
           "erf": (2, (-5, 5)), "exp_nonpositive": (1.5, (-87, 0)),
           **{name: (0.51, DOUBLES[name][1]) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh",
                                                         "atanh")},
           "sinh": (0.51, (-89, 89)), "cosh": (0.51, (-89, 89))}

SOURCE = """
#define MGC_ISA_{isa}
#include "megcc_simd.h"
#include "megcc_math.h"
#include "megcc_float16.h"
#define SCALAR(name) void d_##name(const double *x, double *y, int32_t n); \\
    void d_##name(const double *x, double *y, int32_t n) {{ for (int32_t i = 0; i < n; i++) y[i] = mgd_##name(x[i]); }}
#define PAIR(name) void p_##name(const double *x, const double *z, double *y, int32_t n); \\
    void p_##name(const double *x, const double *z, double *y, int32_t n) \\
    {{ for (int32_t i = 0; i < n; i++) y[i] = mgd_##name(x[i], z[i]); }}
#define VECTOR(name) void v_##name(const float *x, float *y, int32_t n); \\
    void v_##name(const float *x, float *y, int32_t n) \\
    {{ for (int32_t i = 0; i < n; i += MGC_LANES) mgc_store(y + i, mgc_##name(mgc_load(x + i))); }}
{functions}
void to_f16(const double *x, uint16_t *y, int32_t n);
void to_f16(const double *x, uint16_t *y, int32_t n)
    {{ for (int32_t i = 0; i < n; i++) y[i] = mgc_to_float16(x[i]); }}
void from_f16(const uint16_t *x, float *y, int32_t n);
void from_f16(const uint16_t *x, float *y, int32_t n)
    {{ for (int32_t i = 0; i < n; i++) y[i] = mgc_from_float16(x[i]); }}
void load_f16(const uint16_t *x, float *y, int32_t n);
void load_f16(const uint16_t *x, float *y, int32_t n)
    {{ for (int32_t i = 0; i < n; i += MGC_LANES) mgc_store(y + i, mgc_load_f16(x + i)); }}
void load_bf16(const uint16_t *x, float *y, int32_t n);
void load_bf16(const uint16_t *x, float *y, int32_t n)
    {{ for (int32_t i = 0; i < n; i += MGC_LANES) mgc_store(y + i, mgc_load_bf16(x + i)); }}
MGC_END
"""


@pytest.fixture(scope="module", params=["c", "x86-64-v3", *(pytest.param(name, marks=pytest.mark.slow)
                                                                 for name in ("x86-64", "x86-64-v4"))])
def library(request, tmp_path_factory):
    """The functions compiled for one ISA; attribute `isa` is its name."""
    compiler, _, _ = toolchain(request.param)
    folder: Path = tmp_path_factory.mktemp("math")
    functions = [*(f"SCALAR({name})" for name in DOUBLES), *(f"PAIR({name})" for name in ("pow", "fmod", "mod")),
                 *(f"VECTOR({name})" for name in VECTORS)]
    target = TARGETS[request.param]
    source = folder / "math.c"
    source.write_text(SOURCE.format(isa=target.isa.name.upper(), functions="\n".join(functions)))
    made = folder / "math.so"
    subprocess.run([*compiler.command, "-std=c99", "-O2", "-ffp-contract=off", *WARNINGS, *UNDEFINED, "-shared",
                    "-fPIC", f"-I{paths.c_runtime() / 'include'}", str(source), "-o", str(made)], check=True)
    loaded = ctypes.CDLL(str(made))
    loaded.isa = request.param
    return loaded


def call(library, name: str, result_dtype, *operands: np.ndarray) -> np.ndarray:
    result = np.empty(operands[0].shape, result_dtype)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, result)]
    getattr(library, name)(*pointers, ctypes.c_int32(result.size))
    return result


def arguments(interval, seed: int) -> np.ndarray:
    """4096 from an interval, and of every magnitude within it."""
    generator = np.random.default_rng(seed)
    low, high = interval
    near = generator.uniform(low, high, 2048)
    wide = generator.uniform(-1, 1, 2048) * 10.0 ** generator.uniform(-12, 0, 2048) * max(abs(low), high)
    return np.clip(np.concatenate([near, wide]), low, high)


def ulps(actual: np.ndarray, wanted: np.ndarray) -> float:
    """Largest error in units of the last place of the result's type; `wanted` is in a wider one."""
    finite = np.abs(wanted) <= np.finfo(actual.dtype).max
    unit = np.spacing(np.abs(wanted[finite]).astype(actual.dtype)).astype(np.longdouble)
    return float((np.abs(actual[finite].astype(np.longdouble) - wanted[finite]) / unit).max(initial=0))


@pytest.mark.parametrize("name", DOUBLES)
def test_functions_of_doubles(library, name: str):
    """The wider type is x86's; elsewhere numpy's own error of an ULP is allowed for."""
    stated, interval = DOUBLES[name]
    x = arguments(interval, len(name))
    wide = name not in ("erf",) and np.finfo(np.longdouble).nmant > 60
    wanted = NUMPY.get(name, getattr(np, name, None))(x.astype(np.longdouble) if wide else x)
    assert ulps(call(library, f"d_{name}", np.float64, x), wanted) <= stated + (0 if wide else 1)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_every_size(library, name: str):
    """Multiples of pi / 2, where the result nearly vanishes, and angles up to the largest double."""
    generator = np.random.default_rng(5)
    x = np.concatenate([np.arange(1, 2049) * (np.pi / 2),
                        np.ldexp(generator.uniform(-1, 1, 2048), generator.integers(10, 1023, 2048))])
    assert ulps(call(library, f"d_{name}", np.float64, x), getattr(np, name)(x)) <= DOUBLES[name][0] + 1


def test_functions_of_vectors(library):
    fused = library.isa in ("x86-64-v3", "x86-64-v4")
    for name, (stated, interval) in VECTORS.items():
        x = arguments(interval, len(name)).astype(np.float32)
        with np.errstate(all="ignore"):
            wanted = NUMPY.get(name, getattr(np, name, None))(x.astype(np.float64))
        assert ulps(call(library, f"v_{name}", np.float32, x), wanted) <= stated + (0 if fused else 1), name


def test_erf_of_all_magnitudes(library):
    """Polynomials meet at multiples of 17/64; beyond 3.92 the result is 1 and never more."""
    between = np.arange(1, 17, 2, dtype=np.float32) * np.float32(17 / 64)
    x = np.concatenate([np.arange(0x33000000, 0x40a00000, 997, dtype=np.uint32).view(np.float32),
                        *(between + offset for offset in np.float32([-1e-6, 0, 1e-6]))])
    x = np.resize(x, -(-x.size // 16) * 16)
    actual = call(library, "v_erf", np.float32, x)
    stated = 1.1 if library.isa in ("x86-64-v3", "x86-64-v4") else 3
    assert ulps(actual, erf(x.astype(np.float64))) <= stated
    assert actual.max() == 1
    np.testing.assert_array_equal(call(library, "v_erf", np.float32, -x), -actual)
    limits = np.resize(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e30, -4, -5], np.float32), 16)
    actual = call(library, "v_erf", np.float32, limits)
    np.testing.assert_array_equal(actual, np.resize(np.float32([0, -0.0, 1, -1, np.nan, 1, -1, -1]), 16))
    assert np.signbit(actual[1])


def test_exponentials_below_the_normal_numbers(library):
    x = np.resize(np.array([-87, -87.4, -103.9, -105, -1e4, -3e38, -np.inf, np.nan], np.float32), 16)
    actual, full = (call(library, f"v_{name}", np.float32, x) for name in ("exp_nonpositive", "exp"))
    assert actual[0] == full[0] > 0
    assert (actual[1:4] >= 0).all() and (actual[1:4] <= full[1:4]).all() and (actual[4:7] == 0).all()
    assert np.isnan(actual[7])


SPECIAL = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, 33, -34])


def test_special_arguments(library):
    for name in (*DOUBLES, "pow", "fmod", "mod"):
        pair = name in ("pow", "fmod", "mod")
        operands = [array.ravel().copy() for array in np.meshgrid(SPECIAL, SPECIAL)] if pair else [SPECIAL]
        with np.errstate(all="ignore"):
            wanted = NUMPY.get(name, getattr(np, name, None))(*operands)
        actual = call(library, f"{'p' if pair else 'd'}_{name}", np.float64, *operands)
        np.testing.assert_allclose(actual, wanted, rtol=1e-13, atol=0, err_msg=name)
        numbers = ~np.isnan(wanted)
        assert (np.signbit(actual) == np.signbit(wanted))[numbers].all(), name


def test_remainders_and_powers(library):
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(2048) * 10.0 ** generator.uniform(-8, 8, 2048) for _ in "ab")
    assert (call(library, "p_fmod", np.float64, a, b) == np.fmod(a, b)).all()
    assert (call(library, "p_mod", np.float64, a, b) == np.mod(a, b)).all()
    base, power = np.exp(generator.uniform(-5, 5, 2048)), generator.uniform(-30, 30, 2048)
    wanted = np.power(base.astype(np.longdouble), power)
    error = np.abs(call(library, "p_pow", np.float64, base, power) - wanted) / np.spacing(wanted.astype(np.float64))
    assert (error <= 3 + 2 * np.abs(power * np.log2(base))).all()
    whole = generator.integers(-32, 33, 4096).astype(np.float64)
    base = np.exp(generator.uniform(-22, 22, 4096) * generator.choice([1, 1e-4], 4096))
    wanted = np.power(base.astype(np.longdouble), whole)
    error = np.abs(call(library, "p_pow", np.float64, base, whole) - wanted) / np.spacing(wanted.astype(np.float64))
    assert error.max() <= 2


def test_halves(library):
    """Every half, and every rounding that a double can need."""
    every = np.arange(65536).astype(np.uint16)
    wanted = every.view(np.float16).astype(np.float32)
    for name in ("from_f16", "load_f16"):
        widened = call(library, name, np.float32, every)
        np.testing.assert_array_equal(widened, wanted)
        assert (np.signbit(widened) == np.signbit(wanted)).all()
    upper_halves = every.astype(np.uint32) << 16
    np.testing.assert_array_equal(call(library, "load_bf16", np.float32, every).view(np.uint32), upper_halves)
    generator = np.random.default_rng(4)
    halves = wanted[np.isfinite(wanted)].astype(np.float64)
    between = (halves[:-1] + halves[1:]) / 2
    x = np.concatenate([halves, between, np.nextafter(between, 1e9), np.nextafter(between, -1e9), SPECIAL,
                        generator.standard_normal(4096) * 10.0 ** generator.uniform(-9, 6, 4096)])
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16)
    actual = call(library, "to_f16", np.uint16, x).view(np.float16)
    np.testing.assert_array_equal(actual, rounded)
    assert (np.signbit(actual) == np.signbit(rounded))[~np.isnan(rounded)].all()


@pytest.mark.parametrize("header, function, unit, dtype, bits", [
    ("megcc_simd.h", "mgc_sqrt", "float", np.float32, np.uint32),
    ("megcc_double.h", "mgd_sqrt", "double", np.float64, np.uint64)])
def test_square_roots_without_an_instruction_are_rounded(header, function, unit, dtype, bits, tmp_path):
    """As a CPU without one computes them: the same bits as those that have one, of every kind of argument."""
    toolchain("c")
    source, made = tmp_path / "roots.c", tmp_path / "roots.so"
    source.write_text(f'#define MGC_ISA_C\n#include "{header}"\nvoid roots(const {unit} *x, {unit} *y, int32_t n);\n'
                      f"void roots(const {unit} *x, {unit} *y, int32_t n)\n"
                      f"{{ for (int32_t i = 0; i < n; i++) y[i] = {function}(x[i]); }}\n")
    hidden = ["-U__SSE2__", "-U__aarch64__", "-U__riscv_fsqrt", "-U__riscv_flen"]
    compiler = "gcc" if shutil.which("gcc") else "cc"
    subprocess.run([compiler, "-std=c99", "-O2", *hidden, *WARNINGS, *UNDEFINED, "-shared", "-fPIC",
                    f"-I{paths.c_runtime() / 'include'}", str(source), "-o", str(made)], check=True)
    x = np.random.default_rng(0).integers(0, np.iinfo(bits).max, 300_000, bits, endpoint=True).view(dtype)
    limits = np.finfo(dtype)
    x[:9] = 0, -0.0, limits.smallest_subnormal, limits.tiny, limits.max, np.inf, 1, 4, np.nextafter(dtype(4), dtype(0))
    with np.errstate(invalid="ignore"):
        wanted = np.sqrt(x)
    np.testing.assert_array_equal(call(ctypes.CDLL(str(made)), "roots", dtype, x), wanted)


FUSED = """
#include "megcc_simd.h"
#include <math.h>
#include <string.h>
#include <stdio.h>
static uint32_t state = 1;
static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }
static float number(int kind)
{
    union { uint32_t u; float f; } pun;
    pun.u = next() ^ next() >> 16;
    if (kind == 1)
        pun.u = (pun.u & 0x807fffffu) | ((127u + pun.u % 7u) << 23);
    if (kind == 2)
        pun.u &= 0xfff00000u;
    return pun.f;
}
int main(void)
{
    for (int i = 0; i < 600000; i++) {
        float a[MGC_LANES], b[MGC_LANES], c[MGC_LANES], y[MGC_LANES];
        for (int k = 0; k < MGC_LANES; k++) {
            a[k] = number(i % 3), b[k] = number(i % 3), c[k] = number(i % 3);
            if (i % 5 == 0)
                c[k] = -(a[k] * b[k]);
        }
        mgc_store(y, mgc_fma(mgc_load(a), mgc_load(b), mgc_load(c)));
        for (int k = 0; k < MGC_LANES; k++) {
            const float wanted = fmaf(a[k], b[k], c[k]);
            if (memcmp(&wanted, &y[k], sizeof wanted) != 0 && !(wanted != wanted && y[k] != y[k]))
                return printf("%a * %a + %a is %a, not %a\\n", a[k], b[k], c[k], wanted, y[k]);
        }
    }
    return 0;
}
MGC_END
"""


@pytest.mark.parametrize("name", ["c", "x86-64"])
def test_fused_products_without_an_instruction(name, tmp_path):
    """Against the C library, over numbers of every kind: ties, results below the normal ones, infinities."""
    compiler, _, _ = toolchain(name)
    source, program = tmp_path / "fused.c", tmp_path / "fused"
    source.write_text(f"#define MGC_ISA_{TARGETS[name].isa.name.upper()}\n{FUSED}")
    subprocess.run([*compiler.command, "-std=c99", "-O2", "-ffp-contract=off", "-DMEGCC_REPRODUCIBLE",
                    f"-I{paths.c_runtime() / 'include'}", str(source), "-o", str(program), "-lm"], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def integers_and_factors(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all magnitudes and signs; then of which products lie within some units of the last place of a half; ends."""
    x = (random.integers(-2**31, 2**31, count) >> random.integers(0, 32, count)).astype(np.int32)
    f = random.integers(0, 2**32, count, np.uint32).view(np.float32)
    f = np.where(random.integers(0, 2, count), f, np.exp2(random.uniform(-40, 3, count)).astype(np.float32))
    near = np.arange(count) >= count // 3
    x[near] = random.integers(-2**24 - 9, 2**24 + 10, near.sum())
    halves = np.floor(np.exp2(random.uniform(0, 20, near.sum()))) - 0.5
    steps = random.integers(-4, 5, near.sum(), np.int32)
    f[near] = halves / np.maximum(np.abs(x[near]), 1)
    f[near] = (f[near].view(np.int32) + steps).view(np.float32)
    x[:4] = -2**31, -2**31, 2**31 - 1, 2**24
    f[:4] = 0.4999, 2.0**-31, 2.0**-31, np.nextafter(np.float32(0.5), np.float32(0))
    return x, f


@pytest.mark.parametrize("isa", ["C", "CORTEX_M0"])
def test_rounded_products_in_integers_are_those_of_reals(isa, tmp_path):
    """As CPUs without a unit for reals compute them, by products of 64 bits and of 32."""
    toolchain("c")
    source, made = tmp_path / "products.c", tmp_path / "products.so"
    arguments = "const int32_t *x, const float *f, int32_t *y, int32_t n"
    source.write_text(f'#define MGC_ISA_{isa}\n#include "megcc_simd.h"\n#include "megcc_integer.h"\n'
                      f"void products({arguments});\nvoid products({arguments})\n"
                      f"{{ for (int32_t i = 0; i < n; i++) y[i] = mgc_nearest_by_integers(x[i], f[i]); }}\nMGC_END\n")
    subprocess.run(["gcc" if shutil.which("gcc") else "cc", "-std=c99", "-O2", "-ffp-contract=off", *WARNINGS,
                    *UNDEFINED, "-shared", "-fPIC", f"-I{paths.c_runtime() / 'include'}", str(source), "-o", str(made)],
                   check=True)
    x, f = integers_and_factors(np.random.default_rng(0), 1_000_000)
    with np.errstate(all="ignore"):
        products = x.astype(np.float32) * f
    within = np.abs(products) < 2**31 - 2**10  # false for NaN
    x, f, wanted = x[within], f[within], np.rint(products[within]).astype(np.int32)
    y = np.empty_like(x)
    ctypes.CDLL(str(made)).products(*(array.ctypes.data_as(ctypes.c_void_p) for array in (x, f, y)),
                                    ctypes.c_int32(x.size))
    np.testing.assert_array_equal(y, wanted)
    # Among them those that one rounding of the exact product would decide otherwise.
    assert (np.rint(x.astype(np.float64) * f) != wanted).sum() > 1000
