/* SPDX-License-Identifier: Apache-2.0
 *
 * Speech without noise in a callback of 64 samples, by the two networks of DTLN (Westhausen and Meyer, 2020) at 16 kHz.
 * They work on the last 512 samples, every 128: the first makes a mask for the magnitudes of their spectrum, the second
 * works on the samples that the masked spectrum gives, and what it gives for overlapping windows is added up.
 *
 * Two callbacks fill a hop of 128 samples. The one that completes it runs the first network and the next one the second, so
 * none has to do it all. A sample comes out 512 samples (32 ms) after it went in: 384 are the network's, 128 wait for a
 * hop to be whole. docs/audio.md has the commands.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "dtln1.h"
#include "dtln2.h"
#include "megcc_realtime.h"

enum { PART = 64, HOP = 2 * PART, WINDOW = 512, HALF = WINDOW / 2, BINS = HALF + 1 };

#if DTLN1_IN_INPUT_2_ELEMENTS != 257 || DTLN2_IN_INPUT_4_ELEMENTS != 512
#error "these are no networks for windows of 512 samples"
#endif

int dtln_prepare(void);
void dtln_callback(const float *in, float *out);

typedef struct number {
    float re, im;
} number;

static number unit[WINDOW]; /* e^(-2 pi i k / 512) */

static number times(number a, number b)
{
    return (number) { a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re };
}

/* The discrete Fourier transform of 256 numbers, in place: Stockham's, which needs no sorting. Eight steps, so the last
 * one ends where the first one began. */
static void transform(number *x)
{
    number other[HALF], *from = x, *to = other;
    for (int stride = 1; stride < HALF; stride *= 2) {
        const int pairs = HALF / stride / 2;
        for (int p = 0; p < pairs; p++) {
            for (int q = 0; q < stride; q++) {
                const number a = from[q + stride * p], b = from[q + stride * (p + pairs)];
                to[q + stride * 2 * p] = (number) { a.re + b.re, a.im + b.im };
                to[q + stride * (2 * p + 1)] = times((number) { a.re - b.re, a.im - b.im }, unit[2 * stride * p]);
            }
        }
        number *swapped = from;
        from = to;
        to = swapped;
    }
}

/* Bins 0 to 256 of 512 real numbers: even and odd ones are transformed as one row of complex numbers, then told apart. */
static void spectrum_of(const float *samples, number *bins)
{
    number z[HALF];
    for (int i = 0; i < HALF; i++)
        z[i] = (number) { samples[2 * i], samples[2 * i + 1] };
    transform(z);
    for (int k = 0; k < BINS; k++) {
        const number a = z[k % HALF], b = z[(HALF - k) % HALF];
        const number even = { (a.re + b.re) / 2, (a.im - b.im) / 2 }, odd = { (a.im + b.im) / 2, (b.re - a.re) / 2 };
        const number turned = times(odd, unit[k]);
        bins[k] = (number) { even.re + turned.re, even.im + turned.im };
    }
}

/* The other way. Conjugates before and after make a transform the inverse. */
static void samples_of(const number *bins, float *samples)
{
    number z[HALF];
    for (int k = 0; k < HALF; k++) {
        const number a = bins[k], b = bins[HALF - k], back = { unit[k].re, -unit[k].im };
        const number even = { a.re + b.re, a.im - b.im }, odd = times((number) { a.re - b.re, a.im + b.im }, back);
        z[k] = (number) { even.re - odd.im, -(even.im + odd.re) };
    }
    transform(z);
    for (int i = 0; i < HALF; i++) {
        samples[2 * i] = z[i].re / WINDOW;
        samples[2 * i + 1] = -z[i].im / WINDOW;
    }
}

static _Alignas(DTLN1_ALIGN) unsigned char memory1[DTLN1_MEMORY_BYTES];
static _Alignas(DTLN2_ALIGN) unsigned char memory2[DTLN2_MEMORY_BYTES];
static megcc_model model1, model2;
static megcc_session *mask, *polish;
static float window[WINDOW]; /* the last samples that came in */
static float sum[WINDOW];    /* of the second network's windows; the first 128 are complete */
static int second;           /* this callback completes a hop */
static int begun;            /* the first network has run */

/* Not in the audio thread: opens both models, or begins a new stream. Returns 0 if all is well. */
int dtln_prepare(void)
{
    const double turn = 8 * atan(1.0);
    for (int k = 0; k < WINDOW; k++)
        unit[k] = (number) { (float)cos(turn * k / WINDOW), (float)-sin(turn * k / WINDOW) };
    memset(window, 0, sizeof window);
    memset(sum, 0, sizeof sum);
    second = begun = 0;
    return megcc_model_open(&model1, &dtln1_module, dtln1_data, DTLN1_CONTAINER_BYTES, NULL, NULL)
        || megcc_model_open(&model2, &dtln2_module, dtln2_data, DTLN2_CONTAINER_BYTES, NULL, NULL)
        || megcc_session_open(&mask, &model1, memory1, sizeof memory1, NULL, NULL)
        || megcc_session_open(&polish, &model2, memory2, sizeof memory2, NULL, NULL);
}

/* The window without what the first network takes for noise, as the input of the second. */
static void first_network(void)
{
    number bins[BINS];
    spectrum_of(window, bins);
    float *magnitude = megcc_session_input(mask, DTLN1_IN_INPUT_2, NULL);
    for (int k = 0; k < BINS; k++)
        magnitude[k] = sqrtf(bins[k].re * bins[k].re + bins[k].im * bins[k].im);
    megcc_session_run(mask, NULL);
    const float *share = megcc_session_output(mask, DTLN1_OUT_ACTIVATION_2, NULL);
    for (int k = 0; k < BINS; k++)
        bins[k] = (number) { bins[k].re * share[k], bins[k].im * share[k] };
    samples_of(bins, megcc_session_input(polish, DTLN2_IN_INPUT_4, NULL));
}

static void second_network(void)
{
    megcc_session_run(polish, NULL);
    const float *clean = megcc_session_output(polish, DTLN2_OUT_CONV1D_3, NULL);
    memmove(sum, sum + HOP, (WINDOW - HOP) * sizeof *sum);
    memset(sum + WINDOW - HOP, 0, HOP * sizeof *sum);
    for (int i = 0; i < WINDOW; i++)
        sum[i] += clean[i];
}

/* 64 samples, in and out: no allocation, no lock, no system call. Both may be the same memory. */
void dtln_callback(const float *in, float *out)
{
    const uint32_t denormals = megcc_flush_denormals();
    if (second == 0)
        memmove(window, window + HOP, (WINDOW - HOP) * sizeof *window);
    memcpy(window + WINDOW - HOP + second * PART, in, PART * sizeof *window);
    if (second)
        first_network();
    else if (begun)
        second_network();
    memcpy(out, sum + second * PART, PART * sizeof *out);
    begun |= second;
    second = !second;
    megcc_restore_denormals(denormals);
}

/* Raw floats of this machine from the standard input to the standard output, 16 kHz, one channel. */
int main(void)
{
    float samples[PART];
    if (dtln_prepare())
        return 1;
    while (fread(samples, sizeof *samples, PART, stdin) == PART) {
        dtln_callback(samples, samples);
        if (fwrite(samples, sizeof *samples, PART, stdout) != PART)
            return 1;
    }
    return ferror(stdin) || fflush(stdout);
}
