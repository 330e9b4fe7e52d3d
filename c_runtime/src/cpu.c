/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects the features of the running CPU. Where user code can ask the CPU or the system, it does, unless
 * MEGCC_NO_CPU_DETECT is defined; everywhere else the answer is what this file is compiled for.
 */
#include "internal.h"

#if !defined(MEGCC_NO_CPU_DETECT) && defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <cpuid.h>

/* Features of the levels x86-64-v3 and x86-64-v4 (System V ABI for x86-64, 3.1.1): bits of ECX of CPUID leaf 1, and of EBX of
 * leaf 7. */
#define V3_ECX (bit_FMA | bit_MOVBE | bit_F16C | bit_OSXSAVE | bit_AVX)
#define V3_EBX (bit_AVX2 | bit_BMI | bit_BMI2)
#define V4_EBX (bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL)
/* Bits of CPUID leaf 7 that old versions of cpuid.h do not name. */
#define VNNI_ECX (1u << 11)         /* AVX512_VNNI */
#define AVX_VNNI_EAX (1u << 4)      /* AVX-VNNI, in leaf 7.1 */
#define AVX_VNNI (MEGCC_ISA_X86_64_V3_VNNI & 0xff00u)   /* its bit, without those of the level */

uint32_t megcc_cpu(void)
{
    uint32_t eax, ebx, ecx, edx, unused, state, high, leaf_7_1 = 0;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & V3_ECX) != V3_ECX
        || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (ebx & V3_EBX) != V3_EBX) {
        return MEGCC_ISA_X86_64;
    }
    /* XCR0 says which registers the system saves on a context switch: bit 1 SSE, bit 2 AVX, bits 5 to 7 AVX-512. */
    __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    if ((state & 0x06u) != 0x06u) {
        return MEGCC_ISA_X86_64;
    }
    /* EAX of leaf 7 is its last subleaf. */
    if (eax > 0u) {
        __get_cpuid_count(7, 1, &leaf_7_1, &unused, &unused, &edx);
    }
    const uint32_t avx_vnni = (leaf_7_1 & AVX_VNNI_EAX) != 0u ? AVX_VNNI : 0u;
    if ((ebx & V4_EBX) != V4_EBX || (state & 0xE0u) != 0xE0u) {
        return MEGCC_ISA_X86_64_V3 | avx_vnni;
    }
    return ((ecx & VNNI_ECX) != 0u ? MEGCC_ISA_X86_64_V4_VNNI : MEGCC_ISA_X86_64_V4) | avx_vnni;
}

#elif !defined(MEGCC_NO_CPU_DETECT) && defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

/* Bits of the kernel's <asm/hwcap.h> for arm64. */
#define HWCAP_HALF_AND_DOT (1UL << 9 | 1UL << 10 | 1UL << 20)   /* FPHP, ASIMDHP, ASIMDDP */
#define HWCAP2_MATRIX (1UL << 13 | 1UL << 14)                   /* I8MM, BF16 */

uint32_t megcc_cpu(void)
{
    if ((getauxval(AT_HWCAP) & HWCAP_HALF_AND_DOT) != HWCAP_HALF_AND_DOT) {
        return MEGCC_ISA_ARM64;
    }
    return (getauxval(AT_HWCAP2) & HWCAP2_MATRIX) == HWCAP2_MATRIX ? MEGCC_ISA_ARM64_V86 : MEGCC_ISA_ARM64_V82;
}

#elif !defined(MEGCC_NO_CPU_DETECT) && defined(__arm__) && defined(__linux__)

#include <sys/auxv.h>

/* Bits of the kernel's <asm/hwcap.h> for 32-bit Arm. */
#define HWCAP_VECTORS (1UL << 12 | 1UL << 16)                   /* NEON, VFPv4 */

uint32_t megcc_cpu(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_VECTORS) == HWCAP_VECTORS ? MEGCC_ISA_ARMV7 : MEGCC_ISA_C;
}

#elif !defined(MEGCC_NO_CPU_DETECT) && defined(__riscv) && __riscv_xlen == 64 && defined(__linux__)

#include <sys/auxv.h>

#define HWCAP_V (1UL << ('v' - 'a'))

uint32_t megcc_cpu(void)
{
    unsigned long bytes;
    if ((getauxval(AT_HWCAP) & HWCAP_V) == 0) {
        return MEGCC_ISA_RISCV64;
    }
    __asm__("csrr %0, 0xc22" : "=r"(bytes));                    /* vlenb: the length of a vector register */
    return bytes >= 64 ? MEGCC_ISA_RISCV64_V512 : bytes >= 32 ? MEGCC_ISA_RISCV64_V256 : MEGCC_ISA_RISCV64_V;
}

#else

uint32_t megcc_cpu(void)
{
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__) \
    && defined(__AVX512VNNI__)
    return MEGCC_ISA_X86_64_V4_VNNI;
#elif defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
    return MEGCC_ISA_X86_64_V4;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__AVXVNNI__)
    return MEGCC_ISA_X86_64_V3_VNNI;
#elif defined(__AVX2__) && defined(__FMA__)
    return MEGCC_ISA_X86_64_V3;
#elif defined(__x86_64__) || defined(_M_X64)
    return MEGCC_ISA_X86_64;
#elif defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return MEGCC_ISA_ARM64_V86;
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
    return MEGCC_ISA_ARM64_V82;
#elif defined(__aarch64__) || defined(_M_ARM64)
    return MEGCC_ISA_ARM64;
#elif defined(__riscv) && defined(__riscv_v_min_vlen) && __riscv_v_min_vlen >= 512
    return MEGCC_ISA_RISCV64_V512;
#elif defined(__riscv) && defined(__riscv_v_min_vlen) && __riscv_v_min_vlen >= 256
    return MEGCC_ISA_RISCV64_V256;
#elif defined(__riscv) && defined(__riscv_v_min_vlen) && __riscv_xlen == 64
    return MEGCC_ISA_RISCV64_V;
#elif defined(__riscv) && __riscv_xlen == 64
    return MEGCC_ISA_RISCV64;
#elif defined(__riscv)
    return MEGCC_ISA_RISCV32;
#elif defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
    return MEGCC_ISA_CORTEX_M0;
#elif defined(__ARM_ARCH_7M__)
    return MEGCC_ISA_CORTEX_M3;
#elif defined(__ARM_ARCH_7EM__)
    return MEGCC_ISA_CORTEX_M4;
#elif defined(__ARM_FEATURE_MVE)
    return MEGCC_ISA_CORTEX_M55;
#elif defined(__ARM_ARCH_8M_MAIN__) && defined(__ARM_FEATURE_DSP)
    return MEGCC_ISA_CORTEX_M33;
#elif defined(__arm__) && defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)
    return MEGCC_ISA_ARMV7;
#elif defined(__wasm_relaxed_simd__)
    return MEGCC_ISA_WASM32_RELAXED;
#elif defined(__wasm_simd128__)
    return MEGCC_ISA_WASM32_SIMD128;
#elif defined(__wasm__)
    return MEGCC_ISA_WASM32;
#else
    return MEGCC_ISA_C;
#endif
}

#endif
