/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings from a compiled network and the tokens of a text. `megcc lm embed DIR -o FOLDER` writes the description of a
 * model, and a function by its name that calls this one (NAME_embed.h). There is no heap and no file.
 */
#ifndef MEGCC_EMBEDDING_H
#define MEGCC_EMBEDDING_H

#include "megcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the rows of tokens become one. */
enum { MEGCC_POOL_MEAN, MEGCC_POOL_FIRST, MEGCC_POOL_MAX };

/* Inputs of the network, int64 or int32 [1, tokens]. */
enum { MEGCC_INPUT_IDS, MEGCC_INPUT_MASK, MEGCC_INPUT_TYPES };

typedef struct megcc_embedding_model {
    uint32_t context;           /* most tokens */
    uint32_t width;             /* elements of an embedding */
    uint32_t first, last;       /* tokens around a text; or UINT32_MAX */
    uint32_t inputs;
    const uint8_t *input;       /* [inputs]: MEGCC_INPUT_IDS and so on */
    uint8_t pooling;            /* MEGCC_POOL_MEAN and so on, of float32 [1, tokens, width]; another rank is not pooled */
    uint8_t normalize;          /* whether the embedding gets length 1 */
    uint8_t is_static;          /* whether the network only reads a row for each token: the unknown ones are left out, and a
                                 * text without tokens has the embedding 0 */
    uint32_t unknown;           /* is_static: the token of unknown words; or UINT32_MAX */
} megcc_embedding_model;

/* Writes the embedding of a text: vector[width]. tokens[context]: those of the text begin at index 1 if there is a first one,
 * else at 0. count: how many tokens the text has; those that do not fit are cut off, and need not be in `tokens`.
 * shapes[inputs]: work memory. MEGCC_E_ARGUMENT: there are no tokens. MEGCC_E_ORDER: input `detail` of the network is bound to
 * other memory. */
int32_t megcc_embedding_run(const megcc_embedding_model *model, const megcc_model *network, megcc_session *session,
                            megcc_shape *shapes, uint32_t *tokens, uint32_t count, float *vector, megcc_error *error);

/* Runs a network on tokens: what embeddings and rerankers have in common. input, inputs: as of the model. types: of the tokens;
 * NULL: zeros. */
int32_t megcc_embedding_network(const uint8_t *input, uint32_t inputs, const megcc_model *network, megcc_session *session,
                                megcc_shape *shapes, const uint32_t *tokens, const uint8_t *types, uint32_t count,
                                megcc_error *error);

/* The most tokens of a text beside those around it. */
uint32_t megcc_embedding_capacity(const megcc_embedding_model *model);

#ifdef __cplusplus
}
#endif
#endif
