#include "schema/base/near.h"

#include <ctype.h>
#include <string.h>

enum { NEAR_MAX = 64 }; // longer names are not compared

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Edits from a to b, capitals ignored, '-' as '_'. Three rows of the table are alive at a time.
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][NEAR_MAX + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            char x = a[i - 1] == '-' ? '_' : (char)tolower((unsigned char)a[i - 1]);
            char y = (char)tolower((unsigned char)b[j - 1]);
            now[j] = least(least(now[j - 1], last[j]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *near_name(const char *name, const char *const *candidates, size_t count)
{
    size_t length = strlen(name);
    if (length == 0 || length > NEAR_MAX)
        return NULL;
    size_t limit = length < 6 ? 1 : length / 3;
    const char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        if (other > NEAR_MAX || (other > length ? other - length : length - other) > limit)
            continue;
        size_t distance = edit_distance(name, candidates[i]);
        if (distance <= limit) {
            found = candidates[i];
            if (distance == 0)
                break;
            limit = distance - 1;
        }
    }
    return found;
}
