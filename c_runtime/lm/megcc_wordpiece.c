/* SPDX-License-Identifier: Apache-2.0
 *
 * WordPiece (Schuster and Nakajima, 2012), as BERT has it. A text is split at special tokens, then at spaces. A punctuation
 * mark or an ideograph is a word of its own. Accents and case are removed if the vocabulary says so. A word is encoded by
 * greedy longest match: the longest token that it begins with, then the longest token that its rest begins with, and so
 * on. Tokens after the first are looked up among those that begin with "##". If no token matches, the whole word is the
 * unknown token.
 */
#include "megcc_wordpiece.h"

#include "megcc_strings.h"

/* Classes of characters. Those from MARK on are combining marks, in the order of their combining classes: canonical
 * decomposition sorts a run of marks by class (Unicode Standard, 3.11). A character of class BARRIER is removed, but marks
 * after it are not sorted before marks in front of it. */
enum { LETTER, REMOVED, BARRIER, SPACE, PUNCTUATION, IDEOGRAPH, MARK };

/* The tokens written so far, and the word that is read. Its first `longest_word` characters are kept, as UTF-8. */
typedef struct encoder {
    const megcc_wordpiece *t;
    megcc_tokens to;
    uint8_t *word;
    size_t size;                /* bytes of the word */
    size_t sorted;              /* its bytes before the last BARRIER: no mark is moved to an offset below this */
    uint32_t characters;
} encoder;

static uint32_t class_of(const encoder *e, uint32_t code)
{
    return megcc_class(e->t->class_, e->t->classes, code);
}

/* Writes the tokens of the word, and begins a new one. */
static void end_word(encoder *e)
{
    const megcc_wordpiece *t = e->t;
    const int32_t before = e->to.written;
    int32_t known = e->characters <= t->longest_word;
    for (size_t at = 0; known && at < e->size;) {
        uint32_t node = 0;
        const size_t count = at && !t->inside ? 0u : megcc_longest_of(t->words, at ? t->inside : 0u, e->word + at,
                                                                      e->size - at, &node);
        known = count > 0u;
        if (known) {
            megcc_write_token(&e->to, megcc_token(t->words, node));
        }
        at += count;
    }
    if (!known) {
        e->to.written = before;
        megcc_write_token(&e->to, t->unknown);
    }
    e->size = e->sorted = 0;
    e->characters = 0;
}

/* Adds a character to the end of the word, or inserts a mark before the marks of higher classes. */
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

/* Adds the characters that normalization replaces a character by. */
static void normalize(encoder *e, uint32_t code)
{
    const megcc_wordpiece *t = e->t;
    const uint32_t mapping = megcc_row(t->mapped, t->mappings, code, 0);
    if (t->hangul && megcc_is_syllable(code)) {
        uint32_t letters[3];
        for (uint32_t i = 0, count = megcc_letters(code, letters); i < count; i++) {
            add_normalized(e, letters[i]);
        }
    } else if (t->mappings && t->mapped[mapping] == code) {
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
    const megcc_strings specials = { .bytes = tokenizer->bytes, .text = tokenizer->text };
    const megcc_range all = { .low = 0, .high = tokenizer->specials, .depth = 0 };
    encoder e = { .t = tokenizer, .to = { tokens, capacity, 0 }, .word = work };
    size_t begin = 0;
    if (size > INT32_MAX / 4 || work_bytes / 4u < tokenizer->longest_word) {
        return -1;
    }
    for (size_t at = 0; special && at < size;) {
        uint32_t index = 0;
        const size_t count = megcc_longest(&specials, all, bytes + at, size - at, &index);
        if (count) {
            encode_part(&e, bytes + begin, at - begin);
            megcc_write_token(&e.to, tokenizer->special[index]);
            begin = at + count;
        }
        at += count ? count : 1u;
    }
    encode_part(&e, bytes + begin, size - begin);
    return e.to.written;
}
