#include "tests/bench/allocations.h"

#ifdef __SANITIZE_ADDRESS__
int64_t allocations(void)
{
    return -1;
}
#else
#include <stddef.h>

// The C library's own names for what it replaces.
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);

static _Thread_local int64_t asked;

int64_t allocations(void)
{
    return asked;
}

void *malloc(size_t bytes)
{
    asked++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    asked++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *at, size_t bytes)
{
    asked++;
    return __libc_realloc(at, bytes);
}
#endif
