#include "worker/infer/mapped.h"
#include "schema/record/layout.h"
#include "worker/infer/options.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST, DOWN }; // gate|up or up alone, and down

static enum format stored_format(const char *dtype, bool *known)
{
    *known = true;
    if (strcmp(dtype, "F32") == 0)
        return FORMAT_FP32;
    if (strcmp(dtype, "BF16") == 0)
        return FORMAT_BF16;
    if (strcmp(dtype, "F16") == 0)
        return FORMAT_FP16;
    *known = false;
    return FORMAT_FP32;
}

// The tensors of one matrix of the model: one or two. Their number; 0 where the checkpoint lacks one, or in another shape.
static size_t find_parts(const struct mapped_experts *mapped, struct tensor_info parts[2], int which, size_t layer, size_t expert)
{
    static const enum param_kind kinds[2][2] = {{PARAM_EXPERT_GATE, PARAM_EXPERT_UP}, {PARAM_EXPERT_DOWN, PARAM_KINDS}};
    size_t count = 0;
    for (int i = 0; i < 2; i++)
        for (size_t p = 0; p < mapped->table.count; p++) {
            const struct param *param = &mapped->table.items[p];
            if (param->kind != kinds[which][i] || param->layer != (int32_t)layer || param->expert != (int32_t)expert)
                continue;
            struct tensor_info *info = &parts[count++];
            if (!tensor_set_find(mapped->set, param->name, info) || !tensor_has_shape(info, param->rows, param->columns))
                return 0;
        }
    return count;
}

// Asks the kernel for just these bytes.
static void prefetch(const void *at, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at & ~(page - 1);
    madvise((void *)from, (uintptr_t)at + bytes - from, MADV_WILLNEED);
}

// NULL: the parts do not lie as the device wants them.
static const void *in_place(struct mapped_experts *mapped, const struct tensor_info *parts, size_t count, struct error *err)
{
    bool known;
    enum format format = stored_format(parts[0].dtype, &known);
    bool together = count == 1 || (parts[0].descriptor == parts[1].descriptor && parts[0].at + parts[0].bytes == parts[1].at &&
                                      strcmp(parts[0].dtype, parts[1].dtype) == 0);
    if (!known || !together || format != mapped->device->format || mapped->device->weight_bytes * (size_t)parts[0].elements != (size_t)parts[0].bytes)
        return NULL;
    const char *at = tensor_set_map(mapped->set, &parts[0], err);
    if (!at || (uintptr_t)at % mapped->device->weight_bytes != 0)
        return NULL;
    prefetch(at, (size_t)parts[0].bytes * count);
    return at;
}

static void *converted(struct mapped_experts *mapped, const struct tensor_info *parts, size_t count, struct error *err)
{
    const struct device *device = mapped->device;
    size_t elements = (size_t)parts[0].elements;
    char *out = allocate(count * elements, device->weight_bytes);
    float *values = allocate(elements, sizeof *values);
    int status = 0;
    for (size_t i = 0; i < count && status == 0; i++) {
        status = tensor_read(&parts[i], values, err);
        if (device->format == FORMAT_FP32)
            memcpy(out + i * elements * sizeof *values, values, elements * sizeof *values);
        else
            device->ops->narrow_rows(out + i * elements * device->weight_bytes, values, NULL, 1, elements);
    }
    free(values);
    if (status == 0)
        return out;
    free(out);
    return NULL;
}

static const void *matrix(void *context, enum param_kind kind, size_t layer, size_t expert)
{
    struct mapped_experts *mapped = context;
    int which = kind == PARAM_EXPERT_DOWN ? DOWN : FIRST;
    struct mapped_cell *cell = &mapped->cells[layer * mapped->experts + expert];
    if (cell->at[which])
        return cell->at[which];
    struct tensor_info parts[2];
    struct error err = {0};
    size_t count = find_parts(mapped, parts, which, layer, expert);
    mapped->chosen += !cell->at[!which];
    mapped->bytes += parts[0].bytes * (int64_t)count;
    cell->at[which] = in_place(mapped, parts, count, &err);
    mapped->in_place += cell->at[which] != NULL;
    if (!cell->at[which])
        cell->at[which] = cell->own[which] = converted(mapped, parts, count, &err);
    if (!cell->at[which]) { // it was there when the checkpoint was opened: the file has changed since
        exit(complain(&err, EXIT_FAILED));
    }
    return cell->at[which];
}

static int check_all(struct mapped_experts *mapped, const char *directory, struct error *err)
{
    for (size_t i = 0; i < mapped->table.count; i++) {
        const struct param *param = &mapped->table.items[i];
        char shape[TENSOR_SHAPE_TEXT];
        struct tensor_info info;
        if (param->expert < 0)
            continue;
        if (!tensor_set_find(mapped->set, param->name, &info))
            return error_set(err, "%s: no tensor %s in it, which this model needs", directory, param->name);
        if (!tensor_has_shape(&info, param->rows, param->columns))
            return error_set(err, "%s: %s is %s, but this model's is %lld × %lld", info.file, param->name, tensor_shape_text(shape, &info),
                (long long)param->rows, (long long)param->columns);
        mapped->all_bytes += info.bytes;
        mapped->all += param->kind == PARAM_EXPERT_DOWN;
    }
    return 0;
}

int mapped_open(struct mapped_experts *mapped, const struct spec *spec, const struct device *device, const char *directory, struct error *err)
{
    *mapped = (struct mapped_experts){.store = {mapped, matrix}, .device = device, .layers = (size_t)spec->model.layers,
        .experts = (size_t)spec->model.moe.experts};
    param_table_init(&mapped->table, spec, 0, 1);
    mapped->cells = allocate(mapped->layers * mapped->experts, sizeof *mapped->cells);
    if (tensor_set_open(&mapped->set, directory, "model", err) != 0)
        return -1;
    return check_all(mapped, directory, err);
}

void mapped_close(struct mapped_experts *mapped)
{
    for (size_t i = 0; i < mapped->layers * mapped->experts; i++)
        for (int which = 0; which < 2; which++)
            free(mapped->cells[i].own[which]);
    free(mapped->cells);
    tensor_set_close(mapped->set);
    param_table_release(&mapped->table);
}
