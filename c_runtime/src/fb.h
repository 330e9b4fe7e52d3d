/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads FlatBuffers (flatbuffers.dev, "FlatBuffer internals"), as far as a container needs it, for verify.c. Tables and
 * fields are read only after a check that they are inside the file. After an error the reader stays invalid (`ok` is
 * false) and returns zeros, so callers test `ok` once after several reads.
 *
 * A table begins with the distance to its vtable: the sizes of both in bytes, then the offset in the table of each field,
 * 0 if it is absent. A string, vector or table in a field, or in a vector, is the distance to it from there; a vector
 * begins with its number of elements.
 *
 * Vectors may overlap, but their total size is limited to the file's: so visiting each row once takes time proportional
 * to the file's size, even if many offsets lead to the same rows.
 */
#ifndef MEGCC_FB_H
#define MEGCC_FB_H

#include "internal.h"

/* Not inlined: opening a model need not be fast, and flash is scarce. */
#if defined(__GNUC__)
#define FB_ONCE static __attribute__((noinline))
#else
#define FB_ONCE static
#endif

typedef struct fb_reader {
    const uint8_t *data;
    uint32_t size;
    uint32_t table, table_bytes;    /* offset in the file and size of the table being read */
    uint32_t vtable, vtable_bytes;  /* the same of its vtable */
    uint32_t budget;                /* bytes that further vectors may have */
    bool ok;
} fb_reader;

static inline fb_reader fb_open(const uint8_t *data, uint32_t size)
{
    const fb_reader r = { data, size, 0, 0, 0, 0, size, true };
    return r;
}

static inline uint32_t fb_16(const fb_reader *r, uint32_t at)
{
    return (uint32_t)r->data[at] | (uint32_t)r->data[at + 1u] << 8;
}

static inline uint32_t fb_32(const fb_reader *r, uint32_t at)
{
    return *(const row_u32 *)(const void *)(r->data + at);
}

/* Follows the distance at offset `at`, which is inside the file. Its target begins with a 32-bit number, which is inside,
 * too. */
static inline uint32_t fb_follow(fb_reader *r, uint32_t at)
{
    const uint32_t distance = fb_32(r, at);
    if (distance > r->size - at || r->size - at - distance < 4u || (at + distance) % 4u != 0u) {
        r->ok = false;
        return 0;
    }
    return at + distance;
}

/* Makes the table to which the distance at `at` leads the one being read. */
FB_ONCE void fb_enter(fb_reader *r, uint32_t at)
{
    r->table_bytes = r->vtable_bytes = 0;
    r->table = fb_follow(r, at);
    if (!r->ok) {
        return;
    }
    const uint32_t vtable = r->table - fb_32(r, r->table); /* the distance is signed: wrap-around is intended */
    if (vtable % 2u != 0u || vtable >= r->size || r->size - vtable < 4u) {
        r->ok = false;
        return;
    }
    const uint32_t vtable_bytes = fb_16(r, vtable), table_bytes = fb_16(r, vtable + 2u);
    if (vtable_bytes < 4u || vtable_bytes > r->size - vtable || table_bytes > r->size - r->table) {
        r->ok = false;
        return;
    }
    r->vtable = vtable;
    r->vtable_bytes = vtable_bytes;
    r->table_bytes = table_bytes;
}

/* The offset in the file of field number `slot`, which has `bytes` bytes; 0 if the table does not have it. */
FB_ONCE uint32_t fb_field(fb_reader *r, uint32_t slot, uint32_t bytes)
{
    const uint32_t entry = 4u + 2u * slot;
    if (!r->ok || entry + 2u > r->vtable_bytes) {
        return 0;
    }
    const uint32_t offset = fb_16(r, r->vtable + entry);
    if (offset == 0u) {
        return 0;
    }
    if (offset % 4u != 0u || offset > r->table_bytes || r->table_bytes - offset < bytes) {
        r->ok = false;
        return 0;
    }
    return r->table + offset;
}

FB_ONCE uint32_t fb_number(fb_reader *r, uint32_t slot)
{
    const uint32_t at = fb_field(r, slot, 4);
    return at == 0u ? 0u : fb_32(r, at);
}

static inline uint64_t fb_long(fb_reader *r, uint32_t slot)
{
    const uint32_t at = fb_field(r, slot, 8);
    return at == 0u ? 0u : ((uint64_t)fb_32(r, at + 4u) << 32) | fb_32(r, at);
}

/* The vector to which the distance at `at` leads, with elements of `row_bytes` bytes. */
FB_ONCE megcc_rows fb_rows(fb_reader *r, uint32_t at, uint32_t row_bytes)
{
    megcc_rows rows = { r->data, 0 };
    const uint32_t begin = fb_follow(r, at);
    if (!r->ok) {
        return rows;
    }
    const uint32_t count = fb_32(r, begin);
    if (count > (r->size - begin - 4u) / row_bytes || count * row_bytes > r->budget) {
        r->ok = false;
        return rows;
    }
    r->budget -= count * row_bytes;
    rows.data = r->data + begin + 4u;
    rows.count = count;
    return rows;
}

/* A field that is a vector of rows; an absent one is empty. */
FB_ONCE megcc_rows fb_vector(fb_reader *r, uint32_t slot, uint32_t row_bytes)
{
    const megcc_rows none = { r->data, 0 };
    const uint32_t at = fb_field(r, slot, 4);
    return at == 0u ? none : fb_rows(r, at, row_bytes);
}

/* The offset in the file of a byte of it. */
static inline uint32_t fb_offset(const fb_reader *r, const uint8_t *byte)
{
    const ptrdiff_t distance = byte - r->data;
    return (uint32_t)distance;
}

/* The string to which the distance at `at` leads; it ends with '\0'. */
static inline const char *fb_string(fb_reader *r, uint32_t at)
{
    const megcc_rows text = fb_rows(r, at, 1);
    if (!r->ok || fb_offset(r, text.data) + text.count >= r->size || text.data[text.count] != 0u) {
        r->ok = false;
        return "";
    }
    return (const char *)text.data;
}

#endif
