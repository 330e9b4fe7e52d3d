/* SPDX-License-Identifier: Apache-2.0
 *
 * From reset to main() on a Cortex-M with FPU: vectors, memory, floating point, and a painted stack, so that its
 * deepest use can be read afterwards.
 */
#include "board.h"

extern uint32_t data_begin[], data_end[], bss_begin[], bss_end[], stack_limit[], stack_top[];
extern const uint32_t data_image[];

#define STACK_PAINT 0xC5C5C5C5u

int main(void);
void reset(void);

static void fault(void)
{
    board_text("fault\n");
    board_exit(99);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (const void *)reset,
    (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
};

void reset(void)
{
    /* Full access to coprocessors 10 and 11: the floating-point unit. */
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
    __asm__ volatile("dsb\n\tisb" ::: "memory");

    volatile uint32_t *to = data_begin;
    for (const uint32_t *from = data_image; to < data_end;)
        *to++ = *from++;
    for (to = bss_begin; to < bss_end;)
        *to++ = 0;

    uint32_t here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
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
