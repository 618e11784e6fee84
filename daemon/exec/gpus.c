#include "daemon/exec/gpus.h"
#include "schema/base/text.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A number, or an identifier (GPU-…, MIG-…).
static bool is_gpu_word(const char *word, size_t length)
{
    if (length == 0 || length >= GPU_WORD_MAX || !isalnum((unsigned char)word[0]))
        return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)word[i]) && !strchr("-/_", word[i]))
            return false;
    return true;
}

static bool has_word(const struct gpus *gpus, const char *word)
{
    for (size_t i = 0; i < gpus->count; i++)
        if (strcmp(gpus->words[i], word) == 0)
            return true;
    return false;
}

// False: it cannot be used, or is there already, or there is no more room.
static bool add_word(struct gpus *gpus, const char *word, size_t length)
{
    char copy[GPU_WORD_MAX];
    if (gpus->count >= GPUS_MAX || !is_gpu_word(word, length))
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length, word);
    if (has_word(gpus, copy))
        return false;
    memcpy(gpus->words[gpus->count++], copy, sizeof copy);
    return true;
}

void gpus_declare(struct gpus *gpus, int64_t count)
{
    assert(count >= 0 && count <= GPUS_MAX);
    *gpus = (struct gpus){0};
    for (int64_t i = 0; i < count; i++)
        snprintf(gpus->words[gpus->count++], GPU_WORD_MAX, "%d", (int)i);
}

static int64_t count_devices(const char *directory)
{
    DIR *devices = opendir(directory);
    int64_t count = 0;
    struct dirent *entry;
    while (devices && (entry = readdir(devices)))
        if (strncmp(entry->d_name, "nvidia", 6) == 0 && entry->d_name[6] && strspn(entry->d_name + 6, "0123456789") == strlen(entry->d_name + 6))
            count++;
    if (devices)
        closedir(devices);
    return count < GPUS_MAX ? count : GPUS_MAX;
}

void gpus_look(struct gpus *gpus, const char *devices, const char *visible)
{
    if (!visible) {
        gpus_declare(gpus, count_devices(devices));
        return;
    }
    *gpus = (struct gpus){0};
    for (const char *at = visible;;) {
        size_t length = strcspn(at, ",");
        if (!add_word(gpus, at, length) || !at[length])
            return;
        at += length + 1;
    }
}

void gpus_remove(struct gpus *gpus, const struct gpus *other)
{
    size_t kept = 0;
    for (size_t i = 0; i < gpus->count; i++)
        if (!has_word(other, gpus->words[i]))
            memmove(gpus->words[kept++], gpus->words[i], GPU_WORD_MAX);
    gpus->count = kept;
}

void gpus_take(struct gpus *taken, const struct gpus *free, int64_t count)
{
    assert(count >= 0 && (size_t)count <= free->count);
    *taken = *free;
    taken->count = (size_t)count;
}

char *gpus_text(const struct gpus *gpus)
{
    struct text text;
    text_init(&text, GPUS_MAX * GPU_WORD_MAX);
    for (size_t i = 0; i < gpus->count; i++)
        text_addf(&text, "%s%s", i ? "," : "", gpus->words[i]);
    return text_take(&text);
}

struct json *gpus_to_json(const struct gpus *gpus)
{
    struct json *list = js_array();
    for (size_t i = 0; i < gpus->count; i++)
        js_append(list, js_string(gpus->words[i]));
    return list;
}

int gpus_from_json(struct gpus *gpus, const struct json *json, struct error *err)
{
    *gpus = (struct gpus){0};
    for (size_t i = 0; i < js_count(json); i++) {
        const char *word = js_string_of(js_at(json, i), "");
        if (!add_word(gpus, word, strlen(word)))
            return error_set(err, "not a list of GPUs: '%.80s'", word);
    }
    return 0;
}
