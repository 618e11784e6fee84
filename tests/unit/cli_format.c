// What a terminal gets to see: numbers in words, and bytes of unknown origin with their commands taken out.
#include "daemon/cli/format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// The cleaned text of input given in pieces of `piece` bytes.
static char *cleaned(const char *input, size_t piece)
{
    struct cleaner cleaner = {0};
    struct text out;
    text_init(&out, 1 << 16);
    for (size_t at = 0, length = strlen(input); at < length; at += piece)
        clean_bytes(&cleaner, &out, input + at, at + piece < length ? piece : length - at);
    return text_take(&out);
}

static void escapes_are_taken_out(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"plain\ttext\n", "plain\ttext\n"},
        {"\x1b[31mred\x1b[0m", "red"},
        {"\x1b[2J\x1b[1;1Hgone", "gone"},
        {"\x1b]0;title\x07" "after", "after"},
        {"\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"},
        {"\x1bPq#0\x1b\\sixel", "sixel"},
        {"\x1b(Bset", "set"},
        {"a\bb\x7f\x01" "c", "abc"},
        {"10 %\r20 %\r\n30 %\r\r\n", "10 %\n20 %\n30 %\n"},
        {"\xC2\x9B" "31mC1", "31mC1"},
        {"right\xE2\x80\xAEtfel", "righttfel"},
        {"iso\xE2\x81\xA6late", "isolate"},
        {"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"broken \xC3(", "broken \xEF\xBF\xBD("},
        {"lone \x80 byte \xFF", "lone \xEF\xBF\xBD byte \xEF\xBF\xBD"},
        {"\x1b[31\nline", "line"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (size_t piece = 1; piece < 6; piece++) {
            char *got = cleaned(pairs[i][0], piece);
            assert_string_equal(got, pairs[i][1]);
            free(got);
        }
}

static void lines_stay_one_line(void **state)
{
    (void)state;
    char *line = clean_line("a\nb\x1b[1mc\td");
    assert_string_equal(line, "a bc d");
    free(line);
}

static void numbers(void **state)
{
    (void)state;
    char out[FORMAT_MAX];
    assert_string_equal(format_value(out, 1380352), "1,380,352");
    assert_string_equal(format_value(out, -999), "-999");
    assert_string_equal(format_value(out, -1000), "-1,000");
    assert_string_equal(format_value(out, 0), "0");
    assert_string_equal(format_value(out, 0.0030000001), "0.003");
    assert_string_equal(format_value(out, NAN), "nan");
    assert_string_equal(format_rate(out, 34130), "34.1k");
    assert_string_equal(format_short(out, 3.9999), "4.000");
    assert_string_equal(format_short(out, 3.9974), "3.997");
    assert_string_equal(format_short(out, 1234.5), "1234");
    assert_string_equal(format_rate(out, 12), "12");
    assert_string_equal(format_bytes(out, 100663296), "96.0 MiB");
    assert_string_equal(format_bytes(out, 12), "12 B");
    assert_string_equal(format_seconds(out, 80), "1m 20s");
    assert_string_equal(format_seconds(out, 7265), "2h 01m");
    assert_string_equal(format_seconds(out, NAN), "-");
    assert_string_equal(format_seconds(out, INFINITY), "-");
    assert_string_equal(format_time(out, 1795997277.02), "2026-11-30 00:07:57 UTC");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_are_taken_out),
        cmocka_unit_test(lines_stay_one_line),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
