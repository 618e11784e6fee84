// Reading Megatron's pair. PREFIX.bin holds raw little-endian tokens, sequence after sequence. PREFIX.idx: 9 bytes of magic, u64
// version 1, u8 dtype code, u64 sequences, u64 length of the document index, then i32 lengths (tokens), i64 offsets (bytes into .bin),
// i64 document index, and in multimodal files i8 modes. Nothing is aligned, so fields are copied out, never dereferenced.
//
// Megatron's reader believes the index; ours checks all of it once at open, so that a truncated file is an error and not a crash.
#include "schema/base/file.h"
#include "worker/data/data.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the pair is little-endian and is read in place");

enum { HEADER_BYTES = 34 };

struct mapping {
    const unsigned char *at; // NULL if the file is empty
    int64_t bytes;
};

struct indexed {
    struct mapping idx, bin;
    int64_t sequences, documents; // documents: entries of the document index
    int64_t token_bytes;
    int code;
};

static int64_t i64_at(const unsigned char *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int32_t i32_at(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int map_file(struct mapping *mapping, const char *path, struct error *err)
{
    int fd = file_open(path, err);
    if (fd < 0)
        return -1;
    int status = 0;
    mapping->bytes = file_size(path);
    if (mapping->bytes < 0)
        status = error_set(err, "%s: gone while it was opened", path);
    else if (mapping->bytes > 0) {
        void *at = mmap(NULL, (size_t)mapping->bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            status = error_errno(err, "%s: cannot map it", path);
        else
            mapping->at = at;
    }
    close(fd);
    return status;
}

static void unmap_file(struct mapping *mapping)
{
    if (mapping->at)
        munmap((void *)(uintptr_t)mapping->at, (size_t)mapping->bytes);
}

// Bytes of a token of that dtype code; 0 for codes that are not integers.
static int64_t token_size(int code)
{
    static const int64_t size[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};
    return code >= 0 && code <= 8 ? size[code] : 0;
}

static const unsigned char *lengths_of(const struct indexed *indexed)
{
    return indexed->idx.at + HEADER_BYTES;
}

static const unsigned char *offsets_of(const struct indexed *indexed)
{
    return lengths_of(indexed) + 4 * indexed->sequences;
}

static int check_header(struct indexed *indexed, const char *prefix, struct error *err)
{
    const struct mapping *idx = &indexed->idx;
    if (idx->bytes < HEADER_BYTES || memcmp(idx->at, "MMIDIDX\0\0", 9) != 0)
        return error_set(err, "%s.idx: not an index of Megatron's kind (its first 9 bytes are not MMIDIDX)", prefix);
    if (i64_at(idx->at + 9) != 1)
        return error_set(err, "%s.idx: version %lld, expected 1", prefix, (long long)i64_at(idx->at + 9));
    indexed->code = idx->at[17];
    indexed->token_bytes = token_size(indexed->code);
    if (!indexed->token_bytes)
        return error_set(err, "%s.idx: dtype code %d is not a kind of integer", prefix, indexed->code);
    indexed->sequences = i64_at(idx->at + 18);
    indexed->documents = i64_at(idx->at + 26);
    int64_t most = idx->bytes / 8;
    if (indexed->sequences < 0 || indexed->documents < 1 || indexed->sequences > most || indexed->documents > most)
        return error_set(err, "%s.idx: corrupt: it claims %lld sequences and %lld document entries in %lld bytes", prefix,
            (long long)indexed->sequences, (long long)indexed->documents, (long long)idx->bytes);
    int64_t expected = HEADER_BYTES + 12 * indexed->sequences + 8 * indexed->documents;
    if (idx->bytes != expected && idx->bytes != expected + indexed->sequences)
        return error_set(err, "%s.idx: corrupt: %lld bytes, but %lld sequences and %lld document entries need %lld", prefix,
            (long long)idx->bytes, (long long)indexed->sequences, (long long)indexed->documents, (long long)expected);
    return 0;
}

static int check_content(const struct indexed *indexed, const char *prefix, struct error *err)
{
    const unsigned char *lengths = lengths_of(indexed), *offsets = offsets_of(indexed);
    int64_t running = 0;
    for (int64_t i = 0; i < indexed->sequences; i++) {
        int64_t length = i32_at(lengths + 4 * i), offset = i64_at(offsets + 8 * i);
        if (length < 0 || offset != running)
            return error_set(err, "%s.idx: corrupt: sequence %lld has %lld tokens at byte %lld, expected at byte %lld", prefix, (long long)i,
                (long long)length, (long long)offset, (long long)running);
        running += length * indexed->token_bytes;
    }
    const unsigned char *documents = offsets + 8 * indexed->sequences;
    int64_t last = 0;
    for (int64_t i = 0; i < indexed->documents; i++) {
        int64_t at = i64_at(documents + 8 * i);
        if (at < last || at > indexed->sequences || (i == 0 && at != 0))
            return error_set(err, "%s.idx: corrupt: document entry %lld is %lld", prefix, (long long)i, (long long)at);
        last = at;
    }
    if (last != indexed->sequences)
        return error_set(err, "%s.idx: corrupt: documents end at sequence %lld of %lld", prefix, (long long)last, (long long)indexed->sequences);
    if (indexed->bin.bytes != running)
        return error_set(err, "%s.bin: %s: %lld bytes, but its index describes %lld", prefix,
            indexed->bin.bytes < running ? "truncated" : "not the file of its index", (long long)indexed->bin.bytes, (long long)running);
    return 0;
}

int indexed_open(struct indexed **result, const char *prefix, struct error *err)
{
    struct indexed *indexed = allocate(1, sizeof *indexed);
    char *idx = string_format("%s.idx", prefix), *bin = string_format("%s.bin", prefix);
    int status = -1;
    if (map_file(&indexed->idx, idx, err) == 0 && map_file(&indexed->bin, bin, err) == 0 && check_header(indexed, prefix, err) == 0 &&
        check_content(indexed, prefix, err) == 0)
        status = 0;
    free(idx);
    free(bin);
    if (status != 0) {
        indexed_close(indexed);
        indexed = NULL;
    }
    *result = indexed;
    return status;
}

void indexed_close(struct indexed *indexed)
{
    if (!indexed)
        return;
    unmap_file(&indexed->idx);
    unmap_file(&indexed->bin);
    free(indexed);
}

int64_t indexed_sequences(const struct indexed *indexed)
{
    return indexed->sequences;
}

int64_t indexed_length(const struct indexed *indexed, int64_t sequence)
{
    return i32_at(lengths_of(indexed) + 4 * sequence);
}

// One token of any integer dtype; -1 if it does not fit.
static int32_t token_at(const unsigned char *at, int code)
{
    uint16_t u16;
    int16_t i16;
    int64_t wide;
    switch (code) {
    case 1:
        return at[0];
    case 2:
        return (signed char)at[0];
    case 3:
        memcpy(&i16, at, sizeof i16);
        return i16;
    case 4:
        return i32_at(at);
    case 5:
        wide = i64_at(at);
        return wide < 0 || wide > INT32_MAX ? -1 : (int32_t)wide;
    default:
        memcpy(&u16, at, sizeof u16);
        return u16;
    }
}

void indexed_read(const struct indexed *indexed, int64_t sequence, int64_t first, int64_t count, int32_t *out)
{
    const unsigned char *at = indexed->bin.at + i64_at(offsets_of(indexed) + 8 * sequence) + first * indexed->token_bytes;
    for (int64_t i = 0; i < count; i++)
        out[i] = token_at(at + i * indexed->token_bytes, indexed->code);
}

// Adds what identifies the tokens: see data.h. They are read, not mapped: what is only hashed should not count as memory in use.
static int hash_tokens(struct hash *hash, const char *path, struct error *err)
{
    enum { BLOCK = 1 << 20, BLOCKS = 256 };
    int fd = file_open(path, err);
    if (fd < 0)
        return -1;
    int64_t bytes = file_size(path), count = bytes <= (int64_t)BLOCK * BLOCKS ? (bytes + BLOCK - 1) / BLOCK : BLOCKS;
    unsigned char *block = allocate(BLOCK, 1);
    hash_add(hash, &bytes, sizeof bytes);
    int status = 0;
    for (int64_t i = 0; i < count && status == 0; i++) {
        int64_t at = count < BLOCKS ? i * BLOCK : (bytes - BLOCK) / (BLOCKS - 1) * i;
        if (i == BLOCKS - 1)
            at = bytes - BLOCK;
        ssize_t got = pread(fd, block, BLOCK, at);
        if (got < 0)
            status = error_errno(err, "%s", path);
        else
            hash_add(hash, block, (size_t)got);
    }
    free(block);
    close(fd);
    return status;
}

int indexed_fingerprint(char hex[HASH_HEX], const char *prefix, struct error *err)
{
    char *idx = string_format("%s.idx", prefix), *bin = string_format("%s.bin", prefix);
    int status = hash_file(hex, idx, err);
    if (status == 0) {
        struct hash *hash = hash_new();
        hash_add(hash, hex, HASH_HEX - 1);
        status = hash_tokens(hash, bin, err);
        hash_end(hash, hex);
    }
    free(idx);
    free(bin);
    return status;
}
