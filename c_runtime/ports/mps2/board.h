/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that run.c and start.c need from a board: printing, files of the host, the end of the program, a clock, and
 * how deep the stack went. Here they are Arm semihosting (Arm's "Semihosting for AArch32 and AArch64", whose operation
 * numbers these are), which emulators and debuggers answer; a product has its own.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Operations, by their names in the specification. */
enum { SYS_OPEN = 0x01, SYS_CLOSE = 0x02, SYS_WRITE0 = 0x04, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT_EXTENDED = 0x20 };

/* How board_open() opens a file: the specification's numbers of the modes "rb" and "wb" of fopen(). */
enum { FOR_READING = 1, FOR_WRITING = 5 };

/* A semihosting request: operation and parameter block in, result out. The host knows it on a Cortex-M by the number of the
 * breakpoint, 0xab; on a RISC-V by the two shifts of x0 around ebreak, three uncompressed instructions in one page, which the
 * alignment to 16 ensures (the specification "RISC-V Semihosting"). */
static inline int32_t board_request(uint32_t operation, const void *parameters)
{
#if defined(__riscv)
    register uint32_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = parameters;
    __asm__ volatile(".balign 16\n\t.option push\n\t.option norvc\n\tslli x0, x0, 0x1f\n\tebreak\n\tsrai x0, x0, 7\n\t"
                     ".option pop" : "+r"(a0) : "r"(a1) : "memory");
    return (int32_t)a0;
#else
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
#endif
}

static inline void board_text(const char *text)
{
    board_request(SYS_WRITE0, text);
}

__attribute__((noreturn)) static inline void board_exit(int status)
{
    uint32_t block[2] = {0x20026u, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    board_request(SYS_EXIT_EXTENDED, block);
    for (;;)
        ;
}

/* Opens a file of the host, FOR_READING or FOR_WRITING; negative if that fails. */
static inline int32_t board_open(const char *name, uint32_t mode)
{
    uint32_t length = 0;
    while (name[length])
        length++;
    uint32_t block[3] = {(uint32_t)name, mode, length};
    return board_request(SYS_OPEN, block);
}

/* Both return the number of bytes that were NOT transferred. */
static inline int32_t board_read(int32_t file, void *data, uint32_t bytes)
{
    uint32_t block[3] = {(uint32_t)file, (uint32_t)data, bytes};
    return board_request(SYS_READ, block);
}

static inline int32_t board_write(int32_t file, const void *data, uint32_t bytes)
{
    uint32_t block[3] = {(uint32_t)file, (uint32_t)data, bytes};
    return board_request(SYS_WRITE, block);
}

static inline void board_close(int32_t file)
{
    uint32_t block[1] = {(uint32_t)file};
    board_request(SYS_CLOSE, block);
}

/* A clock, in ticks. On a Cortex-M it is SysTick, which counts 24 bits down, so an interval must be shorter than 2^24 ticks; an
 * emulator that counts instructions derives it from their number. On a RISC-V it is minstret, the number of instructions. board_clock_since() writes the clock to *now,
 * and returns the ticks since it was `before`. */
#if defined(__riscv)
static inline void board_clock_start(void)
{
}

static inline uint32_t board_clock_since(uint32_t before, uint32_t *now)
{
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrr %0, minstret\n\t.option pop" : "=r"(*now));
    return *now - before;
}
#else
static inline void board_clock_start(void)
{
    *(volatile uint32_t *)0xE000E014u = 0xFFFFFFu; /* SYST_RVR */
    *(volatile uint32_t *)0xE000E018u = 0;         /* SYST_CVR */
    *(volatile uint32_t *)0xE000E010u = 5;         /* SYST_CSR: the core's clock, no interrupt */
}

static inline uint32_t board_clock_since(uint32_t before, uint32_t *now)
{
    *now = *(volatile uint32_t *)0xE000E018u;
    return (before - *now) & 0xFFFFFFu;
}
#endif

/* Bytes of stack that were ever in use. */
uint32_t board_stack_used(void);

#endif
