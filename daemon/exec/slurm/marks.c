#include "daemon/exec/slurm/marks.h"
#include "daemon/exec/slurm/command.h"
#include "schema/base/clock.h"
#include "schema/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 8 << 20, LISTS_MAX = 16 << 10, NODE_MAX = 256 }; // bytes of an answer, of all lists in one question, of a node's name
#define S "\x1f"
#define DUPLICATE "Duplicate jobid" // Slurm's own words

struct marks {
    struct queue_settings settings;
    struct command *command;
    double next;         // steady seconds before which none is asked
    struct text wanted;  // lists, with commas between them
    bool wants, wants_all;
    struct text answer;
    double asked;        // of answer; NAN: there is none
};

struct marks *marks_new(const struct queue_settings *settings)
{
    struct marks *marks = allocate(1, sizeof *marks);
    *marks = (struct marks){.settings = *settings, .asked = NAN};
    text_init(&marks->wanted, LISTS_MAX);
    text_init(&marks->answer, ANSWER_MAX);
    return marks;
}

void marks_free(struct marks *marks)
{
    if (!marks)
        return;
    command_free(marks->command);
    text_release(&marks->wanted);
    text_release(&marks->answer);
    free(marks);
}

// ---- lists of nodes ----

// Whether the digits that `node` begins with are in the bracket's inside ("1-3,07"), as many of them as `digits`.
static bool is_in_ranges(const char *inside, size_t length, const char *node, size_t digits)
{
    char number[24];
    if (digits >= sizeof number)
        return false;
    memcpy(number, node, digits);
    number[digits] = 0;
    for (const char *at = inside, *end = inside + length; at < end;) {
        size_t width = strspn(at, "0123456789");
        const char *high = at[width] == '-' ? at + width + 1 : at;
        unsigned long long value = strtoull(number, NULL, 10);
        bool written_so = digits == width || (digits > width && number[0] != '0');
        if (width && written_so && value >= strtoull(at, NULL, 10) && value <= strtoull(high, NULL, 10))
            return true;
        const char *comma = memchr(at, ',', (size_t)(end - at));
        at = comma ? comma + 1 : end;
    }
    return false;
}

// One name of a list, with brackets ("n[1-3]x[0,4]"). A bracket that is cut off at its end counts as far as it is whole.
static bool is_named_by(const char *pattern, size_t length, const char *node)
{
    while (length && *pattern != '[' && *pattern == *node) {
        pattern++;
        node++;
        length--;
    }
    if (length == 0 || *pattern != '[')
        return length == 0 && *node == 0;
    const char *close = memchr(pattern, ']', length);
    size_t inside = close ? (size_t)(close - pattern) - 1 : length - 1;
    while (!close && inside > 0 && pattern[inside] != ',')
        inside--;
    size_t behind = close ? inside + 2 : length;
    for (size_t digits = 1; digits <= strspn(node, "0123456789"); digits++)
        if (is_in_ranges(pattern + 1, inside, node, digits) && is_named_by(pattern + behind, length - behind, node + digits))
            return true;
    return false;
}

bool node_list_has(const char *list, const char *node)
{
    for (const char *at = list; *at;) {
        size_t length = 0;
        for (bool within = false; at[length] && (within || at[length] != ','); length++)
            within = at[length] == '[' || (within && at[length] != ']');
        if (is_named_by(at, length, node))
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

// ---- the question ----

// A list that was cut is given up to its last comma, with its bracket closed.
static void add_list(struct text *lists, const char *list)
{
    size_t length = strlen(list);
    const char *open = strrchr(list, '['), *close = strrchr(list, ']');
    bool cut = open && (!close || close < open);
    while (cut && length > 0 && list[length] != ',')
        length--;
    if (length == 0)
        return;
    if (lists->length)
        text_add(lists, ",");
    text_add_bytes(lists, list, length);
    text_add(lists, cut && list + length > open ? "]" : "");
}

void marks_want(struct marks *marks, const char *list)
{
    marks->wants = true;
    if (!list[0])
        marks->wants_all = true;
    else if (!strstr(marks->wanted.at, list) && marks->wanted.length + strlen(list) + 2 < LISTS_MAX)
        add_list(&marks->wanted, list);
}

static void ask(struct marks *marks)
{
    char *nodes = string_format("--nodes=%s", marks->wanted.at);
    const char *argv[] = {"sinfo", "--noheader", "--Node", "--all", "--format=%N" S "%H" S "%E", marks->wants_all ? NULL : nodes, NULL};
    const char **environment = command_environment();
    struct command_request request = {
        .argv = argv, .environment = environment, .deadline = marks->settings.deadline, .output_max = ANSWER_MAX};
    marks->command = command_start(&request, NULL);
    marks->next = clock_steady() + marks->settings.interval;
    text_clear(&marks->wanted);
    marks->wants = marks->wants_all = false;
    free(environment);
    free(nodes);
}

bool marks_turn(struct marks *marks)
{
    bool news = false;
    if (marks->command) {
        const struct command_result *result = command_poll(marks->command);
        if (!result)
            return false;
        news = result->end == COMMAND_EXITED && result->code == 0;
        if (news) {
            text_clear(&marks->answer);
            text_add_bytes(&marks->answer, result->output.at, result->output.length);
            marks->asked = result->asked;
        }
        command_free(marks->command);
        marks->command = NULL;
    }
    if (marks->wants && !news && clock_steady() >= marks->next)
        ask(marks);
    return news;
}

// ---- the answer ----

// "n1<S>1796047587<S>Duplicate jobid"; a line that has another form, or is cut off, says nothing.
static enum marks_say look_at_line(const char *line, size_t length, const char *list, double from, double to)
{
    const char *moment = memchr(line, S[0], length), *end = line + length;
    const char *reason = moment ? memchr(moment + 1, S[0], (size_t)(end - moment - 1)) : NULL;
    size_t named = moment ? (size_t)(moment - line) : 0;
    char node[NODE_MAX];
    if (!reason || named == 0 || named >= sizeof node || reason + 1 == end)
        return MARKS_SILENT;
    memcpy(node, line, named);
    node[named] = 0;
    if (list[0] && !node_list_has(list, node))
        return MARKS_SILENT;
    double when = strtod(moment + 1, NULL);
    bool duplicate = (size_t)(end - reason) == sizeof DUPLICATE && memcmp(reason + 1, DUPLICATE, sizeof DUPLICATE - 1) == 0;
    return duplicate && when >= from && when <= to ? MARKS_REFUSED : MARKS_OF_OTHER;
}

enum marks_say marks_look(const struct marks *marks, const char *list, double since, double from, double to)
{
    enum marks_say say = MARKS_SILENT;
    if (isnan(marks->asked) || marks->asked < since)
        return MARKS_SILENT;
    for (const char *at = marks->answer.at; *at;) {
        size_t length = strcspn(at, "\n");
        enum marks_say line = at[length] ? look_at_line(at, length, list, from, to) : MARKS_SILENT;
        say = line > say ? line : say;
        at += length + (at[length] == '\n');
    }
    return say;
}
