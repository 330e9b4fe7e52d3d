/* SPDX-License-Identifier: Apache-2.0
 *
 * WordPiece (Schuster and Nakajima, 2012), as BERT has it. A text is cut at special tokens, then at spaces; punctuation
 * and ideographs are words of their own. Letters lose accents and case, if the vocabulary wants it. A word is the longest
 * token it begins with, then the longest one that its rest begins with, and so on, or unknown.
 */
#include "megcc_wordpiece.h"

#include "megcc_strings.h"

/* Classes of characters. From MARK on they are marks that canonical decomposition sorts by their class within a run
 * (Unicode Standard, 3.11). BARRIER is removed too, but only after marks were sorted. */
enum { LETTER, REMOVED, BARRIER, SPACE, PUNCTUATION, IDEOGRAPH, MARK };
enum { SYLLABLE = 0xac00, LEADING = 0x1100, VOWEL = 0x1161, TRAILING = 0x11a7, VOWELS = 21, TRAILINGS = 28,
       SYLLABLES = 11172 };

/* The tokens written so far, and the word that is read, of which the bytes of the first `longest_word` characters are kept. */
typedef struct encoder {
    const megcc_wordpiece *t;
    uint32_t *tokens;
    int32_t capacity, written;
    uint8_t *word;
    size_t size;                /* bytes of the word */
    size_t sorted;              /* its bytes before the last BARRIER: marks after that are not sorted before them */
    uint32_t characters;
} encoder;

static uint32_t class_of(const encoder *e, uint32_t code)
{
    return megcc_class(e->t->class_, e->t->classes, code);
}

static void write_token(encoder *e, uint32_t token)
{
    if (e->written < e->capacity) {
        e->tokens[e->written] = token;
    }
    e->written++;
}

/* Writes the tokens of the word, and begins a new one. */
static void end_word(encoder *e)
{
    const megcc_wordpiece *t = e->t;
    const megcc_strings strings = { t->bytes, t->text, t->word, 0 };
    const megcc_range inside = { t->inside, t->inside_end, 2 };
    megcc_range range = { 0, t->words, 0 };
    const int32_t before = e->written;
    int32_t known = e->characters <= t->longest_word;
    for (size_t at = 0; known && at < e->size; range = inside) {
        uint32_t index = 0;
        const size_t count = megcc_longest(&strings, range, e->word + at, e->size - at, &index);
        known = count > 0u;
        if (known) {
            write_token(e, t->word[index]);
        }
        at += count;
    }
    if (!known) {
        e->written = before;
        write_token(e, t->unknown);
    }
    e->size = e->sorted = 0;
    e->characters = 0;
}

/* Adds a character to the word: a mark before those of higher classes. */
static void add(encoder *e, uint32_t code, uint32_t class_)
{
    uint8_t bytes[4];
    const uint32_t count = megcc_utf8(code, bytes);
    size_t at = e->size;
    if (e->characters++ >= e->t->longest_word) {
        return;
    }
    while (class_ >= MARK && at > e->sorted) {
        size_t before = at - 1u;
        while ((e->word[before] & 0xc0u) == 0x80u) {
            before--;
        }
        size_t next = before;
        if (class_of(e, megcc_character(e->word, &next, at)) <= class_) {
            break;
        }
        at = before;
    }
    for (size_t i = e->size; i-- > at;) {
        e->word[i + count] = e->word[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        e->word[at + i] = bytes[i];
    }
    e->size += count;
}

/* Adds a character as it is after normalization, or ends words. */
static void add_normalized(encoder *e, uint32_t code)
{
    const uint32_t class_ = class_of(e, code);
    if (class_ == SPACE || class_ == PUNCTUATION) {
        end_word(e);
    }
    if (class_ != SPACE) {
        add(e, code, class_);
    }
    if (class_ == PUNCTUATION) {
        end_word(e);
    }
}

/* The index of a character in `mapped`, or MEGCC_NO_TOKEN. */
static uint32_t mapping_of(const megcc_wordpiece *t, uint32_t code)
{
    uint32_t low = 0, high = t->mappings;
    while (low < high) {
        const uint32_t middle = (low + high) / 2u;
        if (t->mapped[middle] == code) {
            return middle;
        }
        if (t->mapped[middle] < code) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return MEGCC_NO_TOKEN;
}

/* Adds what normalization makes of a character. */
static void normalize(encoder *e, uint32_t code)
{
    const megcc_wordpiece *t = e->t;
    const uint32_t mapping = mapping_of(t, code), syllable = code - SYLLABLE;
    if (t->hangul && syllable < SYLLABLES) {
        add_normalized(e, LEADING + syllable / (VOWELS * TRAILINGS));
        add_normalized(e, VOWEL + syllable / TRAILINGS % VOWELS);
        if (syllable % TRAILINGS) {
            add_normalized(e, TRAILING + syllable % TRAILINGS);
        }
    } else if (mapping != MEGCC_NO_TOKEN) {
        for (size_t at = t->target[mapping], end = t->target[mapping + 1u]; at < end;) {
            add_normalized(e, megcc_character(t->letters, &at, end));
        }
    } else {
        add_normalized(e, code);
    }
}

static void encode_part(encoder *e, const uint8_t *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        const uint32_t code = megcc_character(text, &at, size), class_ = class_of(e, code);
        if (class_ == BARRIER) {
            e->sorted = e->size;
        }
        if (class_ == REMOVED || class_ == BARRIER) {
            continue;
        }
        if (class_ == IDEOGRAPH || class_ == SPACE) {
            end_word(e);
        }
        if (class_ != SPACE) {
            normalize(e, code);
        }
        if (class_ == IDEOGRAPH) {
            end_word(e);
        }
    }
    end_word(e);
}

int32_t megcc_wordpiece_encode(const megcc_wordpiece *tokenizer, const char *text, size_t size, int32_t special,
                               uint32_t *tokens, int32_t capacity, uint8_t *work, size_t work_bytes)
{
    const uint8_t *bytes = (const uint8_t *)text;
    const megcc_strings specials = { tokenizer->bytes, tokenizer->text, NULL, tokenizer->tokens };
    const megcc_range all = { 0, tokenizer->specials, 0 };
    encoder e = { tokenizer, tokens, capacity, 0, work, 0, 0, 0 };
    size_t begin = 0;
    if (size > INT32_MAX / 4 || work_bytes / 4u < tokenizer->longest_word) {
        return -1;
    }
    for (size_t at = 0; special && at < size;) {
        uint32_t index = 0;
        const size_t count = megcc_longest(&specials, all, bytes + at, size - at, &index);
        if (count) {
            encode_part(&e, bytes + begin, at - begin);
            write_token(&e, tokenizer->special[index]);
            begin = at + count;
        }
        at += count ? count : 1u;
    }
    encode_part(&e, bytes + begin, size - begin);
    return e.written;
}
