/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs kernels on guarded buffers. Standard input holds jobs, standard output gets results; both are raw
 * little-endian. A job: int32 kernel, extents, inputs, outputs, shared, scratch, tasks, pieces; the extents;
 * then for each input its byte count and bytes, for each output its byte count and the input it lies on, or -1.
 * A result: int32 status, then the bytes of each output.
 * The tasks run in `pieces` pieces, last first, each with fresh scratch of exactly the size asked for.
 * Memory that a kernel has to write before it reads it holds one pattern in jobs of one piece, another in those of more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "megcc_kernel.h"

extern const megcc_kernel_fn kernels_under_test[];

enum { GUARD = 64 };

static void need(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "harness: %s\n", what);
        exit(3);
    }
}

static int32_t get(void)
{
    int32_t value;
    need(fread(&value, sizeof value, 1, stdin) == 1, "short job");
    return value;
}

/* Memory whose neighbours are watched: by the address sanitizer if there is one, else by guard bytes. */
static unsigned char *guarded(size_t bytes, size_t alignment)
{
    unsigned char *block;
#ifdef __SANITIZE_ADDRESS__
    (void)alignment;
    block = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    need(block != NULL, "no memory");
    free(block);
    block = malloc(bytes + (bytes == 0)); /* exact: an overrun by one byte is seen */
    need(block != NULL, "no memory");
    return block;
#else
    block = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    need(block != NULL, "no memory");
    memset(block, 0xA5, (bytes + 2 * GUARD + 63) / 64 * 64);
    (void)alignment;
    return block + GUARD;
#endif
}

/* It holds NaN in every type of floats, -1 in integers; or large numbers. */
static unsigned char *poisoned(size_t bytes, int32_t pieces)
{
    return memset(guarded(bytes, 64), pieces == 1 ? 0xFF : 0x55, bytes);
}

static int intact(const unsigned char *data, size_t bytes)
{
#ifndef __SANITIZE_ADDRESS__
    for (size_t i = 0; i < GUARD; i++)
        if (data[-1 - (ptrdiff_t)i] != 0xA5 || data[bytes + i] != 0xA5)
            return 0;
#else
    (void)data, (void)bytes;
#endif
    return 1;
}

static void release(unsigned char *data)
{
#ifdef __SANITIZE_ADDRESS__
    free(data);
#else
    free(data - GUARD);
#endif
}

int main(void)
{
    int32_t kernel;
    while (fread(&kernel, sizeof kernel, 1, stdin) == 1) {
        int32_t extent[64];
        const void *in[64];
        void *out[16];
        size_t in_bytes[64], out_bytes[16];
        int32_t over[16]; /* the input that an output begins on, or -1 */
        const int32_t extents = get(), inputs = get(), outputs = get(), shared = get(), scratch = get();
        const int32_t tasks = get(), pieces = get();
        need(extents <= 64 && inputs <= 64 && outputs <= 16, "too many operands");
        for (int32_t i = 0; i < extents; i++)
            extent[i] = get();
        for (int32_t i = 0; i < inputs; i++) {
            in_bytes[i] = (size_t)get();
            unsigned char *data = guarded(in_bytes[i], 64);
            need(fread(data, 1, in_bytes[i], stdin) == in_bytes[i], "short input");
            in[i] = data;
        }
        for (int32_t i = 0; i < outputs; i++) {
            out_bytes[i] = (size_t)get();
            over[i] = get();
            need(over[i] < inputs, "no such input");
            if (over[i] < 0) {
                out[i] = poisoned(out_bytes[i], pieces);
                continue;
            }
            unsigned char *old = (unsigned char *)in[over[i]];
            const size_t old_bytes = in_bytes[over[i]], most = old_bytes > out_bytes[i] ? old_bytes : out_bytes[i];
            unsigned char *both = poisoned(most, pieces);
            memcpy(both, old, old_bytes);
            release(old);
            in_bytes[over[i]] = most;
            in[over[i]] = out[i] = both;
        }
        unsigned char *common = poisoned((size_t)shared, pieces);
        const megcc_call call = { in, out, extent, common };
        int32_t status = 0;
        for (int32_t piece = pieces - 1; piece >= 0 && status == 0; piece--) {
            unsigned char *own = poisoned((size_t)scratch, pieces);
            const int32_t begin = (int32_t)((int64_t)tasks * piece / pieces);
            const int32_t end = (int32_t)((int64_t)tasks * (piece + 1) / pieces);
            status = kernels_under_test[kernel](&call, begin, end, own);
            need(intact(own, (size_t)scratch), "scratch overrun");
            release(own);
        }
        fwrite(&status, sizeof status, 1, stdout);
        for (int32_t i = 0; i < outputs; i++) {
            need(over[i] >= 0 || intact(out[i], out_bytes[i]), "output overrun");
            fwrite(out[i], 1, out_bytes[i], stdout);
            if (over[i] < 0)
                release(out[i]);
        }
        for (int32_t i = 0; i < inputs; i++) {
            need(intact(in[i], in_bytes[i]), "input written");
            release((unsigned char *)in[i]);
        }
        need(intact(common, (size_t)shared), "shared workspace overrun");
        release(common);
    }
    fflush(stdout);
    return 0;
}
