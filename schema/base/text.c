#include "schema/base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void out_of_memory(size_t bytes)
{
    fprintf(stderr, "out of memory: %zu bytes wanted\n", bytes);
    abort();
}

void *allocate(size_t count, size_t size)
{
    void *block = calloc(count ? count : 1, size ? size : 1);
    if (!block)
        out_of_memory(count * size);
    return block;
}

void *reallocate(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory(SIZE_MAX);
    void *block = realloc(old, bytes ? bytes : 1);
    if (!block)
        out_of_memory(bytes);
    return block;
}

char *string_copy(const char *string)
{
    if (!string)
        return NULL;
    size_t bytes = strlen(string) + 1;
    return memcpy(allocate(bytes, 1), string, bytes);
}

char *string_format(const char *format, ...)
{
    char *string = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&string, format, args) < 0)
        out_of_memory(0);
    va_end(args);
    return string;
}

void text_init(struct text *text, size_t limit)
{
    *text = (struct text){.at = allocate(64, 1), .capacity = 64, .limit = limit};
}

void text_release(struct text *text)
{
    free(text->at);
    *text = (struct text){0};
}

void text_clear(struct text *text)
{
    text->length = 0;
    text->at[0] = 0;
    text->overflowed = false;
}

void text_add_bytes(struct text *text, const void *bytes, size_t count)
{
    if (count > text->limit - text->length) {
        count = text->limit - text->length;
        text->overflowed = true;
    }
    if (text->length + count + 1 > text->capacity) {
        text->capacity = (text->length + count + 1) * 2;
        text->at = reallocate(text->at, text->capacity, 1);
    }
    if (count)
        memcpy(text->at + text->length, bytes, count);
    text->length += count;
    text->at[text->length] = 0;
}

void text_add(struct text *text, const char *string)
{
    text_add_bytes(text, string, strlen(string));
}

void text_addf(struct text *text, const char *format, ...)
{
    char small[256];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int count = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (count >= 0 && (size_t)count < sizeof small) {
        text_add_bytes(text, small, (size_t)count);
    } else {
        char *large = NULL;
        if (vasprintf(&large, format, again) < 0)
            out_of_memory(0);
        text_add(text, large);
        free(large);
    }
    va_end(again);
}

char *text_take(struct text *text)
{
    char *string = text->at;
    *text = (struct text){0};
    return string;
}

uint64_t string_hash(const char *string)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (; *string; string++)
        hash = (hash ^ (unsigned char)*string) * UINT64_C(0x100000001B3);
    return hash;
}

size_t utf8_length(const char *bytes)
{
    const unsigned char *at = (const unsigned char *)bytes;
    if (at[0] < 0x80)
        return 1;
    size_t length = at[0] >= 0xC2 && at[0] <= 0xDF ? 2 : (at[0] & 0xF0) == 0xE0 ? 3 : at[0] >= 0xF0 && at[0] <= 0xF4 ? 4 : 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) || (at[0] == 0xF0 && at[1] < 0x90) ||
        (at[0] == 0xF4 && at[1] > 0x8F))
        return 0;
    return length;
}
