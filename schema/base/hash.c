#include "schema/base/hash.h"
#include "schema/base/file.h"
#include "schema/base/text.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct hash {
    EVP_MD_CTX *context;
};

// libcrypto fails here only when memory or entropy is out: nothing a caller could do better.
static void need(int ok)
{
    if (ok != 1) {
        fprintf(stderr, "libcrypto failed\n");
        abort();
    }
}

static void to_hex(char *out, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

struct hash *hash_new(void)
{
    struct hash *hash = allocate(1, sizeof *hash);
    hash->context = EVP_MD_CTX_new();
    need(hash->context && EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) == 1);
    return hash;
}

void hash_add(struct hash *hash, const void *bytes, size_t count)
{
    need(EVP_DigestUpdate(hash->context, bytes, count));
}

void hash_end(struct hash *hash, char hex[HASH_HEX])
{
    unsigned char digest[32];
    need(EVP_DigestFinal_ex(hash->context, digest, NULL));
    to_hex(hex, digest, sizeof digest);
    EVP_MD_CTX_free(hash->context);
    free(hash);
}

void hash_bytes(char hex[HASH_HEX], const void *bytes, size_t count)
{
    struct hash *hash = hash_new();
    hash_add(hash, bytes, count);
    hash_end(hash, hex);
}

int hash_file(char hex[HASH_HEX], const char *path, struct error *err)
{
    int fd = file_open(path, err);
    if (fd < 0)
        return -1;
    struct hash *hash = hash_new();
    static _Thread_local char block[1 << 20];
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0)
        hash_add(hash, block, (size_t)got);
    hash_end(hash, hex);
    int status = got < 0 ? error_errno(err, "%s", path) : 0;
    close(fd);
    return status;
}

void random_hex(char *out, size_t digits)
{
    unsigned char bytes[128];
    while (digits > 0) {
        size_t take = digits > 2 * sizeof bytes ? 2 * sizeof bytes : digits;
        need(RAND_bytes(bytes, (int)((take + 1) / 2)));
        char hex[2 * sizeof bytes + 1];
        to_hex(hex, bytes, (take + 1) / 2);
        for (size_t i = 0; i < take; i++)
            *out++ = hex[i];
        digits -= take;
    }
    *out = 0;
}
