/* SPDX-License-Identifier: Apache-2.0
 *
 * The amplifier as an LV2 plug-in. A host asks for any number of samples, the model takes blocks of AMP_IN_AUDIO_ELEMENTS:
 * samples wait for a block to be whole, so the plug-in is late by one block, and says so on its latency port.
 * docs/audio.md has the commands.
 */
#include <stdlib.h>
#include <string.h>

#include <lv2/core/lv2.h>

#include "amp.h"
#include "megcc_realtime.h"

enum { IN, OUT, LATENCY, PORTS };
enum { BLOCK = AMP_IN_AUDIO_ELEMENTS };

typedef struct plugin {
    float *port[PORTS];
    megcc_model model;
    megcc_session *session;
    float *in;        /* of the session: the block that fills up */
    const float *out; /* of the session: what the last block gave */
    float late[BLOCK];
    uint32_t filled;
    void *memory;
} plugin;

static void cleanup(LV2_Handle handle)
{
    plugin *p = handle;
    free(p->memory);
    free(p);
}

static LV2_Handle instantiate(const LV2_Descriptor *descriptor, double rate, const char *path,
                              const LV2_Feature *const *features)
{
    (void)descriptor, (void)rate, (void)path, (void)features;
    plugin *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    /* All memory that the model will ever need. */
    p->memory = malloc(AMP_MEMORY_BYTES + AMP_ALIGN);
    if (p->memory == NULL) {
        cleanup(p);
        return NULL;
    }
    void *aligned = (char *)p->memory + (AMP_ALIGN - (uintptr_t)p->memory % AMP_ALIGN) % AMP_ALIGN;
    if (megcc_model_open(&p->model, &amp_module, amp_data, AMP_CONTAINER_BYTES, NULL, NULL)
        || megcc_session_open(&p->session, &p->model, aligned, AMP_MEMORY_BYTES, NULL, NULL)) {
        cleanup(p);
        return NULL;
    }
    p->in = megcc_session_input(p->session, AMP_IN_AUDIO, NULL);
    p->out = megcc_session_output(p->session, AMP_OUT_OUT, NULL);
    return p;
}

static void connect_port(LV2_Handle handle, uint32_t port, void *data)
{
    if (port < PORTS)
        ((plugin *)handle)->port[port] = data;
}

static void activate(LV2_Handle handle)
{
    plugin *p = handle;
    megcc_session_reset(p->session);
    memset(p->late, 0, sizeof p->late);
    p->filled = 0;
}

/* The callback: no allocation, no lock, no system call. */
static void run(LV2_Handle handle, uint32_t samples)
{
    plugin *p = handle;
    const uint32_t denormals = megcc_flush_denormals();
    if (p->port[LATENCY] != NULL)
        *p->port[LATENCY] = (float)BLOCK;
    for (uint32_t i = 0; i < samples; i++) {
        const float sample = p->port[IN][i]; /* hosts may give one buffer for both ports */
        p->port[OUT][i] = p->late[p->filled];
        p->in[p->filled++] = sample;
        if (p->filled == BLOCK) {
            p->filled = 0;
            if (megcc_session_run(p->session, NULL) == MEGCC_OK)
                memcpy(p->late, p->out, sizeof p->late);
        }
    }
    megcc_restore_denormals(denormals);
}

static const LV2_Descriptor amp = { "urn:tvm_megcc:amp", instantiate, connect_port, activate, run, NULL, cleanup, NULL };

LV2_SYMBOL_EXPORT const LV2_Descriptor *lv2_descriptor(uint32_t index)
{
    return index == 0 ? &amp : NULL;
}
