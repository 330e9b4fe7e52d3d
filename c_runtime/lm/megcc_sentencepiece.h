/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece: text to tokens. `megcc lm tokenizer` writes the tables of a tokenizer.model.
 *
 *     uint32_t tokens[256];
 *     static uint32_t work[MEGCC_SENTENCEPIECE_WORK(1000)];
 *     int32_t count = megcc_sentencepiece_encode(&t5_tokenizer, "Hello", 5, tokens, 256, work, sizeof work);
 *
 * Tokens are those of the package sentencepiece. There is no heap, and nothing is written but results and work memory.
 * Text is UTF-8; a byte that is not counts as U+FFFD.
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

struct megcc_trie;

/* The tables of a model. */
typedef struct megcc_sentencepiece {
    uint32_t tokens;            /* size of the vocabulary */
    uint32_t defined;           /* number of tokens that a user defined: a text is searched for them first */
    uint32_t unknown;           /* token for characters that no token contains */
    uint8_t unigram;            /* 1: a unigram model, by the likeliest tokens; 0: byte pair encoding, by merging pairs */
    uint8_t prefix, suffix;     /* whether a space is added before a text, and after it */
    uint8_t single_spaces;      /* whether several spaces become one, and spaces at both ends of a text are removed */
    uint8_t escape;             /* whether tokens have U+2581 in place of spaces */
    uint8_t bytes_known;        /* whether an unknown character becomes the tokens of its UTF-8 bytes, not `unknown` */
    float unknown_score;        /* log-probability of an unknown character */
    const struct megcc_trie *words; /* the tokens that ordinary text can become, by their strings */
    const uint8_t *bytes;       /* strings of the tokens that a user defined, sorted */
    const uint32_t *text;       /* [defined + 1]: offset of each in `bytes` */
    const float *score;         /* [tokens]: log-probabilities; if pairs are merged, the largest first */
    const uint8_t *is_defined;  /* [tokens]: whether a user defined it; used if `defined` is not 0 */
    const uint32_t *byte;       /* [256]: the token of a byte */
    const uint32_t *trie;       /* double-array trie of the strings that normalization replaces, as the model file has it;
                                 * or NULL */
    const uint8_t *replaced;    /* the strings that replace them, each with a 0 at its end; a trie's values are offsets in it */
} megcc_sentencepiece;

/* The number of uint32_t of work memory for a text of so many bytes after normalization, which may lengthen a text: a space
 * becomes 3 bytes, and some characters become several. */
#define MEGCC_SENTENCEPIECE_WORK(bytes) (5u * ((bytes) + 1u) + (bytes) / 4u + 2u)

/* Writes the tokens of a text, and returns how many it has, even if that is more than `capacity`; -1: it needs more work
 * memory. Control tokens, such as the end of a text, are not added. */
int32_t megcc_sentencepiece_encode(const megcc_sentencepiece *tokenizer, const char *text, size_t size,
                                   uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes);

#ifdef __cplusplus
}
#endif
#endif
