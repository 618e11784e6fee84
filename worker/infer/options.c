#include "worker/infer/options.h"
#include "schema/record/layout.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int take_number(const struct option_row *row, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    double real = row->kind == OPTION_REAL ? strtod(text, &end) : 0;
    long long whole = row->kind == OPTION_WHOLE ? strtoll(text, &end, 10) : 0;
    double value = row->kind == OPTION_REAL ? real : (double)whole;
    if (errno || end == text || *end || !(value >= row->least && value <= row->most))
        return error_set(err, "%s wants a %snumber from %.15g to %.15g, not '%s'", row->name, row->kind == OPTION_WHOLE ? "whole " : "", row->least,
            row->most, text);
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

int options_read(const struct option_row *rows, const char **words, int count, int argc, char **argv, struct error *err)
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
    return taken == count ? 0 : error_set(err, "%d of %d words are missing", count - taken, count);
}

int options_command(const char *usage, const struct option_row *rows, const char **words, int count, int argc, char **argv)
{
    struct error err = {0};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("usage: switchyard-worker %s", usage);
            return EXIT_DONE;
        }
    if (options_read(rows, words, count, argc, argv, &err) == 0)
        return -1;
    fprintf(stderr, "switchyard-worker: %s\nusage: switchyard-worker %s", err.text, usage);
    return EXIT_BAD_INPUT;
}

int complain(const struct error *err, int code)
{
    fprintf(stderr, "switchyard-worker: %s\n", err->text);
    return code;
}
