#include "worker/device/host_memory.h"
#include "schema/shape/process.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *host_alloc(size_t bytes)
{
    if (!bytes)
        bytes = 1;
    size_t size = mapped_bytes(bytes);
    size_t spare = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *map = mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        fprintf(stderr, "out of memory: %zu bytes wanted for the device: %s\n", bytes, strerror(errno));
        abort();
    }
    if (!spare)
        return map;
    // Start on a huge page: unmap what sticks out on both sides.
    char *start = (char *)(((uintptr_t)map + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    size_t before = (size_t)(start - map);
    if (before)
        munmap(map, before);
    if (spare - before)
        munmap(start + size, spare - before);
    madvise(start, size, MADV_HUGEPAGE);
    return start;
}

static void host_free(void *at, size_t bytes)
{
    if (at)
        munmap(at, mapped_bytes(bytes ? bytes : 1));
}

static void host_zero(void *at, size_t bytes)
{
    memset(at, 0, bytes);
}

static void host_upload(void *to, const void *host, size_t bytes)
{
    memcpy(to, host, bytes);
}

static void host_copy(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
}

static void *host_view(void *at)
{
    return at;
}

const struct device_memory host_memory = {
    .alloc = host_alloc,
    .free = host_free,
    .zero = host_zero,
    .upload = host_upload,
    .read_back = host_upload,
    .copy = host_copy,
    .host_view = host_view,
};
