/* SPDX-License-Identifier: Apache-2.0
 *
 * Restricts generated text to a grammar: before each token, the logits of all tokens that cannot follow become -infinity.
 * `megcc lm compile --grammar` writes the tables of a grammar.
 *
 *     static megcc_grammar_state state;
 *     megcc_grammar_begin(&state, &smollm2_grammar_city);
 *     megcc_grammar_mask(&state, logits);
 *     uint32_t token = megcc_sampler_choose(&sampler, logits, 49152, NULL);
 *     megcc_grammar_accept(&state, token);
 *
 * There is no heap and no recursion. All memory is in the state.
 */
#ifndef MEGCC_GRAMMAR_H
#define MEGCC_GRAMMAR_H

#include <stdint.h>

#include "megcc_tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The deepest nesting of rules that call themselves, such as arrays in arrays of JSON; ambiguous grammars need more. Tokens
 * that would need more memory cannot follow. The size of a state depends on it; all files must have the same. */
#ifndef MEGCC_GRAMMAR_DEPTH
#define MEGCC_GRAMMAR_DEPTH 256
#endif
/* The most bytes of a token. Longer ones cannot follow. */
#ifndef MEGCC_GRAMMAR_TOKEN
#define MEGCC_GRAMMAR_TOKEN 256
#endif
#if MEGCC_GRAMMAR_DEPTH < 4 || MEGCC_GRAMMAR_DEPTH > 8192 || MEGCC_GRAMMAR_TOKEN < 1 || MEGCC_GRAMMAR_TOKEN > 8192
#error "MEGCC_GRAMMAR_DEPTH is 4 to 8192, and MEGCC_GRAMMAR_TOKEN is 1 to 8192"
#endif

/* The vocabulary in the order of the tokens' bytes. */
typedef struct megcc_sorted_tokens {
    const megcc_tokenizer *tokenizer;
    uint32_t count;             /* tokens that are text */
    uint32_t end_count;
    const void *token;          /* [tokens of the tokenizer]: those that are text, sorted; then all others but ends.
                                 * uint32_t if `wide`, otherwise uint16_t */
    const uint8_t *common;      /* [count]: bytes that a token shares with the one before it, at most 255 */
    const uint32_t *end;        /* [end_count]: tokens that end a text */
    uint32_t others;            /* number of tokens in `token` after the first `count` */
    uint8_t wide;
} megcc_sorted_tokens;

struct megcc_grammar_state;
struct megcc_grammar;

/* The functions of this header, by which megcc_lm.c calls them, so that programs without a grammar need not link them. */
typedef struct megcc_grammar_functions {
    int32_t (*begin)(struct megcc_grammar_state *state, const struct megcc_grammar *grammar);
    uint32_t (*mask)(struct megcc_grammar_state *state, float *logits);
    int32_t (*accept)(struct megcc_grammar_state *state, uint32_t token);
    int32_t (*is_finished)(const struct megcc_grammar_state *state);
} megcc_grammar_functions;

extern const megcc_grammar_functions megcc_grammar_masks;

/* The tables of a grammar: a deterministic automaton over bytes for each rule. They call each other. */
typedef struct megcc_grammar {
    const megcc_sorted_tokens *tokens;
    const megcc_grammar_functions *functions; /* &megcc_grammar_masks */
    const uint8_t *class_;      /* [256]: the class of a byte */
    const uint32_t *state;      /* [states]: its row of `move`; from bit 16 on, offset in `call` of what it can do without a
                                 * byte, or 0 */
    const int16_t *move;        /* [rows][classes]: difference of the next state's number, or INT16_MIN: none. Row 0 has none */
    const uint16_t *call;       /* lists: 4 * calls + (1: the rule can end here), then for each call its rule and the state
                                 * after it */
    const uint16_t *rule;       /* [rules]: the first state of each; rule 0 is the whole text */
    uint32_t classes;
    uint8_t matches_empty;      /* whether a text may be empty */
} megcc_grammar;

/* A rule that is being matched, from one byte of the text on; `edge` is the first of what can follow it. */
typedef struct megcc_grammar_node {
    uint16_t rule, edge;
} megcc_grammar_node;

/* A state of another rule, which follows a rule. */
typedef struct megcc_grammar_edge {
    uint16_t state, node, next;
} megcc_grammar_edge;

/* A state of a rule that is being matched. */
typedef struct megcc_grammar_item {
    uint16_t state, node;
} megcc_grammar_item;

typedef struct megcc_grammar_counts {
    uint16_t nodes, edges, items;
} megcc_grammar_counts;

/* All ways in which the text can be read: a graph-structured stack (Tomita, "Efficient Parsing for Natural Language", 1985). */
typedef struct megcc_grammar_stack {
    megcc_grammar_counts count;
    megcc_grammar_node node[MEGCC_GRAMMAR_DEPTH];
    megcc_grammar_edge edge[2 * MEGCC_GRAMMAR_DEPTH];
    megcc_grammar_item item[2 * MEGCC_GRAMMAR_DEPTH + MEGCC_GRAMMAR_TOKEN];
} megcc_grammar_stack;

/* The place in a grammar that a text has reached. Its fields are private. */
typedef struct megcc_grammar_state {
    const megcc_grammar *grammar;
    uint32_t current;           /* index of the stack of the text so far; the other is for the next one */
    int32_t is_complete;        /* whether the text may end here */
    megcc_grammar_stack stack[2];
    megcc_grammar_counts level[MEGCC_GRAMMAR_TOKEN + 1]; /* ends of the items and so on after each byte of a token */
    uint16_t index[MEGCC_GRAMMAR_DEPTH], origin[MEGCC_GRAMMAR_DEPTH], pending[MEGCC_GRAMMAR_DEPTH];
    uint16_t expanded[MEGCC_GRAMMAR_DEPTH];
} megcc_grammar_state;

/* Begins a text. Returns 0 if the grammar needs a larger MEGCC_GRAMMAR_DEPTH. */
int32_t megcc_grammar_begin(megcc_grammar_state *state, const megcc_grammar *grammar);

/* Sets the logits of all tokens that cannot follow to -infinity; those that end a text can if it is complete. Returns the lowest
 * token that can follow, or MEGCC_NO_TOKEN. */
uint32_t megcc_grammar_mask(megcc_grammar_state *state, float *logits);

/* Appends a token to the text. Returns 0, and changes nothing, if it cannot follow. */
int32_t megcc_grammar_accept(megcc_grammar_state *state, uint32_t token);

/* Whether the text is complete and nothing can follow. */
int32_t megcc_grammar_is_finished(const megcc_grammar_state *state);

#ifdef __cplusplus
}
#endif
#endif
