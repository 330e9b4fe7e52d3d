/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include <string.h>

#define BYTES sizeof(record)

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t capacity, unsigned seed);

size_t records_of(const uint8_t *data, size_t size, record steps[MAX_RECORDS])
{
    const size_t count = size < BYTES ? 1 : size / BYTES < MAX_RECORDS ? size / BYTES : MAX_RECORDS;
    memset(steps, 0, sizeof *steps);
    if (size != 0)
        memcpy(steps, data, size < count * BYTES ? size : count * BYTES);
    return count;
}

uint32_t chance(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* Mostly small numbers, for these are rows, extents and counts. */
static uint32_t likely(uint32_t *state)
{
    const uint32_t number = chance(state);
    switch (chance(state) % 6) {
    case 0: return number;
    case 1: return 0u - number % 16;
    case 2: return number % 256;
    case 3: return 1u << number % 32;
    default: return number % 12;
    }
}

static record random_record(uint32_t *state)
{
    record r = { (uint8_t)chance(state), (uint8_t)chance(state), (uint16_t)likely(state), likely(state) };
    return r;
}

static void change(record *r, uint32_t *state)
{
    switch (chance(state) % 6) {
    case 0: r->op = (uint8_t)chance(state); break;
    case 1: r->name = (uint8_t)(chance(state) % 2 ? chance(state) : r->name + 1u); break;
    case 2: r->row = (uint16_t)(chance(state) % 2 ? likely(state) : r->row + likely(state)); break;
    case 3: r->operand += likely(state); break;
    case 4: r->operand ^= 1u << chance(state) % 32; break;
    default: r->operand = likely(state); break;
    }
}

size_t mutate(uint8_t *data, size_t size, size_t capacity, uint32_t seed)
{
    record steps[MAX_RECORDS];
    uint32_t state = seed * 2654435761u | 1u;
    size_t count = records_of(data, size, steps);
    const size_t most = capacity / BYTES < MAX_RECORDS ? capacity / BYTES : MAX_RECORDS;
    for (uint32_t rounds = 1 + chance(&state) % 3; rounds > 0; rounds--) {
        const uint32_t kind = chance(&state) % 10;
        const size_t at = chance(&state) % count, other = chance(&state) % count;
        if (kind < 4 && count < most) {         /* one more, in front of or behind any but the header */
            const size_t place = 1 + chance(&state) % count;
            memmove(steps + place + 1, steps + place, (count - place) * BYTES);
            steps[place] = kind == 0 ? steps[at] : random_record(&state);
            if (kind == 0)
                change(steps + place, &state);
            count++;
        } else if (kind == 4 && at != 0) {
            memmove(steps + at, steps + at + 1, (count - at - 1) * BYTES);
            count--;
        } else if (kind == 5 && at != 0 && other != 0) {
            const record swapped = steps[at];
            steps[at] = steps[other];
            steps[other] = swapped;
        } else {
            change(steps + at, &state);
        }
    }
    if (count > most)
        count = most;
    memcpy(data, steps, count * BYTES);
    return count * BYTES;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed)
{
    return capacity < BYTES ? size : mutate(data, size, capacity, seed);
}

/* The beginning of one and the end of the other. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t capacity, unsigned seed)
{
    uint32_t state = seed * 2654435761u | 1u;
    size_t head = (1 + chance(&state) % (a_size / BYTES + 1)) * BYTES;
    size_t from = (1 + chance(&state) % (b_size / BYTES + 1)) * BYTES;
    if (head > a_size)
        head = a_size;
    if (from > b_size)
        from = b_size;
    if (head > capacity)
        head = capacity;
    const size_t tail = b_size - from < capacity - head ? b_size - from : capacity - head;
    memcpy(out, a, head);
    memcpy(out + head, b + from, tail);
    return head + tail;
}
