#include "schema/base/json.h"
#include "worker/weights/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20, PIECE_BYTES = 1 << 20 };

struct out {
    FILE *file;
    const char *path;
    struct hash *hash;
    int64_t bytes;
};

static int put(struct out *out, const void *bytes, size_t count, struct error *err)
{
    if (count > 0 && fwrite(bytes, 1, count, out->file) != count)
        return error_errno(err, "%s", out->path);
    hash_add(out->hash, bytes, count);
    out->bytes += (int64_t)count;
    return 0;
}

size_t tensor_entry_bytes(const struct tensor_entry *entry)
{
    size_t elements = (size_t)(entry->dimensions == 1 ? entry->shape[0] : entry->shape[0] * entry->shape[1]);
    return elements * (strcmp(entry->dtype, "F32") == 0 ? 4 : strcmp(entry->dtype, "BF16") == 0 ? 2 : 8);
}

static int put_header(struct out *out, const struct tensor_entry *entries, size_t count, struct error *err)
{
    struct json *header = js_object(), *metadata = js_object();
    js_set(metadata, "format", js_string("pt")); // what Hugging Face's loaders ask for
    js_set(header, "__metadata__", metadata);
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        struct json *entry = js_object(), *shape = js_array(), *offsets = js_array();
        for (int d = 0; d < entries[i].dimensions; d++)
            js_append(shape, js_integer(entries[i].shape[d]));
        js_append(offsets, js_integer(at));
        at += (int64_t)tensor_entry_bytes(&entries[i]);
        js_append(offsets, js_integer(at));
        js_set(entry, "dtype", js_string(entries[i].dtype));
        js_set(entry, "shape", shape);
        js_set(entry, "data_offsets", offsets);
        js_set(header, entries[i].name, entry);
    }
    struct text text;
    text_init(&text, HEADER_MAX);
    js_write(&text, header);
    while (text.length % 8)
        text_add(&text, " ");
    js_free(header);
    uint64_t length = text.length;
    int status = put(out, &length, sizeof length, err) == 0 ? put(out, text.at, text.length, err) : -1;
    text_release(&text);
    return status;
}

int safetensors_write(const char *path, const struct tensor_entry *entries, size_t count,
    void (*fetch)(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes), void *context, int64_t *bytes,
    char hex[HASH_HEX], struct error *err)
{
    struct out out = {.path = path, .file = fopen(path, "wbe")};
    if (!out.file)
        return error_errno(err, "%s", path);
    out.hash = hash_new();
    char *host = allocate(PIECE_BYTES, 1);
    int status = put_header(&out, entries, count, err);
    for (size_t i = 0; i < count && status == 0; i++) {
        size_t whole = tensor_entry_bytes(&entries[i]);
        for (size_t at = 0; at < whole && status == 0; at += PIECE_BYTES) {
            size_t piece = whole - at < PIECE_BYTES ? whole - at : PIECE_BYTES;
            fetch(context, host, &entries[i], at, piece);
            status = put(&out, host, piece, err);
        }
    }
    free(host);
    if (status == 0 && (fflush(out.file) != 0 || fsync(fileno(out.file)) != 0))
        status = error_errno(err, "%s", path);
    if (fclose(out.file) != 0 && status == 0)
        status = error_errno(err, "%s", path);
    hash_end(out.hash, hex);
    *bytes = out.bytes;
    return status;
}
