/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a region of an exported library through its C entry, without TVM:
 *     entry LIBRARY SYMBOL IN.bin OUT.bin
 * for a region of one float32 input and one output, whose shapes are macros.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef union {
    int64_t number;
    void *pointer;
} tvm_value;

typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef int32_t (*entry_fn)(tvm_value *, int *, int, tvm_value *, int *, void *);

/* What the library wants of TVM when something is wrong. */
void TVMAPISetLastError(const char *message)
{
    fprintf(stderr, "%s\n", message);
}

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
    tvm_value arguments[] = { { .pointer = &x }, { .pointer = &y } }, result = { 0 };
    int codes[] = { 7, 7 }, code = 0;
    if (entry(arguments, codes, 2, &result, &code, NULL) != 0)
        return 1;
    file = fopen(argv[4], "wb");
    return file == NULL || fwrite(out, sizeof out, 1, file) != 1 || fclose(file) != 0;
}
