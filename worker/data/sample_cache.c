// A cache file is DIRECTORY/<32 hex>.samples, named by the SHA-256 of all that the index is a function of: lengths, S, samples wanted,
// seed. So it cannot be stale. Inside: magic, counts, SHA-256 of what follows, then the three arrays, little-endian. A file that does not
// verify is made anew; it is replaced by rename, so several ranks may do so at once.
#include "worker/data/sample_cache.h"
#include "schema/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cache_header {
    char magic[16];
    int64_t document_count, count, epochs, separate;
    char sha256[HASH_HEX + 7]; // of the arrays
};

static const char magic[16] = "switchyard smp1";

static void hash_arrays(char hex[HASH_HEX], const struct sample_index *index)
{
    struct hash *hash = hash_new();
    hash_add(hash, index->document, (size_t)index->document_count * sizeof *index->document);
    hash_add(hash, index->start, ((size_t)index->count + 1) * sizeof *index->start);
    hash_add(hash, index->shuffle, (size_t)index->count * sizeof *index->shuffle);
    hash_end(hash, hex);
}

static bool read_arrays(struct sample_index *index, FILE *file, int64_t file_bytes)
{
    struct cache_header header;
    char hex[HASH_HEX];
    *index = (struct sample_index){0};
    if (fread(&header, sizeof header, 1, file) != 1 || memcmp(header.magic, magic, sizeof magic) != 0)
        return false;
    if (header.document_count < 1 || header.count < 1 || header.document_count > file_bytes || header.count > file_bytes)
        return false;
    *index = (struct sample_index){.document_count = header.document_count, .count = header.count, .epochs = header.epochs,
        .separate_epoch = header.separate != 0};
    index->document = allocate((size_t)index->document_count, sizeof *index->document);
    index->start = allocate((size_t)index->count + 1, sizeof *index->start);
    index->shuffle = allocate((size_t)index->count, sizeof *index->shuffle);
    bool whole = fread(index->document, sizeof *index->document, (size_t)index->document_count, file) == (size_t)index->document_count &&
        fread(index->start, sizeof *index->start, (size_t)index->count + 1, file) == (size_t)index->count + 1 &&
        fread(index->shuffle, sizeof *index->shuffle, (size_t)index->count, file) == (size_t)index->count;
    if (whole)
        hash_arrays(hex, index);
    if (whole && strncmp(hex, header.sha256, HASH_HEX) == 0)
        return true;
    sample_index_release(index);
    return false;
}

static bool load(struct sample_index *index, const char *path)
{
    int fd = file_open(path, NULL);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!file) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool loaded = read_arrays(index, file, file_size(path));
    fclose(file);
    return loaded;
}

static int save(const struct sample_index *index, const char *directory, const char *path, struct error *err)
{
    struct cache_header header = {.document_count = index->document_count, .count = index->count, .epochs = index->epochs,
        .separate = index->separate_epoch};
    memcpy(header.magic, magic, sizeof magic);
    hash_arrays(header.sha256, index);
    if (directory_make(directory, err) != 0)
        return -1;
    char *temporary = string_format("%s.tmp-%lld", path, (long long)getpid());
    FILE *file = fopen(temporary, "wbe");
    bool whole = file && fwrite(&header, sizeof header, 1, file) == 1 &&
        fwrite(index->document, sizeof *index->document, (size_t)index->document_count, file) == (size_t)index->document_count &&
        fwrite(index->start, sizeof *index->start, (size_t)index->count + 1, file) == (size_t)index->count + 1 &&
        fwrite(index->shuffle, sizeof *index->shuffle, (size_t)index->count, file) == (size_t)index->count;
    if (file && fclose(file) != 0)
        whole = false;
    int status = whole && rename(temporary, path) == 0 ? 0 : error_errno(err, "%s", path);
    if (status != 0 && file)
        unlink(temporary);
    free(temporary);
    return status;
}

static char *cache_path(const char *directory, const int32_t *lengths, int64_t sequences, int64_t sequence_length, int64_t wanted, int64_t seed)
{
    char hex[HASH_HEX], *recipe = string_format("samples/1\n%lld %lld %lld %lld\n", (long long)sequences, (long long)sequence_length,
        (long long)wanted, (long long)seed);
    struct hash *hash = hash_new();
    hash_add(hash, recipe, strlen(recipe));
    hash_add(hash, lengths, (size_t)sequences * sizeof *lengths);
    hash_end(hash, hex);
    free(recipe);
    return string_format("%s/%.32s.samples", directory, hex);
}

int sample_index_cached(struct sample_index *index, const char *directory, bool must_write, const int32_t *lengths, int64_t sequences,
    int64_t sequence_length, int64_t wanted, int64_t seed, struct error *err)
{
    if (!directory)
        return sample_index_init(index, lengths, sequences, sequence_length, wanted, seed, err);
    char *path = cache_path(directory, lengths, sequences, sequence_length, wanted, seed);
    int status = 0;
    if (!load(index, path)) {
        status = sample_index_init(index, lengths, sequences, sequence_length, wanted, seed, err);
        if (status == 0 && save(index, directory, path, must_write ? err : NULL) != 0 && must_write)
            status = -1;
    }
    free(path);
    return status;
}
