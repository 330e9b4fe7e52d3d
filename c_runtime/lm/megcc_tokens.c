/* SPDX-License-Identifier: Apache-2.0 */
#include "megcc_tokens.h"

size_t megcc_text_size(const uint8_t *text, size_t capacity)
{
    size_t size = 0;
    while (size < capacity && text[size]) {
        size++;
    }
    return size;
}

/* The numbers of tokens that are kept of two strings, as the package tokenizers cuts pairs (LongestFirst). */
static void truncate_pair(uint32_t most, uint32_t kept[2])
{
    const uint32_t longer = kept[0] > kept[1] ? 0u : 1u, shorter = 1u - longer;
    const uint64_t both = (uint64_t)kept[0] + kept[1];
    if (both <= most) {
        return;
    }
    if (kept[shorter] <= most / 2u) {
        kept[longer] = most - kept[shorter];
    } else {
        kept[shorter] = most / 2u;
        kept[longer] = most - most / 2u;
    }
}

/* Writes tokens from position `at` on, and returns the position after them. type: of each, or of all if `types` is NULL. */
static uint32_t append(const megcc_token_rows *rows, uint32_t at, const uint32_t *tokens, uint32_t count,
                       const uint8_t *types, uint8_t type)
{
    for (uint32_t i = 0; i < count; i++) {
        if (rows->tokens) {
            rows->tokens[at + i] = (int64_t)tokens[i];
        }
        if (rows->mask) {
            rows->mask[at + i] = 1;
        }
        if (rows->types) {
            rows->types[at + i] = types ? types[i] : type;
        }
    }
    return at + count;
}

void megcc_tokens_write(const megcc_token_layout *layout, const uint32_t *found, const int32_t counts[2],
                        const megcc_token_rows *rows)
{
    const uint32_t second = layout->before + layout->between, all = second + layout->after;
    uint32_t kept[2] = { (uint32_t)counts[0], (uint32_t)counts[1] };
    truncate_pair(layout->most - all, kept);
    uint32_t at = append(rows, 0, layout->around, layout->before, layout->around_type, 0);
    at = append(rows, at, found, kept[0], NULL, layout->text_type[0]);
    at = append(rows, at, layout->around + layout->before, layout->between, layout->around_type + layout->before, 0);
    at = append(rows, at, found + layout->most, kept[1], NULL, layout->text_type[1]);
    at = append(rows, at, layout->around + second, layout->after, layout->around_type + second, 0);
    if (rows->count) {
        *rows->count = (int64_t)at;
    }
    for (; at < layout->most; at++) {
        if (rows->tokens) {
            rows->tokens[at] = layout->padding;
        }
        if (rows->mask) {
            rows->mask[at] = 0;
        }
        if (rows->types) {
            rows->types[at] = 0;
        }
    }
}
