/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from a compiled language model. `megcc lm compile` writes the description of a model, its memory, and functions
 * by its name that call these here (NAME_lm.h). There is no heap and no file; one object serves one session.
 */
#ifndef MEGCC_LM_H
#define MEGCC_LM_H

#include "megcc.h"
#include "megcc_grammar.h"
#include "megcc_sampler.h"
#include "megcc_tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The strings of the model's chat template before, between and after messages. NULL: the template does not have that one. */
typedef struct megcc_lm_chat {
    const char *first;          /* before the first question, without a system message */
    const char *system;         /* before a system message */
    const char *after_system;   /* between it and the first question */
    const char *answer;         /* between a question and its answer */
    const char *next;           /* between an answer and the next question */
} megcc_lm_chat;

/* Inputs of the network that are states. Their first dimension is that of the sequences. */
enum {
    MEGCC_LM_NO_STATE,
    MEGCC_LM_COUNTER,           /* int64: the number of tokens that were read */
    MEGCC_LM_ROWS,              /* [sequences, heads, context, elements], of which the first rows are used */
    MEGCC_LM_WHOLE              /* all of it is used */
};

/* A compiled language model. */
typedef struct megcc_lm_model {
    const megcc_tokenizer *tokenizer;
    const megcc_lm_chat *chat;  /* NULL: the model has no chat template, or one that is not so simple */
    const uint32_t *ends;       /* tokens that end a text */
    uint32_t end_count;
    uint32_t begin;             /* token before every text, or MEGCC_NO_TOKEN */
    uint32_t context;           /* the most tokens of a text: those read and those generated */
    uint32_t endless;           /* 1: a text may have more tokens; only a prompt may not */
    uint32_t prompt;            /* most tokens of a run */
    uint32_t inputs;            /* number of inputs of the network */
    uint32_t sequences;         /* how many one run has new tokens of */
    uint32_t input_ids, logits; /* index of the input for tokens, int64 [sequences, tokens], and of the output float32
                                 * [sequences, tokens of vocabulary] */
    uint32_t new_tokens;        /* several sequences: index of the input for how many tokens each has, int64 [sequences] */
    const uint8_t *state;       /* [inputs]: MEGCC_LM_NO_STATE and so on */
} megcc_lm_model;

/* Memory of the caller. */
typedef struct megcc_lm_memory {
    uint32_t *seen;             /* a bit for each token of the vocabulary */
    uint32_t *tokens;           /* [context + 1] */
    megcc_shape *shapes;        /* [inputs], of the last run */
    uint32_t *work;             /* of the tokenizer */
    size_t work_bytes;
    char *text;                 /* a prompt with the strings around it; then what may be the beginning of a stop string,
                                 * and a token's text */
    size_t text_bytes;
    megcc_grammar_state *grammar; /* NULL: no text can be restricted to a grammar */
} megcc_lm_memory;

/* Takes a piece of text, which is valid UTF-8 and has no '\0' at its end. Non-zero ends the text. */
typedef int32_t (*megcc_lm_piece)(void *user, const char *text, size_t size);

/* Takes a token of the text, before its piece, and the natural logarithm of its probability, in the softmax of the network's
 * logits. */
typedef void (*megcc_lm_token)(void *user, uint32_t token, float log_probability);

/* All zero: the most likely tokens until the model ends the text or the context is full. */
typedef struct megcc_lm_options {
    megcc_sampler sampler;      /* a copy is used: each text begins with draw 0 */
    uint32_t max_tokens;        /* 0: no limit */
    const char *const *stop;    /* strings that end the text and are no part of it */
    uint32_t stops;
    const char *system;         /* of a conversation's first question; NULL: the model's own */
    const megcc_grammar *grammar; /* what the text matches, or is the beginning of if it ends early; or NULL */
    megcc_lm_token token;       /* or NULL */
    float *logits;              /* memory for the logits of the vocabulary, if there is `token` */
} megcc_lm_options;

/* The first step of megcc_lm_next(). */
enum {
    MEGCC_LM_ENDED,             /* nothing: there is no text, or it is complete */
    MEGCC_LM_BEGINS,            /* reads its prompt, then chooses a token */
    MEGCC_LM_CHOOSES,           /* chooses a token */
    MEGCC_LM_READS              /* reads the token that it chose, then chooses another */
};

/* A text that is read and generated. Read `length`, and write nothing. */
typedef struct megcc_lm {
    const megcc_lm_model *model;
    const megcc_model *network;
    megcc_session *session;
    megcc_lm_memory memory;
    uint32_t length;            /* tokens so far: of the prompts and of what was generated; at most UINT32_MAX */
    uint32_t index;             /* its number among the sequences */
    megcc_lm_options options;   /* of the text that is generated, and its sampler */
    void *user;
    megcc_decoder decoder;
    float *logits;              /* of the next token */
    uint32_t phase;             /* MEGCC_LM_ENDED and so on */
    uint32_t token;             /* the last one that was chosen */
    uint32_t generated;         /* tokens that were chosen */
    const uint32_t *waiting;    /* the tokens that are read next */
    uint32_t waits;             /* their number */
    size_t pending;             /* bytes in memory.text: first those that the caller has, then those that it has not yet */
    size_t given;               /* bytes that the caller has */
} megcc_lm;

void megcc_lm_open(megcc_lm *lm, const megcc_lm_model *model, const megcc_model *network, megcc_session *session,
                   const megcc_lm_memory *memory);

/* Forgets everything read, so that the next text has nothing before it. */
void megcc_lm_reset(megcc_lm *lm);

/* Reads tokens after everything read so far. logits: of the token after them, for each of the vocabulary, until the next
 * run; they may be overwritten. MEGCC_E_ARGUMENT: so many do not fit in the context, or one is not in the vocabulary. */
int32_t megcc_lm_step(megcc_lm *lm, const uint32_t *tokens, uint32_t count, float **logits, megcc_error *error);

/* Reads a text after everything read so far, and goes on with it. MEGCC_E_ARGUMENT: it does not fit in the context (`where`
 * "context", `needed` tokens) or in the memory (`where` "text" or "work"), or an argument is NULL or out of its range;
 * nothing was read then. MEGCC_E_MEMORY: no token can follow in options->grammar, which needs a larger MEGCC_GRAMMAR_DEPTH
 * or tokens that the model does not have. */
int32_t megcc_lm_generate(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options,
                          megcc_lm_piece piece, void *user, megcc_error *error);

/* The same for the next question of a conversation, in the model's format. MEGCC_E_UNSUPPORTED: it has none, or not for a
 * system message or a second question. */
int32_t megcc_lm_ask(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                     megcc_lm_piece piece, void *user, megcc_error *error);

/* The same without a function that takes pieces: start reads the text, and each call of next gives a piece. It is valid until
 * the next call; of `size` 0, the text is complete. The strings and memory of `options` are used until then; `user` goes to
 * options->token. */
int32_t megcc_lm_start(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options, void *user,
                       megcc_error *error);
int32_t megcc_lm_start_answer(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                              void *user, megcc_error *error);
int32_t megcc_lm_next(megcc_lm *lm, const char **piece, size_t *size, megcc_error *error);

/* Writes everything read so far to `data`, so that a common beginning is read once: tokens, keys and values.
 * Returns the bytes that takes; nothing is written if `capacity` is smaller. */
size_t megcc_lm_save(const megcc_lm *lm, void *data, size_t capacity);

/* Replaces everything read by what megcc_lm_save() wrote, of any sequence of the same container. MEGCC_E_ARGUMENT (`where`
 * "saved"): the bytes are damaged, or of another container; nothing changes then. */
int32_t megcc_lm_load(megcc_lm *lm, const void *data, size_t size, megcc_error *error);

#ifdef __cplusplus
}
#endif
#endif
