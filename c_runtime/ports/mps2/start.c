/* SPDX-License-Identifier: Apache-2.0
 *
 * From reset to main() on a Cortex-M, or a RISC-V of 32 bits: vectors, memory, floating point, and a painted stack, so
 * that its deepest use can be read afterwards.
 */
#include "board.h"

/* Defined by link.ld: the sections of data and of the stack; data_image: the initial data in flash. */
extern uint32_t data_begin[], data_end[], bss_begin[], bss_end[], stack_limit[], stack_top[];
extern const uint32_t data_image[];

#if defined(__riscv)
#define STACK_POINTER "mv %0, sp"
#else
#define STACK_POINTER "mov %0, sp"
#endif
#define STACK_PAINT 0xC5C5C5C5u /* fills unused stack: a value that a program is unlikely to write */

int main(void);
void reset(void);
void fault(void);

#if defined(__riscv)
#if defined(__riscv_flen)
#define ENABLE_FPU "li t0, 1 << 13\n\tcsrs mstatus, t0\n\t" /* mstatus.FS: initial */
#else
#define ENABLE_FPU
#endif
/* A RISC-V begins with this code, where a Cortex-M has its table of vectors. The lowest two bits of mtvec are a mode, so `fault`
 * is aligned to 4. */
__asm__(".section .vectors, \"ax\", @progbits\n\t"
        ".option push\n\t.option arch, +zicsr\n\tla sp, stack_top\n\tla t0, fault\n\tcsrw mtvec, t0\n\t"
        ENABLE_FPU "j reset\n\t"
        ".option pop\n\t.previous");
#define FAULT __attribute__((used, aligned(4)))
/* For toolchains without a C library. gcc must not turn these loops into calls of the functions that they are in. */
#define C_LIBRARY __attribute__((weak, used, optimize("no-tree-loop-distribute-patterns")))
C_LIBRARY void *memcpy(void *to, const void *from, __SIZE_TYPE__ bytes)
{
    typedef __UINT32_TYPE__ __attribute__((may_alias)) word;
    char *a = to;
    const char *b = from;
    if (((__UINTPTR_TYPE__)a | (__UINTPTR_TYPE__)b) % sizeof(word) == 0)
        for (; bytes >= sizeof(word); bytes -= sizeof(word), a += sizeof(word), b += sizeof(word))
            *(word *)(void *)a = *(const word *)(const void *)b;
    for (; bytes; bytes--)
        *a++ = *b++;
    return to;
}
C_LIBRARY void *memset(void *to, int value, __SIZE_TYPE__ bytes)
{
    for (char *a = to; bytes; bytes--)
        *a++ = (char)value;
    return to;
}
C_LIBRARY int memcmp(const void *one, const void *other, __SIZE_TYPE__ bytes)
{
    const unsigned char *a = one, *b = other;
    for (; bytes; bytes--, a++, b++)
        if (*a != *b)
            return *a - *b;
    return 0;
}
C_LIBRARY void *memmove(void *to, const void *from, __SIZE_TYPE__ bytes)
{
    char *a = to;
    const char *b = from;
    if ((__UINTPTR_TYPE__)a < (__UINTPTR_TYPE__)b)
        for (; bytes; bytes--)
            *a++ = *b++;
    else
        for (; bytes; bytes--)
            a[bytes - 1] = b[bytes - 1];
    return to;
}
C_LIBRARY __SIZE_TYPE__ strlen(const char *text)
{
    __SIZE_TYPE__ length = 0;
    while (text[length])
        length++;
    return length;
}
#else
#define FAULT
#endif

FAULT void fault(void)
{
    board_text("fault\n");
    board_exit(99);
}

#if !defined(__riscv)
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (const void *)reset,
    /* NMI, HardFault, MemManage, BusFault, UsageFault; the other exceptions are not enabled. */
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
};
#endif

void reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    /* CPACR: full access to coprocessors 10 and 11, which are the floating-point unit and Helium. */
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
#if defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xE000ED14u |= 1u << 19; /* CCR.LOB: Helium's low-overhead loops */
#endif
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif

    volatile uint32_t *to = data_begin;
    for (const uint32_t *from = data_image; to < data_end;)
        *to++ = *from++;
    for (to = bss_begin; to < bss_end;)
        *to++ = 0;

    uint32_t here;
    __asm__ volatile(STACK_POINTER : "=r"(here));
    for (to = stack_limit; (uint32_t)to < here;)
        *to++ = STACK_PAINT;

    board_exit(main());
}

uint32_t board_stack_used(void)
{
    const uint32_t *p = stack_limit;
    while (p < stack_top && *p == STACK_PAINT)
        p++;
    return (uint32_t)((const char *)stack_top - (const char *)p);
}
