// The safetensors format: u64 little-endian length of a JSON header, the header (padded by blanks to a multiple of 8), then the tensors'
// bytes without gaps. A header entry is name: {"dtype", "shape", "data_offsets": [begin, end]}.
//
// Reading takes a directory's files of one kind (model*.safetensors, optimizer*.safetensors) as one set, so a checkpoint may be cut into
// files in any way, Hugging Face's included. Before any tensor is believed headers are checked: tensors fill their file without gap or overlap,
// and no name is in two files.
#pragma once
#include "schema/base/error.h"
#include "schema/base/hash.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_entry {   // to be written
    char name[128];
    int64_t shape[2];
    int dimensions;     // 1 or 2
    const char *dtype;  // "F32", "F64", "I64", "BF16": fetch gives bytes of this type
    const void *source; // for fetch
};

size_t tensor_entry_bytes(const struct tensor_entry *entry);
// Writes tensors into a new file and flushes it to the disk. fetch copies so many of a tensor's bytes, from byte `at` of it, to host memory;
// it is asked for pieces of a bounded size. bytes and hex: of the file.
int safetensors_write(const char *path, const struct tensor_entry *entries, size_t count,
    void (*fetch)(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes), void *context, int64_t *bytes,
    char hex[HASH_HEX], struct error *err);

enum { TENSOR_DIMENSIONS = 3, TENSOR_SHAPE_TEXT = 80 };

struct tensor_set;
struct tensor_info {
    char dtype[8];      // "F32", "F64", "BF16", "F16", "I64"; others are listed and not read
    int64_t shape[TENSOR_DIMENSIONS]; // 1 where there is no such dimension
    int dimensions;
    int64_t elements;   // 0: of a dtype or with dimensions that are not read here
    const char *file;   // lent
    int64_t at, bytes;  // within the file
    int descriptor;
};

int tensor_set_open(struct tensor_set **set, const char *directory, const char *kind, struct error *err); // kind "model", "optimizer", "extra"
void tensor_set_close(struct tensor_set *set);
// By our name. A tensor that transformers names otherwise (OLMoE's experts, or all experts of a layer in one tensor) is found under our name too,
// as the part of the file that it is.
bool tensor_set_find(const struct tensor_set *set, const char *name, struct tensor_info *info);
// A vector is a matrix of one row. True: a buffer for rows · columns values holds all of the tensor.
bool tensor_has_shape(const struct tensor_info *info, int64_t rows, int64_t columns);
const char *tensor_shape_text(char text[TENSOR_SHAPE_TEXT], const struct tensor_info *info); // "2 × 64 × 32"; returns text
// Converts from the stored dtype, which must not be I64. out holds info->elements floats.
int tensor_read(const struct tensor_info *info, float *out, struct error *err);
// The same for `count` elements from `first` on.
int tensor_read_part(const struct tensor_info *info, int64_t first, int64_t count, float *out, struct error *err);
int tensor_read_bytes(const struct tensor_info *info, void *out, struct error *err); // as they are stored: info->bytes
// Where a tensor's bytes lie while the set is open: its file is mapped whole, and only what is looked at is read from the disk. NULL: an error.
const void *tensor_set_map(struct tensor_set *set, const struct tensor_info *info, struct error *err);
// Walks all tensors, file by file, in the order of their headers.
void tensor_set_walk(const struct tensor_set *set, void (*take)(void *context, const char *name, const struct tensor_info *info), void *context);
