/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalization of a text before a tokenizer splits it, as the package tokenizers does it: a list of steps. megcc_unigram.c
 * and megcc_tokenizer.c call it; `megcc lm tokenizer` writes the tables. There is no heap, and nothing is written but work
 * memory.
 */
#ifndef MEGCC_NORMALIZER_H
#define MEGCC_NORMALIZER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of steps, and the fields of megcc_normal_step that each reads, with the lengths of the arrays:
 *   MAP       hangul, mapped, target, letters, class_, pair: replaces characters by strings (decomposition or others); then,
 *             if there are classes, sorts marks (canonical ordering); then, if there are pairs, composes. NFC and others
 *   CLUSTERS  class_, trie, letters: replaces grapheme clusters of less than 6 bytes, else their characters, by strings, as
 *             SentencePiece's precompiled_charsmap does (Precompiled in the package)
 *   REPLACE   target, letters: replaces a string by another one
 *   SPACES    target, letters: replaces two spaces or more by a string
 *   STRIP     left, right: removes white space at these ends of the text */
enum {
    MEGCC_NORMAL_MAP,
    MEGCC_NORMAL_CLUSTERS,
    MEGCC_NORMAL_REPLACE,
    MEGCC_NORMAL_SPACES,
    MEGCC_NORMAL_STRIP
};

typedef struct megcc_normal_step {
    uint8_t kind;
    uint8_t hangul;             /* whether syllables of Hangul are decomposed */
    uint8_t left, right;        /* STRIP: at which ends */
    uint32_t classes, mappings, pairs; /* lengths of the arrays below */
    const uint32_t *class_;     /* [classes]: ranges of characters, ascending, as first code point << 8 | class. MAP: the
                                 * canonical combining class; CLUSTERS: a number for the class in grapheme clusters, which
                                 * `megcc lm tokenizer` and megcc_normalizer.c agree on */
    const uint32_t *mapped;     /* [mappings]: characters that are replaced, ascending */
    const uint32_t *pair;       /* [pairs][3]: two characters, in order, and what they compose */
    const uint32_t *trie;       /* CLUSTERS: what is replaced, a double-array trie (megcc_strings.h) */
    const uint32_t *target;     /* [mappings + 1]: where strings begin in `letters`; of REPLACE two strings, of SPACES one */
    const uint8_t *letters;     /* UTF-8; strings of CLUSTERS end with 0 */
} megcc_normal_step;

typedef struct megcc_normalizer {
    uint32_t steps;
    const megcc_normal_step *step;
} megcc_normalizer;

/* Normalizes a text, in which a byte that is no UTF-8 becomes U+FFFD. Returns the size of `*normal`, which is in `work`;
 * SIZE_MAX: after some step, the text is larger than half the work memory. */
size_t megcc_normalize(const megcc_normalizer *normalizer, const uint8_t *text, size_t size, uint8_t *work,
                       size_t work_bytes, const uint8_t **normal);

#ifdef __cplusplus
}
#endif
#endif
