// The door to libcrypto: SHA-256 of bytes and files, and random identifiers.
#pragma once
#include "schema/base/error.h"
#include <stddef.h>
#include <stdint.h>

enum { HASH_HEX = 65 }; // 64 hex digits and a NUL

struct hash; // opaque: a SHA-256 in progress

struct hash *hash_new(void);
void hash_add(struct hash *hash, const void *bytes, size_t count);
void hash_end(struct hash *hash, char hex[HASH_HEX]); // writes the digest and frees the hash

void hash_bytes(char hex[HASH_HEX], const void *bytes, size_t count);
int hash_file(char hex[HASH_HEX], const char *path, struct error *err);

void random_hex(char *out, size_t digits); // digits hex digits and a NUL; from the system's random source
