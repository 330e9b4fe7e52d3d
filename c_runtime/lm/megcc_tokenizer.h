/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers of language models: text to tokens and back. `megcc lm compile` writes the tables of a model.
 *
 *     uint32_t tokens[256];
 *     static uint32_t work[MEGCC_TOKENIZER_WORK(1000)];
 *     int32_t count = megcc_tokenizer_encode(&smollm2_tokenizer, "Hello", 5, 1, tokens, 256, work, sizeof work);
 *
 * Byte pair encoding (Sennrich et al., 2016): over the bytes of words, into which a text is split as by GPT-2, SmolLM, Llama 3
 * or Qwen 2; or over the characters of a whole text, as by SentencePiece. Tokens are those of the package tokenizers. There
 * is no heap, and nothing is written but results and work memory. Text is UTF-8; a byte that is not is a character of its
 * own, neither letter nor number nor space.
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
    MEGCC_SPLIT_DIGITS,         /* each digit is a word; the text between digits is split as by GPT-2: SmolLM, StarCoder */
    MEGCC_SPLIT_LLAMA3,
    MEGCC_SPLIT_QWEN2,
    MEGCC_SPLIT_NONE            /* the text is one word of characters: SentencePiece */
};

struct megcc_normalizer;

/* The tables of a model. */
typedef struct megcc_tokenizer {
    uint32_t tokens;            /* size of the vocabulary */
    uint32_t longest;           /* bytes of the longest token, for MEGCC_DECODER_ROOM */
    uint32_t words, specials, classes; /* lengths of `word`, `special` and `class_` */
    uint32_t unknown;           /* MEGCC_SPLIT_NONE: token for characters that are no token and whose bytes have none */
    uint8_t split;              /* MEGCC_SPLIT_GPT2 and so on */
    uint8_t wide;               /* whether elements of `right`, `rank` and `merged` are uint32_t; otherwise uint16_t */
    uint8_t prefix;             /* MEGCC_SPLIT_NONE: whether encoding adds a space before a text, and decoding removes it */
    const uint8_t *bytes;       /* strings of tokens, then of special tokens */
    const uint32_t *text;       /* [tokens + specials + 1]: offset of each in `bytes` */
    const uint32_t *first;      /* [tokens + 1]: the merges whose left token is t are [first[t], first[t + 1]) */
    const void *right, *rank, *merged; /* of each merge: its right token, ascending for one left token; its rank, where the
                                        * lowest is merged first; and the token that results */
    const uint32_t *byte;       /* [256]: the token of a byte, or MEGCC_NO_TOKEN */
    const uint32_t *word;       /* [words]: tokens that a whole word or, with MEGCC_SPLIT_NONE, a character is looked up in,
                                 * sorted by text */
    const uint32_t *special;    /* [specials]: their tokens, sorted by text */
    const uint32_t *class_;     /* [classes]: ranges of characters, `first code point << 4 | bits`, ascending; the bits are
                                 * in megcc_tokenizer.c */
    const struct megcc_normalizer *normalizer; /* what changes a text before it is split; or NULL */
    /* megcc_normalize, a pointer so that programs without a normalizer need not link it; or NULL. */
    size_t (*normalize)(const struct megcc_normalizer *normalizer, const uint8_t *text, size_t size, uint8_t *work,
                        size_t work_bytes, const uint8_t **normal);
} megcc_tokenizer;

/* The number of uint32_t of work memory for a text of so many bytes; for a text that is split, the bytes of its longest word
 * suffice. */
#define MEGCC_TOKENIZER_WORK(bytes) (5u * ((bytes) + 1u))

/* The same if there is a normalizer: the bytes are those of the longest text between special tokens, after normalization. A
 * byte that is no UTF-8 becomes U+FFFD there, which has 3 bytes. */
#define MEGCC_TOKENIZER_NORMAL_WORK(bytes) (6u * ((bytes) + 1u))

/* Writes the tokens of a text, and returns how many it has, even if that is more than `capacity`; -1: a word needs more
 * work memory, or `size` is above 2^29 - 1. special: whether the strings of special tokens, as "<|im_end|>", are these
 * tokens; otherwise they are ordinary text. */
int32_t megcc_tokenizer_encode(const megcc_tokenizer *tokenizer, const char *text, size_t size, int32_t special,
                               uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes);

/* The state of a text that arrives token by token; all zero at its beginning. */
typedef struct megcc_decoder {
    uint8_t pending[4];         /* the first bytes of a character that is incomplete */
    uint8_t count;              /* their number */
    uint8_t begun;              /* whether the text has bytes already */
} megcc_decoder;

/* The most bytes that a token adds to a text, for tokens of at most `longest` bytes: each may become U+FFFD, of 3 bytes. */
#define MEGCC_DECODER_ROOM(longest) (3u * ((longest) + 1u))

/* Writes the characters that a token completes, and returns their bytes: valid UTF-8, in which U+FFFD stands for
 * invalid bytes. Characters that do not fit in `capacity` are lost. */
size_t megcc_decoder_add(const megcc_tokenizer *tokenizer, megcc_decoder *decoder, uint32_t token, char *text,
                         size_t capacity);

/* The same at the end of a text: U+FFFD if a character is incomplete. Then the decoder is ready for another text. */
size_t megcc_decoder_end(megcc_decoder *decoder, char *text, size_t capacity);

/* Returns the bytes of a token, which may be a part of a character. NULL: there is no such token. */
const char *megcc_tokenizer_text(const megcc_tokenizer *tokenizer, uint32_t token, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
