#include "schema/base/file.h"
#include "schema/base/json.h"
#include "worker/weights/hf_names.h"
#include "worker/weights/safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20, FILES_MAX = 65536, READ_FLOATS = 1 << 16 };

struct tensor_file {
    char *path;
    int descriptor;
    int64_t data;         // where the tensors' bytes begin
    struct json *header;
    char *map;            // the whole file; NULL: not mapped
    size_t mapped;
};

struct tensor_set {
    struct tensor_file *files;
    size_t count;
};

static int64_t dtype_bytes(const char *dtype)
{
    static const struct { const char *name; int64_t bytes; } known[] = {{"F32", 4}, {"F64", 8}, {"BF16", 2}, {"F16", 2}, {"I64", 8}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (dtype && strcmp(known[i].name, dtype) == 0)
            return known[i].bytes;
    return 0;
}

static int read_at(const struct tensor_file *file, void *out, size_t count, int64_t at, struct error *err)
{
    for (size_t done = 0; done < count;) {
        ssize_t got = pread(file->descriptor, (char *)out + done, count - done, at + (int64_t)done);
        if (got < 0)
            return error_errno(err, "%s", file->path);
        if (got == 0)
            return error_set(err, "%s: truncated", file->path);
        done += (size_t)got;
    }
    return 0;
}

// Fills info from a header entry; false if it does not fit the file. A dtype or number of dimensions that nobody here reads (a foreign
// file's counters, say) is listed with 0 elements, and no error until somebody asks for that tensor.
static bool parse_entry(const struct tensor_file *file, const struct json *entry, int64_t file_bytes, struct tensor_info *info)
{
    const struct json *shape = js_get(entry, "shape"), *offsets = js_get(entry, "data_offsets");
    const char *dtype = js_string_of(js_get(entry, "dtype"), NULL);
    int64_t size = dtype_bytes(dtype), begin = js_integer_of(js_at(offsets, 0), -1), end = js_integer_of(js_at(offsets, 1), -1);
    size_t dimensions = js_count(shape);
    if (!dtype || js_count(offsets) != 2 || begin < 0 || end < begin || end > file_bytes - file->data)
        return false;
    *info = (struct tensor_info){.shape = {1, 1, 1}, .dimensions = (int)dimensions, .file = file->path, .descriptor = file->descriptor};
    snprintf(info->dtype, sizeof info->dtype, "%s", dtype);
    info->at = file->data + begin;
    info->bytes = end - begin;
    for (size_t d = 0; d < dimensions && d < TENSOR_DIMENSIONS; d++)
        info->shape[d] = js_integer_of(js_at(shape, d), -1);
    if (dimensions < 1 || dimensions > TENSOR_DIMENSIONS)
        return true;
    info->elements = 1;
    for (size_t d = 0; d < dimensions; d++) {
        if (info->shape[d] < 1 || info->shape[d] > file_bytes / info->elements)
            return false;
        info->elements *= info->shape[d];
    }
    if (!size)
        info->elements = 0;
    return !size || info->bytes == info->elements * size;
}

struct span { int64_t begin, end; };

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

// Tensors lie one behind the other, from the first byte to the last: one that shares bytes with another is not what was written.
static int check_spans(const struct tensor_file *file, struct span *spans, size_t count, int64_t file_bytes, struct error *err)
{
    int64_t at = file->data;
    qsort(spans, count, sizeof *spans, compare_spans);
    for (size_t i = 0; i < count; at = spans[i++].end)
        if (spans[i].begin != at)
            return error_set(err, "%s: its tensors %s at byte %" PRId64, file->path, spans[i].begin < at ? "overlap" : "leave a gap", at - file->data);
    if (at != file_bytes)
        return error_set(err, "%s: %" PRId64 " bytes behind its last tensor", file->path, file_bytes - at);
    return 0;
}

static int check_entries(const struct tensor_file *file, int64_t file_bytes, struct error *err)
{
    size_t count = 0;
    int status = js_kind(file->header) == JSON_KIND_OBJECT ? 0 : error_set(err, "%s: its header is no JSON object", file->path);
    struct span *spans = allocate(js_count(file->header), sizeof *spans);
    for (void *i = js_first(file->header); i && status == 0; i = js_next(file->header, i)) {
        struct tensor_info info;
        if (strcmp(js_key(i), "__metadata__") == 0)
            continue;
        if (!parse_entry(file, js_value(i), file_bytes, &info))
            status = error_set(err, "%s: tensor %s does not fit the file", file->path, js_key(i));
        else
            spans[count++] = (struct span){info.at, info.at + info.bytes};
    }
    if (status == 0)
        status = check_spans(file, spans, count, file_bytes, err);
    free(spans);
    return status;
}

static int open_file(struct tensor_file *file, char *path, struct error *err)
{
    *file = (struct tensor_file){.path = path, .descriptor = file_open(path, err)};
    if (file->descriptor < 0)
        return -1;
    posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_RANDOM); // a header alone is read: what follows it may never be wanted
    int64_t bytes = file_size(path);
    uint64_t length;
    if (bytes < 8)
        return error_set(err, "%s: truncated: no safetensors header", path);
    if (read_at(file, &length, sizeof length, 0, err) != 0)
        return -1;
    if (length > HEADER_MAX || (int64_t)length > bytes - 8)
        return error_set(err, "%s: not safetensors, or truncated: a header of %llu bytes in a file of %lld", path, (unsigned long long)length,
            (long long)bytes);
    char *text = allocate(length + 1, 1);
    if (read_at(file, text, length, 8, err) == 0)
        file->header = js_parse(text, length, err);
    free(text);
    if (!file->header)
        return error_context(err, "%s", path);
    posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_NORMAL);
    file->data = 8 + (int64_t)length;
    return check_entries(file, bytes, err);
}

// A name stands for one tensor: which of two would count is nobody's guess.
static int check_names(const struct tensor_set *set, const struct tensor_file *last, struct error *err)
{
    for (const struct tensor_file *file = set->files; file < last; file++)
        for (void *i = js_first(last->header); i; i = js_next(last->header, i))
            if (strcmp(js_key(i), "__metadata__") != 0 && js_get(file->header, js_key(i)))
                return error_set(err, "%s: tensor %s is in %s too", last->path, js_key(i), file->path);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The names of a directory's files of that kind, sorted.
static char **list_files(const char *directory, const char *kind, size_t *count, struct error *err)
{
    DIR *listing = opendir(directory);
    *count = 0;
    if (!listing) {
        error_errno(err, "%s", directory);
        return NULL;
    }
    char **names = allocate(FILES_MAX, sizeof *names);
    for (struct dirent *entry; (entry = readdir(listing)) && *count < FILES_MAX;) {
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, kind, strlen(kind)) == 0 && length > 12 && strcmp(entry->d_name + length - 12, ".safetensors") == 0)
            names[(*count)++] = path_join(directory, entry->d_name);
    }
    closedir(listing);
    qsort(names, *count, sizeof *names, compare_names);
    if (*count == 0)
        error_set(err, "%s: no %s*.safetensors in it", directory, kind);
    return names;
}

int tensor_set_open(struct tensor_set **result, const char *directory, const char *kind, struct error *err)
{
    size_t count;
    *result = NULL;
    char **names = list_files(directory, kind, &count, err);
    if (!names)
        return -1;
    struct tensor_set *set = allocate(1, sizeof *set);
    set->files = allocate(count, sizeof *set->files);
    int status = count ? 0 : -1;
    for (size_t i = 0; i < count; i++) {
        if (status != 0) {
            free(names[i]);
            continue;
        }
        set->count++;
        status = open_file(&set->files[i], names[i], err);
        if (status == 0)
            status = check_names(set, &set->files[i], err);
    }
    free(names);
    if (status != 0) {
        tensor_set_close(set);
        return -1;
    }
    *result = set;
    return 0;
}

void tensor_set_close(struct tensor_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++) {
        if (set->files[i].descriptor >= 0)
            close(set->files[i].descriptor);
        if (set->files[i].map)
            munmap(set->files[i].map, set->files[i].mapped);
        js_free(set->files[i].header);
        free(set->files[i].path);
    }
    free(set->files);
    free(set);
}

static bool find_named(const struct tensor_set *set, const char *name, struct tensor_info *info)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct json *entry = js_get(set->files[i].header, name);
        if (entry)
            return parse_entry(&set->files[i], entry, INT64_MAX, info) && info->elements > 0;
    }
    return false;
}

// An expert's matrix out of a tensor (E, parts · rows, columns), in place: it lies there in one piece.
static bool cut_expert(struct tensor_info *info, const struct hf_alias *alias)
{
    if (info->dimensions != 3 || alias->expert >= info->shape[0] || info->shape[1] % alias->parts != 0)
        return false;
    int64_t rows = info->shape[1] / alias->parts, columns = info->shape[2], size = info->bytes / info->elements;
    info->dimensions = 2;
    info->shape[0] = rows;
    info->shape[1] = columns;
    info->shape[2] = 1;
    info->elements = rows * columns;
    info->bytes = info->elements * size;
    info->at += (alias->expert * alias->parts + alias->part) * info->bytes;
    return true;
}

bool tensor_has_shape(const struct tensor_info *info, int64_t rows, int64_t columns)
{
    if (info->dimensions == 1)
        return rows == 1 && info->shape[0] == columns;
    return info->dimensions == 2 && info->shape[0] == rows && info->shape[1] == columns;
}

const char *tensor_shape_text(char text[TENSOR_SHAPE_TEXT], const struct tensor_info *info)
{
    int used = snprintf(text, TENSOR_SHAPE_TEXT, "%lld", (long long)info->shape[0]);
    for (int d = 1; d < info->dimensions && d < TENSOR_DIMENSIONS; d++)
        used += snprintf(text + used, TENSOR_SHAPE_TEXT - (size_t)used, " × %lld", (long long)info->shape[d]);
    return text;
}

bool tensor_set_find(const struct tensor_set *set, const char *name, struct tensor_info *info)
{
    struct hf_alias alias;
    if (find_named(set, name, info))
        return true;
    for (int i = 0; hf_alias(&alias, name, i); i++)
        if (find_named(set, alias.name, info))
            return alias.expert < 0 || cut_expert(info, &alias);
    return false;
}

void tensor_set_walk(const struct tensor_set *set, void (*take)(void *context, const char *name, const struct tensor_info *info), void *context)
{
    for (size_t f = 0; f < set->count; f++)
        for (void *i = js_first(set->files[f].header); i; i = js_next(set->files[f].header, i)) {
            struct tensor_info info;
            if (strcmp(js_key(i), "__metadata__") != 0 && parse_entry(&set->files[f], js_value(i), INT64_MAX, &info))
                take(context, js_key(i), &info);
        }
}

static float half_to_float(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    float magnitude = exponent == 31 ? (mantissa ? __builtin_nanf("") : __builtin_inff())
        : exponent == 0              ? (float)mantissa * 0x1p-24f
                                     : __builtin_ldexpf((float)(mantissa + 1024), exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

static float bfloat_to_float(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

int tensor_read_part(const struct tensor_info *info, int64_t from, int64_t wanted, float *out, struct error *err)
{
    struct tensor_file file = {.path = (char *)(uintptr_t)info->file, .descriptor = info->descriptor};
    if (strcmp(info->dtype, "F32") == 0)
        return read_at(&file, out, (size_t)wanted * 4, info->at + from * 4, err);
    if (info->dtype[0] == 'I')
        return error_set(err, "%s: a tensor of whole numbers where floats are needed", info->file);
    size_t size = (size_t)dtype_bytes(info->dtype);
    unsigned char *block = allocate(READ_FLOATS, size);
    int status = 0;
    for (int64_t first = 0; first < wanted && status == 0; first += READ_FLOATS) {
        size_t count = (size_t)(wanted - first < READ_FLOATS ? wanted - first : READ_FLOATS);
        status = read_at(&file, block, count * size, info->at + (from + first) * (int64_t)size, err);
        for (size_t i = 0; i < count && status == 0; i++) {
            double wide;
            uint16_t narrow;
            memcpy(size == 8 ? (void *)&wide : (void *)&narrow, block + i * size, size);
            out[first + (int64_t)i] = size == 8 ? (float)wide : info->dtype[0] == 'B' ? bfloat_to_float(narrow) : half_to_float(narrow);
        }
    }
    free(block);
    return status;
}

int tensor_read(const struct tensor_info *info, float *out, struct error *err)
{
    return tensor_read_part(info, 0, info->elements, out, err);
}

int tensor_read_bytes(const struct tensor_info *info, void *out, struct error *err)
{
    struct tensor_file file = {.path = (char *)(uintptr_t)info->file, .descriptor = info->descriptor};
    return read_at(&file, out, (size_t)info->bytes, info->at, err);
}

// Nothing is read ahead: neighbours of a tensor are other tensors, which may never be wanted.
static int map_file(struct tensor_file *file, struct error *err)
{
    int64_t bytes = file_size(file->path);
    void *map = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file->descriptor, 0) : MAP_FAILED;
    if (map == MAP_FAILED)
        return error_errno(err, "%s", file->path);
    madvise(map, (size_t)bytes, MADV_RANDOM);
    file->map = map;
    file->mapped = (size_t)bytes;
    return 0;
}

const void *tensor_set_map(struct tensor_set *set, const struct tensor_info *info, struct error *err)
{
    for (size_t i = 0; i < set->count; i++) {
        struct tensor_file *file = &set->files[i];
        if (file->descriptor != info->descriptor)
            continue;
        if (!file->map && map_file(file, err) != 0)
            return NULL;
        if (info->at + info->bytes > (int64_t)file->mapped) {
            error_set(err, "%s: was cut short", file->path);
            return NULL;
        }
        return file->map + info->at;
    }
    error_set(err, "%s: not a file of this set", info->file);
    return NULL;
}
