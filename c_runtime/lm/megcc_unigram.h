/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram tokenizers of the package tokenizers: text to tokens. `megcc lm tokenizer` writes the tables of a tokenizer.json.
 *
 *     uint32_t tokens[256];
 *     static uint32_t work[MEGCC_UNIGRAM_WORK(1000)];
 *     int32_t count = megcc_unigram_encode(&t5_tokenizer, "Hello", 5, 1, tokens, 256, work, sizeof work);
 *
 * Tokens are those of that package; of the package sentencepiece, some are others (megcc_sentencepiece.h). There is no
 * heap, and nothing is written but results and work memory. Text is UTF-8; a byte that is not is U+FFFD.
 */
#ifndef MEGCC_UNIGRAM_H
#define MEGCC_UNIGRAM_H

#include "megcc_normalizer.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEGCC_NO_TOKEN
#define MEGCC_NO_TOKEN 0xffffffffu
#endif

/* Where U+2581 is inserted before a word that has none: nowhere, before the first word of the text, or also before the
 * first word after each special token. */
enum { MEGCC_PREFIX_NEVER, MEGCC_PREFIX_FIRST, MEGCC_PREFIX_ALWAYS };

struct megcc_trie;

/* The tables of a tokenizer.json. */
typedef struct megcc_unigram {
    uint32_t tokens;            /* size of the vocabulary */
    uint32_t specials;          /* number of special tokens */
    uint32_t unknown;           /* token for characters that no token contains */
    uint32_t first, last;       /* tokens that the network expects around a text; or MEGCC_NO_TOKEN */
    uint8_t prefix;             /* MEGCC_PREFIX_NEVER and so on */
    uint8_t white_space_splits; /* whether white space is removed and begins a word; otherwise only U+0020 is changed */
    uint8_t split;              /* whether a word begins at each U+2581; otherwise the text is one */
    double unknown_score;       /* log-probability of an unknown character */
    megcc_normalizer normalizer;
    const struct megcc_trie *words; /* the tokens that ordinary text can become, by their strings */
    const uint8_t *bytes;       /* strings of special tokens */
    const uint32_t *text;       /* [specials + 1]: offset of each in `bytes` */
    const float *score;         /* [tokens]: log-probabilities; or NULL, and */
    const double *precise;      /* these, if some are not float32 numbers */
    const uint32_t *byte;       /* [256]: the token of a byte, if there are tokens of all bytes; or NULL */
    const uint32_t *special;    /* [specials]: their tokens, sorted by text */
    const uint8_t *takes_space; /* [specials]: whether white space before one belongs to it */
} megcc_unigram;

/* The number of uint32_t that encoding needs for a text of so many bytes after each step of normalization, of which spaces
 * take 3. */
#define MEGCC_UNIGRAM_WORK(bytes) (4u * ((bytes) + 1u) + ((bytes) + 1u) / 2u + 2u)

/* Writes the tokens of a text, without `first` and `last`, and returns how many it has, even if that is more than `capacity`;
 * -1: it needs more work memory. special: whether the strings of special tokens, as "<mask>", are these tokens;
 * otherwise they are ordinary text. */
int32_t megcc_unigram_encode(const megcc_unigram *tokenizer, const char *text, size_t size, int32_t special,
                             uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes);

#ifdef __cplusplus
}
#endif
#endif
