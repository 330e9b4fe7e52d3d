/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of flash that is slower than the core, for counting.c: how many cycles the core waits for instructions and for
 * constants. flash.py has the parameters of chips, and says what is modelled and what is not.
 *
 * The flash is read in words of `width` bytes, one after the other. A read takes `first` cycles more than one of RAM, and
 * `next` if its word follows the last one that was read. A cache holds lines of one or more words. With `prefetch`, the
 * word after one that was read for instructions is read while the core executes those.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait_states.h"

#define WORDS 8 /* the most words of a line */
#define NEVER UINT64_MAX

/* ready: the cycle from which each word is there; NEVER: it is not in the cache. */
typedef struct line {
    uint64_t address, used, ready[WORDS];
} line;

/* whole: a miss reads all words of the line, beginning with the one that is needed. */
typedef struct cache {
    unsigned long bytes, ways, sets;
    int whole;
    line *lines;
} cache;

static uint64_t flash_begin, flash_end, width, first, next, last_word = NEVER, port_free;
static uint64_t uses, current = NEVER, buffered = NEVER, buffered_ready;
static int prefetch;
static cache code_cache, own_data_cache, *data_cache = &own_data_cache;
static unsigned char *costs;
static size_t costs_size;

uint64_t wait_states_clock;

static int set_up(cache *c, const char *text)
{
    unsigned long size;
    if (sscanf(text, "%lu:%lu:%lu:%d", &size, &c->ways, &c->bytes, &c->whole) != 4 || c->ways == 0 || c->bytes < width ||
        c->bytes / width > WORDS)
        return 0;
    c->sets = size / c->bytes / c->ways;
    c->lines = calloc(c->sets * c->ways, sizeof *c->lines);
    if (c->lines == NULL)
        return 0;
    for (unsigned long i = 0; i < c->sets * c->ways; i++)
        c->lines[i].address = NEVER;
    return c->sets != 0;
}

static int read_costs(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    costs_size = (size_t)((flash_end - flash_begin) / 2);
    costs = calloc(costs_size + 1, 1);
    const size_t count = costs == NULL ? 0 : fread(costs, 1, costs_size, file);
    fclose(file);
    return count != 0;
}

int wait_states_option(const char *option)
{
    const char *value = strchr(option, '=');
    const size_t name = value == NULL ? 0 : (size_t)(value - option);
    if (name == 0)
        return 0;
    value++;
    if (strncmp(option, "flash", name) == 0)
        return sscanf(value, "%" SCNx64 ":%" SCNx64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%d", &flash_begin, &flash_end,
                      &width, &first, &next, &prefetch) == 6 && width != 0;
    if (strncmp(option, "code_cache", name) == 0)
        return set_up(&code_cache, value);
    if (strncmp(option, "data_cache", name) == 0) {
        data_cache = strcmp(value, "code") == 0 ? &code_cache : &own_data_cache;
        return data_cache == &code_cache || set_up(&own_data_cache, value);
    }
    return strncmp(option, "costs", name) == 0 && read_costs(value);
}

int wait_states_modelled(void)
{
    return costs != NULL;
}

static unsigned char cost_at(uint64_t address)
{
    const uint64_t index = (address - flash_begin) / 2;
    return address >= flash_begin && index < costs_size ? costs[index] : FAST | 1;
}

unsigned wait_states_cost(uint64_t address)
{
    return cost_at(address) & ~FAST;
}

uint64_t wait_states_word(uint64_t address)
{
    return cost_at(address) & FAST ? NEVER : address / width * width;
}

/* Returns the line of an address, or NULL if the cache has none. */
static line *find(cache *c, uint64_t address)
{
    const uint64_t begin = address / c->bytes * c->bytes;
    line *set = c->lines + begin / c->bytes % c->sets * c->ways;
    for (unsigned long way = 0; way < c->ways; way++)
        if (set[way].address == begin)
            return &set[way];
    return NULL;
}

static uint64_t *ready_of(cache *c, uint64_t address)
{
    line *found = c->lines == NULL ? NULL : find(c, address);
    if (found == NULL)
        return NULL;
    found->used = ++uses;
    return &found->ready[address % c->bytes / width];
}

/* Reads a word from the flash. Returns the cycle in which it is there. */
static uint64_t read_word(uint64_t word)
{
    const uint64_t begin = port_free > wait_states_clock ? port_free : wait_states_clock;
    const uint64_t cycles = word == last_word + width ? next : first;
    last_word = word;
    port_free = begin + cycles + 1;
    return begin + cycles;
}

/* Puts a word that is there from the cycle `ready` into a cache, in place of the least recently used line. */
static void put(cache *c, uint64_t word, uint64_t ready)
{
    if (c->lines == NULL)
        return;
    line *place = find(c, word);
    if (place == NULL) {
        const uint64_t begin = word / c->bytes * c->bytes;
        line *set = c->lines + begin / c->bytes % c->sets * c->ways;
        place = set;
        for (unsigned long way = 1; way < c->ways; way++)
            if (set[way].address == NEVER || (place->address != NEVER && set[way].used < place->used))
                place = &set[way];
        place->address = begin;
        for (int i = 0; i < WORDS; i++)
            place->ready[i] = NEVER;
    }
    place->used = ++uses;
    place->ready[word % c->bytes / width] = ready;
}

/* Reads a word that a cache does not have. Returns the cycle in which it is there. */
static uint64_t miss(cache *c, uint64_t word)
{
    const uint64_t ready = read_word(word);
    put(c, word, ready);
    if (c->whole && c->lines != NULL) {
        const uint64_t begin = word / c->bytes * c->bytes;
        for (uint64_t offset = width; offset < c->bytes; offset += width) {
            const uint64_t other = begin + (word - begin + offset) % c->bytes;
            put(c, other, read_word(other));
        }
    }
    return ready;
}

static uint64_t wait_until(uint64_t ready)
{
    const uint64_t waited = ready > wait_states_clock ? ready - wait_states_clock : 0;
    wait_states_clock += waited;
    return waited;
}

uint64_t wait_states_fetched(uint64_t word)
{
    if (word == NEVER || word == current)
        return 0;
    current = word;
    const uint64_t *ready = ready_of(&code_cache, word);
    if (ready != NULL && *ready != NEVER)
        return wait_until(*ready);
    uint64_t waited;
    if (word == buffered) {
        waited = wait_until(buffered_ready);
        put(&code_cache, word, buffered_ready);
    } else {
        waited = wait_until(miss(&code_cache, word));
    }
    if (prefetch) {
        const uint64_t *after = ready_of(&code_cache, word + width);
        if (after == NULL || *after == NEVER) {
            buffered = word + width;
            buffered_ready = read_word(buffered);
        }
    }
    return waited;
}

uint64_t wait_states_loaded(uint64_t address, unsigned bytes)
{
    uint64_t waited = 0;
    if (address < flash_begin || address >= flash_end)
        return 0;
    for (uint64_t word = address / width * width; word < address + bytes; word += width) {
        const uint64_t *ready = ready_of(data_cache, word);
        waited += wait_until(ready != NULL && *ready != NEVER ? *ready : miss(data_cache, word));
    }
    return waited;
}
