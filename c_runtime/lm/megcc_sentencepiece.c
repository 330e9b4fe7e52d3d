/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece (Kudo and Richardson, 2018). A text is normalized, then cut into the tokens whose log-probabilities have
 * the highest sum (unigram: Kudo, 2018; Viterbi's algorithm), or neighbours are merged, best scores first. Sums
 * round as those of the package sentencepiece 0.2.3.
 */
#include "megcc_sentencepiece.h"

#include "megcc_strings.h"

/* The tokens written so far, and work memory: the normalized text of at most `most` bytes, and five arrays of `most` + 1
 * elements, which encode_unigram and encode_pairs use as `paths` and `symbols` say. */
typedef struct encoder {
    const megcc_sentencepiece *t;
    megcc_tokens to;
    uint8_t *text;              /* normalized */
    uint32_t size, most;        /* its bytes, and the most */
    int32_t full;               /* whether there was too little work memory */
    int32_t was_unknown;        /* whether the last part was of unknown characters */
    uint32_t *array[5];
} encoder;

/* --- normalization ---------------------------------------------------------------------------------------------- */

static const uint8_t space[] = { ' ' }, space_symbol[] = { 0xe2, 0x96, 0x81 }, replacement[] = { 0xef, 0xbf, 0xbd };

static void append(encoder *e, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (e->size == e->most) {
            e->full = 1;
        } else {
            e->text[e->size++] = bytes[i];
        }
    }
}

static void append_space(encoder *e)
{
    if (e->t->escape) {
        append(e, space_symbol, sizeof space_symbol);
    } else {
        append(e, space, sizeof space);
    }
}

/* The bytes of the longest user-defined token that a text begins with, or 0. */
static size_t defined(const megcc_sentencepiece *t, const uint8_t *text, size_t size)
{
    const megcc_strings strings = { .bytes = t->bytes, .text = t->text };
    const megcc_range all = { 0, t->defined, 0 };
    uint32_t index;
    return megcc_longest(&strings, all, text, size, &index);
}

/* The bytes of the longest key that a text begins with, or 0; `found` is where its replacement begins. */
static size_t replaced(const megcc_sentencepiece *t, const uint8_t *text, size_t size, uint32_t *found)
{
    size_t best = 0;
    uint32_t at = t->trie ? megcc_trie_offset(t->trie[0]) : 0;
    for (size_t i = 0; t->trie && i < size; i++) {
        const uint32_t node = at ^ text[i], unit = t->trie[node];
        if (megcc_trie_label(unit) != text[i]) {
            break;
        }
        at = node ^ megcc_trie_offset(unit);
        if (megcc_trie_ends_key(unit)) {
            best = i + 1u;
            *found = megcc_trie_value(t->trie[at]);
        }
    }
    return best;
}

/* Normalizes the beginning of a text, and returns how many of its bytes that takes. */
static size_t normalized(const megcc_sentencepiece *t, const uint8_t *text, size_t size, const uint8_t **bytes,
                         size_t *count)
{
    uint32_t found = 0;
    size_t at = defined(t, text, size);
    *bytes = text;
    *count = at;
    if (at) {
        return at;
    }
    at = replaced(t, text, size, &found);
    if (at) {
        *bytes = t->replaced + found;
        while ((*bytes)[*count]) {
            ++*count;
        }
        return at;
    }
    if (megcc_character(text, &at, size) == MEGCC_REPLACEMENT) {
        *bytes = replacement;
        *count = sizeof replacement;
    } else {
        *count = at;
    }
    return at;
}

static int32_t ends_with_space(const encoder *e)
{
    const size_t count = e->t->escape ? sizeof space_symbol : sizeof space;
    const uint8_t *wanted = e->t->escape ? space_symbol : space;
    int32_t same = e->size >= count;
    for (size_t i = 0; same && i < count; i++) {
        same = e->text[e->size - count + i] == wanted[i];
    }
    return same;
}

static void normalize(encoder *e, const uint8_t *text, size_t size)
{
    const megcc_sentencepiece *t = e->t;
    size_t at = 0, next, count;
    const uint8_t *bytes;
    /* Skips what is normalized to a space at the beginning. */
    for (; t->single_spaces && at < size; at = next) {
        next = at + normalized(t, text + at, size - at, &bytes, &count);
        if (count != 1u || *bytes != ' ') {
            break;
        }
    }
    if (at == size) {
        return;
    }
    if (t->prefix) {
        append_space(e);
    }
    for (int32_t after_space = t->single_spaces; at < size && !e->full; at = next) {
        next = at + normalized(t, text + at, size - at, &bytes, &count);
        while (after_space && count && *bytes == ' ') {
            bytes++;
            count--;
        }
        for (size_t i = 0; i < count; i++) {
            if (bytes[i] == ' ') {
                append_space(e);
            } else {
                append(e, bytes + i, 1);
            }
        }
        if (count) {
            after_space = t->single_spaces && bytes[count - 1u] == ' ';
        }
    }
    while (t->single_spaces && ends_with_space(e)) {
        e->size -= t->escape ? (uint32_t)sizeof space_symbol : (uint32_t)sizeof space;
    }
    if (t->suffix) {
        append_space(e);
    }
}

/* --- tokens ----------------------------------------------------------------------------------------------------- */

/* Writes the token of a part of the text; of unknown characters in a row, one token. */
static void write_part(encoder *e, uint32_t token, uint32_t begin, uint32_t end)
{
    const int32_t unknown = token == e->t->unknown;
    if (unknown && e->t->bytes_known) {
        for (uint32_t i = begin; i < end; i++) {
            megcc_write_token(&e->to, e->t->byte[e->text[i]]);
        }
    } else if (!unknown || !e->was_unknown) {
        megcc_write_token(&e->to, token);
    }
    e->was_unknown = unknown;
}

static uint32_t character_end(const encoder *e, uint32_t at)
{
    const uint32_t bytes = megcc_character_bytes(e->text[at]), end = at + (bytes ? bytes : 1u);
    return end < e->size ? end : e->size;
}

/* Scores beyond this are made relative to that of a byte, as the package sentencepiece does, so that float keeps their
 * precision. */
#define MOST_SCORE 100000.0f

/* --- unigram ---------------------------------------------------------------------------------------------------- */

/* The best path to each byte of the text (Viterbi's algorithm): the bits of its score, a sum of log-probabilities; where
 * its last token begins, MEGCC_NO_TOKEN: there is no path yet; and which token that is. next: on the best path of all, where
 * the token that begins here ends. */
typedef struct paths {
    uint32_t *score, *begin, *token, *next;
} paths;

typedef union float_bits {
    float value;
    uint32_t bits;
} float_bits;

static float score_at(const paths *p, uint32_t at)
{
    const float_bits score = { .bits = p->score[at] };
    return score.value;
}

/* Makes `token`, from byte `begin` to `end`, the end of the best path to `end`, unless that has a better one. */
static void reach(const paths *p, uint32_t end, uint32_t begin, uint32_t token, float score)
{
    const float_bits kept = { .value = score };
    if (p->begin[end] != MEGCC_NO_TOKEN && !(score > score_at(p, end))) {
        return;
    }
    p->score[end] = kept.bits;
    p->begin[end] = begin;
    p->token[end] = token;
}

/* Subtracts the score of byte `at` from those of bytes `at` to `end`, the last ones that were reached. */
static void rebase(const paths *p, uint32_t at, uint32_t end)
{
    const float offset = score_at(p, at);
    for (uint32_t i = at; i <= end; i++) {
        const float_bits kept = { .value = score_at(p, i) - offset };
        if (p->begin[i] != MEGCC_NO_TOKEN) {
            p->score[i] = kept.bits;
        }
    }
}

static void encode_unigram(encoder *e)
{
    const megcc_sentencepiece *t = e->t;
    const paths p = { e->array[0], e->array[1], e->array[2], e->array[3] };
    for (uint32_t i = 0; i <= e->size; i++) {
        p.score[i] = 0;
        p.begin[i] = MEGCC_NO_TOKEN;
    }
    for (uint32_t at = 0, single, reached = 0; at < e->size; at = single) {
        uint32_t node = 0;
        int32_t known = 0;
        if (score_at(&p, at) < -MOST_SCORE || score_at(&p, at) > MOST_SCORE) {
            rebase(&p, at, reached);
        }
        const float before = score_at(&p, at);
        single = character_end(e, at);
        for (uint32_t end = at; end < e->size && (node = megcc_child(t->words, node, e->text[end])) != 0u;) {
            end++;
            if (!megcc_has(t->words->ends, node)) {
                continue;
            }
            const uint32_t token = megcc_token(t->words, node);
            /* Tokens of users are preferred: their score is 0.1 for each byte after the first, as in the package. */
            const float bonus = (float)(0.1 * (double)(end - at - 1u));
            reach(&p, end, at, token, (t->defined && t->is_defined[token] ? bonus : t->score[token]) + before);
            known |= end == single;
            reached = end > reached ? end : reached;
        }
        if (!known) {
            reach(&p, single, at, t->unknown, t->unknown_score + before);
            reached = single > reached ? single : reached;
        }
    }
    for (uint32_t end = e->size; end; end = p.begin[end]) {
        p.next[p.begin[end]] = end;
    }
    for (uint32_t at = 0; at < e->size; at = p.next[at]) {
        write_part(e, p.token[p.next[at]], at, p.next[at]);
    }
}

/* --- pairs ------------------------------------------------------------------------------------------------------ */

/* The text as `count` symbols, of which those that are left are linked by `next` and `before`. begin: the first byte of each.
 * pair: the token of a symbol and the next one, MEGCC_NO_TOKEN: none. tree: a tournament tree for the pair of the highest
 * score, as in megcc_tokenizer.c. */
typedef struct symbols {
    uint32_t *begin, *next, *before, *pair, *tree;
    uint32_t count;
} symbols;

/* The token of a part of the text, or MEGCC_NO_TOKEN. */
static uint32_t token_of(const encoder *e, uint32_t begin, uint32_t end)
{
    uint32_t node = 0;
    const size_t count = megcc_longest_of(e->t->words, 0, e->text + begin, end - begin, &node);
    return node != 0u && count == end - begin ? megcc_token(e->t->words, node) : MEGCC_NO_TOKEN;
}

/* Returns the offset at which a symbol ends. */
static uint32_t end_of(const encoder *e, const symbols *s, uint32_t at)
{
    return s->next[at] < s->count ? s->begin[s->next[at]] : e->size;
}

/* Whether the pair of a symbol is merged before that of another: the higher score, and of equal ones the first. */
static int32_t is_better(const encoder *e, const symbols *s, uint32_t one, uint32_t other)
{
    const uint32_t x = s->pair[one], y = s->pair[other];
    if (x == MEGCC_NO_TOKEN || y == MEGCC_NO_TOKEN) {
        return x != MEGCC_NO_TOKEN;
    }
    return e->t->score[x] > e->t->score[y] || (!(e->t->score[x] < e->t->score[y]) && one < other);
}

/* Computes a node of the tree from its children. */
static void update_node(const encoder *e, const symbols *s, uint32_t node)
{
    const uint32_t a = 2u * node, b = a + 1u;
    const uint32_t left = a < s->count ? s->tree[a] : a - s->count, right = b < s->count ? s->tree[b] : b - s->count;
    s->tree[node] = is_better(e, s, left, right) ? left : right;
}

/* Computes the nodes above symbol `at`, whose pair has changed. */
static void update_path(const encoder *e, const symbols *s, uint32_t at)
{
    for (uint32_t node = (at + s->count) / 2u; node > 0u; node /= 2u) {
        update_node(e, s, node);
    }
}

/* Whether a symbol is a token that a user defined, which is not merged. */
static int32_t is_frozen(const encoder *e, const symbols *s, uint32_t at)
{
    const uint32_t size = end_of(e, s, at) - s->begin[at];
    return e->t->defined && defined(e->t, e->text + s->begin[at], e->size - s->begin[at]) == size;
}

/* Looks up the pair of a symbol and the next one. */
static void find_pair(const encoder *e, const symbols *s, uint32_t at)
{
    const uint32_t next = s->next[at];
    s->pair[at] = next < s->count && !is_frozen(e, s, at) && !is_frozen(e, s, next)
                      ? token_of(e, s->begin[at], end_of(e, s, next))
                      : MEGCC_NO_TOKEN;
}

static void encode_pairs(encoder *e)
{
    symbols s = { e->array[0], e->array[1], e->array[2], e->array[3], e->array[4], 0 };
    for (uint32_t at = 0; at < e->size;) {
        const size_t found = defined(e->t, e->text + at, e->size - at);
        s.begin[s.count++] = at;
        at = found ? at + (uint32_t)found : character_end(e, at);
    }
    for (uint32_t i = 0; i < s.count; i++) {
        s.next[i] = i + 1u;
        s.before[i] = i - 1u; /* of the first one none: a large number */
    }
    for (uint32_t i = 0; i < s.count; i++) {
        find_pair(e, &s, i);
    }
    for (uint32_t node = s.count; node-- > 1u;) {
        update_node(e, &s, node);
    }
    while (s.count > 1u && s.pair[s.tree[1]] != MEGCC_NO_TOKEN) {
        const uint32_t at = s.tree[1], removed = s.next[at], next = s.next[removed], before = s.before[at];
        s.next[at] = next;
        if (next < s.count) {
            s.before[next] = at;
        }
        s.pair[removed] = MEGCC_NO_TOKEN;
        update_path(e, &s, removed);
        find_pair(e, &s, at);
        update_path(e, &s, at);
        if (before < s.count) {
            find_pair(e, &s, before);
            update_path(e, &s, before);
        }
    }
    for (uint32_t i = 0; i < s.count; i = s.next[i]) {
        const uint32_t end = end_of(e, &s, i), token = token_of(e, s.begin[i], end);
        write_part(e, token == MEGCC_NO_TOKEN ? e->t->unknown : token, s.begin[i], end);
    }
}

/* --- encoding --------------------------------------------------------------------------------------------------- */

int32_t megcc_sentencepiece_encode(const megcc_sentencepiece *tokenizer, const char *text, size_t size,
                                   uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes)
{
    /* 5 arrays of most + 1 words and most / 4 words of text, rounded up: 21 / 4 * most + 6 words at most. */
    const size_t words = work_bytes / sizeof *work, for_text = words < 6u ? 0u : words - 6u;
    const size_t bytes = for_text / 21u * 4u + for_text % 21u * 4u / 21u;
    const uint32_t limit = INT32_MAX / 64; /* so that no index or product here overflows */
    const uint32_t most = bytes > limit ? limit : (uint32_t)bytes, step = most + 1u;
    encoder e = { tokenizer, { tokens, capacity, 0 }, (uint8_t *)(work + 5u * step), 0, most, 0, 0,
                  { work, work + step, work + 2u * step, work + 3u * step, work + 4u * step } };
    if (!size) {
        return 0;
    }
    if (words < 6u) {
        return -1;
    }
    normalize(&e, (const uint8_t *)text, size);
    if (e.full) {
        return -1;
    }
    if (tokenizer->unigram) {
        encode_unigram(&e);
    } else {
        encode_pairs(&e);
    }
    return e.to.written;
}
