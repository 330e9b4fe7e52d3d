/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the tokens that can follow in a grammar. A text is read byte by byte by Earley's algorithm ("An efficient
 * context-free parsing algorithm", 1970), with states of automata in place of dotted rules, so that items that begin alike
 * are one. A node is a rule that begins at a byte of the text; its edges say what follows. Left-recursive rules are edges from
 * a node to itself. The tokens are sorted, and each is read from the first byte on in which it differs from the one before
 * it.
 */
#include <string.h>

#include "megcc_grammar.h"

#define NONE UINT16_MAX
#define ITEMS (2 * MEGCC_GRAMMAR_DEPTH + MEGCC_GRAMMAR_TOKEN)

/* --- stacks ---------------------------------------------------------------------------------------------------- */

/* Adds an item, unless there is the same one from index `begin` on. Returns 0 if there is no memory. */
static int32_t add_item(megcc_grammar_stack *stack, uint32_t begin, uint32_t state, uint32_t node)
{
    for (uint32_t i = begin; i < stack->count.items; i++) {
        if (stack->item[i].state == state && stack->item[i].node == node) {
            return 1;
        }
    }
    if (stack->count.items == ITEMS) {
        return 0;
    }
    const megcc_grammar_item item = { (uint16_t)state, (uint16_t)node };
    stack->item[stack->count.items++] = item;
    return 1;
}

/* Adds what follows a node, unless it has the same edge. */
static int32_t add_edge(megcc_grammar_stack *stack, uint32_t node, uint32_t state, uint32_t after)
{
    for (uint32_t e = stack->node[node].edge; e != NONE; e = stack->edge[e].next) {
        if (stack->edge[e].state == state && stack->edge[e].node == after) {
            return 1;
        }
    }
    if (stack->count.edges == 2 * MEGCC_GRAMMAR_DEPTH) {
        return 0;
    }
    const megcc_grammar_edge edge = { (uint16_t)state, (uint16_t)after, stack->node[node].edge };
    stack->edge[stack->count.edges] = edge;
    stack->node[node].edge = stack->count.edges++;
    return 1;
}

/* Calls a rule at the end of the text, whose nodes begin at index `first`. */
static int32_t call_rule(const megcc_grammar *grammar, megcc_grammar_stack *stack, uint32_t begin, uint32_t first,
                         uint32_t rule, uint32_t state, uint32_t after)
{
    uint32_t node = first;
    while (node < stack->count.nodes && stack->node[node].rule != rule) {
        node++;
    }
    if (node == stack->count.nodes) {
        const megcc_grammar_node fresh = { (uint16_t)rule, NONE };
        if (node == MEGCC_GRAMMAR_DEPTH || !add_item(stack, begin, grammar->rule[rule], node)) {
            return 0;
        }
        stack->node[stack->count.nodes++] = fresh;
    }
    return add_edge(stack, node, state, after);
}

/* Adds all items that the items from index `begin` on lead to without a byte: rules end, and others begin. A rule does not end
 * without a byte, so the edges of a rule that ends are known. *is_complete becomes 1 if the text may end. */
static int32_t close_items(const megcc_grammar *grammar, megcc_grammar_stack *stack, uint32_t begin, uint32_t first,
                           int32_t *is_complete)
{
    for (uint32_t i = begin; i < stack->count.items; i++) {
        const megcc_grammar_item item = stack->item[i];
        const uint16_t *list = grammar->call + (grammar->state[item.state] >> 16);
        if (*list & 1u) {
            for (uint32_t e = stack->node[item.node].edge; e != NONE; e = stack->edge[e].next) {
                const megcc_grammar_edge edge = stack->edge[e];
                if (edge.node == NONE) {
                    *is_complete = 1;
                } else if (!add_item(stack, begin, edge.state, edge.node)) {
                    return 0;
                }
            }
        }
        for (uint32_t k = 0; k < *list >> 2; k++) {
            if (!call_rule(grammar, stack, begin, first, list[2u * k + 1u], list[2u * k + 2u], item.node)) {
                return 0;
            }
        }
    }
    return 1;
}

/* --- bytes ----------------------------------------------------------------------------------------------------- */

/* Adds the items after a byte. The items before it are [begin, end). */
static int32_t move_items(const megcc_grammar *grammar, megcc_grammar_stack *stack, uint32_t begin, uint32_t end, uint8_t byte)
{
    for (uint32_t i = begin; i < end; i++) {
        const megcc_grammar_item item = stack->item[i];
        const uint32_t row = grammar->state[item.state] & 0xffffu;
        const int32_t move = grammar->move[row * grammar->classes + grammar->class_[byte]];
        if (move != INT16_MIN && !add_item(stack, end, (uint32_t)(item.state + move), item.node)) {
            return 0;
        }
    }
    return stack->count.items > end;
}

/* Reads the bytes of a token from index `depth` on, and returns the number of bytes that can follow the text. level[i]: the ends
 * of what was there after i bytes, known up to `depth`. *is_complete: whether the text may end after the last byte. */
static uint32_t read_bytes(megcc_grammar_state *state, uint32_t depth, const uint8_t *bytes, uint32_t size,
                           int32_t *is_complete)
{
    const megcc_grammar *grammar = state->grammar;
    megcc_grammar_stack *stack = &state->stack[state->current];
    const uint32_t most = size < MEGCC_GRAMMAR_TOKEN ? size : MEGCC_GRAMMAR_TOKEN;
    for (; depth < most; depth++) {
        const uint32_t end = state->level[depth].items, begin = depth ? state->level[depth - 1u].items : 0u;
        stack->count = state->level[depth];
        *is_complete = 0;
        if (end - begin == 1u && end < ITEMS) { /* the usual case, inside of a rule: needs no search for the same item */
            const megcc_grammar_item item = stack->item[begin];
            const uint32_t row = grammar->state[item.state] & 0xffffu;
            const int32_t move = grammar->move[row * grammar->classes + grammar->class_[bytes[depth]]];
            if (move == INT16_MIN) {
                return depth;
            }
            stack->item[end].state = (uint16_t)(item.state + move);
            stack->item[end].node = item.node;
            stack->count.items++;
            if (!(grammar->state[stack->item[end].state] >> 16)) {
                state->level[depth + 1u] = stack->count;
                continue;
            }
        } else if (!move_items(grammar, stack, begin, end, bytes[depth])) {
            return depth;
        }
        if (!close_items(grammar, stack, end, state->level[depth].nodes, is_complete)) {
            return depth;
        }
        state->level[depth + 1u] = stack->count;
    }
    return depth;
}

/* --- tokens ---------------------------------------------------------------------------------------------------- */

static uint32_t sorted_token(const megcc_sorted_tokens *tokens, uint32_t index)
{
    return tokens->wide ? ((const uint32_t *)tokens->token)[index] : ((const uint16_t *)tokens->token)[index];
}

static void forbid(float *logits, uint32_t token)
{
    const uint32_t minus_infinity = 0xff800000u;
    memcpy(&logits[token], &minus_infinity, sizeof minus_infinity);
}

uint32_t megcc_grammar_mask(megcc_grammar_state *state, float *logits)
{
    const megcc_sorted_tokens *tokens = state->grammar->tokens;
    const megcc_tokenizer *tokenizer = tokens->tokenizer;
    megcc_grammar_stack *stack = &state->stack[state->current];
    const megcc_grammar_counts before = stack->count;
    uint32_t lowest = MEGCC_NO_TOKEN, dead = UINT32_MAX; /* dead: so many first bytes of the token before cannot follow */
    state->level[0] = before;
    for (uint32_t i = 0; i < tokens->count; i++) {
        const uint32_t token = sorted_token(tokens, i), common = tokens->common[i];
        if (common >= dead) {
            forbid(logits, token);
            continue;
        }
        const uint32_t begin = tokenizer->text[token], size = tokenizer->text[token + 1u] - begin;
        int32_t is_complete;
        const uint32_t found = read_bytes(state, common, tokenizer->bytes + begin, size, &is_complete);
        dead = found < size ? found + 1u : UINT32_MAX;
        if (found < size) {
            forbid(logits, token);
        } else if (token < lowest) {
            lowest = token;
        }
    }
    stack->count = before;
    for (uint32_t i = 0; i < tokens->others; i++) {
        forbid(logits, sorted_token(tokens, tokens->count + i));
    }
    for (uint32_t i = 0; i < tokens->end_count; i++) {
        if (!state->is_complete) {
            forbid(logits, tokens->end[i]);
        } else if (tokens->end[i] < lowest) {
            lowest = tokens->end[i];
        }
    }
    return lowest;
}

/* --- the text -------------------------------------------------------------------------------------------------- */

/* Whether nothing follows a state but the end of its rule. */
static int32_t is_last(const megcc_grammar *grammar, uint32_t state)
{
    return !(grammar->state[state] & 0xffffu) && grammar->call[grammar->state[state] >> 16] == 1u;
}

/* Returns the index in the new stack of a node of the old one. */
static uint32_t copied_node(megcc_grammar_state *state, megcc_grammar_stack *to, uint32_t node)
{
    if (state->index[node] == NONE) {
        const megcc_grammar_node fresh = { state->stack[state->current].node[node].rule, NONE };
        state->index[node] = to->count.nodes;
        state->origin[to->count.nodes] = (uint16_t)node;
        to->node[to->count.nodes++] = fresh;
    }
    return state->index[node];
}

/* Copies the edges of a node of the old stack to node `index` of the new one. shorten: an edge to the end of another rule becomes
 * the edges of that rule, so that right-recursive rules need no memory for each repetition. Returns 0 if there is no memory. */
static int32_t copy_edges(megcc_grammar_state *state, megcc_grammar_stack *to, uint32_t index, int32_t shorten)
{
    const megcc_grammar_stack *from = &state->stack[state->current];
    uint32_t pending = 1;
    state->pending[0] = state->origin[index];
    state->expanded[state->origin[index]] = (uint16_t)index;
    while (pending) {
        const uint32_t node = state->pending[--pending];
        for (uint32_t e = from->node[node].edge; e != NONE; e = from->edge[e].next) {
            const megcc_grammar_edge edge = from->edge[e];
            if (edge.node == NONE || !shorten || !is_last(state->grammar, edge.state)) {
                const uint32_t after = edge.node == NONE ? NONE : copied_node(state, to, edge.node);
                if (!add_edge(to, index, edge.state, after)) {
                    return 0;
                }
            } else if (state->expanded[edge.node] != index) {
                state->expanded[edge.node] = (uint16_t)index;
                state->pending[pending++] = edge.node;
            }
        }
    }
    return 1;
}

/* Copies what the items from index `begin` on need to the other stack. It fits: without `shorten`, it is a part of what is
 * there. */
static int32_t copy_stack(megcc_grammar_state *state, uint32_t begin, int32_t shorten)
{
    const megcc_grammar_stack *from = &state->stack[state->current];
    megcc_grammar_stack *to = &state->stack[1u - state->current];
    memset(&to->count, 0, sizeof to->count);
    memset(state->index, 0xff, sizeof state->index);
    memset(state->expanded, 0xff, sizeof state->expanded);
    for (uint32_t i = begin; i < from->count.items; i++) {
        const megcc_grammar_item item = from->item[i];
        if (state->grammar->state[item.state] & 0xffffu) { /* others have done what they can */
            add_item(to, 0, item.state, copied_node(state, to, item.node));
        }
    }
    for (uint32_t i = 0; i < to->count.nodes; i++) {
        if (!copy_edges(state, to, i, shorten)) {
            return 0;
        }
    }
    return 1;
}

/* Makes the items from index `begin` on the ones of the text. */
static void keep(megcc_grammar_state *state, uint32_t begin)
{
    if (!copy_stack(state, begin, 1)) {
        copy_stack(state, begin, 0);
    }
    state->current = 1u - state->current;
}

int32_t megcc_grammar_begin(megcc_grammar_state *state, const megcc_grammar *grammar)
{
    static const megcc_grammar_counts root = { 1, 1, 1 };
    megcc_grammar_stack *stack = &state->stack[0];
    state->grammar = grammar;
    state->current = 0;
    stack->count = root;
    stack->node[0].rule = 0;
    stack->node[0].edge = 0;
    stack->edge[0].state = 0;
    stack->edge[0].node = stack->edge[0].next = NONE; /* after the whole text */
    stack->item[0].state = grammar->rule[0];
    stack->item[0].node = 0;
    int32_t is_complete = 0;
    const int32_t status = close_items(grammar, stack, 0, 1, &is_complete);
    state->is_complete = grammar->matches_empty;
    keep(state, 0);
    return status;
}

int32_t megcc_grammar_accept(megcc_grammar_state *state, uint32_t token)
{
    const megcc_sorted_tokens *tokens = state->grammar->tokens;
    megcc_grammar_stack *stack = &state->stack[state->current];
    const megcc_grammar_counts before = stack->count;
    size_t size;
    const uint8_t *bytes = (const uint8_t *)megcc_tokenizer_text(tokens->tokenizer, token, &size);
    for (uint32_t i = 0; i < tokens->end_count; i++) {
        if (tokens->end[i] == token) {
            return state->is_complete;
        }
    }
    for (uint32_t i = 0; i < tokens->others; i++) {
        if (sorted_token(tokens, tokens->count + i) == token) {
            return 0;
        }
    }
    int32_t is_complete = 0;
    state->level[0] = before;
    if (!bytes || read_bytes(state, 0, bytes, (uint32_t)size, &is_complete) < size) {
        stack->count = before;
        return 0;
    }
    state->is_complete = is_complete;
    keep(state, state->level[size - 1u].items);
    return 1;
}

int32_t megcc_grammar_is_finished(const megcc_grammar_state *state)
{
    return state->is_complete && !state->stack[state->current].count.items;
}

const megcc_grammar_functions megcc_grammar_masks = { megcc_grammar_begin, megcc_grammar_mask, megcc_grammar_accept,
                                                      megcc_grammar_is_finished };
