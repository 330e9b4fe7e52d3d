/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers of language models: text to tokens and back. `megcc lm compile` writes the tables of a model.
 *
 *     uint32_t tokens[256];
 *     static uint32_t work[MEGCC_TOKENIZER_WORK(1000)];
 *     int32_t count = megcc_tokenizer_encode(&smollm2_tokenizer, "Hello", 5, 1, tokens, 256, work, sizeof work);
 *
 * Byte pair encoding (Sennrich et al., 2016) over bytes, as GPT-2, SmolLM, Llama 3 and Qwen 2 split a text into words
 * before; and over characters, as SentencePiece. Tokens are those of the package tokenizers. There is no heap, and
 * nothing is written but results and work memory. Text is UTF-8; a byte that is not is a character of its own, neither
 * letter nor number nor space.
 */
#ifndef MEGCC_TOKENIZER_H
#define MEGCC_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MEGCC_NO_TOKEN 0xffffffffu

/* How a text is split into words, within which pairs are merged. */
enum {
    MEGCC_SPLIT_GPT2,
    MEGCC_SPLIT_DIGITS,         /* as GPT-2, after each digit is a word of its own: SmolLM, StarCoder */
    MEGCC_SPLIT_LLAMA3,
    MEGCC_SPLIT_QWEN2,
    MEGCC_SPLIT_NONE            /* SentencePiece */
};

struct megcc_normalizer;

/* The tables of a model. Numbers of merges are uint16_t, or uint32_t if `wide`. */
typedef struct megcc_tokenizer {
    uint32_t tokens;            /* size of the vocabulary */
    uint32_t longest;           /* bytes of the longest token */
    uint32_t words, specials, classes; /* lengths of the arrays below */
    uint32_t unknown;           /* token of characters that are none and have no bytes: SentencePiece */
    uint8_t split;              /* MEGCC_SPLIT_GPT2 and so on */
    uint8_t wide;
    uint8_t prefix;             /* whether a text begins with a space that is not shown: SentencePiece */
    const uint8_t *bytes;       /* strings of tokens, then of special tokens */
    const uint32_t *text;       /* [tokens + specials + 1]: where each begins in `bytes` */
    const uint32_t *first;      /* [tokens + 1]: where the merges of a left token begin, which are sorted by `right` */
    const void *right, *rank, *merged; /* of each merge: the right token, its place in the order, the result */
    const uint32_t *byte;       /* [256]: the token of a byte */
    const uint32_t *word;       /* [words]: tokens that are looked up by their text, sorted by it */
    const uint32_t *special;    /* [specials]: their tokens, sorted by text */
    const uint32_t *class_;     /* [classes]: first code point << 4 | bits, see the source */
    const struct megcc_normalizer *normalizer; /* what is changed before a text is split, and megcc_normalize; or NULL */
    size_t (*normalize)(const struct megcc_normalizer *normalizer, const uint8_t *text, size_t size, uint8_t *work,
                        size_t work_bytes, const uint8_t **normal);
} megcc_tokenizer;

/* The number of uint32_t that encoding needs for strings of so many bytes. Strings that are split need it for their longest
 * word only. */
#define MEGCC_TOKENIZER_WORK(bytes) (5u * ((bytes) + 1u))

/* The same with a normalizer, for the bytes of the text between special tokens; a byte that is no UTF-8 becomes U+FFFD, of 3
 * bytes. */
#define MEGCC_TOKENIZER_NORMAL_WORK(bytes) (6u * ((bytes) + 1u))

/* Writes the tokens of a text, and returns how many it has, even if that is more than `capacity`; -1: a word needs more
 * work memory. special: whether the strings of special tokens, as "<|im_end|>", are these tokens; otherwise they are
 * ordinary text. */
int32_t megcc_tokenizer_encode(const megcc_tokenizer *tokenizer, const char *text, size_t size, int32_t special,
                               uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes);

/* The state of a text that arrives token by token; all zero at its beginning. */
typedef struct megcc_decoder {
    uint8_t pending[4];         /* the first bytes of a character that is incomplete */
    uint8_t count;              /* their number */
    uint8_t begun;              /* whether the text has bytes already */
} megcc_decoder;

/* The most bytes that a token adds. */
#define MEGCC_DECODER_ROOM(longest) (3u * ((longest) + 1u))

/* Writes the characters that a token completes, and returns their bytes: valid UTF-8, in which U+FFFD stands for what is
 * none. Characters that do not fit in `capacity` are lost. */
size_t megcc_decoder_add(const megcc_tokenizer *tokenizer, megcc_decoder *decoder, uint32_t token, char *text,
                         size_t capacity);

/* The same at the end of a text: U+FFFD if a character is incomplete. The decoder is new then. */
size_t megcc_decoder_end(megcc_decoder *decoder, char *text, size_t capacity);

/* Returns the bytes of a token, which may be a part of a character. NULL: there is no such token. */
const char *megcc_tokenizer_text(const megcc_tokenizer *tokenizer, uint32_t token, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
