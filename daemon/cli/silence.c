#include "daemon/cli/silence.h"
#include "daemon/cli/format.h"

#include <stdio.h>
#include <string.h>

bool silence_say(const struct json *health, const char *what)
{
    const struct json *scheduler = js_get(health, "scheduler"), *faults = js_get(scheduler, "faults");
    const char *name = js_string_of(js_get(scheduler, "name"), "the scheduler");
    double since = js_real_of(js_get(scheduler, "silent_since"), 0);
    char when[FORMAT_MAX];
    if (!scheduler || js_boolean_of(js_get(scheduler, "answers"), true) || since <= 0)
        return false;
    if (!what)
        what = js_string_of(js_at(faults, 0), "");
    fprintf(stderr, "%s has not answered since %s%s%s\n", strcmp(name, "slurm") == 0 ? "Slurm" : name, format_time(when, since), *what ? ": " : "", what);
    return true;
}
