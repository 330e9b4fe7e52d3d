# SPDX-License-Identifier: Apache-2.0
"""The CPUs that code is generated for: a table of ISA levels, and a table of targets (CPUs as users name them).

To support an ISA, add a row to `ISAS` and the header `c_runtime/include/simd/<isa>.h`. A kernel has a portable
template, and may have overrides `<algorithm>.<isa>.c.j2`. An ISA without an override gets that of its `fallback`, or
of the fallback's fallback, else the portable template.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from pathlib import Path

from .deprecated import with_old_attributes
from .errors import MegccError


@dataclass(frozen=True)
class Pairs:
    """SIMD within a register: one scalar multiplication computes the products of two pixels with a weight.

    bits: the number of bits of the word, 32 or 64. It holds an element of each pixel: first + second * 2^(bits / 2).
    columns: the number of output channels in a tile of four pixels, as many as registers hold (MGC_COLUMNS).
    row_columns: the number of output channels in a tile of one pixel (MGC_ROW_COLUMNS).
    by_channel: whether a tile of one pixel has all weights of a channel stored before those of the next channel; else
        four weights of each channel of the tile (two if `folded`) are before the next four of each.
    folded: whether a tile of one pixel multiplies its element with the weights of two channels at once. A 32-bit word
        of the weights has the bytes w[c][k], w[c][k + 1], w[c + 1][k], w[c + 1][k + 1] of channels c and c + 1, each
        plus 128 so that it is not negative. Bytes 0 and 2 are the operand of one multiplication, bytes 1 and 3 that of
        another one.
    """

    bits: int
    columns: int
    row_columns: int
    by_channel: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Isa:
    """An instruction set level.

    name: also the suffix of kernel symbols and of template overrides.
    code: MEGCC_ISA_* in megcc_kernel.h: machine << 16 | variant of the level << 8 | level.
    lanes: float32 lanes of a vector; 1 is scalar code.
    registers: vector registers that a kernel may keep live.
    alignment: alignment of weights and arena, in bytes.
    guard: preprocessor condition under which a kernel file is compiled; it tests the machine only, because the file
        enables its ISA by itself (megcc_simd.h).
    fallback: the ISA whose template overrides apply if this one has none.
    compiler, compiler_name: preprocessor condition for compilers that support the level, and their name; "": all
        compilers for the machine do. Other compilers leave the level out.
    lane_fma: multiply-add takes one lane of a vector as an operand (NEON), so activations are loaded as vectors.
    interleaves: loads and stores transpose four vectors (ld4, st4).
    assembler: the loop over input channels of a tile is in assembler (`conv2d/neon_lanes.py`).
    int16_step: the number of int16 products that one instruction adds to a lane (megcc_integer.h).
    dot_dtype: element type of packed activations for products with int8 weights; "" if the ISA has no 8-bit products,
        and operands become int16.
    dot_step: the number of 8-bit products that one instruction adds to a lane; the summed axis is padded to a multiple.
    requantizing_stores: 8-bit stores take two or four vectors of int32, their limits and zero point
        (mgc_requantize_store4 in megcc_integer.h).
    dot_product: how Arm's tiles of integer/dot sum 8-bit products; each has a class in `integer/neon_sums.py`:
        "smull": SMULL, SMLAL and SADALP in assembler (armv8.0); "sdot": SDOT, four products a lane (armv8.2); "smmla":
        SMMLA, 2x8 times 8x2 elements (armv8.6); "smull_in_c": VMULL and VMLAL as C intrinsics (armv7).
        "": the mgc_dot_ functions of the ISA's header, as on other CPUs.
    prefetch_bytes: tiles of conv2d/direct prefetch the weights of the next tile if a tile has at most this many bytes
        of them; 0: no prefetch.
    dsp: one instruction adds two products of int16 to a sum, as Arm's DSP extension does (simd/dsp_integer.h).
    pairs: how one multiplication computes products of two pixels, on CPUs without vectors (simd/pairs_integer.h).
    helium: vectors of Helium: multiply-add takes a number from a general register as an operand (simd/helium.h), and
        instructions sum 8-bit products over a vector (simd/helium_integer.h).
    wide: a vector may be a group of registers, and one instruction adds 8-bit products to int16 (RISC-V).
    hoists_loads: an engine compiles the kernels again (V8) and moves all loads of a basic block to its start: a tile
        needs registers for every operand of a step, and steps must not be unrolled.
    saturates: an instruction adds pairs of 8-bit products as saturated int16 (kernels/integer/pmaddubsw.py).
    fused_rounding: rounding by a fused multiply-add of floats takes fewer instructions than by 64-bit products.
    float16_isa: the row of the same CPU whose vectors are of float16, for operators that are computed in float16
        (megcc_float16_math.h).
    header: the name of the level in megcc_simd.h, if it differs.
    """

    name: str
    code: int
    lanes: int
    registers: int
    alignment: int
    guard: str
    fallback: str = ""
    compiler: str = ""
    compiler_name: str = ""
    lane_fma: bool = False
    interleaves: bool = False
    assembler: bool = False
    int16_step: int = 1
    dot_dtype: str = ""
    dot_step: int = 4
    requantizing_stores: bool = False
    dot_product: str = ""
    prefetch_bytes: int = 0
    dsp: bool = False
    pairs: Pairs | None = None
    helium: bool = False
    wide: bool = False
    hoists_loads: bool = False
    saturates: bool = False
    fused_rounding: bool = False
    float16_isa: str = ""
    header: str = ""

    @property
    def is_half(self) -> bool:
        """Whether the vectors of the level are of float16."""
        return any(isa.float16_isa == self.name for isa in ISAS.values())

    @property
    def widens_16_bits(self) -> bool:
        """Whether 16-bit floats are converted to float32 in a few instructions: as vectors, or by the FPU of a core
        with DSP instructions."""
        return self.lanes > 1 or self.dsp

    @property
    def condition(self) -> str:
        """The preprocessor condition under which there is code for the level: its guard and its compiler."""
        return f"{self.guard} && {self.compiler}" if self.compiler else self.guard

    @property
    def forced_level(self) -> int:
        """The argument that makes the runtime run kernels of this level and no other. 0 stands for the levels of the
        CPU, so portable C, whose code is 0, has 1: a level that no CPU has."""
        return self.code or 1

    @property
    def rank(self) -> tuple[int, int, int]:
        """The rank among the levels of one machine: the runtime uses the kernels of the highest rank that the CPU
        supports. It is (machine, level, variant of the level)."""
        return self.code >> 16, self.code & 0xff, self.code >> 8 & 0xff


_RV64 = "defined(__riscv) && __riscv_xlen == 64"
#: RISC-V with vectors. On each of these levels a vector has 16 lanes: it is a group of 4, 2 or 1 registers of 128, 256
#: or 512 bits, and the 32 registers make 8, 16 or 32 such groups. The condition on the compiler is that of
#: megcc_simd.h.
_rvv = partial(Isa, compiler="defined(__clang__) && __clang_major__ >= 18",
             compiler_name="clang 18 or newer", wide=True)
_avx = partial(Isa, int16_step=2, prefetch_bytes=256 << 10, fused_rounding=True)
_arm64 = partial(Isa, requantizing_stores=True, lane_fma=True, interleaves=True, assembler=True)

#: The ISA levels by name. Columns: name, code, lanes, registers, alignment, guard. The tiles of WebAssembly use 13 of
#: the 15 vector registers that V8 has on x86-64.
ISAS = {isa.name: isa for isa in (
    Isa("c", 0x00000000, 1, 16, 16, "1"),
    Isa("sse2", 0x00010001, 4, 16, 64, "defined(__x86_64__)", fallback="c", int16_step=2),
    _avx("avx2", 0x00010003, 8, 16, 64, "defined(__x86_64__)", fallback="sse2", saturates=True),
    _avx("avx2_vnni", 0x00010103, 8, 16, 64, "defined(__x86_64__)", fallback="avx2", dot_dtype="uint8"),
    _avx("avx512", 0x00010004, 16, 32, 64, "defined(__x86_64__)", fallback="avx2", saturates=True),
    _avx("avx512_vnni", 0x00010005, 16, 32, 64, "defined(__x86_64__)", fallback="avx512", dot_dtype="uint8"),
    _arm64("neon", 0x00020001, 4, 32, 16, "defined(__aarch64__)", fallback="c", dot_dtype="int8", dot_step=16,
           dot_product="smull"),
    _arm64("neon_v82", 0x00020002, 4, 32, 16, "defined(__aarch64__)", fallback="neon", dot_dtype="int8",
           dot_product="sdot", float16_isa="neon_v82_half"),
    Isa("neon_v82_half", 0x00020002, 8, 32, 16, "defined(__aarch64__)", fallback="c", lane_fma=True, header="neon_v82"),
    _arm64("neon_v86", 0x00020003, 4, 32, 16, "defined(__aarch64__)", fallback="neon_v82", dot_dtype="int8",
           dot_step=8, dot_product="smmla", float16_isa="neon_v86_half"),
    Isa("neon_v86_half", 0x00020003, 8, 32, 16, "defined(__aarch64__)", fallback="neon_v82_half", lane_fma=True,
        header="neon_v86"),
    Isa("neon_armv7", 0x00030001, 4, 16, 16, "defined(__arm__) && __ARM_ARCH >= 7 && __ARM_ARCH_PROFILE == 'A'",
        fallback="c", requantizing_stores=True, dot_dtype="int8", dot_step=16, dot_product="smull_in_c"),
    Isa("rv64", 0x00040001, 1, 32, 16, _RV64, fallback="c", pairs=Pairs(bits=64, columns=4, row_columns=8)),
    _rvv("rvv", 0x00040002, 16, 8, 16, _RV64, fallback="c"),
    _rvv("rvv256", 0x00040003, 16, 16, 16, _RV64, fallback="rvv"),
    _rvv("rvv512", 0x00040004, 16, 32, 16, _RV64, fallback="rvv256"),
    Isa("rv32", 0x00060001, 1, 32, 16, "defined(__riscv) && __riscv_xlen == 32", fallback="c",
        pairs=Pairs(bits=32, columns=4, row_columns=16, folded=True)),
    Isa("cortex_m0", 0x00070001, 1, 16, 16, "defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)", fallback="c",
        pairs=Pairs(bits=32, columns=1, row_columns=4, by_channel=True)),
    Isa("cortex_m3", 0x00080001, 1, 16, 16, "defined(__ARM_ARCH_7M__)", fallback="c",
        pairs=Pairs(bits=32, columns=1, row_columns=8)),
    Isa("cortex_m4", 0x00050001, 1, 32, 16, "defined(__ARM_ARCH_7EM__)", fallback="c", dsp=True),
    Isa("cortex_m33", 0x00090001, 1, 32, 16, "defined(__ARM_ARCH_8M_MAIN__) && defined(__ARM_FEATURE_DSP)",
        fallback="cortex_m4", dsp=True),
    Isa("cortex_m55", 0x00090002, 4, 8, 16, "defined(__ARM_FEATURE_MVE)", fallback="c", helium=True,
        float16_isa="cortex_m55_half"),
    Isa("cortex_m55_half", 0x00090002, 8, 8, 16, "defined(__ARM_FEATURE_MVE)", fallback="c", helium=True,
        header="cortex_m55"),
    Isa("wasm32", 0x000A0001, 1, 16, 16, "defined(__wasm__)", fallback="c"),
    Isa("simd128", 0x000A0002, 4, 13, 16, "defined(__wasm_simd128__)", fallback="c", int16_step=2, hoists_loads=True),
    Isa("relaxed_simd", 0x000A0003, 4, 13, 16, "defined(__wasm_relaxed_simd__)", fallback="simd128", int16_step=2,
        hoists_loads=True),
)}


@with_old_attributes
@dataclass(frozen=True)
class Target:
    """A CPU as the user names it.

    name: such as "cortex-m4".
    isa: the level of instructions that kernels are written for.
    description: the CPU in words, such as "Cortex-M4 with FPU, bare metal".
    machine: the operating system's name of the machine; the levels of one machine share a compiler.
    triples: prefixes of cross compilers; the first that is installed is used; empty: the host's compiler.
    zig, zig_cpu: target and CPU for `zig cc`.
    cflags: flags for every file of the build.
    qemu: the emulator; "" if it does not have the level's instructions, such as AVX-512.
    cpu: the CPU that the emulator is told to be: the oldest one of this level, so that newer instructions fail.
    features: LLVM's names of the level's features, for TVM's part of a module.
    clang: clang's name of the target; clang compiles for it if the target's C library is installed.
    bare_metal: a microcontroller without an operating system.
    l1, l2: sizes of the data caches in bytes, for which kernels choose blocks; 0: no cache.
    l1_ways: lines of a set of L1, whose other lines are l1 / l1_ways bytes apart; 0: CPUs of the level differ.
    """

    name: str
    isa: Isa
    machine: str
    description: str
    triples: tuple[str, ...] = ()
    zig: str = ""
    cflags: tuple[str, ...] = ()
    qemu: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    zig_cpu: str = "baseline"
    clang: str = ""
    bare_metal: bool = False
    l1: int = 32 << 10
    l2: int = 256 << 10
    l1_ways: int = 0

    def __str__(self) -> str:
        return self.name

    def rows_in_l1(self, stride: int) -> int:
        """Returns the maximum of equally spaced rows of which L1 holds a line each; 0: unknown. More rows evict each
        other, although L1 has space. stride: bytes from one row to the next."""
        if not self.l1_ways or not self.l1:
            return 0
        way = self.l1 // self.l1_ways   # addresses that are a multiple of this apart compete for the lines of one set
        sets = way // gcd(stride, way)  # after so many rows the next one is in the set of the first
        return self.l1_ways * sets

    @property
    def float16_target(self) -> Target | None:
        """Returns the same CPU with vectors of float16, if it has them."""
        return replace(self, isa=ISAS[self.isa.float16_isa]) if self.isa.float16_isa else None

    @property
    def pointer_bytes(self) -> int:
        """The bytes of a pointer; 8 for an unknown CPU."""
        return 4 if self.machine in ("thumb", "arm", "riscv32", "wasm32") else 8


def _cortex_m(name: str, isa: str, description: str, cpu: str, fpu: str = "", *others: str) -> Target:
    """Returns a target of a Cortex-M core. cpu, fpu, others: flags of the compiler; fpu is "" for a core without
    FPU."""
    flags = (f"-mfloat-abi={'hard' if fpu else 'soft'}", *([fpu] if fpu else []))
    return Target(name, ISAS[isa], "thumb", f"{description}, bare metal", ("arm-none-eabi-",),
                  cflags=("-mthumb", cpu, *flags, *others), qemu="qemu-system-arm", bare_metal=True, l1=0, l2=0)


def _wasm(name: str, isa: str, description: str, *vectors: str) -> Target:
    """Returns a target of WebAssembly, without threads. vectors: features that the engine must have, besides those that
    all engines have had since 2021."""
    features = ("bulk-memory", "nontrapping-fptoint", "sign-ext", *vectors)
    return Target(name, ISAS[isa], "wasm32", description, triples=("wasm32-wasi-", "wasm32-wasip1-"),
                  zig="wasm32-wasi", cflags=(*(f"-m{feature}" for feature in features), "-DMEGCC_NO_THREADS"),
                  qemu="node",
                  features=tuple(f"+{feature}" for feature in features), clang="wasm32-wasi", l2=512 << 10,
                  zig_cpu="+".join(["generic", *(name.replace("-", "_") for name in features)]))


def _riscv64_v(name: str, isa: str, bits: int) -> Target:
    """Returns a target of RISC-V with vectors. bits: the shortest vector register of a CPU of the level."""
    return Target(name, ISAS[isa], "riscv64", f"64-bit RISC-V with vectors (V 1.0, RVA23) of {bits} bits or more",
                  triples=("riscv64-linux-gnu-", "riscv64-linux-musl-"), zig="riscv64-linux-musl", qemu="qemu-riscv64",
                  cpu=f"rv64,v=true,vext_spec=v1.0,vlen={bits}", features=("+m", "+a", "+f", "+d", "+c", "+v"),
                  clang="riscv64-linux-gnu")


def _riscv32(name: str, extensions: str, abi: str) -> Target:
    """Returns a target of a RISC-V microcontroller. extensions: those of -march, such as "imc"."""
    description = f"32-bit RISC-V microcontrollers (RV32{extensions.upper()}), bare metal"
    return Target(name, ISAS["rv32"], "riscv32", description,
                  ("riscv64-unknown-elf-", "riscv32-unknown-elf-", "riscv-none-elf-"),
                  cflags=(f"-march=rv32{extensions}", f"-mabi={abi}"), qemu="qemu-system-riscv32", bare_metal=True,
                  l1=0, l2=0)


_ARM64 = ("aarch64-linux-gnu-", "aarch64-linux-musl-")

#: The targets by name. Columns: name, ISA, machine, description, triples, zig, cflags.
TARGETS = {target.name: target for target in (
    Target("c", ISAS["c"], "any", "portable C99, no SIMD; any CPU"),
    Target("x86-64", ISAS["sse2"], "x86_64", "any 64-bit x86 (SSE2)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", qemu="qemu-x86_64"),
    Target("x86-64-v3", ISAS["avx2"], "x86_64", "x86 with AVX2 and FMA (Haswell, Zen, 2013 on)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", qemu="qemu-x86_64", cpu="max", l1=32 << 10, l2=512 << 10,
           l1_ways=8),
    Target("x86-64-v3-vnni", ISAS["avx2_vnni"], "x86_64", "x86 with AVX2 and AVX-VNNI (Alder Lake, Zen 5 on)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", l1=32 << 10, l2=512 << 10, l1_ways=8),
    Target("x86-64-v4", ISAS["avx512"], "x86_64", "x86 with AVX-512 (Skylake-X, Ice Lake, Zen 4 on)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", l1=32 << 10, l2=1 << 20, l1_ways=8),
    Target("x86-64-v4-vnni", ISAS["avx512_vnni"], "x86_64", "x86 with AVX-512 and VNNI (Ice Lake, Zen 4 on)",
           ("x86_64-linux-gnu-",), "x86_64-linux-musl", l1=32 << 10, l2=1 << 20, l1_ways=8),
    Target("arm64", ISAS["neon"], "aarch64", "64-bit Arm with NEON (armv8.0 and later)",
           _ARM64, "aarch64-linux-musl", l2=512 << 10, qemu="qemu-aarch64", cpu="cortex-a57", features=("+neon",)),
    Target("arm64-v82", ISAS["neon_v82"], "aarch64", "armv8.2 (Cortex-A55, A76, 2018 on): with 8-bit dot products",
           _ARM64, "aarch64-linux-musl", l2=512 << 10, qemu="qemu-aarch64", cpu="cortex-a76",
           features=("+v8.2a", "+neon", "+fullfp16", "+dotprod")),
    Target("arm64-v86", ISAS["neon_v86"], "aarch64", "armv8.6 (Cortex-A510, X2, 2021 on): with products of matrices",
           _ARM64, "aarch64-linux-musl", l2=512 << 10, qemu="qemu-aarch64", cpu="max",
           features=("+v8.6a", "+neon", "+fullfp16", "+dotprod", "+i8mm", "+bf16")),
    Target("armv7", ISAS["neon_armv7"], "arm", "32-bit Arm with NEON and VFPv4 (Cortex-A5, A7, A15, A17)",
           ("arm-linux-gnueabihf-", "arm-linux-musleabihf-"), "arm-linux-musleabihf",
           ("-mfpu=neon-vfpv4",), qemu="qemu-arm", cpu="cortex-a7", features=("+v7", "+neon", "+vfp4"),
           zig_cpu="baseline+neon+vfp4"),
    Target("riscv64", ISAS["rv64"], "riscv64", "64-bit RISC-V (RV64GC); scalar code, no vector extension",
           ("riscv64-linux-gnu-", "riscv64-linux-musl-"), "riscv64-linux-musl", qemu="qemu-riscv64", cpu="rv64",
           features=("+m", "+a", "+f", "+d", "+c")),
    _riscv64_v("riscv64-v", "rvv", 128),
    _riscv64_v("riscv64-v256", "rvv256", 256),
    _riscv64_v("riscv64-v512", "rvv512", 512),
    Target("cortex-m4", ISAS["cortex_m4"], "thumb", "Cortex-M4F microcontrollers, bare metal",
           ("arm-none-eabi-",), "thumb-freestanding-eabihf",
           ("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
           qemu="qemu-system-arm", bare_metal=True, l1=0, l2=0),
    _cortex_m("cortex-m0plus", "cortex_m0", "Cortex-M0 and M0+ microcontrollers", "-mcpu=cortex-m0plus"),
    _cortex_m("cortex-m3", "cortex_m3", "Cortex-M3 microcontrollers", "-mcpu=cortex-m3"),
    _cortex_m("cortex-m23", "cortex_m0", "Cortex-M23 microcontrollers", "-mcpu=cortex-m23"),
    _cortex_m("cortex-m4-soft", "cortex_m4", "Cortex-M4 microcontrollers without FPU", "-mcpu=cortex-m4"),
    _cortex_m("cortex-m7", "cortex_m4", "Cortex-M7 microcontrollers", "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16",
              "-DMEGCC_DUAL_ISSUE"),
    _cortex_m("cortex-m33", "cortex_m33", "Cortex-M33 and M35P microcontrollers with DSP and FPU",
              "-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16"),
    _cortex_m("cortex-m55", "cortex_m55", "Cortex-M55 microcontrollers (Helium)", "-mcpu=cortex-m55",
              "-mfpu=auto"),
    # gcc 12 does not know these two cores by -mcpu.
    _cortex_m("cortex-m52", "cortex_m55", "Cortex-M52 microcontrollers (Helium)", "-march=armv8.1-m.main+mve.fp+fp.dp",
              "-mfpu=auto"),
    _cortex_m("cortex-m85", "cortex_m55", "Cortex-M85 microcontrollers (Helium)", "-march=armv8.1-m.main+mve.fp+fp.dp",
              "-mfpu=auto"),
    _riscv32("riscv32", "imc", "ilp32"),
    _riscv32("riscv32-f", "imafc", "ilp32f"),
    _wasm("wasm32", "wasm32", "WebAssembly without vectors"),
    _wasm("wasm32-simd128", "simd128", "WebAssembly with vectors (browsers since 2021, Safari 16.4)", "simd128"),
    _wasm("wasm32-relaxed", "relaxed_simd", "WebAssembly with relaxed SIMD (Chrome 114, node 22)", "simd128",
          "relaxed-simd"),
)}


#: Common names of CPUs -> names of targets. Cores without kernels of their own run portable C.
_ALIASES = (
    (r"amd64|x64|x86|x86_64|i[3-6]86|sse\d?.*", "x86-64"), (r"avx2|haswell|zen\d?", "x86-64-v3"),
    (r"avx512.*|skylake.*", "x86-64-v4"), (r"aarch64|armv8.*|neon|cortex-?a\d+|apple.*|rpi[345]|raspberry.*", "arm64"),
    (r"armv7.*|armhf|arm", "armv7"), (r"riscv|rv64.*", "riscv64"), (r"rvv.*", "riscv64-v"),
    (r"rv32.*", "riscv32"), (r"wasm.*|web.*", "wasm32-simd128"), (r"(cortex-?)?m(0|0\+|1)", "cortex-m0plus"),
    (r"(cortex-?)?m3", "cortex-m3"), (r"(cortex-?)?m4.*", "cortex-m4"), (r"(cortex-?)?m7.*", "cortex-m7"),
    (r"(cortex-?)?m3[35]p?", "cortex-m33"), (r"(cortex-?)?m55.*|helium|mve", "cortex-m55"),
    (r"(cortex-?)?m52.*", "cortex-m52"), (r"(cortex-?)?m85.*", "cortex-m85"),
    (r"stm32[fgl]0.*|rp2040|pico|samd21.*", "cortex-m0plus"), (r"stm32(f1|f2|l1).*", "cortex-m3"),
    (r"stm32(f3|f4|g4|l4).*|nrf52.*|samd51.*", "cortex-m4"),
    (r"stm32[fh]7.*|teensy.*", "cortex-m7"), (r"stm32[hlu]5.*|nrf53.*|nrf91.*|rp2350|pico2", "cortex-m33"),
    (r"esp32.*|esp8266|avr.*|(cortex-?)?m\d+|portable|generic|any", "c"))


def closest_target(name: str) -> str:
    """Returns the target that an unknown name probably means: by `_ALIASES`, else by spelling; "" if there is none."""
    import difflib  # here, since this module is part of `import tvm`

    small = name.lower()
    alias_of = next((target for pattern, target in _ALIASES if re.fullmatch(pattern, small)), "")
    return alias_of or next(iter(difflib.get_close_matches(small, ["native", *TARGETS], 1, 0.7)), "")


def parse_targets(text: str) -> tuple[Target, ...]:
    """Parses `"native,arm64"` as targets, the best ISA level of a machine first.

    Raises:
        MegccError: for a name that is not in the table.
    """
    targets = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        name = name.removeprefix("megcc-")
        target = native() if name == "native" else TARGETS.get(name)
        if target is None:
            similar = closest_target(name)
            raise MegccError(f"unknown target '{name}'{f', did you mean {similar}?' if similar else ';'} one of: "
                             f"native, {', '.join(TARGETS)}. For CPUs that have none of their own there is portable "
                             "C: c")
        if target not in targets:
            targets.append(target)
    if not targets:
        raise MegccError("no target given; 'megcc list targets' shows them")
    return tuple(sorted(targets, key=lambda target: target.isa.rank, reverse=True))


#: Flags of x86-64-v4.
_AVX512 = {"avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"}
#: Machine -> (target, flags of /proc/cpuinfo that a CPU must have to run it), best target first. The file does not have
#: the length of RISC-V's vectors: the runtime asks the CPU, and runs the best program in the container.
_REQUIRED_FLAGS = {
    "x86_64": (("x86-64-v4-vnni", {*_AVX512, "avx512_vnni"}), ("x86-64-v4", _AVX512),
               ("x86-64-v3-vnni", {"avx2", "fma", "avx_vnni"}), ("x86-64-v3", {"avx2", "fma"}), ("x86-64", set())),
    "aarch64": (("arm64-v86", {"asimdhp", "asimddp", "i8mm", "bf16"}), ("arm64-v82", {"asimdhp", "asimddp"}),
                ("arm64", set())),
    "arm": (("armv7", {"neon", "vfpv4"}),),
    "riscv64": (("riscv64-v", {"v"}), ("riscv64", set())),
}


def machine() -> str:
    """Returns the machine of this process, with the names of `Target.machine`."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "arm", "armv8l": "arm"}.get(name, name)


def native() -> Target:
    """Returns the best target that the CPU of this process runs."""
    flags = _cpu_flags()
    return next((TARGETS[name] for name, needed in _REQUIRED_FLAGS.get(machine(), ()) if needed <= flags), TARGETS["c"])


def runs(target: Target) -> bool:
    """Returns whether the CPU of this process has the features of the target."""
    flags = _cpu_flags()
    return any(name == target.name and needed <= flags for name, needed in _REQUIRED_FLAGS.get(machine(), ()))


def _cpu_flags() -> set[str]:
    """Returns the features of the CPU as /proc/cpuinfo names them; on RISC-V the names of extensions."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return set()
    for line in cpuinfo.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.split(":", 1)[1].split())
        if line.startswith("isa"):
            # As in rv64imafdcv_zicsr: letters, and longer names.
            letters, *names = line.split(":", 1)[1].strip().split("_")
            return {*letters[len("rv64"):], *names}
    return set()
