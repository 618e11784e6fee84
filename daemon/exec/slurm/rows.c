#include "daemon/exec/slurm/rows.h"
#include "schema/base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S "\x1f"
#define MARK_HEAD "switchyard:"
enum { SEPARATOR = 0x1f, FIELDS_MAX = 12, BARRED = 53 }; // BARRED: no signal, but what slurmd makes of a number of its own

// Fields in the order of all forms; a form's own order is in its table below. The free ones come last, so that what is in them cannot move
// the others.
enum field { ID, STATE, EXIT, RESTARTS, START, SUBMIT, USED, NODES, REASON, COMMENT, NAME, DIRECTORY };

struct form {
    const char *format;
    size_t count;
    enum field fields[FIELDS_MAX];
};

// A width of 0 is squeue's for "as wide as it is".
static const struct form forms[] = {
    [ROWS_FULL] = {"--Format=JobArrayID:0" S ",State:0" S ",exit_code:0" S ",RestartCnt:0" S ",StartTime:0" S ",TimeUsed:0" S ",NodeList:0" S
                   ",Reason:0" S ",Comment:0" S ",Name:0" S ",WorkDir:0",
        11, {ID, STATE, EXIT, RESTARTS, START, USED, NODES, REASON, COMMENT, NAME, DIRECTORY}},
    [ROWS_PLAIN] = {"--format=%i" S "%T" S "%S" S "%M" S "%N" S "%r" S "%k" S "%j" S "%Z", 9,
        {ID, STATE, START, USED, NODES, REASON, COMMENT, NAME, DIRECTORY}},
    [ROWS_ACCOUNTING] = {"--format=JobID,State,ExitCode,Start,Submit,ElapsedRaw,NodeList,Comment,JobName,WorkDir", 10,
        {ID, STATE, EXIT, START, SUBMIT, USED, NODES, COMMENT, NAME, DIRECTORY}},
};

const char *rows_format(enum rows_form form)
{
    return forms[form].format;
}

void mark_write(char mark[MARK_MAX], const char *tag, int64_t submission)
{
    snprintf(mark, MARK_MAX, MARK_HEAD "%s:%" PRId64, tag, submission);
}

static bool read_count(const char *text, int64_t *value)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 18 || text[length])
        return false;
    *value = strtoll(text, NULL, 10);
    return true;
}

// 32 hex digits at the beginning of text.
static bool read_hex(char out[33], const char *text)
{
    if (strspn(text, "0123456789abcdef") != 32)
        return false;
    memcpy(out, text, 32);
    out[32] = 0;
    return true;
}

bool mark_read(const char *comment, char tag[33], int64_t *submission, char array[33])
{
    static const char head[] = MARK_HEAD, of_array[] = "array:";
    tag[0] = array[0] = 0;
    if (strncmp(comment, head, sizeof head - 1) != 0)
        return false;
    const char *at = comment + sizeof head - 1;
    if (strncmp(at, of_array, sizeof of_array - 1) == 0) {
        at += sizeof of_array - 1;
        return !at[strspn(at, "0123456789abcdef")] && read_hex(array, at);
    }
    if (read_hex(tag, at) && at[32] == ':' && read_count(at + 33, submission) && *submission <= SUBMISSION_MAX)
        return true;
    tag[0] = 0;
    return false;
}

// ---- fields ----

// A number, with _N of an array's element or +N of a part of a job.
static bool read_id(struct row *row, const char *text)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 18)
        return false;
    if (text[length]) {
        size_t more = strspn(text + length + 1, "0123456789");
        if ((text[length] != '_' && text[length] != '+') || more == 0 || more > 10 || text[length + 1 + more])
            return false;
    }
    if (text[length] == '_')
        row->element = strtoll(text + length + 1, NULL, 10);
    snprintf(row->id, sizeof row->id, "%.31s", text);
    return true;
}

// "12_[3-5,9%2]": what accounting says of an array's elements that have not begun, all in one.
static bool is_rest_of_array(const char *text)
{
    size_t length = strspn(text, "0123456789");
    return length > 0 && strncmp(text + length, "_[", 2) == 0;
}

static bool read_state(struct row *row, const char *text)
{
    if (!isupper((unsigned char)text[0]) || strlen(text) >= sizeof row->state)
        return false;
    snprintf(row->state, sizeof row->state, "%.63s", text);
    row->word = state_word_of(text, &row->by);
    return true;
}

// "3:0", or one number as wait() gives it.
static bool read_exit(struct row *row, const char *text)
{
    int64_t code, signal = 0;
    char first[24];
    size_t length = strcspn(text, ":");
    if (length >= sizeof first)
        return false;
    memcpy(first, text, length);
    first[length] = 0;
    if (!read_count(first, &code) || (text[length] && !read_count(text + length + 1, &signal)))
        return false;
    if (!text[length]) {
        signal = code & 0x7f;
        code = signal ? 0 : (code >> 8) & 0xff;
    }
    if (code > 255 || signal > 255)
        return false;
    row->barred = signal == BARRED && code == 0;
    if (row->barred)
        signal = 0;
    row->signal = signal <= 64 ? (int)signal : 0; // 125 is Slurm's own for "out of memory"
    row->code = (signal || row->barred) && code == 0 ? -1 : code;
    return true;
}

// Seconds since 1970, as asked for; "N/A", "Unknown" and "None" are no time.
static bool read_moment(double *moment, const char *text)
{
    int64_t seconds = 0;
    if (!read_count(text, &seconds) && strcmp(text, "N/A") != 0 && strcmp(text, "Unknown") != 0 && strcmp(text, "None") != 0 && text[0])
        return false;
    *moment = (double)seconds;
    return true;
}

// [days-][hours:]minutes:seconds of squeue, seconds of sacct.
static bool read_used(struct row *row, const char *text)
{
    int64_t plain;
    row->used = NAN;
    if (read_count(text, &plain)) {
        row->used = (double)plain;
        return true;
    }
    if (!text[0] || strcmp(text, "INVALID") == 0 || strcmp(text, "N/A") == 0)
        return true;
    double seconds = 0, part;
    int parts = 0;
    const char *at = text;
    for (bool days = strchr(text, '-') != NULL;;) {
        size_t length = strspn(at, "0123456789");
        if (length == 0 || length > 9)
            return false;
        part = (double)strtol(at, NULL, 10);
        at += length;
        if (days && parts == 0 && *at == '-') {
            seconds = part * 24; // in hours: what follows are hours, minutes, seconds
            days = false;
            at++;
            continue;
        }
        seconds = parts == 0 ? seconds + part : seconds * 60 + part;
        parts++;
        if (*at != ':')
            break;
        at++;
    }
    if (*at || parts < 2 || parts > 3)
        return false;
    row->used = seconds;
    return true;
}

// Free text, without control bytes; "(null)" is squeue's for none, and "None assigned" sacct's.
static void read_words(char *out, size_t size, const char *text)
{
    if (strcmp(text, "(null)") == 0 || strcmp(text, "None assigned") == 0 || strcmp(text, "N/A") == 0)
        text = "";
    size_t length = strlen(text) < size - 1 ? strlen(text) : size - 1;
    for (size_t i = 0; i < length; i++)
        out[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    out[length] = 0;
}

// False: the field does not have the form that it must have.
static bool read_field(struct row *row, enum field field, const char *text)
{
    switch (field) {
    case ID: return read_id(row, text);
    case STATE: return read_state(row, text);
    case EXIT: return read_exit(row, text);
    case RESTARTS: return read_count(text, &row->restarts);
    case START: return read_moment(&row->starts, text);
    case SUBMIT: return read_moment(&row->submitted, text);
    case USED: return read_used(row, text);
    case NODES: read_words(row->nodes, sizeof row->nodes, text); return true;
    case REASON: read_words(row->reason, sizeof row->reason, text); return true;
    case COMMENT: mark_read(text, row->tag, &row->submission, row->array); return true;
    case NAME: read_words(row->name, sizeof row->name, text); return true;
    case DIRECTORY: row->directory = string_copy(text[0] ? text : NULL); return true;
    }
    return false;
}

// ---- lines ----

enum verdict { OURS, OTHERS, MALFORMED };

// An administrator, or a plugin of the site, can write something else where our mark was. Then the rest speaks for itself: the directory of
// PROJECT.NAME ends in /PROJECT/NAME, that of an array is beneath .arrays.
static bool looks_like_ours(const struct row *row)
{
    const char *directory = row->directory ? row->directory : "", *dot = strchr(row->name, '.');
    size_t length = strlen(directory), name = strlen(row->name);
    if (row->element >= 0 && strstr(directory, "/.arrays/"))
        return true;
    if (!dot || length <= name || directory[length - name - 1] != '/')
        return false;
    const char *last = directory + length - name;
    size_t project = (size_t)(dot - row->name);
    return memcmp(last, row->name, project) == 0 && last[project] == '/' && strcmp(last + project + 1, dot + 1) == 0;
}

static enum verdict read_line(struct row *row, enum rows_form which, char *line)
{
    const struct form *form = &forms[which];
    *row = (struct row){.element = -1, .by = -1, .restarts = -1, .code = -1, .used = NAN};
    char *at = line;
    bool unmarked = false;
    for (size_t i = 0; i < form->count; i++) {
        char *end = strchr(at, SEPARATOR);
        bool last = i + 1 == form->count;
        if (!last && !end)
            return unmarked ? OTHERS : MALFORMED;
        if (end && !last)
            *end = 0;
        if (which == ROWS_ACCOUNTING && form->fields[i] == ID && is_rest_of_array(at))
            return OTHERS;
        if (!read_field(row, form->fields[i], at))
            return MALFORMED;
        // What follows the comment are names: of a job that is not ours, anything.
        if (which != ROWS_ACCOUNTING && form->fields[i] == COMMENT)
            unmarked = !row->tag[0] && !row->array[0];
        at = last ? at : end + 1;
    }
    if (unmarked)
        return looks_like_ours(row) ? OURS : OTHERS;
    return strchr(at, SEPARATOR) ? MALFORMED : OURS;
}

// What a site's own scripts print has no separators, and what is written into another's comment or name not our mark. torn: the line's end is
// missing, and with it perhaps the mark.
static bool may_be_ours(enum rows_form form, const char *line, size_t length, bool torn)
{
    if (!memchr(line, SEPARATOR, length))
        return torn && length > 0 && isdigit((unsigned char)line[0]);
    return torn || form == ROWS_ACCOUNTING || memmem(line, length, MARK_HEAD, sizeof MARK_HEAD - 1);
}

static void keep_aside(struct rows *rows, enum rows_form form, const char *line, size_t length, bool torn)
{
    rows->doubtful |= may_be_ours(form, line, length, torn);
    if (rows->malformed++ > 0)
        return;
    for (size_t i = 0; i < sizeof rows->sample - 1 && i < length; i++)
        rows->sample[i] = line[i] == SEPARATOR ? '|' : (unsigned char)line[i] < ' ' || line[i] == 0x7f ? '?' : line[i];
}

static void take_line(struct rows *rows, enum rows_form form, const char *bytes, size_t length)
{
    char line[ROW_LINE_MAX + 1];
    if (length == 0)
        return;
    if (length > ROW_LINE_MAX || memchr(bytes, 0, length)) {
        keep_aside(rows, form, bytes, length, false);
        return;
    }
    if (rows->count >= ROWS_MAX) {
        rows->cut = rows->doubtful = true;
        return;
    }
    memcpy(line, bytes, length);
    line[length] = 0;
    if ((rows->count & (rows->count - 1)) == 0)
        rows->at = reallocate(rows->at, rows->count ? rows->count * 2 : 1, sizeof *rows->at);
    struct row *row = &rows->at[rows->count];
    enum verdict verdict = read_line(row, form, line);
    if (verdict == OURS) {
        rows->count++;
        return;
    }
    free(row->directory);
    if (verdict == OTHERS)
        rows->others++;
    else
        keep_aside(rows, form, bytes, length, false);
}

void rows_parse(struct rows *rows, enum rows_form form, const char *bytes, size_t count)
{
    *rows = (struct rows){0};
    const char *at = bytes, *end = bytes + count;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (newline)
            take_line(rows, form, at, (size_t)(stop - at));
        else
            keep_aside(rows, form, at, (size_t)(stop - at), true); // cut off in the middle: what is missing may be what matters
        at = stop + 1;
    }
}

void rows_release(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free(rows->at[i].directory);
    free(rows->at);
    *rows = (struct rows){0};
}
