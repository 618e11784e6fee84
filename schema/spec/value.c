// One scalar into one member of struct spec, by the type of its row: never by how the scalar looks. Every refusal says what was expected,
// what was found and, for the usual slips, why it is not taken. Strings and lists are in value_text.c.
#include "schema/spec/check.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool value_refuse(struct check *check, const struct field *field, const struct node *node, const char *why)
{
    struct text wanted;
    text_init(&wanted, 4096);
    field_expectation(&wanted, field);
    char found[64];
    if (node->kind == NODE_LIST && field->type == FIELD_SPLIT)
        snprintf(found, sizeof found, "%zu", node->count);
    else if (node->kind != NODE_SCALAR)
        snprintf(found, sizeof found, "%s", node->kind == NODE_MAP ? "a map" : "a list");
    else if (node_is_null(node))
        snprintf(found, sizeof found, "nothing");
    else
        snprintf(found, sizeof found, "%s%.50s%s", node->plain ? "`" : "the string `", node->text, "`");
    problem_at(check->problems, node, "`%s` expects %s, not %s%s%s", field->path, wanted.at, found, why ? ": " : "", why ? why : "");
    text_release(&wanted);
    return false;
}

// ---- numbers ----

static size_t digits(const char *at)
{
    return strspn(at, "0123456789");
}

// YAML 1.2 core's float: [-+]? ( [0-9]+ ( . [0-9]* )? | . [0-9]+ ) ( [eE] [-+]? [0-9]+ )?. Returns its length, 0 if it is none.
static size_t number_length(const char *text)
{
    const char *at = text + (*text == '-' || *text == '+');
    size_t whole = digits(at), fraction = 0;
    at += whole;
    if (*at == '.') {
        fraction = digits(at + 1);
        at += 1 + fraction;
    }
    if (whole + fraction == 0)
        return 0;
    if (*at == 'e' || *at == 'E') {
        const char *power = at + 1 + (at[1] == '-' || at[1] == '+');
        if (digits(power))
            at = power + digits(power);
    }
    return (size_t)(at - text);
}

static const char *why_not_number(const char *text, bool whole)
{
    const char *at = text + (*text == '-' || *text == '+');
    if (at[0] == '0' && (at[1] == 'o' || at[1] == 'x'))
        return "write it as a decimal number";
    if (at[0] == '0' && isdigit((unsigned char)at[1]) && whole)
        return "a leading zero is octal to some readers and decimal to others; write it without";
    if (isdigit((unsigned char)at[0]) && strchr(at, '_'))
        return "YAML 1.2 has no `_` in numbers";
    if (isdigit((unsigned char)at[0]) && strchr(at, ':'))
        return "YAML 1.2 has no numbers to the base of 60";
    if (strcasecmp(at, ".nan") == 0 || strcasecmp(at, ".inf") == 0 || strcasecmp(at, "nan") == 0 || strcasecmp(at, "inf") == 0)
        return "only finite numbers are taken";
    if (whole && number_length(text) && text[number_length(text)] == 0)
        return "write it with digits only";
    if (at[0] == '$')
        return "variables are replaced in strings only";
    if (strchr(at, ','))
        return "one number stands here; `sweep: {grid: {KEY: [VALUE, …]}}` tries several";
    return NULL;
}

static bool in_range(const struct field *field, double value)
{
    if (field->least == 0 && field->most == 0)
        return true;
    bool high_enough = field->open & OPEN_LEAST ? value > field->least : value >= field->least;
    bool low_enough = field->open & OPEN_MOST ? value < field->most : value <= field->most;
    return high_enough && low_enough;
}

bool value_integer(struct check *check, const struct field *field, const struct node *node, int64_t *number)
{
    if (node->kind != NODE_SCALAR || node_is_null(node))
        return value_refuse(check, field, node, NULL);
    const char *text = node->text, *at = text + (*text == '-' || *text == '+');
    if (!node->plain && number_length(text) && !text[number_length(text)])
        return value_refuse(check, field, node, "numbers stand without quotes");
    if (!node->plain || !*at || at[digits(at)] || (at[0] == '0' && at[1]))
        return value_refuse(check, field, node, why_not_number(text, true));
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno || !in_range(field, (double)value))
        return value_refuse(check, field, node, NULL);
    *number = value;
    return true;
}

// A number alone, for number fields and the parts of lists.
bool value_number(double *value, const struct node *node)
{
    if (node->kind != NODE_SCALAR || !node->plain || !number_length(node->text) || node->text[number_length(node->text)])
        return false;
    *value = strtod(node->text, NULL);
    return isfinite(*value);
}

static bool convert_number(struct check *check, const struct field *field, const struct node *node)
{
    double value;
    if (!node->plain && number_length(node->text) && !node->text[number_length(node->text)])
        return value_refuse(check, field, node, "numbers stand without quotes");
    if (!value_number(&value, node))
        return value_refuse(check, field, node, why_not_number(node->text, false));
    if (!in_range(field, value))
        return value_refuse(check, field, node, NULL);
    *(double *)field_at(field, check->spec) = value;
    return true;
}

static bool convert_boolean(struct check *check, const struct field *field, const struct node *node)
{
    static const struct { const char *word; int value; const char *why; } words[] = {
        {"true", 1, NULL}, {"True", 1, NULL}, {"TRUE", 1, NULL}, {"false", 0, NULL}, {"False", 0, NULL}, {"FALSE", 0, NULL},
        {"yes", -1, "write `true`"}, {"on", -1, "write `true`"}, {"y", -1, "write `true`"}, {"1", -1, "write `true`"},
        {"no", -1, "write `false`"}, {"off", -1, "write `false`"}, {"n", -1, "write `false`"}, {"0", -1, "write `false`"}};
    if (!node->plain)
        return value_refuse(check, field, node, "`true` and `false` stand without quotes");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].value >= 0 && strcmp(node->text, words[i].word) == 0) {
            *(bool *)field_at(field, check->spec) = words[i].value == 1;
            return true;
        }
        if (words[i].value < 0 && strcasecmp(node->text, words[i].word) == 0)
            return value_refuse(check, field, node, words[i].why);
    }
    return value_refuse(check, field, node, NULL);
}

// ---- units ----

struct unit {
    const char *name;
    double factor;
};

static const struct unit sizes[] = {{"B", 1}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 1024},
    {"MiB", 1048576}, {"GiB", 1073741824}, {"TiB", 1099511627776.0}, {NULL, 0}};
static const struct unit times[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0}};

// One number and its unit from the front of *at; blanks may part them.
static bool take_quantity(const char **at, const struct unit *units, double *value)
{
    size_t length = number_length(*at);
    if (!length)
        return false;
    char *number = string_format("%.*s", (int)length, *at);
    double amount = strtod(number, NULL);
    free(number);
    const char *name = *at + length + strspn(*at + length, " ");
    size_t letters = 0;
    while (isalpha((unsigned char)name[letters]))
        letters++;
    for (; units->name; units++) {
        if (strlen(units->name) == letters && strncmp(units->name, name, letters) == 0) {
            *value = amount * units->factor;
            *at = name + letters + strspn(name + letters, " ");
            return true;
        }
    }
    return false;
}

bool spec_size(const char *text, int64_t *bytes)
{
    double value = 0;
    const char *at = text;
    if (!take_quantity(&at, sizes, &value) || *at || value != floor(value) || !(value <= 0x1p53))
        return false;
    *bytes = (int64_t)value;
    return true;
}

static bool convert_bytes(struct check *check, const struct field *field, const struct node *node)
{
    double value = 0;
    const char *at = node->text;
    bool good = node->source && node->source->json ? value_number(&value, node) : take_quantity(&at, sizes, &value) && !*at;
    if (!good) {
        size_t length = number_length(node->text);
        const char *rest = node->text + length;
        const char *why = length && !*rest ? "the unit is missing" : NULL;
        if (!field->standard && !field->required && strcmp(node->text, "0") == 0)
            why = "without the key there is no limit";
        if (length && (strcasecmp(rest, "g") == 0 || strcasecmp(rest, "gb") == 0 || strcasecmp(rest, "gib") == 0))
            why = "GB is 10^9 bytes, GiB is 2^30";
        else if (length && (strcasecmp(rest, "m") == 0 || strcasecmp(rest, "mb") == 0 || strcasecmp(rest, "mib") == 0))
            why = "MB is 10^6 bytes, MiB is 2^20";
        return value_refuse(check, field, node, why);
    }
    if (value != floor(value))
        return value_refuse(check, field, node, "not a whole number of bytes");
    if (!in_range(field, value))
        return value_refuse(check, field, node, "out of range");
    *(int64_t *)field_at(field, check->spec) = (int64_t)value;
    return true;
}

// sbatch's [DAYS-]HOURS:MINUTES:SECONDS as it is written here: 1-00:30:00 is 1d30m. NULL where it is none, or might be read another way
// (90:00). free()
static char *clock_as_units(const char *text)
{
    static const char units[] = "dhms";
    const char *dash = strchr(text, '-');
    double parts[4] = {0};
    size_t count = dash ? 0 : 1;
    for (const char *at = text; count < 4; count++) {
        size_t length = digits(at);
        char end = at[length];
        if (!length || length > 9 || (end && end != (count == 0 ? '-' : ':')))
            return NULL;
        parts[count] = strtod(at, NULL);
        at += length + (end != 0);
        if (!end)
            break;
    }
    struct text written;
    text_init(&written, 64);
    for (size_t i = 0; i < 4; i++)
        if (parts[i] > 0)
            text_addf(&written, "%.0f%c", parts[i], units[i]);
    if ((dash || count == 3) && count < 4 && written.length)
        return text_take(&written);
    text_release(&written);
    return NULL;
}

static bool refuse_duration(struct check *check, const struct field *field, const struct node *node)
{
    const char *text = node->text;
    size_t length = number_length(text);
    char *units = clock_as_units(text);
    char *why = units ? string_format("write `%s`", units) : NULL;
    const char *plain = *text == '-' ? "a time is not negative" : length && !text[length] ? "the unit is missing"
        : strchr(text, ':') ? "write hours and minutes with their letters" : NULL;
    if (!field->standard && (strcasecmp(text, "unlimited") == 0 || strcasecmp(text, "infinite") == 0 || strcasecmp(text, "none") == 0))
        plain = "without the key there is no limit";
    value_refuse(check, field, node, why ? why : plain);
    free(why);
    free(units);
    return false;
}

static bool convert_duration(struct check *check, const struct field *field, const struct node *node)
{
    double total = 0, part = 0;
    const char *at = node->text;
    bool good = *at != 0;
    if (node->source && node->source->json) {
        good = value_number(&total, node);
    } else {
        for (; good && *at; total += part)
            good = take_quantity(&at, times, &part);
    }
    if (!good)
        return refuse_duration(check, field, node);
    if (!in_range(field, total))
        return value_refuse(check, field, node, "out of range");
    *(double *)field_at(field, check->spec) = total;
    return true;
}

static bool convert_share(struct check *check, const struct field *field, const struct node *node)
{
    size_t length = number_length(node->text);
    const char *rest = node->text + length;
    double value = 0;
    if (!length || (*rest && strcmp(rest, "%") != 0 && strcmp(rest, " %") != 0))
        return value_refuse(check, field, node, NULL);
    char *number = string_format("%.*s", (int)length, node->text);
    value = strtod(number, NULL) / (*rest ? 100 : 1);
    free(number);
    if (!(value >= 0 && value <= 1))
        return value_refuse(check, field, node, *rest ? "more than 100% or less than 0%" : "90% is 0.9");
    *(double *)field_at(field, check->spec) = value;
    return true;
}

// ---- by type ----

// A list where one value belongs: words that one option takes side by side, or values that a sweep would try.
static bool refuse_list(struct check *check, const struct field *field, const struct node *list)
{
    struct text why;
    text_init(&why, 1024);
    bool words = field->letters && strchr(field->letters, ',');
    for (size_t i = 0; i < list->count && words; i++) {
        words = list->items[i]->kind == NODE_SCALAR;
        text_addf(&why, "%s%.60s", i ? "," : "write `", words ? list->items[i]->text : "");
    }
    if (words && list->count && !why.overflowed) {
        text_add(&why, "`");
    } else {
        text_clear(&why);
        if (check->states && list->count > 1) // a file's own key
            text_addf(&why, "to try them in turn write `sweep: {grid: {%s: […]}}`", field->path);
    }
    value_refuse(check, field, list, why.length && !why.overflowed ? why.at : NULL);
    text_release(&why);
    return false;
}

bool value_convert(struct check *check, const struct field *field, const struct node *node)
{
    bool scalar = field->type != FIELD_STRINGS && field->type != FIELD_INTEGERS && field->type != FIELD_PAIRS && field->type != FIELD_SPLIT &&
        field->type != FIELD_LOSSES;
    if (scalar && node->kind == NODE_LIST)
        return refuse_list(check, field, node);
    if (scalar && (node->kind != NODE_SCALAR || node_is_null(node)))
        return value_refuse(check, field, node, NULL);
    switch (field->type) {
    case FIELD_INTEGER:
        return value_integer(check, field, node, field_at(field, check->spec));
    case FIELD_NUMBER:
        return convert_number(check, field, node);
    case FIELD_BOOLEAN:
        return convert_boolean(check, field, node);
    case FIELD_BYTES:
        return convert_bytes(check, field, node);
    case FIELD_DURATION:
        return convert_duration(check, field, node);
    case FIELD_SHARE:
        return convert_share(check, field, node);
    default:
        return value_convert_text(check, field, node);
    }
}
