/* SPDX-License-Identifier: Apache-2.0
 *
 * Unigram tokenizers (Kudo, 2018). A text is cut at special tokens, these parts are normalized and cut into words, and words
 * into the tokens whose log-probabilities have the highest sum (Viterbi's algorithm), in float64.
 */
#include "megcc_unigram.h"

#include "megcc_strings.h"

/* The tokens written so far, and work memory: the best path to each byte of a word, and strings. */
typedef struct encoder {
    const megcc_unigram *t;
    megcc_tokens to;
    int32_t special;            /* whether text may become special tokens */
    uint32_t *score;            /* [2 * (most + 1)]: the score of each path, a float64 in two elements */
    uint32_t *begin;            /* [most + 1]: where the last token of each path begins; MEGCC_NO_TOKEN: no path yet */
    uint32_t *token;            /* [most + 1]: the last token of each path */
    uint8_t *strings;           /* [2 * most]: a normalized part, and the same with marked words */
    size_t most;                /* bytes of one of both strings, and of a word */
} encoder;

typedef union double_bits {
    double value;
    uint32_t bits[2];
} double_bits;

static const uint8_t space_symbol[] = { 0xe2, 0x96, 0x81 };

/* Whether ordinary text may become this token. A vocabulary can list special tokens as words too; text becomes them only if
 * the caller asked for special tokens. */
static int32_t allowed(const encoder *e, uint32_t token)
{
    for (uint32_t i = 0; !e->special && i < e->t->specials; i++) {
        if (e->t->special[i] == token) {
            return 0;
        }
    }
    return 1;
}

/* --- words ------------------------------------------------------------------------------------------------------ */

static double score_at(const encoder *e, size_t at)
{
    const double_bits score = { .bits = { e->score[2u * at], e->score[2u * at + 1u] } };
    return score.value;
}

/* Makes `token`, from byte `begin` to `end`, the end of the best path to `end`, unless that has a better one. */
static void reach(const encoder *e, size_t end, size_t begin, uint32_t token, double score)
{
    const double_bits kept = { .value = score };
    if (e->begin[end] != MEGCC_NO_TOKEN && !(score > score_at(e, end))) {
        return;
    }
    e->score[2u * end] = kept.bits[0];
    e->score[2u * end + 1u] = kept.bits[1];
    e->begin[end] = (uint32_t)begin;
    e->token[end] = token;
}

/* Writes the tokens of a run of unknown characters: the token whose text the run is, if there is one; else the tokens of its
 * bytes, if the vocabulary has them; else one unknown token. */
static void write_unknown(encoder *e, const uint8_t *text, size_t size)
{
    uint32_t node = 0;
    const int32_t known = megcc_longest_of(e->t->words, 0, text, size, &node) == size && node != 0u;
    const uint32_t token = known ? megcc_token(e->t->words, node) : MEGCC_NO_TOKEN;
    if (known && allowed(e, token)) {
        megcc_write_token(&e->to, token);
    } else if (e->t->byte) {
        for (size_t i = 0; i < size; i++) {
            megcc_write_token(&e->to, e->t->byte[text[i]]);
        }
    } else {
        megcc_write_token(&e->to, e->t->unknown);
    }
}

static void encode_word(encoder *e, const uint8_t *text, size_t size)
{
    const megcc_unigram *t = e->t;
    for (size_t i = 0; i <= size; i++) {
        e->begin[i] = MEGCC_NO_TOKEN;
    }
    e->score[0] = e->score[1] = 0;
    for (size_t at = 0, single; at < size; at = single) {
        const double before = score_at(e, at);
        uint32_t node = 0;
        int32_t known = 0;
        single = at + megcc_character_bytes(text[at]);
        for (size_t end = at; end < size && (node = megcc_child(t->words, node, text[end])) != 0u;) {
            end++;
            if (!megcc_has(t->words->ends, node)) {
                continue;
            }
            const uint32_t token = megcc_token(t->words, node);
            if (!allowed(e, token)) {
                continue;
            }
            reach(e, end, at, token, (t->score ? (double)t->score[token] : t->precise[token]) + before);
            known |= end == single;
        }
        if (!known) {
            reach(e, single, at, t->unknown, t->unknown_score + before);
        }
    }
    uint32_t *next = e->score; /* the path forwards, in the memory of the scores, which are no longer needed */
    for (size_t end = size; end; end = e->begin[end]) {
        next[e->begin[end]] = (uint32_t)end;
    }
    for (size_t at = 0, end; at < size; at = end) {
        end = next[at];
        if (e->token[end] != t->unknown) {
            megcc_write_token(&e->to, e->token[end]);
            continue;
        }
        while (end < size && e->token[next[end]] == t->unknown) {
            end = next[end];
        }
        write_unknown(e, text + at, end - at);
    }
}

/* --- parts of a text -------------------------------------------------------------------------------------------- */

static int32_t begins_with_space_symbol(const uint8_t *text, size_t size)
{
    return size >= sizeof space_symbol && text[0] == space_symbol[0] && text[1] == space_symbol[1] && text[2] == space_symbol[2];
}

/* Appends bytes to `out`, which has `size`, and returns its new size; SIZE_MAX if they do not fit, or if `size` is that. */
static size_t append(const encoder *e, uint8_t *out, size_t size, const uint8_t *bytes, size_t count)
{
    if (size > e->most || count > e->most - size) {
        return SIZE_MAX;
    }
    for (size_t i = 0; i < count; i++) {
        out[size + i] = bytes[i];
    }
    return size + count;
}

/* Writes the text with U+2581 in place of spaces and, as `prefix` says, before words. first: whether no part was before this
 * one. Returns the number of bytes; SIZE_MAX: they do not fit. */
static size_t mark_words(const encoder *e, const uint8_t *text, size_t size, int32_t first, uint8_t *out)
{
    const megcc_unigram *t = e->t;
    const int32_t prefix = t->prefix == MEGCC_PREFIX_ALWAYS || (t->prefix == MEGCC_PREFIX_FIRST && first);
    size_t marked = 0;
    int32_t begins = prefix; /* whether a word begins here */
    for (size_t at = 0, begin; at < size;) {
        begin = at;
        const uint32_t code = megcc_character(text, &at, size);
        if (t->white_space_splits && megcc_is_white(code)) {
            begins = prefix;
            continue;
        }
        if (begins && code != ' ' && !begins_with_space_symbol(text + begin, size - begin)) {
            marked = append(e, out, marked, space_symbol, sizeof space_symbol);
        }
        begins = 0;
        marked = code == ' ' ? append(e, out, marked, space_symbol, sizeof space_symbol)
                             : append(e, out, marked, text + begin, at - begin);
    }
    return marked;
}

/* Writes the tokens of a part without special tokens, and returns whether there was enough work memory. */
static int32_t encode_part(encoder *e, const uint8_t *text, size_t size, int32_t first)
{
    const uint8_t *normal = NULL;
    if (!size) {
        return 1;
    }
    size = megcc_normalize(&e->t->normalizer, text, size, e->strings, 2u * e->most, &normal);
    if (size == SIZE_MAX) {
        return 0;
    }
    uint8_t *marked = normal == e->strings ? e->strings + e->most : e->strings;
    size = mark_words(e, normal, size, first, marked);
    if (size == SIZE_MAX) {
        return 0;
    }
    for (size_t at = 0, end; at < size; at = end) {
        end = at + 1u;
        while (end < size && !(e->t->split && begins_with_space_symbol(marked + end, size - end))) {
            end++;
        }
        encode_word(e, marked + at, end - at);
    }
    return 1;
}

/* Where the white space begins that ends at `end`; `end` if there is none. */
static size_t before_space(const uint8_t *text, size_t begin, size_t end)
{
    size_t found = begin;
    for (size_t at = begin; at < end;) {
        if (!megcc_is_white(megcc_character(text, &at, end))) {
            found = at;
        }
    }
    return found;
}

int32_t megcc_unigram_encode(const megcc_unigram *tokenizer, const char *text, size_t size, int32_t special,
                             uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes)
{
    /* The strings of special tokens follow those of all tokens. */
    const megcc_strings specials = { .bytes = tokenizer->bytes, .text = tokenizer->text };
    const megcc_range all = { .low = 0, .high = tokenizer->specials, .depth = 0 };
    const uint8_t *bytes = (const uint8_t *)text;
    const size_t words = work_bytes / sizeof *work;
    if (!size) {
        return 0;
    }
    if (words < 6u) {
        return -1;
    }
    /* 4 arrays of most + 1 words and 2 strings of `most` bytes: 9 / 2 * most + 6 words at most. */
    const size_t bytes_fit = (words - 6u) / 9u * 2u + (words - 6u) % 9u * 2u / 9u;
    const size_t most = bytes_fit > INT32_MAX / 16 ? INT32_MAX / 16 : bytes_fit;
    uint32_t *begins = work + 2u * (most + 1u);
    encoder e = { .t = tokenizer, .to = { tokens, capacity, 0 }, .special = special, .score = work,
                  .begin = begins, .token = begins + most + 1u, .strings = (uint8_t *)(begins + 2u * (most + 1u)),
                  .most = most };
    size_t begin = 0;
    for (size_t at = 0; special && at < size;) {
        uint32_t index = 0;
        const size_t count = megcc_longest(&specials, all, bytes + at, size - at, &index);
        if (count) {
            const size_t end = tokenizer->takes_space[index] ? before_space(bytes, begin, at) : at;
            if (!encode_part(&e, bytes + begin, end - begin, begin == 0u)) {
                return -1;
            }
            megcc_write_token(&e.to, tokenizer->special[index]);
            begin = at + count;
        }
        at += count ? count : 1u;
    }
    return encode_part(&e, bytes + begin, size - begin, begin == 0u) ? e.to.written : -1;
}
