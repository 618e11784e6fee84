// What a process that computes on CPUs holds beside parameters, activations and the like: small, and known well enough for the plan to be
// what is measured.
#pragma once
#include "schema/shape/arena.h"

enum { SMALL_PAGE = 4096, HUGE_PAGE = 2 << 20 };

// Memory of a device is mapped in whole pages: huge ones for what fills one.
static inline size_t mapped_bytes(size_t bytes)
{
    size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : SMALL_PAGE;
    return (bytes + unit - 1) / unit * unit;
}

// Elements of a rank's two segments, and bytes of its arenas.
struct process_holding {
    size_t dense, expert, arena, dispatch;
};
size_t process_bytes(const struct spec *spec, const struct model_sizes *sizes, const struct process_holding *holding);
