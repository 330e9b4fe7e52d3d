/* SPDX-License-Identifier: Apache-2.0
 *
 * For threads with a deadline, such as an audio callback. A run of a session allocates nothing, takes no lock (with one
 * worker) and makes no system call. But some CPUs need a hundred cycles for an operation on subnormal numbers, those
 * below 1.2e-38. In flush mode, kernels treat them as zeros and return zeros instead.
 */
#ifndef MEGCC_REALTIME_H
#define MEGCC_REALTIME_H

#include <stdint.h>
#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

/* Turns on flush mode in this thread, and returns the argument for `megcc_restore_denormals`. Does nothing on CPUs
 * without that mode, on which subnormals are not slower or do not exist. */
static inline uint32_t megcc_flush_denormals(void)
{
#if defined(__SSE__) || defined(_M_X64)
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); /* FTZ (bit 15): subnormal results become zero; DAZ (bit 6): so do operands */
    return before;
#elif defined(__aarch64__) && defined(__GNUC__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (UINT64_C(1) << 24))); /* FZ: operands and results */
    return (uint32_t)before;
#elif defined(__arm__) && defined(__ARM_FP) && defined(__GNUC__)
    uint32_t before;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(before));
    __asm__ volatile("vmsr fpscr, %0" : : "r"(before | (UINT32_C(1) << 24))); /* FZ */
    return before;
#else
    return 0;
#endif
}

/* Restores this thread's treatment of subnormals. */
static inline void megcc_restore_denormals(uint32_t before)
{
#if defined(__SSE__) || defined(_M_X64)
    _mm_setcsr(before);
#elif defined(__aarch64__) && defined(__GNUC__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before));
#elif defined(__arm__) && defined(__ARM_FP) && defined(__GNUC__)
    __asm__ volatile("vmsr fpscr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#endif
