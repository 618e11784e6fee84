#include "worker/infer/options.h"
#include "schema/record/layout.h"
#include "schema/spec/spec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A limit that nobody means (OPTION_WHOLE_MOST) is named only to who is beyond it.
static int refuse_number(const struct option_row *row, const char *text, bool too_large, struct error *err)
{
    if (row->kind == OPTION_SIZE)
        return error_set(err, "%s wants a size, such as 5GB, 2GiB or a number of bytes, not '%s'", row->name, text);
    if (row->kind == OPTION_REAL)
        return error_set(err, "%s wants a number from %.15g to %.15g, not '%s'", row->name, row->least, row->most, text);
    if (row->most < OPTION_WHOLE_MOST)
        return error_set(err, "%s wants a whole number from %.0f to %.0f, not '%s'", row->name, row->least, row->most, text);
    return error_set(err, "%s wants a whole number of at %s %.0f, not '%s'", row->name, too_large ? "most" : "least",
        too_large ? row->most : row->least, text);
}

static int take_number(const struct option_row *row, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    double real = row->kind == OPTION_REAL ? strtod(text, &end) : 0;
    long long whole = row->kind != OPTION_REAL ? strtoll(text, &end, 10) : 0;
    int64_t size;
    if (row->kind == OPTION_SIZE && spec_size(text, &size)) {
        whole = size;
        end = strchr(text, '\0');
    }
    double value = row->kind == OPTION_REAL ? real : (double)whole;
    if (errno || end == text || *end || !(value >= row->least && value <= row->most))
        return refuse_number(row, text, errno == ERANGE || value > row->most, err);
    if (row->kind == OPTION_REAL)
        *(double *)row->at = real;
    else
        *(int64_t *)row->at = whole;
    return 0;
}

// The option at argv[at]; returns how many words it used, or -1.
static int take_option(const struct option_row *rows, int argc, char **argv, int at, struct error *err)
{
    size_t length = strcspn(argv[at], "=");
    const struct option_row *row = rows;
    while (row->name && (strlen(row->name) != length || strncmp(row->name, argv[at], length) != 0))
        row++;
    const char *value = argv[at][length] ? argv[at] + length + 1 : NULL;
    if (!row->name)
        return error_set(err, "no option %.*s", (int)length, argv[at]);
    if (row->kind == OPTION_FLAG) {
        *(bool *)row->at = true;
        return value ? error_set(err, "%s takes no value", row->name) : 1;
    }
    int used = value ? 1 : 2;
    if (!value && at + 1 == argc)
        return error_set(err, "%s needs a value", row->name);
    if (!value)
        value = argv[at + 1];
    if (row->kind == OPTION_TEXT)
        *(const char **)row->at = value;
    else if (take_number(row, value, err) != 0)
        return -1;
    return used;
}

static int read_all(const struct option_row *rows, const char **words, int count, int argc, char **argv, const char *usage, struct error *err)
{
    int taken = 0;
    bool words_only = false;
    for (int at = 0; at < argc;) {
        if (!words_only && strcmp(argv[at], "--") == 0) {
            words_only = true;
            at++;
        } else if (!words_only && (strncmp(argv[at], "--", 2) == 0 || strcmp(argv[at], "-o") == 0)) {
            int used = take_option(rows, argc, argv, at, err);
            if (used < 0)
                return -1;
            at += used;
        } else if (taken == count) {
            return error_set(err, "one word too many: %s", argv[at]);
        } else {
            words[taken++] = argv[at++];
        }
    }
    return taken == count ? 0 : error_set(err, "%d of %d words are missing: %.*s", count - taken, count, (int)strcspn(usage, "\n"), usage);
}

int options_command(const char *usage, const struct option_row *rows, const char **words, int count, int argc, char **argv)
{
    struct error err = {0};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("usage: %s %s", program_invocation_short_name, usage);
            return EXIT_DONE;
        }
    if (read_all(rows, words, count, argc, argv, usage, &err) == 0)
        return -1;
    return complain(&err, EXIT_BAD_INPUT);
}

int complain(const struct error *err, int code)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err->text);
    return code;
}
