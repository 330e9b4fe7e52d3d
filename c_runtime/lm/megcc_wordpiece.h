/* SPDX-License-Identifier: Apache-2.0
 *
 * WordPiece, the tokenizer of BERT: text to tokens. `megcc lm tokenizer` writes the tables of a vocabulary.
 *
 *     uint32_t tokens[128];
 *     static uint8_t work[MEGCC_WORDPIECE_WORK(100)];
 *     int32_t count = megcc_wordpiece_encode(&minilm_tokenizer, "Hello", 5, 1, tokens, 128, work, sizeof work);
 *
 * Tokens are those of the package tokenizers. There is no heap, and nothing is written but results and work memory.
 * Text is UTF-8; a byte that is not is U+FFFD.
 */
#ifndef MEGCC_WORDPIECE_H
#define MEGCC_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEGCC_NO_TOKEN
#define MEGCC_NO_TOKEN 0xffffffffu
#endif

struct megcc_trie;

/* The tables of a vocabulary. */
typedef struct megcc_wordpiece {
    uint32_t tokens;            /* size of the vocabulary */
    uint32_t specials, classes, mappings; /* lengths of `special`, `class_` and `mapped` */
    uint32_t inside;            /* the node of "##" in `words`; 0: no token begins so */
    uint32_t unknown;           /* token of a word that is not a sequence of tokens */
    uint32_t first, last;       /* tokens that the network expects around a text, [CLS] and [SEP]; or MEGCC_NO_TOKEN */
    uint32_t longest_word;      /* characters of the longest word that is not unknown */
    uint8_t hangul;             /* whether syllables of Hangul are decomposed */
    const struct megcc_trie *words; /* the tokens by their strings */
    const uint8_t *bytes;       /* strings of special tokens */
    const uint32_t *text;       /* [specials + 1]: offset of each in `bytes` */
    const uint32_t *special;    /* [specials]: their tokens, sorted by text */
    const uint32_t *class_;     /* [classes]: first code point of a range << 4 | its class in megcc_wordpiece.c */
    const uint32_t *mapped;     /* [mappings]: characters that are replaced, ascending */
    const uint16_t *target;     /* [mappings + 1]: offset in `letters` of what replaces each */
    const uint8_t *letters;     /* UTF-8 */
} megcc_wordpiece;

/* The bytes that encoding needs for words of so many characters: tokenizer->longest_word. */
#define MEGCC_WORDPIECE_WORK(characters) (4u * (characters))

/* Writes the tokens of a text, without `first` and `last`, and returns how many it has, even if that is more than `capacity`;
 * -1: there is less work memory than MEGCC_WORDPIECE_WORK(tokenizer->longest_word), or `size` is above 2^29 - 1. special:
 * whether the strings of special tokens, as "[MASK]", are these tokens; otherwise they are ordinary text. */
int32_t megcc_wordpiece_encode(const megcc_wordpiece *tokenizer, const char *text, size_t size, int32_t special,
                               uint32_t *tokens, int32_t capacity, uint8_t *work, size_t work_bytes);

#ifdef __cplusplus
}
#endif
#endif
