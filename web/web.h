// The dashboard's files, embedded into the program at build time (web/embed.c writes the table).
#pragma once
#include <stddef.h>

struct web_file {
    const char *path;           // "/" or "/assets/NAME"
    const char *type;           // content type
    const char *etag;           // quoted digest of the bytes
    const unsigned char *bytes;
    size_t size;
};

const struct web_file *web_find(const char *path); // NULL: no such file
