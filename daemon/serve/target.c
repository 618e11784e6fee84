#include "daemon/serve/target.h"
#include "schema/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool plain(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_' ||
        byte == '.';
}

bool target_is_name(const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i < length; i++)
        if (!plain(word[i]) || word[i] == '.')
            return false;
    return length >= 1 && length <= 64;
}

// Cuts path (which begins with '/') at its slashes.
static int split_path(struct target *target, char *path, struct error *err)
{
    if (path[1] == '\0')
        return 0;
    for (char *at = path; at;) {
        char *word = at + 1;
        at = strchr(word, '/');
        if (at)
            *at = '\0';
        if (word[0] == '\0' || word[0] == '.')
            return error_set(err, "the path has an empty part, or one that begins with a dot");
        for (const char *byte = word; *byte; byte++)
            if (!plain(*byte))
                return error_set(err, "the path has a byte other than letters, digits, '-', '_' and '.'");
        if (target->segment_count == TARGET_SEGMENTS_MAX)
            return error_set(err, "the path has more than %d parts", TARGET_SEGMENTS_MAX);
        target->segments[target->segment_count++] = word;
    }
    return 0;
}

static int hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte = (char)tolower((unsigned char)byte);
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

// Decodes %XX and '+' in place, once.
static int decode(char *word, struct error *err)
{
    char *out = word;
    for (const char *at = word; *at; at++) {
        if (*at == '%') {
            int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);
            if (low < 0)
                return error_set(err, "the query has a '%%' without two hexadecimal digits");
            if (high == 0 && low == 0)
                return error_set(err, "the query has a NUL");
            *out++ = (char)(high * 16 + low);
            at += 2;
        } else {
            *out++ = (char)(*at == '+' ? ' ' : *at);
        }
    }
    *out = '\0';
    return 0;
}

static int split_query(struct target *target, char *query, struct error *err)
{
    for (char *at = query; at && *at;) {
        char *name = at;
        at = strchr(name, '&');
        if (at)
            *at++ = '\0';
        if (!*name)
            continue;
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        if (target->argument_count == TARGET_ARGUMENTS_MAX)
            return error_set(err, "the query has more than %d arguments", TARGET_ARGUMENTS_MAX);
        if (decode(name, err) != 0 || (value && decode(value, err) != 0))
            return -1;
        target->arguments[target->argument_count++] = (struct target_argument){name, value ? value : ""};
    }
    return 0;
}

int target_parse(struct target *target, const char *raw, struct error *err)
{
    *target = (struct target){0};
    size_t length = strlen(raw);
    if (length > TARGET_BYTES_MAX)
        return error_set(err, "the address is longer than %d bytes", TARGET_BYTES_MAX);
    if (raw[0] != '/')
        return error_set(err, "the address does not begin with '/'");
    target->words = string_copy(raw);
    char *query = strchr(target->words, '?');
    if (query)
        *query++ = '\0';
    target->path = string_copy(target->words);
    if (split_path(target, target->words, err) != 0)
        return -1;
    return query ? split_query(target, query, err) : 0;
}

void target_release(struct target *target)
{
    free(target->path);
    free(target->words);
    *target = (struct target){0};
}

const char *target_argument(const struct target *target, const char *name)
{
    for (size_t i = 0; i < target->argument_count; i++)
        if (strcmp(target->arguments[i].name, name) == 0)
            return target->arguments[i].value;
    return NULL;
}

int target_integer(int64_t *value, const struct target *target, const char *name, int64_t fallback, int64_t low, int64_t high,
    struct error *err)
{
    const char *word = target_argument(target, name);
    *value = fallback;
    if (!word)
        return 0;
    char *end = NULL;
    errno = 0;
    long long number = strtoll(word, &end, 10);
    if (end == word || *end || errno || isspace((unsigned char)word[0]) || number < low || number > high)
        return error_set(err, "%s must be an integer from %lld to %lld", name, (long long)low, (long long)high);
    *value = number;
    return 0;
}
