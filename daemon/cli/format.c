#include "daemon/cli/format.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *format_value(char out[FORMAT_MAX], double value)
{
    if (!isfinite(value) || value != floor(value) || fabs(value) >= 1e15) {
        snprintf(out, FORMAT_MAX, "%.6g", value);
        return out;
    }
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%.0f", fabs(value)), at = 0;
    if (value < 0)
        out[at++] = '-';
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

const char *format_short(char out[FORMAT_MAX], double value)
{
    snprintf(out, FORMAT_MAX, "%#.4g", value); // 4.000 below 3.997
    size_t length = strlen(out);
    if (out[length - 1] == '.')
        out[length - 1] = '\0';
    return out;
}

const char *format_rate(char out[FORMAT_MAX], double value)
{
    if (value >= 1e6)
        snprintf(out, FORMAT_MAX, "%.2fM", value / 1e6);
    else if (value >= 1e3)
        snprintf(out, FORMAT_MAX, "%.1fk", value / 1e3);
    else
        snprintf(out, FORMAT_MAX, "%.0f", value);
    return out;
}

const char *format_bytes(char out[FORMAT_MAX], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (; fabs(bytes) >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    snprintf(out, FORMAT_MAX, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

const char *format_seconds(char out[FORMAT_MAX], double seconds)
{
    if (!isfinite(seconds) || seconds < 0)
        return strcpy(out, "-");
    if (seconds > 1e12)
        seconds = 1e12;
    long long whole = (long long)(seconds + 0.5);
    if (whole >= 86400)
        snprintf(out, FORMAT_MAX, "%lldd %lldh", whole / 86400, whole % 86400 / 3600);
    else if (whole >= 3600)
        snprintf(out, FORMAT_MAX, "%lldh %02lldm", whole / 3600, whole % 3600 / 60);
    else if (whole >= 60)
        snprintf(out, FORMAT_MAX, "%lldm %02llds", whole / 60, whole % 60);
    else
        snprintf(out, FORMAT_MAX, "%llds", whole);
    return out;
}

const char *format_time(char out[FORMAT_MAX], double wall)
{
    char text[CLOCK_TEXT];
    clock_text(text, wall);
    snprintf(out, FORMAT_MAX, "%.10s %.8s UTC", text, text + 11);
    return out;
}

const char *format_json(char out[FORMAT_MAX], const struct json *number)
{
    if (js_kind(number) == JSON_KIND_NULL)
        return strcpy(out, "-");
    return format_value(out, js_real_of(number, NAN));
}

// ---- cleaning ----

enum { PLAIN, ESCAPE, SEQUENCE, TITLE, TITLE_ESCAPE }; // after ESC; inside ESC [ … ; inside ESC ] … (or P, X, ^, _); ESC inside that

// A character of two or three bytes that commands the terminal or turns the direction of writing.
static bool harmful(const unsigned char *bytes, int count)
{
    if (count == 2)
        return bytes[0] == 0xC2 && bytes[1] < 0xA0; // C1: U+0080 to U+009F
    if (count == 3 && bytes[0] == 0xE2 && bytes[1] == 0x80)
        return bytes[2] == 0x8E || bytes[2] == 0x8F || (bytes[2] >= 0xAA && bytes[2] <= 0xAE); // U+200E, 200F, 202A to 202E
    return count == 3 && bytes[0] == 0xE2 && bytes[1] == 0x81 && bytes[2] >= 0xA6 && bytes[2] <= 0xA9; // U+2066 to U+2069
}

// Bytes from 0x80 up: held until the character is whole, so that it can be judged. A broken one is replaced.
static void clean_wide(struct cleaner *cleaner, struct text *out, unsigned char byte)
{
    bool continues = (byte & 0xC0) == 0x80;
    if (continues != (cleaner->held_count > 0)) {
        text_add(out, "\xEF\xBF\xBD");
        cleaner->held_count = 0;
        if (continues)
            return;
    }
    if (byte >= 0xF8) {
        text_add(out, "\xEF\xBF\xBD");
        return;
    }
    int have = cleaner->held_count, want = (have ? cleaner->held[0] : byte) >= 0xF0 ? 4 : (have ? cleaner->held[0] : byte) >= 0xE0 ? 3 : 2;
    if (have + 1 < want) {
        cleaner->held[cleaner->held_count++] = byte;
        return;
    }
    unsigned char whole[4];
    memcpy(whole, cleaner->held, sizeof cleaner->held);
    whole[have] = byte;
    if (!harmful(whole, want))
        text_add_bytes(out, whole, (size_t)want);
    cleaner->held_count = 0;
}

static void clean_plain(struct cleaner *cleaner, struct text *out, unsigned char byte)
{
    if (byte >= 0x80) {
        clean_wide(cleaner, out, byte);
        return;
    }
    if (cleaner->held_count) {
        text_add(out, "\xEF\xBF\xBD");
        cleaner->held_count = 0;
    }
    if (byte == 0x1B)
        cleaner->state = ESCAPE;
    else if (byte == '\r')
        cleaner->carriage = true;
    else if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7F))
        text_add_bytes(out, &byte, 1);
}

void clean_bytes(struct cleaner *cleaner, struct text *out, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (cleaner->carriage && byte != '\r') {
            cleaner->carriage = false;
            if (byte != '\n')
                text_add(out, "\n");
        }
        switch (cleaner->state) {
        case PLAIN:
            clean_plain(cleaner, out, byte);
            break;
        case ESCAPE:
            cleaner->state = byte == '[' ? SEQUENCE : strchr("]PX^_", byte) && byte ? TITLE : byte >= 0x20 && byte < 0x30 ? ESCAPE : PLAIN;
            break;
        case SEQUENCE:
            if ((byte >= 0x40 && byte < 0x7F) || byte == '\n')
                cleaner->state = PLAIN;
            break;
        case TITLE:
            cleaner->state = byte == 0x07 || byte == '\n' ? PLAIN : byte == 0x1B ? TITLE_ESCAPE : TITLE;
            break;
        default:
            cleaner->state = byte == '\\' || byte == '\n' ? PLAIN : TITLE;
        }
    }
}

char *clean_line(const char *string)
{
    struct cleaner cleaner = {0};
    struct text text;
    text_init(&text, 1 << 20);
    clean_bytes(&cleaner, &text, string, strlen(string));
    for (size_t i = 0; i < text.length; i++)
        if (text.at[i] == '\n' || text.at[i] == '\t')
            text.at[i] = ' ';
    return text_take(&text);
}
