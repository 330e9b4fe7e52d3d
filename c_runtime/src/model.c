/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and describes models. These functions write only to the caller's structs.
 */
#include "internal.h"

int32_t megcc_model_open_version(uint32_t api, megcc_model *model, const megcc_module *module, const void *data,
                                 size_t size, const megcc_model_options *options, megcc_error *error)
{
    if (api != MEGCC_API) {
        return megcc_fail(error, MEGCC_E_VERSION, AT("MEGCC_API"), MEGCC_NONE, api, MEGCC_API);
    }
    if (model == NULL || module == NULL || data == NULL) {
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("NULL"), MEGCC_NONE, 0, 0);
    }
    if (module->kernel_abi != MEGCC_KERNEL_ABI) {
        return megcc_fail(error, MEGCC_E_VERSION, AT("megcc_module.kernel_abi"), MEGCC_NONE, module->kernel_abi,
                          MEGCC_KERNEL_ABI);
    }
    if (!is_aligned(data, 8)) { /* enough to read the rows; verify.c checks the program's alignment, at most 64 */
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("data"), MEGCC_NONE, 0, 64);
    }
    (void)memset(model, 0, sizeof *model);
    model->data = data;
    return megcc_verify(model, size, module, options != NULL && options->cpu != 0u ? options->cpu : megcc_cpu(), error);
}

int32_t megcc_model_check(const megcc_model *model, megcc_error *error)
{
    /* CRC-32 of IEEE 802.3, computed 4 bits at a time. */
    static const uint32_t table[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
        0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
    };
    if (model == NULL) {
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("NULL"), MEGCC_NONE, 0, 0);
    }
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < model->weights_bytes; i++) {
        crc ^= model->weights[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    crc = ~crc;
    if (crc != model->weights_crc) {
        return megcc_fail(error, MEGCC_E_CHECKSUM, AT("Model.weights"), MEGCC_NONE, (int64_t)crc, 0);
    }
    return MEGCC_OK;
}

size_t megcc_model_memory(const megcc_model *model, size_t *alignment)
{
    if (model == NULL) {
        return 0;
    }
    const megcc_program *p = &model->program;
    /* The arrays that divide() in session.c lays out: an address for each tensor and, if tensors are allocated during a run,
     * its capacity; the operands of a call; a status for each worker; two tables of extents. */
    const uint64_t pointers = (uint64_t)bases_of(p) * (p->unbounded != 0u ? 2u : 1u) + p->operands;
    const uint64_t table = (uint64_t)p->symbols + p->values + p->rows[MEGCC_EXTENTS].count;
    const uint64_t words = p->workers + (is_dynamic(p) ? 2u * table : 0u);
    /* MEGCC_MEMORY_BYTES() without a division. */
    const uint64_t own = MEGCC_SESSION_BYTES + pointers * sizeof(void *) + words * 4u;
    const uint64_t bytes = align_up(own, MEGCC_MEMORY_ALIGN(p->alignment)) + p->arena_bytes;
    if (alignment != NULL) {
        *alignment = MEGCC_MEMORY_ALIGN(p->alignment);
    }
    return bytes > SIZE_MAX ? SIZE_MAX : (size_t)bytes;
}

size_t megcc_model_region(const megcc_model *model, uint32_t index)
{
#ifndef MEGCC_NO_REGIONS
    if (model == NULL) {
        return 0;
    }
    device_model bucket;
    megcc_device_model(model, 0, &bucket);
    /* Region 0 of the container is the session's own memory. */
    if (index < (uint32_t)MEGCC_MAX_REGIONS && index + 1u < bucket.regions.count) {
        return number_at(bucket.regions, index + 1u);
    }
#else
    (void)model;
    (void)index;
#endif
    return 0;
}

/* --- descriptions ---------------------------------------------------------------------------------------------- */

void megcc_describe(const megcc_program *p, uint32_t tensor, const int32_t *extents, megcc_tensor *result)
{
    const tensor_row *row = tensor_at(p, tensor);
    bool known = true;
    (void)memset(result, 0, sizeof *result);
    result->name = "";
    if (row->name != 0u) {
        const uint8_t *at = row_at(p->rows[MEGCC_NAMES], row->name - 1u, 4);
        result->name = (const char *)at + *(const row_u32 *)(const void *)at + 4u;
    }
    result->dtype = row->dtype;
    result->layout = row->layout;
    result->rank = row->rank;
    result->block = row->block;
    for (uint32_t axis = 0; axis < row->rank; axis++) {
        const int32_t extent = extents[row->dims + axis];
        result->dims[axis] = extent < 0 ? -1 : extent;
        known &= extent >= 0;
    }
    result->bytes = known ? megcc_tensor_bytes(row, extents) : 0u;
    result->quant_axis = -1;
    if (row->quant != 0u) {
        const quant_row *quant = row_at(p->rows[MEGCC_QUANTS], row->quant - 1u, sizeof *quant);
        result->quant = row_at(p->rows[MEGCC_QUANT_DATA], quant->first, 4);
        result->quants = quant->count;
        result->quant_axis = quant->axis;
    }
}

/* table: MEGCC_INPUTS or MEGCC_OUTPUTS. */
static uint32_t count_ports(const megcc_model *model, uint32_t table)
{
    return model == NULL ? 0u : model->program.rows[table].count;
}

static int32_t describe_port(const megcc_model *model, uint32_t table, uint32_t index, megcc_tensor *tensor)
{
    if (tensor == NULL || index >= count_ports(model, table)) {
        return MEGCC_E_ARGUMENT;
    }
    megcc_describe(&model->program, number_at(model->program.rows[table], index), extents_of(&model->program), tensor);
    return MEGCC_OK;
}

uint32_t megcc_model_inputs(const megcc_model *model)
{
    return count_ports(model, MEGCC_INPUTS);
}

uint32_t megcc_model_outputs(const megcc_model *model)
{
    return count_ports(model, MEGCC_OUTPUTS);
}

int32_t megcc_model_input(const megcc_model *model, uint32_t index, megcc_tensor *tensor)
{
    return describe_port(model, MEGCC_INPUTS, index, tensor);
}

int32_t megcc_model_output(const megcc_model *model, uint32_t index, megcc_tensor *tensor)
{
    return describe_port(model, MEGCC_OUTPUTS, index, tensor);
}
