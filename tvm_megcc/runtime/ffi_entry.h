/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports functions for TVM's FFI, by which an RPC server calls them. The declarations are from tvm/ffi/c_api.h and
 * dlpack.h, so a library needs nothing of TVM to compile and to load.
 */
#ifndef MEGCC_FFI_ENTRY_H
#define MEGCC_FFI_ENTRY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FFI_EXPORT __attribute__((visibility("default")))

typedef struct ffi_any {
    int32_t type_index;
    uint32_t zero;
    union {
        int64_t number;
        void *pointer;
    } value;
} ffi_any;

enum { FFI_INT = 1, FFI_DLTENSOR = 7, FFI_TENSOR = 70, FFI_TENSOR_HEAD = 24 };

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor;

/* An argument: the bytes of a row-major tensor. */
typedef struct ffi_span {
    unsigned char *data;
    uint64_t bytes;
} ffi_span;

typedef int32_t (*ffi_body)(const ffi_span *arguments);

enum { FFI_MAX_ARGUMENTS = 8, FFI_BAD_ARGUMENTS = -1 };

static inline ffi_span ffi_span_of(const ffi_any *argument)
{
    ffi_span span = { NULL, 0 };
    const dl_tensor *t = NULL;
    if (argument->type_index == FFI_DLTENSOR)
        t = (const dl_tensor *)argument->value.pointer;
    else if (argument->type_index == FFI_TENSOR)
        t = (const dl_tensor *)(const void *)((const char *)argument->value.pointer + FFI_TENSOR_HEAD);
    if (t == NULL)
        return span;
    span.data = (unsigned char *)t->data + t->byte_offset;
    span.bytes = (uint64_t)((t->bits + 7) / 8) * t->lanes;
    for (int32_t axis = 0; axis < t->ndim; axis++)
        span.bytes *= (uint64_t)t->shape[axis];
    return span;
}

static inline int ffi_call(ffi_body body, int32_t wanted, const ffi_any *arguments, int32_t count, ffi_any *result)
{
    ffi_span spans[FFI_MAX_ARGUMENTS];
    int32_t status = count == wanted ? 0 : FFI_BAD_ARGUMENTS;
    for (int32_t i = 0; i < count && status == 0; i++) {
        spans[i] = ffi_span_of(&arguments[i]);
        if (spans[i].data == NULL)
            status = FFI_BAD_ARGUMENTS;
    }
    memset(result, 0, sizeof *result);
    result->type_index = FFI_INT;
    result->value.number = status == 0 ? body(spans) : status;
    return 0;
}

/* Exports `body` as NAME for a caller in the same process, and for TVM as a function of `count` tensors that returns
 * what `body` does. */
#define FFI_FUNCTION(name, body, count)                                                                              \
    FFI_EXPORT int32_t name(const ffi_span *arguments);                                                              \
    FFI_EXPORT int32_t name(const ffi_span *arguments)                                                               \
    {                                                                                                                \
        return body(arguments);                                                                                      \
    }                                                                                                                \
    FFI_EXPORT int __tvm_ffi_##name(void *self, const ffi_any *arguments, int32_t number, ffi_any *result);          \
    FFI_EXPORT int __tvm_ffi_##name(void *self, const ffi_any *arguments, int32_t number, ffi_any *result)           \
    {                                                                                                                \
        (void)self;                                                                                                  \
        return ffi_call(body, count, arguments, number, result);                                                     \
    }

#endif
