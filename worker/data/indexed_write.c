// Writing a pair. Tokens stream into PREFIX.bin.tmp; finish writes PREFIX.idx.tmp, flushes both to the disk and renames .bin, then .idx:
// a crash leaves no .idx without its .bin. Hashes are taken on the way out. Memory: 4 bytes a document.
#include "schema/base/text.h"
#include "worker/data/data.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_TOKENS = 65536, WIDE_VOCABULARY = 65500 };

struct out_file {
    FILE *file;
    char *name, *final_name;
    struct hash *hash;
    int64_t bytes;
};

struct indexed_writer {
    struct out_file bin, idx;
    bool wide;              // i32 tokens, else u16
    int32_t *lengths;
    int64_t documents, capacity, tokens;
    int64_t open_tokens;    // of the document being written
};

static int out_open(struct out_file *out, const char *prefix, const char *suffix, struct error *err)
{
    out->final_name = string_format("%s.%s", prefix, suffix);
    out->name = string_format("%s.%s.tmp", prefix, suffix);
    out->hash = hash_new();
    out->file = fopen(out->name, "wbe");
    return out->file ? 0 : error_errno(err, "%s", out->name);
}

static int out_write(struct out_file *out, const void *bytes, size_t count, struct error *err)
{
    if (fwrite(bytes, 1, count, out->file) != count)
        return error_errno(err, "%s", out->name);
    hash_add(out->hash, bytes, count);
    out->bytes += (int64_t)count;
    return 0;
}

static int out_sync(struct out_file *out, struct error *err)
{
    int failed = fflush(out->file) != 0 || fsync(fileno(out->file)) != 0;
    int saved = errno;
    failed |= fclose(out->file) != 0;
    out->file = NULL;
    errno = saved;
    return failed ? error_errno(err, "%s", out->name) : 0;
}

static void out_release(struct out_file *out)
{
    char ignored[HASH_HEX];
    if (out->file)
        fclose(out->file);
    if (out->hash)
        hash_end(out->hash, ignored);
    if (out->name)
        unlink(out->name);
    free(out->name);
    free(out->final_name);
}

int indexed_writer_open(struct indexed_writer **result, const char *prefix, int64_t vocabulary, struct error *err)
{
    struct indexed_writer *writer = allocate(1, sizeof *writer);
    writer->wide = vocabulary >= WIDE_VOCABULARY;
    *result = writer;
    if (out_open(&writer->bin, prefix, "bin", err) == 0 && out_open(&writer->idx, prefix, "idx", err) == 0)
        return 0;
    indexed_writer_abandon(writer);
    *result = NULL;
    return -1;
}

void indexed_writer_abandon(struct indexed_writer *writer)
{
    if (!writer)
        return;
    out_release(&writer->bin);
    out_release(&writer->idx);
    free(writer->lengths);
    free(writer);
}

int indexed_writer_tokens(struct indexed_writer *writer, const int32_t *tokens, size_t count, struct error *err)
{
    uint16_t narrow[4096];
    writer->open_tokens += (int64_t)count;
    if (writer->open_tokens > INT32_MAX)
        return error_set(err, "%s: document %lld has more than %d tokens, the most that the format can hold", writer->bin.final_name,
            (long long)writer->documents, INT32_MAX);
    if (writer->wide)
        return out_write(&writer->bin, tokens, count * sizeof *tokens, err);
    while (count > 0) {
        size_t take = count < 4096 ? count : 4096;
        for (size_t i = 0; i < take; i++)
            narrow[i] = (uint16_t)tokens[i];
        if (out_write(&writer->bin, narrow, take * sizeof *narrow, err) != 0)
            return -1;
        tokens += take;
        count -= take;
    }
    return 0;
}

int indexed_writer_end_document(struct indexed_writer *writer, struct error *err)
{
    (void)err;
    if (writer->open_tokens == 0)
        return 0;
    if (writer->documents == writer->capacity) {
        writer->capacity = writer->capacity ? 2 * writer->capacity : 1024;
        writer->lengths = reallocate(writer->lengths, (size_t)writer->capacity, sizeof *writer->lengths);
    }
    writer->lengths[writer->documents++] = (int32_t)writer->open_tokens;
    writer->tokens += writer->open_tokens;
    writer->open_tokens = 0;
    return 0;
}

int indexed_writer_document(struct indexed_writer *writer, const int32_t *tokens, size_t count, struct error *err)
{
    return indexed_writer_tokens(writer, tokens, count, err) == 0 ? indexed_writer_end_document(writer, err) : -1;
}

int64_t indexed_writer_count(const struct indexed_writer *writer, int64_t *documents)
{
    *documents = writer->documents;
    return writer->tokens + writer->open_tokens;
}

static int write_index(struct indexed_writer *writer, struct error *err)
{
    struct out_file *idx = &writer->idx;
    int64_t n = writer->documents, version = 1, documents = n + 1, offset = 0;
    unsigned char code = writer->wide ? 4 : 8;
    if (out_write(idx, "MMIDIDX\0\0", 9, err) != 0 || out_write(idx, &version, 8, err) != 0 || out_write(idx, &code, 1, err) != 0 ||
        out_write(idx, &n, 8, err) != 0 || out_write(idx, &documents, 8, err) != 0 ||
        (n && out_write(idx, writer->lengths, 4 * (size_t)n, err) != 0))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (out_write(idx, &offset, 8, err) != 0)
            return -1;
        offset += writer->lengths[i] * (writer->wide ? 4 : 2);
    }
    for (int64_t i = 0; i <= n; i++)
        if (out_write(idx, &i, 8, err) != 0)
            return -1;
    return 0;
}

int indexed_writer_finish(struct indexed_writer *writer, struct indexed_written *written, struct error *err)
{
    int status = -1;
    if (indexed_writer_end_document(writer, err) != 0 || write_index(writer, err) != 0 || out_sync(&writer->bin, err) != 0 ||
        out_sync(&writer->idx, err) != 0)
        goto out;
    if (rename(writer->bin.name, writer->bin.final_name) != 0 || rename(writer->idx.name, writer->idx.final_name) != 0) {
        error_errno(err, "%s", writer->bin.final_name);
        goto out;
    }
    written->documents = writer->documents;
    written->tokens = writer->tokens;
    written->bin_bytes = writer->bin.bytes;
    written->idx_bytes = writer->idx.bytes;
    hash_end(writer->bin.hash, written->bin_sha256);
    hash_end(writer->idx.hash, written->idx_sha256);
    writer->bin.hash = writer->idx.hash = NULL;
    status = 0;
out:
    indexed_writer_abandon(writer);
    return status;
}
