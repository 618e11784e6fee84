// What the daemon says to whoever runs it: lines on stderr, with their time.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <stdarg.h>
#include <stdio.h>

void core_log(const char *format, ...)
{
    char when[CLOCK_TEXT];
    clock_text(when, clock_wall());
    flockfile(stderr);
    fprintf(stderr, "%.19sZ ", when);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void log_run(const struct view *view, const struct error *err)
{
    core_log("%s/%s: %s", view->project, view->name, err->text);
}
