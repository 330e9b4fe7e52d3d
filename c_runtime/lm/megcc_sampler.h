/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the next token of a language model from its logits. Equal logits and options give equal tokens on every CPU,
 * and those of `tvm_megcc.tools.lm.sampling`: all but the repetition penalty is integer arithmetic.
 *
 *     megcc_sampler sampler = { .temperature = 0.8f, .top_p = 0.95f, .seed = 1 };
 *     uint32_t token = megcc_sampler_choose(&sampler, logits, 49152, NULL);
 */
#ifndef MEGCC_SAMPLER_H
#define MEGCC_SAMPLER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a token is chosen. All zero: the most likely one. A number that is not in its range is not used, as if it were 0. */
typedef struct megcc_sampler {
    float temperature;          /* above 0, finite: logits are divided by it; 0: the most likely token */
    float top_p;                /* between 0 and 1: the most likely tokens with this total probability */
    float min_p;                /* above 0, at most 1: tokens with at least this fraction of the highest probability */
    float repetition_penalty;   /* above 0, finite: divides positive logits of earlier tokens, multiplies negative ones */
    uint32_t top_k;             /* so many of the most likely tokens */
    uint64_t seed;
    uint64_t draws;             /* random numbers so far: the next one depends on `seed` and this only */
} megcc_sampler;

/* Returns whether all numbers are in their ranges or 0. */
int32_t megcc_sampler_is_valid(const megcc_sampler *sampler);

/* Returns the next token. logits: of `count` tokens, at most 2^20; they are overwritten if there is a temperature or a
 * repetition penalty. seen: bit k of seen[i] says whether token 32 * i + k is an earlier one; NULL: none. */
uint32_t megcc_sampler_choose(megcc_sampler *sampler, float *logits, uint32_t count, const uint32_t *seen);

/* Returns the natural logarithm of a token's softmax probability, with an error below 2^-21 + count * 2^-31: integer arithmetic
 * as well. logits: as the network gave them, at most 2^20; not written. */
float megcc_sampler_log_probability(const float *logits, uint32_t count, uint32_t token);

/* Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): block `counter` of `key`. */
void megcc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t block[4]);

#ifdef __cplusplus
}
#endif
#endif
