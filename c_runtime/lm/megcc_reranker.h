/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of a query and a document by a compiled network that reads both. `megcc lm rerank DIR -o FOLDER` writes the
 * description of a model, and a function by its name that calls this one (NAME_rerank.h). There is no heap and no file.
 */
#ifndef MEGCC_RERANKER_H
#define MEGCC_RERANKER_H

#include "megcc_embedding.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct megcc_reranker_model {
    uint32_t context;           /* most tokens of a pair */
    uint32_t inputs;
    const uint8_t *input;       /* [inputs]: MEGCC_INPUT_IDS and so on */
    uint32_t before, between, after; /* number of tokens before the query, between both, and after the document */
    const uint32_t *around;     /* [before + between + after]: these tokens */
    const uint8_t *around_type; /* [before + between + after]: their types, for MEGCC_INPUT_TYPES */
    uint8_t query_type, document_type; /* of the tokens of each */
    uint8_t sigmoid;            /* whether a score is 1 / (1 + exp(-x)) of the network's number x */
} megcc_reranker_model;

/* Writes the score of a query and a document; higher is better. query, document: their tokens, [context] at most; the counts
 * say how many they have. A pair that does not fit is cut, the longer one first. shapes[inputs], tokens[context] and
 * types[context]: work memory. Errors are those of megcc_embedding_run(). */
int32_t megcc_reranker_run(const megcc_reranker_model *model, const megcc_model *network, megcc_session *session,
                           megcc_shape *shapes, const uint32_t *query, uint32_t query_count, const uint32_t *document,
                           uint32_t document_count, uint32_t *tokens, uint8_t *types, float *score, megcc_error *error);

#ifdef __cplusplus
}
#endif
#endif
