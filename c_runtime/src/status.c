/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: how every file of the runtime reports one, and its text.
 */
#include "internal.h"

int32_t megcc_fail(megcc_error *error, int32_t status, const char *where, uint32_t instruction, int64_t detail,
                   uint64_t needed)
{
    if (error != NULL) {
        error->status = status;
        error->instruction = instruction;
        error->where = where;
        error->detail = detail;
        error->needed = needed;
    }
    return status;
}

#ifndef MEGCC_NO_STRINGS

static const char *meaning(int32_t status)
{
    switch (status) {
    case MEGCC_OK: return "success";
    case MEGCC_MORE: return "instructions are left";
    case MEGCC_E_ARGUMENT: return "wrong argument";
    case MEGCC_E_SHAPE: return "the model was not compiled for this shape";
    case MEGCC_E_ORDER: return "shapes are not set yet, or a tensor has no data yet";
    case MEGCC_E_VERSION: return "header, library and kernels are of different versions";
    case MEGCC_E_FORMAT: return "this is no container of a format known here";
    case MEGCC_E_CORRUPT: return "the container is damaged";
    case MEGCC_E_CODE: return "the container was made for other code or another CPU";
    case MEGCC_E_SIGNATURE: return "a call does not fit its kernel";
    case MEGCC_E_CHECKSUM: return "the weights are damaged";
    case MEGCC_E_UNSUPPORTED: return "not supported by this build of the runtime";
    case MEGCC_E_UNTRUSTED: return "not signed with this key for this product";
    case MEGCC_E_MEMORY: return "memory is too small, misaligned or limited";
    case MEGCC_E_ALLOCATION: return "the allocator gave no memory";
    case MEGCC_E_FILE: return "cannot read the file";
    case MEGCC_E_THREADS: return "so many threads cannot be used";
    case MEGCC_E_CANCELLED: return "cancelled by the observer or a limit";
    case MEGCC_E_KERNEL: return "a kernel refused the values of its operands";
    default: return "unknown status";
    }
}

/* A string that is written piece by piece; what does not fit in `size` bytes with its '\0' is cut. */
typedef struct line {
    char *text;
    size_t used, size;
} line;

static void put(line *l, const char *text)
{
    while (*text != '\0' && l->used + 1u < l->size) {
        l->text[l->used++] = *text++;
    }
}

static void put_number(line *l, const char *label, uint64_t value)
{
    enum { DIGITS = 20 }; /* of 2^64 - 1 */
    char digits[DIGITS + 1];
    uint32_t at = DIGITS;
    digits[DIGITS] = '\0';
    do {
        at--;
        digits[at] = (char)('0' + value % 10u);
        value /= 10u;
    } while (value != 0u && at > 0u);
    put(l, label);
    put(l, digits + at);
}

const char *megcc_error_text(const megcc_error *error, char *buffer, size_t size)
{
    line l = { buffer, 0, size };
    if (error->status == MEGCC_E_SHAPE && error->instruction != MEGCC_NONE && error->needed != 0u
        && error->detail > 0 && (uint64_t)error->detail > error->needed) {
        /* an extent that the run computed */
        put(&l, error->where != NULL ? error->where : "");
        put_number(&l, error->where != NULL ? ": an extent is " : "an extent is ", (uint64_t)error->detail);
        put_number(&l, ", and memory was planned for at most ", error->needed);
        put_number(&l, " (instruction ", error->instruction);
        put(&l, ")");
        if (size != 0u) {
            buffer[l.used] = '\0';
        }
        return buffer;
    }
    put(&l, meaning(error->status));
    if (error->where != NULL) {
        put(&l, ": ");
        put(&l, error->where);
    }
    put_number(&l, error->detail < 0 ? " (-" : " (",
               error->detail < 0 ? ~(uint64_t)error->detail + 1u : (uint64_t)error->detail);
    put(&l, ")");
    if (error->instruction != MEGCC_NONE) {
        put_number(&l, ", instruction ", error->instruction);
    }
    if (error->needed != 0u) {
        put_number(&l, ", needed ", error->needed);
    }
    if (size != 0u) {
        buffer[l.used] = '\0';
    }
    return buffer;
}

#endif
