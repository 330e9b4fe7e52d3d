# SPDX-License-Identifier: Apache-2.0
"""Samplers in C (c_runtime/lm) against Python, on this machine and in emulators."""

from __future__ import annotations

import ctypes
import hashlib
import shutil

import numpy as np
import pytest

from tests.compiled.runtime.test_runtime import CC, FLAGS, ROOT, SANITIZE, call, has_flags
from tvm_megcc.errors import MegccError
from tvm_megcc.tools.lm.sampling import Sampling, choose, log_probability

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CC is None, reason="there is no C compiler")]
SOURCE = ROOT / "lm" / "megcc_sampler.c"


class _Sampler(ctypes.Structure):
    _fields_ = [("temperature", ctypes.c_float), ("top_p", ctypes.c_float), ("min_p", ctypes.c_float),
                ("repetition_penalty", ctypes.c_float), ("top_k", ctypes.c_uint32), ("seed", ctypes.c_uint64),
                ("draws", ctypes.c_uint64)]


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    library = tmp_path_factory.mktemp("sampler") / "sampler.so"
    call([CC, *FLAGS, f"-I{SOURCE.parent}", "-fPIC", "-shared", SOURCE, "-o", library])
    functions = ctypes.CDLL(str(library))
    functions.megcc_sampler_choose.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p]
    functions.megcc_sampler_choose.restype = ctypes.c_uint32
    functions.megcc_sampler_is_valid.argtypes = [ctypes.c_void_p]
    functions.megcc_sampler_log_probability.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]
    functions.megcc_sampler_log_probability.restype = ctypes.c_float
    return functions


def drawn(draw: np.random.Generator) -> tuple[np.ndarray, Sampling]:
    """Logits, some of them equal or strange, and options."""
    count = int(draw.choice([1, 2, 5, 100, 1000, 5000]))
    logits = draw.normal(0, draw.choice([0.01, 1, 5, 100]), count).astype(np.float32)
    if draw.random() < 0.4:
        logits = np.round(logits * 2) / 2
    if draw.random() < 0.1:
        strange = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-40, -0.0], np.float32)
        logits[draw.integers(0, count, 3)] = draw.choice(strange, 3)
    maybe = draw.random(5) < 0.5
    return logits, Sampling(
        float(draw.choice([0, 1e-30, 1e-3, 0.3, 0.7, 1, 1.5, 1e6, 1e38])) if maybe[0] else 0.8,
        int(draw.integers(0, count + 2)) if maybe[1] else 0,
        float(draw.choice([1e-9, 0.1, 0.5, 0.9, 0.95, 0.9999999])) if maybe[2] else 1.0,
        float(draw.choice([1e-12, 0.02, 0.1, 0.9, 1])) if maybe[3] else 0.0,
        float(draw.choice([1e-3, 0.9, 1.1, 1.3, 2, 1e30])) if maybe[4] else 1.0, int(draw.integers(0, 1 << 63)))


@pytest.mark.parametrize("seed", range(10))
def test_tokens(c, seed):
    draw = np.random.default_rng(seed)
    for _ in range(100):
        logits, sampling = drawn(draw)
        before = draw.integers(0, len(logits), int(draw.integers(0, 20))).tolist()
        bits = np.zeros(len(logits) // 32 + 1, np.uint32)
        for token in before:
            bits[token // 32] |= np.uint32(1 << token % 32)
        with np.errstate(over="ignore"):
            sampler = _Sampler(*(np.float32(each) for each in (
                sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty)), sampling.top_k,
                sampling.seed, 0)
        generator = sampling.generator()
        for _ in range(5):
            given = logits.copy()
            found = c.megcc_sampler_choose(ctypes.byref(sampler), given.ctypes.data, len(given), bits.ctypes.data)
            assert found == choose(logits, before, sampling, generator), (sampling, logits)
        assert sampler.draws == generator.count


@pytest.mark.parametrize("seed", range(10))
def test_log_probabilities(c, seed):
    """The same bits in both, and what float64 says, within the bound."""
    draw = np.random.default_rng(seed)
    for _ in range(100):
        logits, _ = drawn(draw)
        token = int(draw.integers(len(logits)))
        given = logits.copy()
        found = log_probability(logits, token)
        assert found == c.megcc_sampler_log_probability(given.ctypes.data, len(given), token)
        np.testing.assert_array_equal(given, logits)
        if np.isfinite(logits).all() and np.abs(logits).max() < 1e3:
            exact = np.exp(logits.astype(np.float64) - logits.max())
            wanted = logits[token].astype(np.float64) - logits.max() - np.log(exact.sum())
            assert abs(found - wanted) <= 2.0 ** -21 + len(logits) * 2.0 ** -31 + abs(wanted) * 2.0 ** -24


@pytest.mark.parametrize("name, value", [
    *((name, value) for name in ("top_p", "min_p") for value in (-1, 1.5, float("nan"))),
    *((name, value) for name in ("temperature", "repetition_penalty") for value in (-1, float("inf"), float("nan")))])
def test_numbers_out_of_range_are_not_used(c, name, value):
    """Python refuses them, and so does a text in C, by megcc_sampler_is_valid."""
    logits = np.random.default_rng(1).normal(0, 1, 1000).astype(np.float32)
    seen, tokens = np.full(32, 0xffffffff, np.uint32), []
    for number in (0, value):
        sampler = _Sampler(**{"temperature": 1, "seed": 1, name: number})
        assert c.megcc_sampler_is_valid(ctypes.byref(sampler)) == (number == 0)
        copies = np.tile(logits, (20, 1))
        tokens.append([c.megcc_sampler_choose(ctypes.byref(sampler), given.ctypes.data, len(given), seen.ctypes.data)
                       for given in copies])
    assert tokens[0] == tokens[1]
    with pytest.raises(MegccError, match=name):
        Sampling(**{name: value})


PROGRAM = """
#include <stdio.h>
#include "megcc_sampler.h"
int main(void)
{
    static float logits[5000];
    for (uint32_t turn = 0; turn < 200; turn++) {
        megcc_sampler sampler = { 0.3f + (float)(turn % 7u) / 4.0f, 0, 0, 1.1f, 0, turn, turn };
        sampler.top_p = turn & 1u ? 0.9f : 0.0f;
        sampler.min_p = turn & 2u ? 0.01f : 0.0f;
        sampler.top_k = turn & 4u ? 40u : 0u;
        uint32_t x = turn + 1u, seen[157] = { turn, ~turn };
        for (uint32_t i = 0; i < 5000; i++) {
            x = x * 1664525u + 1013904223u;
            logits[i] = (float)(int32_t)x / 300000000.0f;
        }
        printf("%u\\n", (unsigned)megcc_sampler_choose(&sampler, logits, 5000, seen));
    }
    return 0;
}
"""
#: Compiler and flags -> the emulator. Contraction and vectors change nothing.
MACHINES = [(["gcc", "-O0"], []), (["gcc", "-O3", "-march=native", "-ffp-contract=fast"], []), (["clang", "-O2"], []),
            (["aarch64-linux-gnu-gcc", "-O2", "-static"], ["qemu-aarch64"]),
            (["arm-linux-gnueabihf-gcc", "-O2", "-static"], ["qemu-arm"]),
            (["riscv64-linux-gnu-gcc", "-O2", "-static"], ["qemu-riscv64"])]


def test_machines(tmp_path):
    (tmp_path / "p.c").write_text(PROGRAM)
    digests = {}
    for index, (compiler, emulator) in enumerate(MACHINES):
        if shutil.which(compiler[0]) and (not emulator or shutil.which(emulator[0])):
            program = tmp_path / f"p{index}"
            call([*compiler, "-std=c99", f"-I{SOURCE.parent}", tmp_path / "p.c", SOURCE, "-o", program])
            printed = call([*emulator, program])
            assert len(set(printed.split())) > 100
            digests[" ".join(compiler)] = hashlib.sha256(printed.encode()).hexdigest()
    assert len(set(digests.values())) == 1, digests


def test_sanitizers(tmp_path):
    if not has_flags(*SANITIZE):
        pytest.skip("the compiler has no sanitizers")
    (tmp_path / "p.c").write_text(PROGRAM)
    call([CC, "-std=c99", f"-I{SOURCE.parent}", *SANITIZE, tmp_path / "p.c", SOURCE, "-o", tmp_path / "p"])
    call([tmp_path / "p"])
