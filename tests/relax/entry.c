/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a region of an exported library through its C entry, without TVM:
 *     entry LIBRARY SYMBOL IN.bin OUT.bin
 * for a region of one float32 input and one output, whose shapes are macros. RELAY: the entry is one of Relay's
 * PackedFunc; otherwise, one of tvm-ffi.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

#ifdef RELAY
typedef union {
    int64_t number;
    void *pointer;
} tvm_value;

typedef int32_t (*entry_fn)(tvm_value *, int *, int, tvm_value *, int *, void *);

static int call(entry_fn entry, dl_tensor *x, dl_tensor *y)
{
    tvm_value arguments[] = { { .pointer = x }, { .pointer = y } }, result = { 0 };
    int codes[] = { 7, 7 }, code = 0;
    return entry(arguments, codes, 2, &result, &code, NULL);
}

/* The library calls this function of TVM when something is wrong. */
void TVMAPISetLastError(const char *message)
{
    fprintf(stderr, "%s\n", message);
}
#else
typedef struct {
    int32_t type_index;
    uint32_t zero;
    union {
        void *pointer;
        int64_t number;
    };
} ffi_any;

typedef int (*entry_fn)(void *, const ffi_any *, int32_t, ffi_any *);

static int call(entry_fn entry, dl_tensor *x, dl_tensor *y)
{
    const ffi_any arguments[] = { { 7, 0, { x } }, { 7, 0, { y } } };
    ffi_any result = { 0, 0, { NULL } };
    return entry(NULL, arguments, 2, &result);
}

/* The library calls this function of TVM when something is wrong. */
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message)
{
    fprintf(stderr, "%s: %s\n", kind, message);
}
#endif

static int64_t in_shape[] = { IN_SHAPE }, out_shape[] = { OUT_SHAPE };
static float in[IN_SIZE], out[OUT_SIZE];

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    void *library = dlopen(argv[1], RTLD_LAZY);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    entry_fn entry = (entry_fn)dlsym(library, argv[2]);
    FILE *file = fopen(argv[3], "rb");
    if (entry == NULL || file == NULL || fread(in, sizeof in, 1, file) != 1)
        return 1;
    fclose(file);
    dl_tensor x = { in, 1, 0, sizeof in_shape / 8, 2, 32, 1, in_shape, NULL, 0 };
    dl_tensor y = { out, 1, 0, sizeof out_shape / 8, 2, 32, 1, out_shape, NULL, 0 };
    if (call(entry, &x, &y) != 0)
        return 1;
    file = fopen(argv[4], "wb");
    return file == NULL || fwrite(out, sizeof out, 1, file) != 1 || fclose(file) != 0;
}
