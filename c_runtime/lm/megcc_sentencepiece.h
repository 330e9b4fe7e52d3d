/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece: text to tokens. `megcc lm tokenizer` writes the tables of a tokenizer.model.
 *
 *     uint32_t tokens[256];
 *     static uint32_t work[MEGCC_SENTENCEPIECE_WORK(1000)];
 *     int32_t count = megcc_sentencepiece_encode(&t5_tokenizer, "Hello", 5, tokens, 256, work, sizeof work);
 *
 * Tokens are those of the package sentencepiece. There is no heap, and nothing is written but results and work memory.
 * Text is UTF-8; a byte that is not is U+FFFD.
 */
#ifndef MEGCC_SENTENCEPIECE_H
#define MEGCC_SENTENCEPIECE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEGCC_NO_TOKEN
#define MEGCC_NO_TOKEN 0xffffffffu
#endif

/* The tables of a model. */
typedef struct megcc_sentencepiece {
    uint32_t tokens;            /* size of the vocabulary */
    uint32_t words;             /* tokens that are found in a text */
    uint32_t defined;           /* those of them that a user defined: they are found before anything else */
    uint32_t unknown;           /* token of characters that are none */
    uint8_t unigram;            /* whether the likeliest tokens are found; otherwise pairs are merged */
    uint8_t prefix, suffix;     /* whether a space is added before a text, and after it */
    uint8_t single_spaces;      /* whether several spaces are one, and none where a text begins and ends */
    uint8_t escape;             /* whether spaces are U+2581 in tokens */
    uint8_t bytes_known;        /* whether characters that are no tokens become tokens of their bytes */
    float unknown_score;        /* log-probability of an unknown character */
    const uint8_t *bytes;       /* strings of tokens, then of those that a user defined */
    const uint32_t *text;       /* [tokens + defined + 1]: where each begins in `bytes` */
    const uint32_t *word;       /* [words]: tokens, sorted by text */
    const float *score;         /* [tokens]: log-probabilities; for pairs, what is larger is merged first */
    const uint8_t *is_defined;  /* [tokens], if any is */
    const uint32_t *byte;       /* [256]: the token of a byte */
    const uint32_t *trie;       /* double array of what normalization replaces, as the model has it; or NULL */
    const uint8_t *replaced;    /* what replaces it: strings that end with 0 */
} megcc_sentencepiece;

/* The number of uint32_t that encoding needs for a text that has so many bytes after normalization, which writes a space as 3
 * bytes, and some characters as several. */
#define MEGCC_SENTENCEPIECE_WORK(bytes) (5u * ((bytes) + 1u) + (bytes) / 4u + 2u)

/* Writes the tokens of a text, and returns how many it has, even if that is more than `capacity`; -1: it needs more work
 * memory. Control tokens, as of a text's end, are not among them. */
int32_t megcc_sentencepiece_encode(const megcc_sentencepiece *tokenizer, const char *text, size_t size,
                                   uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes);

#ifdef __cplusplus
}
#endif
#endif
