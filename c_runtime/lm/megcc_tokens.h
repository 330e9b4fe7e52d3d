/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a text, or of two, among the tokens that a network expects around them, in rows of fixed length. Programs
 * (`megcc program compile`) call it between a tokenizer and a network. There is no heap.
 */
#ifndef MEGCC_TOKENS_H
#define MEGCC_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tokens around a text that a network expects. */
typedef struct megcc_token_layout {
    uint32_t most;              /* length of a row, at least before + between + after */
    uint32_t before, between, after; /* numbers of tokens before the first text, before the second one, and at the end */
    const uint32_t *around;     /* [before + between + after]: these tokens */
    const uint8_t *around_type; /* [before + between + after]: their token types */
    uint8_t text_type[2];       /* token types of the strings */
    int64_t padding;            /* token after the last one */
} megcc_token_layout;

/* The rows that are written; NULL: not wanted. */
typedef struct megcc_token_rows {
    int64_t *tokens;            /* [most] */
    int64_t *mask;              /* [most]: 1 for tokens, 0 for padding */
    int64_t *types;             /* [most]: token types, 0 for padding */
    int64_t *count;             /* [1]: tokens without padding */
} megcc_token_rows;

/* Returns the bytes of a text that ends before its first 0, or after `capacity` bytes. */
size_t megcc_text_size(const uint8_t *text, size_t capacity);

/* Writes the rows of a text, or of two. found[2][most]: the tokens of each text, as far as they fit. counts: how many tokens
 * each text has, 0 for a second one that there is not. A text that is too long loses its end; if two are too long together,
 * the longer one loses its end first. */
void megcc_tokens_write(const megcc_token_layout *layout, const uint32_t *found, const int32_t counts[2],
                        const megcc_token_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
