/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling with integers. A logit becomes an integer in units of 2^-24, the softmax weight exp((logit - highest) /
 * temperature) one in units of 2^-31, which overwrites the logit. `top_k`, `top_p` and `min_p` keep the tokens with the largest
 * weights; of equal weights, those with the smaller numbers. The cut-off is found by looking at the weights 4 bits at a
 * time, so that nothing is sorted (a radix select).
 */
#include <float.h>
#include <string.h>

#include "megcc_sampler.h"

/* --- random numbers -------------------------------------------------------------------------------------------- */

void megcc_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t block[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (uint32_t i = 0; i < 4u; i++) {
        block[i] = counter[i];
    }
    for (uint32_t round = 0; round < 10u; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * block[0], b = (uint64_t)0xcd9e8d57u * block[2];
        block[0] = (uint32_t)(b >> 32) ^ block[1] ^ k0;
        block[1] = (uint32_t)b;
        block[2] = (uint32_t)(a >> 32) ^ block[3] ^ k1;
        block[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* A random number below `limit`: the upper 64 bits of the product of `limit` and a random number of 64 bits. */
static uint64_t draw(megcc_sampler *s, uint64_t limit)
{
    const uint32_t counter[4] = { (uint32_t)s->draws, (uint32_t)(s->draws >> 32), 0, 0 };
    const uint32_t key[2] = { (uint32_t)s->seed, (uint32_t)(s->seed >> 32) };
    uint32_t block[4];
    megcc_philox(counter, key, block);
    s->draws++;
    const uint64_t high = limit >> 32, low = limit & 0xffffffffu;
    const uint64_t middle = block[1] * low + (block[0] * low >> 32), other = block[0] * high + (middle & 0xffffffffu);
    return block[1] * high + (middle >> 32) + (other >> 32);
}

/* --- weights --------------------------------------------------------------------------------------------------- */

/* A logit in units of 2^-24, between -2^54 and 2^54; NaN is the lowest one. */
static int64_t fixed(float logit)
{
    const float limit = 1073741824.0f; /* 2^30 */
    logit = logit > -limit ? logit : -limit;
    return (int64_t)((logit < limit ? logit : limit) * 16777216.0f);
}

/* 2^-x in units of 2^-31, for x in units of 2^-48 below 64: tables for 2^-(i / 16) and 2^-(i / 256) by the first 8 fractional
 * bits, then e^-r = 1 - r + r^2 / 2 for the rest r, below 2^-8 * ln 2. */
static uint32_t power(uint64_t x)
{
    static const uint32_t coarse[16] = {
        0x80000000u, 0x7a92be8bu, 0x75606374u, 0x70666f76u, 0x6ba27e65u, 0x6712460bu, 0x62b39509u, 0x5e8451d0u,
        0x5a82799au, 0x56ac1f75u, 0x52ff6b55u, 0x4f7a9930u, 0x4c1bf829u, 0x48e1e9bau, 0x45cae0f2u, 0x42d561b4u,
    };
    static const uint32_t fine[16] = {
        0x80000000u, 0x7fa765adu, 0x7f4f08aeu, 0x7ef6e8dau, 0x7e9f0606u, 0x7e476009u, 0x7deff6b6u, 0x7d98c9e6u,
        0x7d41d96eu, 0x7ceb2523u, 0x7c94acdeu, 0x7c3e7073u, 0x7be86fbau, 0x7b92aa88u, 0x7b3d20b6u, 0x7ae7d21au,
    };
    const uint64_t ln2 = 1488522236u; /* in units of 2^-31 */
    /* r: bits 8 to 39 of x, in units of 2^-40, times ln 2, in units of 2^-31. */
    const uint64_t rest = ((x >> 8 & 0xffffffffu) * ln2) >> 40;
    const uint64_t table = (uint64_t)coarse[x >> 44 & 15u] * fine[x >> 40 & 15u] >> 31;
    return (uint32_t)((table * (0x80000000u - rest + (rest * rest >> 32)) >> 31) >> (x >> 48));
}

/* The weight that overwrote a logit. */
static uint32_t weight(const float *logits, uint32_t index)
{
    uint32_t found;
    memcpy(&found, &logits[index], sizeof found);
    return found;
}

static int64_t highest_fixed(const float *logits, uint32_t count)
{
    int64_t highest = fixed(logits[0]);
    for (uint32_t i = 1; i < count; i++) {
        const int64_t logit = fixed(logits[i]);
        highest = logit > highest ? logit : highest;
    }
    return highest;
}

/* The weight of a logit that is `below` (units of 2^-24) the highest one. slope: log2(e) / temperature in units of 2^-24. */
static uint32_t weight_below(uint64_t below, uint64_t slope)
{
    const uint64_t limit = (uint64_t)33 << 48; /* 2^-33 is 0 in units of 2^-31 */
    return below > limit / (slope ? slope : 1u) ? 0u : power(below * slope);
}

#define LOG2_E 24204406.0f /* in units of 2^-24 */

/* Overwrites logits with weights, and returns their sum. */
static uint64_t to_weights(float *logits, uint32_t count, float temperature)
{
    const float steep = LOG2_E / temperature;
    const uint64_t slope = steep < 1099511627776.0f ? (uint64_t)steep : (uint64_t)1 << 40;
    const int64_t highest = highest_fixed(logits, count);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t found = weight_below((uint64_t)(highest - fixed(logits[i])), slope);
        memcpy(&logits[i], &found, sizeof found);
        sum += found;
    }
    return sum;
}

/* log2(x) in units of 2^-24, for x from 2^31 to 2^53. Squaring x, in [1, 2), gives the fractional bits: each square of 2 or
 * more gives a 1, and is halved. */
static int64_t log2_of(uint64_t x)
{
    int64_t found = 31;
    for (; x >= (uint64_t)1 << 32; x >>= 1) {
        found++;
    }
    for (int32_t bit = 0; bit < 24; bit++) {
        x = x * x >> 31;
        found = 2 * found + (int64_t)(x >> 32);
        x >>= x >> 32;
    }
    return found;
}

float megcc_sampler_log_probability(const float *logits, uint32_t count, uint32_t token)
{
    const int64_t highest = highest_fixed(logits, count), ln2 = 1488522236; /* in units of 2^-31 */
    const int64_t log2_of_unit = (int64_t)31 << 24; /* weights have units of 2^-31 */
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += weight_below((uint64_t)(highest - fixed(logits[i])), (uint64_t)LOG2_E);
    }
    /* log(e^(logit - highest) / sum). */
    const int64_t found = fixed(logits[token]) - highest - ((log2_of(sum) - log2_of_unit) * ln2 >> 31);
    return (float)((double)found / 16777216.0);
}

/* --- the cut-off ----------------------------------------------------------------------------------------------- */

/* Tokens with a weight above `weight`, and the first `equal` ones with this weight. */
typedef struct cutoff {
    uint32_t weight, equal;
} cutoff;

/* Returns the cut-off that keeps fewer tokens. */
static cutoff stricter(cutoff a, cutoff b)
{
    if (a.weight != b.weight) {
        return a.weight > b.weight ? a : b;
    }
    return a.equal < b.equal ? a : b;
}

/* Returns the cut-off that keeps the fewest tokens whose number or, `by_sum`, whose sum of weights is `target` or more.
 * All tokens together have as many. */
static cutoff cutoff_at(const float *weights, uint32_t count, uint64_t target, int32_t by_sum)
{
    uint64_t above = 0; /* the tokens that are kept for sure */
    uint32_t found = 0; /* the upper bits of the weight of the cut-off */
    for (uint32_t shift = 28;; shift -= 4u) {
        uint64_t bucket[16] = { 0 };
        uint32_t digit = 15;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t w = weight(weights, i);
            if ((uint64_t)w >> (shift + 4u) == found) {
                bucket[w >> shift & 15u] += by_sum ? w : 1u;
            }
        }
        while (digit > 0u && above + bucket[digit] < target) {
            above += bucket[digit--];
        }
        found = found << 4 | digit;
        if (!shift) {
            break;
        }
    }
    const uint64_t left = target - above, unit = by_sum ? found : 1u, equal = unit ? (left + unit - 1u) / unit : 0u;
    const cutoff result = { found, (uint32_t)equal };
    return result;
}

/* --- choosing -------------------------------------------------------------------------------------------------- */

/* The first of the highest logits; NaN is none. */
static uint32_t highest_of(const float *logits, uint32_t count)
{
    float highest = -FLT_MAX;
    uint32_t best = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (logits[i] > highest) {
            highest = logits[i];
            best = i;
        }
    }
    return best;
}

static void penalise(float *logits, uint32_t count, const uint32_t *seen, float penalty)
{
    for (uint32_t i = 0; i < count; i++) {
        if (seen[i / 32u] >> i % 32u & 1u) {
            logits[i] = logits[i] > 0.0f ? logits[i] / penalty : logits[i] * penalty;
        }
    }
}

/* Whether a number is above 0 and finite. */
static int32_t is_used(float number)
{
    return number > 0.0f && number <= FLT_MAX;
}

int32_t megcc_sampler_is_valid(const megcc_sampler *s)
{
    return s->temperature >= 0.0f && s->temperature <= FLT_MAX && s->repetition_penalty >= 0.0f &&
           s->repetition_penalty <= FLT_MAX && s->top_p >= 0.0f && s->top_p <= 1.0f && s->min_p >= 0.0f &&
           s->min_p <= 1.0f;
}

uint32_t megcc_sampler_choose(megcc_sampler *sampler, float *logits, uint32_t count, const uint32_t *seen)
{
    const megcc_sampler *s = sampler;
    if (seen && is_used(s->repetition_penalty)) {
        penalise(logits, count, seen, s->repetition_penalty);
    }
    if (!is_used(s->temperature)) {
        return highest_of(logits, count);
    }
    const uint64_t sum = to_weights(logits, count, s->temperature);
    cutoff which = { 1, UINT32_MAX }; /* all tokens with a weight */
    if (s->min_p > 0.0f && s->min_p <= 1.0f) {
        const cutoff likely = { (uint32_t)(s->min_p * 2147483648.0f), UINT32_MAX }; /* the highest weight is 2^31 */
        which = stricter(which, likely);
    }
    if (s->top_k > 0u && s->top_k < count) {
        which = stricter(which, cutoff_at(logits, count, s->top_k, 0));
    }
    if (s->top_p > 0.0f && s->top_p < 1.0f) {
        const uint64_t part = (uint64_t)(s->top_p * 16777216.0f);
        /* sum * part / 2^24, without a product of more than 64 bits. */
        const uint64_t target = (sum >> 24) * part + ((sum & 0xffffffu) * part >> 24);
        which = stricter(which, cutoff_at(logits, count, target ? target : 1u, 1));
    }
    uint64_t total = 0;
    for (uint32_t i = 0, equal = which.equal; i < count; i++) {
        const uint32_t w = weight(logits, i);
        total += w > which.weight || (w == which.weight && equal && equal--) ? w : 0u;
    }
    uint64_t left = draw(sampler, total);
    for (uint32_t i = 0, equal = which.equal; i < count; i++) {
        const uint32_t w = weight(logits, i);
        if (w > which.weight || (w == which.weight && equal && equal--)) {
            if (left < w) {
                return i;
            }
            left -= w;
        }
    }
    return 0; /* not reached: the kept weights are more than what was drawn */
}
