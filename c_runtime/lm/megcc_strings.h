/* SPDX-License-Identifier: Apache-2.0
 *
 * Code that the tokenizers share: the tokens that they write, characters of UTF-8, their classes, and strings in order. Only
 * their sources include it.
 */
#ifndef MEGCC_STRINGS_H
#define MEGCC_STRINGS_H

#include <stddef.h>
#include <stdint.h>

#define MEGCC_REPLACEMENT 0xfffdu

/* The tokens of a text so far. `written` counts those beyond the capacity too, which are lost. */
typedef struct megcc_tokens {
    uint32_t *tokens;
    int32_t capacity, written;
} megcc_tokens;

static inline void megcc_write_token(megcc_tokens *to, uint32_t token)
{
    if (to->written < to->capacity) {
        to->tokens[to->written] = token;
    }
    to->written++;
}

/* --- characters ------------------------------------------------------------------------------------------------ */

/* The number of bytes of a character that begins with this byte; 0: none does. */
static inline uint32_t megcc_character_bytes(uint8_t byte)
{
    return byte < 0x80u ? 1u : byte < 0xc2u ? 0u : byte < 0xe0u ? 2u : byte < 0xf0u ? 3u : byte < 0xf5u ? 4u : 0u;
}

/* Whether a byte may follow `before`, the first `count` bytes of a character, 1 to 3, which are valid so far (Unicode
 * Standard, table 3-7). */
static inline int32_t megcc_continues(const uint8_t *before, uint32_t count, uint8_t byte)
{
    const uint8_t lead = before[0];
    uint8_t low = 0x80, high = 0xbf;
    if (count == 1u) { /* neither longer forms than needed, nor surrogates, nor more than U+10FFFF */
        low = lead == 0xe0u ? 0xa0u : lead == 0xf0u ? 0x90u : 0x80u;
        high = lead == 0xedu ? 0x9fu : lead == 0xf4u ? 0x8fu : 0xbfu;
    }
    return byte >= low && byte <= high;
}

/* Reads the character at text[*at], *at < end, and advances *at past it; U+FFFD, of one byte, if that is no UTF-8. */
static inline uint32_t megcc_character(const uint8_t *text, size_t *at, size_t end)
{
    const uint8_t *begin = text + *at;
    const uint32_t count = megcc_character_bytes(*begin);
    uint32_t code = count < 2u ? *begin : *begin & (0xffu >> (count + 1u));
    for (uint32_t i = 1; i < count; i++) {
        if (i >= end - *at || !megcc_continues(begin, i, begin[i])) {
            *at += 1;
            return MEGCC_REPLACEMENT;
        }
        code = code << 6 | (begin[i] & 0x3fu);
    }
    *at += count ? count : 1u;
    return count ? code : MEGCC_REPLACEMENT;
}

/* Writes a character as UTF-8, and returns the number of bytes, at most 4. */
static inline uint32_t megcc_utf8(uint32_t code, uint8_t *bytes)
{
    const uint32_t count = code < 0x80u ? 1u : code < 0x800u ? 2u : code < 0x10000u ? 3u : 4u;
    for (uint32_t i = count; i-- > 1u; code >>= 6) {
        bytes[i] = (uint8_t)(0x80u | (code & 0x3fu));
    }
    bytes[0] = (uint8_t)(count == 1u ? code : (0xf00u >> count & 0xffu) | code);
    return count;
}

/* Syllables of Hangul, and the letters (jamo) of which they consist (Unicode Standard, 3.12): the first code point of each
 * kind, and how many there are. A syllable has a lead, a vowel and, unless its tail is number 0, a tail. */
enum { MEGCC_SYLLABLES = 0xac00, MEGCC_LEADS = 0x1100, MEGCC_VOWELS = 0x1161, MEGCC_TAILS = 0x11a7,
       MEGCC_LEAD_COUNT = 19, MEGCC_VOWEL_COUNT = 21, MEGCC_TAIL_COUNT = 28,
       MEGCC_SYLLABLE_COUNT = MEGCC_LEAD_COUNT * MEGCC_VOWEL_COUNT * MEGCC_TAIL_COUNT };

static inline int32_t megcc_is_syllable(uint32_t code) { return code - MEGCC_SYLLABLES < MEGCC_SYLLABLE_COUNT; }

/* Writes the letters of a syllable, and returns how many it has: 2 or 3. */
static inline uint32_t megcc_letters(uint32_t syllable, uint32_t letters[3])
{
    const uint32_t index = syllable - MEGCC_SYLLABLES;
    letters[0] = MEGCC_LEADS + index / (MEGCC_VOWEL_COUNT * MEGCC_TAIL_COUNT);
    letters[1] = MEGCC_VOWELS + index / MEGCC_TAIL_COUNT % MEGCC_VOWEL_COUNT;
    letters[2] = MEGCC_TAILS + index % MEGCC_TAIL_COUNT;
    return index % MEGCC_TAIL_COUNT ? 3u : 2u;
}

/* White_Space of Unicode. */
static inline int32_t megcc_is_white(uint32_t code)
{
    return (code >= 9u && code <= 13u) || code == 0x20u || code == 0x85u || code == 0xa0u || code == 0x1680u
           || (code >= 0x2000u && code <= 0x200au) || code == 0x2028u || code == 0x2029u || code == 0x202fu
           || code == 0x205fu || code == 0x3000u;
}

/* The index of the last row with `row >> shift` <= code, of `count` ascending rows; 0 if there is none. */
static inline uint32_t megcc_row(const uint32_t *rows, uint32_t count, uint32_t code, uint32_t shift)
{
    uint32_t low = 0, high = count;
    while (high - low > 1u) {
        const uint32_t middle = (low + high) / 2u;
        if (rows[middle] >> shift <= code) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The class of a character. rows: ranges of characters as `first code point << 4 | class`, ascending, the first from U+0000
 * on. */
static inline uint32_t megcc_class(const uint32_t *rows, uint32_t count, uint32_t code)
{
    return rows[megcc_row(rows, count, code, 4)] & 15u;
}

/* A double-array trie as Darts-clone writes it (github.com/s-yata/darts-clone). In each unit, bits 0 to 7 and 31 are the
 * label, bit 8 says that a key ends here, whose value is in the unit at the offset, and bits 10 to 30 are the offset, in
 * units of 256 if bit 9 is set. */
static inline uint32_t megcc_trie_offset(uint32_t unit)
{
    return unit >> 10 << (unit >> 6 & 8u);
}

static inline uint32_t megcc_trie_label(uint32_t unit) { return unit & 0x800000ffu; }
static inline int32_t megcc_trie_ends_key(uint32_t unit) { return (int32_t)(unit >> 8 & 1u); }

/* The value in the unit at the offset of one that ends a key. */
static inline uint32_t megcc_trie_value(uint32_t unit) { return unit & 0x7fffffffu; }

/* --- strings with tokens ----------------------------------------------------------------------------------------- */

/* Strings, each with a token: a trie whose nodes are in breadth-first order, so that the children of a node are neighbours,
 * and bits suffice to find them (LOUDS; Jacobson, "Space-efficient static trees and graphs", 1989). Node 0 is the empty
 * string. Sets of nodes have a bit for each node, the lowest bits of a word first. */
typedef struct megcc_trie {
    const uint8_t *label;       /* the last byte of each node's string; siblings have ascending ones */
    const uint32_t *parents;    /* set of the nodes that have children */
    const uint32_t *lasts;      /* set of the nodes that are the last ones of their siblings */
    const uint32_t *ends;       /* set of the nodes whose string has a token */
    const uint32_t *count;      /* for each 128 nodes: how many nodes before them have children, and how many have a token */
    const uint32_t *first;      /* the first child of each 64th node of those that have children */
    const uint32_t *token;      /* `bits` bits for each node of `ends`, the lowest first */
    uint32_t bits;
} megcc_trie;

static inline int32_t megcc_has(const uint32_t *set, uint32_t node)
{
    return (int32_t)(set[node / 32u] >> node % 32u & 1u);
}

static inline uint32_t megcc_ones(uint32_t word)
{
    word -= word >> 1 & 0x55555555u;
    word = (word & 0x33333333u) + (word >> 2 & 0x33333333u);
    return ((word + (word >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

/* The number of the lowest bit of a word that is not 0. */
static inline uint32_t megcc_lowest(uint32_t word)
{
    return megcc_ones((word & (0u - word)) - 1u);
}

/* How many nodes of a set come before a node. before: how many come before the 128 nodes with this one. */
static inline uint32_t megcc_before(const uint32_t *set, uint32_t before, uint32_t node)
{
    for (uint32_t word = node / 128u * 4u; word < node / 32u; word++) {
        before += megcc_ones(set[word]);
    }
    return before + megcc_ones(set[node / 32u] & ((1u << node % 32u) - 1u));
}

/* The first node from `node` on that is the last one of its siblings, after `skipped` others. */
static inline uint32_t megcc_last(const megcc_trie *trie, uint32_t node, uint32_t skipped)
{
    uint32_t word = trie->lasts[node / 32u] >> node % 32u << node % 32u;
    for (uint32_t ones = megcc_ones(word); ones <= skipped; ones = megcc_ones(word)) {
        skipped -= ones;
        node = node / 32u * 32u + 32u;
        word = trie->lasts[node / 32u];
    }
    for (; skipped; skipped--) {
        word &= word - 1u;
    }
    return node / 32u * 32u + megcc_lowest(word);
}

/* The node of a node's string and one more byte; 0: there is none. */
static inline uint32_t megcc_child(const megcc_trie *trie, uint32_t node, uint8_t byte)
{
    if (!megcc_has(trie->parents, node)) {
        return 0;
    }
    const uint32_t parent = megcc_before(trie->parents, trie->count[node / 128u * 2u], node);
    uint32_t low = trie->first[parent / 64u];
    if (parent % 64u) {
        low = megcc_last(trie, low, parent % 64u - 1u) + 1u;
    }
    uint32_t high = megcc_last(trie, low, 0);
    while (low < high) {
        const uint32_t middle = (low + high) / 2u;
        if (trie->label[middle] < byte) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return trie->label[low] == byte ? low : 0u;
}

/* The token of a node of `ends`. */
static inline uint32_t megcc_token(const megcc_trie *trie, uint32_t node)
{
    const uint32_t index = megcc_before(trie->ends, trie->count[node / 128u * 2u + 1u], node);
    const uint64_t at = (uint64_t)index * trie->bits;
    const uint32_t *word = trie->token + at / 32u;
    const uint64_t both = (uint64_t)word[1] << 32 | word[0]; /* a word of zeros follows the last token */
    return (uint32_t)(both >> at % 32u & ((1u << trie->bits) - 1u));
}

/* Finds the longest string that consists of a node's string and then a beginning of the text, of at least one byte. Returns how
 * many bytes of the text it has, or 0: none; *found is its node. */
static inline size_t megcc_longest_of(const megcc_trie *trie, uint32_t node, const uint8_t *text, size_t size,
                                      uint32_t *found)
{
    size_t best = 0;
    for (size_t at = 0; at < size && (node = megcc_child(trie, node, text[at])) != 0u;) {
        at++;
        if (megcc_has(trie->ends, node)) {
            *found = node;
            best = at;
        }
    }
    return best;
}

/* --- strings in order ------------------------------------------------------------------------------------------- */

/* A sorted list of distinct strings. Entry i is string list[i], or `first + i` if there is no list; string n is the bytes
 * from bytes[text[n]] up to, not including, bytes[text[n + 1]]. */
typedef struct megcc_strings {
    const uint8_t *bytes;
    const uint32_t *text;
    const uint32_t *list;
    uint32_t first;
} megcc_strings;

/* The entries [low, high), which share a prefix of `depth` bytes. */
typedef struct megcc_range {
    uint32_t low, high;
    size_t depth;
} megcc_range;

static inline const uint8_t *megcc_entry(const megcc_strings *strings, uint32_t index, size_t *size)
{
    const uint32_t text = strings->list ? strings->list[index] : strings->first + index;
    *size = strings->text[text + 1u] - strings->text[text];
    return strings->bytes + strings->text[text];
}

/* Whether the shared prefix is an entry, which is then the first one: *found is its index, and it leaves the range. */
static inline int32_t megcc_ends(const megcc_strings *strings, megcc_range *range, uint32_t *found)
{
    size_t size;
    if (range->low == range->high) {
        return 0;
    }
    megcc_entry(strings, range->low, &size);
    if (size != range->depth) {
        return 0;
    }
    *found = range->low++;
    return 1;
}

/* The index of the first entry whose byte after the prefix is `byte` or larger; all entries of the range have such a byte. */
static inline uint32_t megcc_lower_bound(const megcc_strings *strings, const megcc_range *range, uint32_t byte)
{
    uint32_t low = range->low, high = range->high;
    while (low < high) {
        const uint32_t middle = (low + high) / 2u;
        size_t size;
        if (megcc_entry(strings, middle, &size)[range->depth] < byte) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Keeps the entries whose byte after the prefix is `byte`; all have such a byte. */
static inline void megcc_narrow(const megcc_strings *strings, megcc_range *range, uint8_t byte)
{
    range->low = megcc_lower_bound(strings, range, byte);
    range->high = megcc_lower_bound(strings, range, byte + 1u);
    range->depth++;
}

/* Finds the longest entry of a range that consists of the range's prefix and then a beginning of the text. Returns how many bytes
 * of the text it has, or 0: none; *found is its index. */
static inline size_t megcc_longest(const megcc_strings *strings, megcc_range range, const uint8_t *text, size_t size,
                                   uint32_t *found)
{
    size_t best = 0;
    for (size_t at = 0;; at++) {
        if (megcc_ends(strings, &range, found)) {
            best = at;
        }
        if (at == size || range.low == range.high) {
            return best;
        }
        megcc_narrow(strings, &range, text[at]);
    }
}

#endif
