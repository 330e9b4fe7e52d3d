/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte pair encoding (Sennrich et al., "Neural machine translation of rare words with subword units", 2016). A text is cut
 * at special tokens, these parts into words. A word is a list of symbols, first its bytes or characters. The pair of
 * neighbours of the lowest rank, which was merged first in training, is replaced by its token (the leftmost one of several),
 * and so on, until no pair is a merge.
 */
#include "megcc_tokenizer.h"

#include "megcc_strings.h"

/* --- characters ------------------------------------------------------------------------------------------------ */

/* Classes of characters, the bits of `class_`: Unicode's categories L (LETTER) and N (NUMBER), \s (SPACE), and the
 * characters that MEGCC_SPLIT_DIGITS makes a word of their own (NUMERIC). */
enum { LETTER = 1, NUMBER = 2, SPACE = 4, NUMERIC = 8 };
enum { SPACE_SYMBOL = 0x2581 /* U+2581, by which SentencePiece writes spaces */ };

/* The class of the character at text[*at]; advances *at past it. */
static uint32_t class_at(const megcc_tokenizer *t, const uint8_t *text, size_t *at, size_t end)
{
    return megcc_class(t->class_, t->classes, megcc_character(text, at, end));
}

/* --- words ----------------------------------------------------------------------------------------------------- */

/* The end of the run of characters of one class that begins at `at`, at most `most` characters. class_: LETTER, NUMBER, SPACE,
 * or 0 for all others. */
static size_t run_end(const megcc_tokenizer *t, const uint8_t *text, size_t at, size_t end, uint32_t class_,
                      size_t most)
{
    for (size_t next = at; at < end && most > 0u; at = next, most--) {
        if ((class_at(t, text, &next, end) & (LETTER | NUMBER | SPACE)) != class_) {
            break;
        }
    }
    return at;
}

/* The bytes of the contraction that a text begins with, one of 's 't 're 've 'm 'll 'd, or 0. any_case: with capital
 * letters too, and U+017F, which is an s without regard to case. */
static size_t contraction(const uint8_t *text, size_t size, int32_t any_case)
{
    if (size < 2u || text[0] != '\'') {
        return 0;
    }
    const uint8_t ignored = any_case ? 0x20u : 0u, first = text[1] | ignored;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
        return 2;
    }
    if (size < 3u) {
        return 0;
    }
    if (any_case && text[1] == 0xc5u && text[2] == 0xbfu) {
        return 3;
    }
    const uint8_t second = text[2] | ignored;
    return (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l') ? 3
                                                                                                                 : 0;
}

/* The end of a run of white space by \s+(?!\S)|\s+ : if more text follows, and the run has several characters, the last one
 * is left to the next word. */
static size_t spaces_end(const megcc_tokenizer *t, const uint8_t *text, size_t at, size_t end)
{
    const size_t stop = run_end(t, text, at, end, SPACE, SIZE_MAX);
    size_t last = at;
    for (size_t next = at; next < stop; class_at(t, text, &next, end)) {
        last = next;
    }
    return stop < end && last > at ? last : stop;
}

/* The end of a word by the regular expression of GPT-2:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t word_of_gpt2(const megcc_tokenizer *t, const uint8_t *text, size_t at, size_t end)
{
    const size_t contracted = contraction(text + at, end - at, 0);
    if (contracted) {
        return at + contracted;
    }
    size_t begin = at + (text[at] == ' ' && at + 1u < end), next = begin;
    const uint32_t class_ = class_at(t, text, &next, end) & (LETTER | NUMBER | SPACE);
    return class_ == SPACE ? spaces_end(t, text, at, end) : run_end(t, text, begin, end, class_, SIZE_MAX);
}

static int32_t is_line_end(uint8_t byte)
{
    return byte == '\r' || byte == '\n';
}

/* The end of a word by the regular expression of Llama 3 (digits = 3) or Qwen 2 (digits = 1):
 * (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t word_of_llama3(const megcc_tokenizer *t, const uint8_t *text, size_t at, size_t end, size_t digits)
{
    const size_t contracted = contraction(text + at, end - at, 1);
    if (contracted) {
        return at + contracted;
    }
    size_t next = at;
    const uint32_t class_ = class_at(t, text, &next, end) & (LETTER | NUMBER | SPACE);
    if (class_ == NUMBER) {
        return run_end(t, text, at, end, NUMBER, digits);
    }
    if (!is_line_end(text[at])) {
        const size_t begin = class_ == LETTER ? at : next, stop = run_end(t, text, begin, end, LETTER, SIZE_MAX);
        if (stop > begin) {
            return stop;
        }
    }
    const size_t begin = text[at] == ' ' ? next : at;
    size_t stop = run_end(t, text, begin, end, 0, SIZE_MAX);
    if (stop > begin) {
        while (stop < end && is_line_end(text[stop])) {
            stop++;
        }
        return stop;
    }
    stop = run_end(t, text, at, end, SPACE, SIZE_MAX);
    while (stop > at && !is_line_end(text[stop - 1u])) {
        stop--;
    }
    return stop > at ? stop : spaces_end(t, text, at, end);
}

/* --- tables ---------------------------------------------------------------------------------------------------- */

/* An element of `right`, `rank` or `merged`, whose type `wide` tells. */
static uint32_t merge_field(const megcc_tokenizer *t, const void *table, uint32_t index)
{
    return t->wide ? ((const uint32_t *)table)[index] : ((const uint16_t *)table)[index];
}

/* The index of the merge of two tokens, or MEGCC_NO_TOKEN. */
static uint32_t merge_of(const megcc_tokenizer *t, uint32_t left, uint32_t right)
{
    uint32_t low = t->first[left], high = t->first[left + 1u];
    while (low < high) {
        const uint32_t middle = (low + high) / 2u, found = merge_field(t, t->right, middle);
        if (found == right) {
            return middle;
        }
        if (found < right) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return MEGCC_NO_TOKEN;
}

/* The bytes of the longest token of a list that a text begins with, or 0; *found is its index in the list. list NULL: the
 * special tokens. */
static size_t longest(const megcc_tokenizer *t, const uint32_t *list, uint32_t count, const uint8_t *text, size_t size,
                      uint32_t *found)
{
    const megcc_strings strings = { .bytes = t->bytes, .text = t->text, .list = list, .first = t->tokens };
    const megcc_range all = { .low = 0, .high = count, .depth = 0 };
    return megcc_longest(&strings, all, text, size, found);
}

/* --- merging --------------------------------------------------------------------------------------------------- */

/* The tokens written so far, and the word that is encoded. The word had `count` symbols; those that merges have not removed
 * are a list, linked by `next` and `before`. token: that of each symbol. rank: the rank of the merge of a symbol and the next
 * one; MEGCC_NO_TOKEN: they are no merge, or the symbol is removed. tree: a tournament tree (Knuth, volume 3, 5.4.1) for the
 * lowest rank: node k >= 1 holds the better one of the symbols at its children, nodes 2k and 2k + 1; node count + i is symbol
 * i, a leaf, which is not stored. */
typedef struct encoder {
    const megcc_tokenizer *t;
    megcc_tokens to;
    uint32_t *token, *next, *before, *rank, *tree;
    uint32_t most, count;       /* the capacity of the arrays above, and the symbols of the word */
    int32_t full;               /* whether there was too little work memory */
    uint8_t *normal;            /* work memory of the normalizer, `normal_bytes` bytes */
    size_t normal_bytes;
} encoder;

/* Appends a symbol to the word. */
static void add_symbol(encoder *e, uint32_t token)
{
    if (e->count == e->most) {
        e->full = 1;
    } else {
        e->token[e->count++] = token;
    }
}

/* Computes a node of the tree from its children. */
static void update_node(encoder *e, uint32_t node)
{
    const uint32_t a = 2u * node, b = a + 1u;
    const uint32_t left = a < e->count ? e->tree[a] : a - e->count, right = b < e->count ? e->tree[b] : b - e->count;
    const uint32_t left_rank = e->rank[left], right_rank = e->rank[right];
    e->tree[node] = left_rank < right_rank || (left_rank == right_rank && left < right) ? left : right;
}

/* Looks up the rank of a symbol and the next one. */
static void rank_pair(encoder *e, uint32_t at)
{
    const uint32_t next = e->next[at];
    const uint32_t merge = next < e->count ? merge_of(e->t, e->token[at], e->token[next]) : MEGCC_NO_TOKEN;
    e->rank[at] = merge == MEGCC_NO_TOKEN ? merge : merge_field(e->t, e->t->rank, merge);
}

/* Computes the nodes above symbol `at`, whose rank has changed. */
static void update_path(encoder *e, uint32_t at)
{
    for (uint32_t node = (at + e->count) / 2u; node > 0u; node /= 2u) {
        update_node(e, node);
    }
}

/* Merges the symbols of the word, and writes the tokens of those that are left. Time: n log n for n symbols. */
static void merge_word(encoder *e)
{
    const uint32_t count = e->count;
    for (uint32_t i = 0; i < count; i++) {
        e->next[i] = i + 1u;
        e->before[i] = i - 1u; /* the first one has none: 2^32 - 1, which is not below `count` */
        rank_pair(e, i);
    }
    for (uint32_t node = count; node-- > 1u;) {
        update_node(e, node);
    }
    while (count > 1u && e->rank[e->tree[1]] != MEGCC_NO_TOKEN) {
        const uint32_t at = e->tree[1], removed = e->next[at], next = e->next[removed], before = e->before[at];
        e->token[at] = merge_field(e->t, e->t->merged, merge_of(e->t, e->token[at], e->token[removed]));
        e->next[at] = next;
        if (next < count) {
            e->before[next] = at;
        }
        e->rank[removed] = MEGCC_NO_TOKEN;
        update_path(e, removed);
        rank_pair(e, at);
        update_path(e, at);
        if (before < count) {
            rank_pair(e, before);
            update_path(e, before);
        }
    }
    for (uint32_t i = 0; i < count; i = e->next[i]) {
        megcc_write_token(&e->to, e->token[i]);
    }
    e->count = 0;
}

/* --- encoding -------------------------------------------------------------------------------------------------- */

static void encode_bytes(encoder *e, const uint8_t *text, size_t size)
{
    uint32_t index;
    if (e->t->words && longest(e->t, e->t->word, e->t->words, text, size, &index) == size) {
        megcc_write_token(&e->to, e->t->word[index]); /* Llama 3: whole words need no merges */
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (e->t->byte[text[i]] != MEGCC_NO_TOKEN) {
            add_symbol(e, e->t->byte[text[i]]);
        }
    }
    merge_word(e);
}

/* Returns the offset at which the next part ends. A part is one digit, or has no digits. */
static size_t part_end(const megcc_tokenizer *t, const uint8_t *text, size_t at, size_t end)
{
    size_t next = at;
    if (class_at(t, text, &next, end) & NUMERIC) {
        return next;
    }
    for (at = next; at < end && !(class_at(t, text, &next, end) & NUMERIC);) {
        at = next;
    }
    return at;
}

static void encode_words(encoder *e, const uint8_t *text, size_t end)
{
    const megcc_tokenizer *t = e->t;
    for (size_t at = 0, part = 0, stop; at < end && !e->full; at = stop) {
        if (at == part) {
            part = t->split == MEGCC_SPLIT_DIGITS ? part_end(t, text, at, end) : end;
        }
        stop = t->split == MEGCC_SPLIT_LLAMA3  ? word_of_llama3(t, text, at, end, 3)
               : t->split == MEGCC_SPLIT_QWEN2 ? word_of_llama3(t, text, at, end, 1)
                                               : word_of_gpt2(t, text, at, part);
        encode_bytes(e, text + at, stop - at);
    }
}

/* Encodes a text as one word of characters. Those that are no tokens become tokens of their bytes or, if not all bytes have
 * one, unknown; unknown characters in a row become one token. */
static void encode_characters(encoder *e, const uint8_t *text, size_t size)
{
    const megcc_tokenizer *t = e->t;
    /* The tables have spaces as U+0020; a space that is no token becomes the bytes of U+2581. */
    static const uint8_t space[] = { ' ' }, space_symbol[] = { 0xe2, 0x96, 0x81 };
    int32_t unknown = 0; /* whether the characters before this one are unknown */
    for (size_t at = 0, prefix = t->prefix, next = 0; at < size || prefix; at = next, prefix = 0) {
        const uint32_t code = prefix ? ' ' : megcc_character(text, &next, size);
        const int32_t is_space = code == ' ' || code == SPACE_SYMBOL;
        const size_t count = is_space ? sizeof space_symbol : next - at, written = is_space ? 1u : count;
        const uint8_t *bytes = is_space ? space_symbol : text + at;
        uint32_t index;
        if (longest(t, t->word, t->words, is_space ? space : bytes, written, &index) == written) {
            if (unknown) {
                add_symbol(e, t->unknown);
            }
            unknown = 0;
            add_symbol(e, t->word[index]);
            continue;
        }
        size_t known = 0;
        while (known < count && t->byte[bytes[known]] != MEGCC_NO_TOKEN) {
            known++;
        }
        for (size_t i = 0; known == count && i < count; i++) {
            add_symbol(e, t->byte[bytes[i]]);
        }
        unknown |= known < count;
    }
    if (unknown) {
        add_symbol(e, t->unknown);
    }
    merge_word(e);
}

static void encode_part(encoder *e, const uint8_t *text, size_t size)
{
    if (!size) {
        return;
    }
    if (e->t->normalizer) {
        const size_t found = e->t->normalize(e->t->normalizer, text, size, e->normal, e->normal_bytes, &text);
        e->full |= found == SIZE_MAX;
        size = found == SIZE_MAX ? 0u : found;
    }
    if (e->t->split == MEGCC_SPLIT_NONE) {
        encode_characters(e, text, size);
    } else {
        encode_words(e, text, size);
    }
}

int32_t megcc_tokenizer_encode(const megcc_tokenizer *tokenizer, const char *text, size_t size, int32_t special,
                               uint32_t *tokens, int32_t capacity, uint32_t *work, size_t work_bytes)
{
    const uint8_t *bytes = (const uint8_t *)text;
    const size_t arrays = tokenizer->normalizer ? 6u : 5u; /* of `most` uint32_t each; the sixth is the normalizer's */
    size_t most = work_bytes / (arrays * sizeof *work), begin = 0;
    if (size > INT32_MAX / 4) { /* so that token counts and indices of tree nodes fit */
        return -1;
    }
    most = most > INT32_MAX / 4 ? INT32_MAX / 4 : most;
    encoder e = { .t = tokenizer, .to = { tokens, capacity, 0 },
                  .token = work, .next = work + most, .before = work + 2u * most, .rank = work + 3u * most,
                  .tree = work + 4u * most, .most = (uint32_t)most,
                  .normal = (uint8_t *)(work + 5u * most), .normal_bytes = (arrays - 5u) * most * sizeof *work };
    for (size_t at = 0; special && at < size;) {
        uint32_t index = 0;
        const size_t count = longest(tokenizer, NULL, tokenizer->specials, bytes + at, size - at, &index);
        if (count) {
            encode_part(&e, bytes + begin, at - begin);
            megcc_write_token(&e.to, tokenizer->special[index]);
            begin = at + count;
        }
        at += count ? count : 1u;
    }
    encode_part(&e, bytes + begin, size - begin);
    return e.full ? -1 : e.to.written;
}

/* --- decoding -------------------------------------------------------------------------------------------------- */

const char *megcc_tokenizer_text(const megcc_tokenizer *tokenizer, uint32_t token, size_t *size)
{
    *size = 0;
    if (token >= tokenizer->tokens) {
        return NULL;
    }
    *size = tokenizer->text[token + 1u] - tokenizer->text[token];
    return (const char *)tokenizer->bytes + tokenizer->text[token];
}

/* Writes bytes at text[at], unless they do not fit, and returns where the next ones go. */
static size_t write_bytes(const uint8_t *bytes, size_t count, char *text, size_t capacity, size_t at)
{
    if (count > capacity - at) {
        return at;
    }
    for (size_t i = 0; i < count; i++) {
        text[at + i] = (char)bytes[i];
    }
    return at + count;
}

static const uint8_t replacement[] = { 0xef, 0xbf, 0xbd };

size_t megcc_decoder_add(const megcc_tokenizer *tokenizer, megcc_decoder *decoder, uint32_t token, char *text,
                         size_t capacity)
{
    size_t count, at = 0;
    const uint8_t *bytes = (const uint8_t *)megcc_tokenizer_text(tokenizer, token, &count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t byte = bytes[i], begun = decoder->begun;
        decoder->begun = 1;
        if (!begun && tokenizer->prefix && byte == ' ') {
            continue;
        }
        if (decoder->count && !megcc_continues(decoder->pending, decoder->count, byte)) {
            at = write_bytes(replacement, sizeof replacement, text, capacity, at);
            decoder->count = 0;
        }
        if (!decoder->count && !megcc_character_bytes(byte)) {
            at = write_bytes(replacement, sizeof replacement, text, capacity, at);
            continue;
        }
        decoder->pending[decoder->count++] = byte;
        if (decoder->count == megcc_character_bytes(decoder->pending[0])) {
            at = write_bytes(decoder->pending, decoder->count, text, capacity, at);
            decoder->count = 0;
        }
    }
    return at;
}

size_t megcc_decoder_end(megcc_decoder *decoder, char *text, size_t capacity)
{
    static const megcc_decoder fresh;
    const size_t at = decoder->count ? write_bytes(replacement, sizeof replacement, text, capacity, 0) : 0u;
    *decoder = fresh;
    return at;
}
