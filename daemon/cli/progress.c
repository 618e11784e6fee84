#include "daemon/cli/progress.h"
#include "daemon/cli/format.h"
#include "daemon/cli/view.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_MAX = 28, WIDTH_DEFAULT = 100, HEIGHT_DEFAULT = 24, PRINT_SECONDS = 5 };

static bool knows_utf8(void)
{
    const char *locale = getenv("LC_ALL");
    if (!locale || !*locale)
        locale = getenv("LC_CTYPE");
    if (!locale || !*locale)
        locale = getenv("LANG");
    return locale && (strcasestr(locale, "UTF-8") || strcasestr(locale, "utf8"));
}

void progress_init(struct progress *progress)
{
    const char *terminal = getenv("TERM");
    *progress = (struct progress){.terminal = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0, .wide = knows_utf8()};
}

static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : WIDTH_DEFAULT;
}

// "120/300  loss 2.345  34.1k tokens/s  ETA 1m 02s", or the reason why there is nothing of it.
static char *figures_of(const struct json *run)
{
    struct text text;
    char number[FORMAT_MAX];
    text_init(&text, 1024);
    int64_t step = js_integer_of(js_get(run, "step"), 0), iterations = js_integer_of(js_get(run, "iterations"), 0);
    const char *reason = js_string_of(js_get(run, "reason"), NULL);
    bool ended = view_ended(run), good = strcmp(js_string_of(js_get(run, "state"), ""), "succeeded") == 0;
    if (iterations > 0 && (step > 0 || !reason))
        text_addf(&text, "%lld/%lld", (long long)step, (long long)iterations);
    if (js_kind(js_get(run, "loss")) != JSON_KIND_NULL)
        text_addf(&text, "  loss %s", format_short(number, js_real_of(js_get(run, "loss"), NAN)));
    if (js_integer_of(js_get(run, "diverged_step"), 0) > 0)
        text_addf(&text, ", diverged at step %lld", (long long)js_integer_of(js_get(run, "diverged_step"), 0));
    if (js_kind(js_get(run, "tokens_per_second")) != JSON_KIND_NULL)
        text_addf(&text, "  %s tokens/s", format_rate(number, js_real_of(js_get(run, "tokens_per_second"), 0)));
    if (!ended && js_kind(js_get(run, "eta_seconds")) != JSON_KIND_NULL)
        text_addf(&text, "  ETA %s", format_seconds(number, js_real_of(js_get(run, "eta_seconds"), NAN)));
    if (reason && ((ended && !good) || step == 0)) {
        char *clean = clean_line(reason);
        text_addf(&text, "%s%.300s", text.length ? "  " : "", clean);
        free(clean);
    }
    return text_take(&text);
}

static void draw_bar(const struct progress *progress, struct text *out, double share, int width)
{
    int full = (int)(share * width + 0.5);
    for (int i = 0; i < width; i++)
        text_add(out, i < full ? (progress->wide ? "\u2588" : "#") : (progress->wide ? "\u2591" : "-"));
}

static void draw_line(const struct progress *progress, struct text *out, const struct json *run, int name_width, int width)
{
    char *name = clean_line(js_string_of(js_get(run, "name"), "?")), *figures = figures_of(run);
    double share = js_real_of(js_get(run, "progress"), 0);
    share = isfinite(share) && share > 0 ? (share < 1 ? share : 1) : 0;
    char *head = string_format("%-*s  %-10s ", name_width, name, js_string_of(js_get(run, "state"), "?"));
    int head_width = (int)strlen(head), room = width - 1 - head_width, bar = room - (int)strlen(figures) - 1;
    text_add(out, head);
    bar = bar > BAR_MAX ? BAR_MAX : bar;
    if (bar >= 6) {
        draw_bar(progress, out, share, bar);
        text_add(out, " ");
        room -= bar + 1;
    }
    text_addf(out, "%.*s", room > 0 ? room : 0, figures);
    free(head);
    free(figures);
    free(name);
}

static int widest_name(const struct json *runs)
{
    size_t widest = 0;
    for (size_t i = 0; i < js_count(runs); i++) {
        size_t width = strlen(js_string_of(js_get(js_at(runs, i), "name"), "?"));
        widest = width > widest ? width : widest;
    }
    return (int)(widest < 64 ? widest : 64);
}

static size_t terminal_height(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4 ? size.ws_row : HEIGHT_DEFAULT;
}

static bool is_state(const struct json *run, const char *state)
{
    return strcmp(js_string_of(js_get(run, "state"), ""), state) == 0;
}

// "9,998 queued, 2 running": of more runs than a screen has lines.
static void draw_counts(struct text *out, const struct json *runs)
{
    struct json *counts = js_object();
    const char *between = "";
    for (size_t i = 0; i < js_count(runs); i++) {
        const char *state = js_string_of(js_get(js_at(runs, i), "state"), "?");
        js_set(counts, state, js_integer(js_integer_of(js_get(counts, state), 0) + 1));
    }
    for (void *i = js_first(counts); i; i = js_next(counts, i), between = ", ") {
        char number[FORMAT_MAX];
        text_addf(out, "%s%s %s", between, format_value(number, (double)js_integer_of(js_value(i), 0)), js_key(i));
    }
    js_free(counts);
}

// A line a run; where they do not fit, the running ones and how many there are of each kind.
static void redraw(struct progress *progress, const struct json *runs)
{
    struct text out;
    text_init(&out, 1 << 20);
    if (progress->drawn)
        text_addf(&out, "\x1b[%zuA\x1b[J", progress->drawn);
    progress->drawn = 0;
    int widest = widest_name(runs), width = terminal_width();
    size_t room = terminal_height() - 2;
    bool all = js_count(runs) <= room;
    for (size_t i = 0; i < js_count(runs) && progress->drawn < room; i++) {
        if (!all && !is_state(js_at(runs, i), "running"))
            continue;
        text_add(&out, "\r\x1b[2K");
        draw_line(progress, &out, js_at(runs, i), widest, width);
        text_add(&out, "\n");
        progress->drawn++;
    }
    if (!all) {
        text_add(&out, "\r\x1b[2K");
        draw_counts(&out, runs);
        text_add(&out, "\n");
        progress->drawn++;
    }
    fwrite(out.at, 1, out.length, stderr);
    text_release(&out);
}

// A line for each run whose state is new, and for those that moved when some seconds are over.
static void print_news(struct progress *progress, const struct json *runs)
{
    bool due = clock_steady() - progress->last_print >= PRINT_SECONDS;
    int widest = widest_name(runs);
    for (size_t i = 0; i < js_count(runs) && i < progress->count; i++) {
        const struct json *run = js_at(runs, i);
        const char *state = js_string_of(js_get(run, "state"), "?");
        int64_t step = js_integer_of(js_get(run, "step"), 0);
        bool changed = !progress->last_state[i] || strcmp(progress->last_state[i], state) != 0;
        if (!changed && !(due && step != progress->last_step[i]))
            continue;
        char *figures = figures_of(run), *name = clean_line(js_string_of(js_get(run, "name"), "?"));
        fprintf(stderr, "%-*s  %-10s %s\n", widest, name, state, figures);
        free(name);
        free(figures);
        free(progress->last_state[i]);
        progress->last_state[i] = string_copy(state);
        progress->last_step[i] = step;
    }
    if (due)
        progress->last_print = clock_steady();
}

void progress_show(struct progress *progress, const struct json *runs)
{
    if (!progress->last_state) {
        progress->count = js_count(runs);
        progress->last_state = allocate(progress->count, sizeof *progress->last_state);
        progress->last_step = allocate(progress->count, sizeof *progress->last_step);
    }
    if (progress->terminal)
        redraw(progress, runs);
    else
        print_news(progress, runs);
}

void progress_release(struct progress *progress)
{
    for (size_t i = 0; i < progress->count; i++)
        free(progress->last_state[i]);
    free(progress->last_state);
    free(progress->last_step);
    *progress = (struct progress){0};
}
