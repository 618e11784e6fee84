// Near names, for "did you mean …?".
#pragma once
#include <stddef.h>

// The candidate that differs from name by the fewest edits (insert, delete, replace, swap of neighbours), if that is at most a third of
// the name's length (and at least one); NULL if none is so near. The first of equals wins.
const char *near_name(const char *name, const char *const *candidates, size_t count);
