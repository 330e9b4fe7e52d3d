/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalization of strings: decomposition, order and composition (Unicode Standard Annex 15), replacements of extended
 * grapheme clusters (Annex 29), of strings and of spaces.
 */
#include "megcc_normalizer.h"

#include "megcc_strings.h"

/* A text of at most `most` bytes; full: more were appended, and lost. */
typedef struct text {
    uint8_t *bytes;
    size_t size, most;
    int32_t full;
} text;

static void append(text *out, const uint8_t *bytes, size_t count)
{
    if (count > out->most - out->size) {
        out->full = 1;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        out->bytes[out->size++] = bytes[i];
    }
}

static void append_character(text *out, uint32_t code)
{
    uint8_t bytes[4];
    append(out, bytes, megcc_utf8(code, bytes));
}

static uint32_t class_of(const megcc_normal_step *step, uint32_t code)
{
    return step->class_[megcc_row(step->class_, step->classes, code, 8)] & 0xffu;
}

/* --- Unicode's forms -------------------------------------------------------------------------------------------- */

/* MEGCC_NORMAL_MAP: replaces characters by their strings, and decomposes syllables of Hangul. */
static void map(const megcc_normal_step *step, const text *in, text *out)
{
    for (size_t at = 0, begin; at < in->size;) {
        begin = at;
        const uint32_t code = megcc_character(in->bytes, &at, in->size);
        const uint32_t index = megcc_row(step->mapped, step->mappings, code, 0);
        if (step->mappings && step->mapped[index] == code) {
            append(out, step->letters + step->target[index], step->target[index + 1u] - step->target[index]);
        } else if (step->hangul && megcc_is_syllable(code)) {
            uint32_t letters[3];
            for (uint32_t i = 0, count = megcc_letters(code, letters); i < count; i++) {
                append_character(out, letters[i]);
            }
        } else {
            append(out, in->bytes + begin, at - begin);
        }
    }
}

/* Canonical ordering (Unicode Standard, 3.11): sorts marks that follow each other by their combining class, stably. Each
 * pass over such a run appends the marks of one class, `sorted`, and finds the next higher class of the run. The first pass
 * only finds the lowest class: a mark's class is not 0. */
static void sort_marks(const megcc_normal_step *step, const text *in, text *out)
{
    for (size_t at = 0, end; at < in->size; at = end) {
        uint32_t marks = 0;
        for (size_t after = end = at; after < in->size; end = after, marks++) {
            if (!class_of(step, megcc_character(in->bytes, &after, in->size))) {
                break;
            }
        }
        if (!marks) {
            megcc_character(in->bytes, &end, in->size);
            append(out, in->bytes + at, end - at);
        }
        for (uint32_t sorted = 0, next; marks; sorted = next) {
            next = 0;
            for (size_t from = at, begin; from < end;) {
                begin = from;
                const uint32_t class_ = class_of(step, megcc_character(in->bytes, &from, end));
                if (class_ == sorted) {
                    append(out, in->bytes + begin, from - begin);
                    marks--;
                }
                if (class_ > sorted && (!next || class_ < next)) {
                    next = class_;
                }
            }
        }
    }
}

/* The character that two compose, or 0. */
static uint32_t composed(const megcc_normal_step *step, uint32_t first, uint32_t second)
{
    uint32_t low = 0, high = step->pairs;
    const uint32_t lead = first - MEGCC_LEADS, vowel = second - MEGCC_VOWELS, tail = second - MEGCC_TAILS;
    if (lead < MEGCC_LEAD_COUNT && vowel < MEGCC_VOWEL_COUNT) {
        return MEGCC_SYLLABLES + (lead * MEGCC_VOWEL_COUNT + vowel) * MEGCC_TAIL_COUNT;
    }
    if (megcc_is_syllable(first) && (first - MEGCC_SYLLABLES) % MEGCC_TAIL_COUNT == 0u && tail > 0u && tail < MEGCC_TAIL_COUNT) {
        return first + tail;
    }
    while (low < high) {
        const uint32_t middle = (low + high) / 2u, *pair = step->pair + 3u * middle;
        if (pair[0] == first && pair[1] == second) {
            return pair[2];
        }
        if (pair[0] < first || (pair[0] == first && pair[1] < second)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return 0;
}

/* Canonical composition (Unicode Standard, 3.11). A starter, a character of class 0, is composed with a later character if
 * between them are only marks of lower classes that did not compose. The result is never longer, so it is written where the
 * text was read. */
static void compose(const megcc_normal_step *step, text *all)
{
    size_t size = 0, starter_at = 0, starter_end = 0;
    uint32_t starter = 0, last = 0;
    int32_t begun = 0;
    for (size_t at = 0; at < all->size;) {
        const uint32_t code = megcc_character(all->bytes, &at, all->size), class_ = class_of(step, code);
        uint8_t bytes[4];
        const int32_t adjacent = size == starter_end, over_lower_marks = class_ && last < class_;
        const uint32_t whole = begun && (adjacent || over_lower_marks) ? composed(step, starter, code) : 0u;
        if (whole) {
            const uint32_t count = megcc_utf8(whole, bytes), before = (uint32_t)(starter_end - starter_at);
            const size_t between = size - starter_end;
            for (size_t i = 0; i < between; i++) { /* the marks after it move */
                const size_t k = count > before ? between - 1u - i : i;
                all->bytes[starter_at + count + k] = all->bytes[starter_end + k];
            }
            for (uint32_t i = 0; i < count; i++) {
                all->bytes[starter_at + i] = bytes[i];
            }
            size = starter_at + count + between;
            starter_end = starter_at + count;
            starter = whole;
            continue;
        }
        const uint32_t count = megcc_utf8(code, bytes);
        if (!class_) {
            begun = 1;
            starter = code;
            starter_at = size;
            starter_end = size + count;
        }
        last = class_;
        for (uint32_t i = 0; i < count; i++) {
            all->bytes[size++] = bytes[i];
        }
    }
    all->size = size;
}

/* --- clusters --------------------------------------------------------------------------------------------------- */

/* Classes of characters in extended grapheme clusters (Unicode Standard Annex 29, tables 2 and 1b). LEAD, VOWEL, TAIL, PAIR
 * and TRIPLE are L, V, T, LV and LVT of Hangul; PICTURE is Extended_Pictographic, JOINER is ZWJ. From SPACING on, characters
 * join the one before. MARK, EXTEND and LINKER are Extend; EXTEND and LINKER may be between the consonants of a conjunct
 * (rule GB9c), MARK not. */
enum { OTHER, CONTROL, PREPEND, CONSONANT, PICTURE, LEAD, VOWEL, TAIL, PAIR, TRIPLE, SPACING, MARK, EXTEND, LINKER, JOINER };

static uint32_t cluster_class(const megcc_normal_step *step, uint32_t code)
{
    if (megcc_is_syllable(code)) {
        return (code - MEGCC_SYLLABLES) % MEGCC_TAIL_COUNT ? TRIPLE : PAIR;
    }
    return class_of(step, code);
}

/* The end of a cluster: its last character and that one's class. conjunct: 1 if it ends with a consonant and marks, 2 if a
 * linker is among them (rule GB9c). picture: 1 if it ends with a picture and marks, 2 if a joiner follows those (GB11). */
typedef struct cluster {
    uint32_t code, class_;
    uint32_t conjunct, picture;
} cluster;

/* Whether a character belongs to the cluster: rules GB3 to GB11 of Annex 29. */
static int32_t joins(const cluster *c, uint32_t code, uint32_t class_)
{
    if (c->class_ == CONTROL || class_ == CONTROL) {
        return c->code == '\r' && code == '\n';
    }
    if (class_ >= SPACING || c->class_ == PREPEND) {
        return 1;
    }
    if (c->class_ == LEAD) {
        return class_ == LEAD || class_ == VOWEL || class_ == PAIR || class_ == TRIPLE;
    }
    if (c->class_ == VOWEL || c->class_ == PAIR) {
        return class_ == VOWEL || class_ == TAIL;
    }
    if (c->class_ == TAIL || c->class_ == TRIPLE) {
        return class_ == TAIL;
    }
    return (class_ == CONSONANT && c->conjunct == 2u) || (class_ == PICTURE && c->picture == 2u);
}

/* Adds a character to the cluster. */
static void take(cluster *c, uint32_t code, uint32_t class_)
{
    c->code = code;
    c->class_ = class_;
    if (class_ == LINKER && c->conjunct) {
        c->conjunct = 2;
    } else if (class_ != EXTEND && class_ != JOINER) {
        c->conjunct = class_ == CONSONANT;
    }
    if (class_ == JOINER) {
        c->picture = c->picture == 1u ? 2u : 0u;
    } else if (class_ < MARK) {
        c->picture = class_ == PICTURE;
    } else {
        c->picture = c->picture == 1u;
    }
}

static size_t cluster_end(const megcc_normal_step *step, const text *in, size_t at)
{
    cluster c = { 0, CONTROL, 0, 0 };
    for (size_t next = at, first = at; next < in->size; at = next) {
        const uint32_t code = megcc_character(in->bytes, &next, in->size), class_ = cluster_class(step, code);
        if (at > first && !joins(&c, code, class_)) {
            break;
        }
        take(&c, code, class_);
    }
    return at;
}

/* Finds the shortest key that a string begins with, as the package tokenizers does, writes what replaces it, and returns
 * whether there is one. */
static int32_t replaced(const megcc_normal_step *step, const uint8_t *bytes, size_t size, text *out)
{
    uint32_t at = megcc_trie_offset(step->trie[0]);
    for (size_t i = 0; i < size && bytes[i]; i++) {
        const uint32_t node = at ^ bytes[i], unit = step->trie[node];
        if (megcc_trie_label(unit) != bytes[i]) {
            return 0;
        }
        at = node ^ megcc_trie_offset(unit);
        if (megcc_trie_ends_key(unit)) {
            const uint8_t *found = step->letters + megcc_trie_value(step->trie[at]);
            size_t count = 0;
            while (found[count]) {
                count++;
            }
            append(out, found, count);
            return 1;
        }
    }
    return 0;
}

/* MEGCC_NORMAL_CLUSTERS. A cluster of less than 6 bytes is looked up as a whole, as in the package tokenizers, then each of
 * its characters. */
static void replace_clusters(const megcc_normal_step *step, const text *in, text *out)
{
    for (size_t at = 0, end; at < in->size; at = end) {
        end = cluster_end(step, in, at);
        if (end - at < 6u && replaced(step, in->bytes + at, end - at, out)) {
            continue;
        }
        for (size_t begin = at, next = at; begin < end; begin = next) {
            megcc_character(in->bytes, &next, end);
            if (!replaced(step, in->bytes + begin, next - begin, out)) {
                append(out, in->bytes + begin, next - begin);
            }
        }
    }
}

/* --- strings and spaces ----------------------------------------------------------------------------------------- */

static void replace_strings(const megcc_normal_step *step, const text *in, text *out)
{
    const uint32_t *target = step->target;
    const size_t size = target[1];
    for (size_t at = 0; at < in->size;) {
        size_t same = 0;
        while (same < size && same < in->size - at && in->bytes[at + same] == step->letters[same]) {
            same++;
        }
        if (same == size) {
            append(out, step->letters + size, target[2] - target[1]);
        } else {
            append(out, in->bytes + at, 1);
        }
        at += same == size ? size : 1u;
    }
}

static void replace_spaces(const megcc_normal_step *step, const text *in, text *out)
{
    for (size_t at = 0, end; at < in->size; at = end) {
        end = at;
        while (end < in->size && in->bytes[end] == ' ') {
            end++;
        }
        if (end - at > 1u) {
            append(out, step->letters, step->target[1]);
        } else {
            end = at + 1u;
            append(out, in->bytes + at, 1);
        }
    }
}

static void strip(const megcc_normal_step *step, const text *in, text *out)
{
    size_t begin = 0, end = 0;
    for (size_t at = 0; at < in->size;) {
        if (!megcc_is_white(megcc_character(in->bytes, &at, in->size))) {
            end = at;
        } else if (!end && step->left) {
            begin = at;
        }
    }
    end = step->right ? end : in->size;
    if (begin < end) {
        append(out, in->bytes + begin, end - begin);
    }
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

static void swap(text *in, text *out)
{
    const text other = *in;
    *in = *out;
    *out = other;
    out->size = 0;
}

size_t megcc_normalize(const megcc_normalizer *normalizer, const uint8_t *input, size_t size, uint8_t *work,
                       size_t work_bytes, const uint8_t **normal)
{
    const size_t most = work_bytes / 2u;
    text in = { work, 0, most, 0 }, out = { work + most, 0, most, 0 };
    for (size_t at = 0; at < size;) {
        append_character(&in, megcc_character(input, &at, size));
    }
    for (uint32_t i = 0; i < normalizer->steps && !in.full; i++) {
        const megcc_normal_step *step = normalizer->step + i;
        if (step->kind == MEGCC_NORMAL_MAP) {
            map(step, &in, &out);
        } else if (step->kind == MEGCC_NORMAL_CLUSTERS) {
            replace_clusters(step, &in, &out);
        } else if (step->kind == MEGCC_NORMAL_REPLACE) {
            replace_strings(step, &in, &out);
        } else if (step->kind == MEGCC_NORMAL_SPACES) {
            replace_spaces(step, &in, &out);
        } else {
            strip(step, &in, &out);
        }
        swap(&in, &out);
        if (step->kind == MEGCC_NORMAL_MAP && step->classes && !in.full) {
            sort_marks(step, &in, &out);
            swap(&in, &out);
        }
        if (step->kind == MEGCC_NORMAL_MAP && step->pairs) {
            compose(step, &in);
        }
    }
    *normal = in.bytes;
    return in.full ? SIZE_MAX : in.size;
}
