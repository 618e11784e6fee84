// squeue's and sacct's lines: as the real ones print them, and everything that they should never print.
#include "daemon/exec/slurm/rows.h"
#include "schema/base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TAG "0123456789abcdef0123456789abcdef"
#define FULL(id, state, code, restarts, start, used, nodes, reason, comment, name, directory) \
    id "\x1f" state "\x1f" code "\x1f" restarts "\x1f" start "\x1f" used "\x1f" nodes "\x1f" reason "\x1f" comment "\x1f" name "\x1f" directory "\n"
#define MARK "switchyard:" TAG ":3"
#define GOOD FULL("17", "RUNNING", "0", "2", "1796023116", "1-02:03:04", "n[1-2]", "None", MARK, "demo.moe-1", "/runs/demo/moe-1")

static struct rows parsed(enum rows_form form, const char *text)
{
    struct rows rows;
    rows_parse(&rows, form, text, strlen(text));
    return rows;
}

static void test_full(void **state)
{
    (void)state;
    struct rows rows = parsed(ROWS_FULL,
        GOOD FULL("18", "PENDING", "0", "0", "N/A", "0:00", "", "JobHeldUser", MARK, "demo.moe-1", "/a")
            FULL("19_4", "FAILED", "768", "0", "1796023116", "12:34", "n1", "NonZeroExitCode", MARK, "x", "/a")
                FULL("20", "FAILED", "9", "0", "1796023116", "0:01", "n1", "RaisedSignal:9(Killed)", MARK, "x", "/a"));
    assert_int_equal(rows.malformed, 0);
    assert_int_equal(rows.count, 4);
    const struct row *row = &rows.at[0];
    assert_string_equal(row->id, "17");
    assert_string_equal(row->word->word, "RUNNING");
    assert_string_equal(row->tag, TAG);
    assert_int_equal(row->submission, 3);
    assert_int_equal(row->restarts, 2);
    assert_true(row->starts == 1796023116.0);
    assert_true(row->used == 86400 + 2 * 3600 + 3 * 60 + 4);
    assert_string_equal(row->nodes, "n[1-2]");
    assert_string_equal(row->reason, "None");
    assert_string_equal(row->name, "demo.moe-1");
    assert_string_equal(row->directory, "/runs/demo/moe-1");
    assert_true(rows.at[1].starts == 0 && rows.at[1].used == 0);
    assert_string_equal(rows.at[2].id, "19_4");
    assert_int_equal(rows.at[2].code, 3);
    assert_int_equal(rows.at[2].signal, 0);
    assert_true(rows.at[2].used == 12 * 60 + 34);
    assert_int_equal(rows.at[3].code, -1);
    assert_int_equal(rows.at[3].signal, 9);
    rows_release(&rows);
}

// As recorded from Slurm 22.05.8.
static void test_plain_and_accounting(void **state)
{
    (void)state;
    struct rows rows = parsed(ROWS_PLAIN, "1\x1fRUNNING\x1f" "1796023116\x1f" "0:01\x1fn1\x1fNone\x1f" MARK "\x1fj.sh\x1f/tmp/a\n"
                                          "2\x1f" "FAILED\x1f" "1796023116\x1f" "0:00\x1fn1\x1fNonZeroExitCode\x1f(null)\x1fj.sh\x1f/tmp/a\n");
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.others, 1);
    assert_int_equal(rows.at[0].restarts, -1);
    assert_int_equal(rows.at[0].code, -1);
    rows_release(&rows);
    rows = parsed(ROWS_ACCOUNTING, "1\x1fRUNNING\x1f" "0:0\x1f" "1796023116\x1f" "1796023110\x1f" "17\x1fn1\x1f\x1fj.sh\x1f/tmp/a\n"
                                   "2\x1f" "FAILED\x1f" "3:0\x1f" "1796023116\x1f" "1796023110\x1f" "0\x1fn1\x1f\x1fj.sh\x1f/tmp/a\n"
                                   "3\x1f" "CANCELLED by 1000\x1f" "0:15\x1fUnknown\x1f" "1796023110\x1f" "0\x1fNone assigned\x1f" MARK "\x1fj.sh\x1f\n"
                                   "4\x1fOUT_OF_MEMORY\x1f" "0:125\x1fNone\x1fUnknown\x1f" "0\x1fn1\x1f\x1f\x1f\n");
    assert_int_equal(rows.malformed, 0);
    assert_int_equal(rows.count, 4);
    assert_true(rows.at[0].used == 17);
    assert_true(rows.at[0].submitted == 1796023110 && rows.at[3].submitted == 0);
    assert_int_equal(rows.at[1].code, 3);
    assert_int_equal(rows.at[2].by, 1000);
    assert_int_equal(rows.at[2].signal, 15);
    assert_string_equal(rows.at[2].nodes, "");
    assert_string_equal(rows.at[2].tag, TAG);
    assert_null(rows.at[2].directory);
    assert_int_equal(rows.at[3].signal, 0); // 125 is no signal
    assert_int_equal(rows.at[3].code, -1);
    rows_release(&rows);
}

// As recorded (tests/slurm/recorded.json): squeue has a row for each element of an array, accounting one line for all that have not begun, which is
// no job's.
static void test_arrays(void **state)
{
    (void)state;
    static const char array[] = "switchyard:array:" TAG;
    static const int64_t elements[] = {0, 2, 1, 3};
    char text[2000];
    snprintf(text, sizeof text,
        FULL("12_0", "COMPLETED", "0", "0", "1796023116", "0:00", "n1", "None", "%s", "begun", "/r")
        FULL("12_2", "CANCELLED", "15", "0", "1796023116", "0:01", "n1", "None", "%s", "begun", "/r")
        FULL("13_1", "CANCELLED", "0", "0", "1796023116", "0:00", "", "JobHeldUser", "%s", "unbegun", "/r")
        FULL("14_3", "PENDING", "0", "0", "N/A", "0:00", "", "JobHeldUser", "%s", "waiting", "/r"), array, array, array, array);
    struct rows rows = parsed(ROWS_FULL, text);
    assert_int_equal(rows.malformed, 0);
    assert_int_equal(rows.count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rows.at[i].element, elements[i]);
        assert_string_equal(rows.at[i].array, TAG);
        assert_string_equal(rows.at[i].tag, ""); // whose it is, its array's list says
    }
    assert_int_equal(rows.at[1].signal, 15);
    assert_int_equal(rows.at[2].word->end, END_CANCELLED);
    rows_release(&rows);
    snprintf(text, sizeof text,
        "14_[0-3%%2]\x1fPENDING\x1f" "0:0\x1fUnknown\x1f" "1796023110\x1f" "0\x1fNone assigned\x1f\x1fwaiting\x1f/r\n"
        "13_[0-2]\x1f" "CANCELLED by 1000\x1f" "0:0\x1fNone\x1f" "1796023110\x1f" "0\x1fNone assigned\x1f%s\x1funbegun\x1f/r\n"
        "12_2\x1f" "CANCELLED by 1000\x1f" "0:0\x1f" "1796023116\x1f" "1796023110\x1f" "1\x1fn1\x1f%s\x1f" "begun\x1f/r\n", array, array);
    rows = parsed(ROWS_ACCOUNTING, text);
    assert_int_equal(rows.malformed, 0);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.others, 2);
    assert_int_equal(rows.at[0].element, 2);
    assert_string_equal(rows.at[0].array, TAG);
    rows_release(&rows);
}

static void test_unknown_state_is_kept(void **state)
{
    (void)state;
    struct rows rows = parsed(ROWS_FULL, FULL("17", "TELEPORTED", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_int_equal(rows.count, 1);
    assert_null(rows.at[0].word);
    assert_string_equal(rows.at[0].state, "TELEPORTED");
    rows_release(&rows);
}

// What other people call their jobs is no business of ours, whatever is in it.
static void test_others(void **state)
{
    (void)state;
    struct rows rows = parsed(ROWS_FULL,
        FULL("1", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "a comment", "na\x1fme", "/a\x1f/b")
            FULL("2", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "switchyard:xyz:1", "name", "/a")
                FULL("3", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "switchyard:" TAG ":", "name", "/a")
                    FULL("4", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "switchyard:" TAG ":1 ", "name", "/a") GOOD);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.others, 4);
    assert_int_equal(rows.malformed, 0);
    rows_release(&rows);
    rows = parsed(ROWS_FULL, FULL("5", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "by an administrator", "demo.moe-1", "/runs/demo/moe-1")
            FULL("6", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "", "demo.moe-1", "/runs/demo/moe-2")
                FULL("7", "RUNNING", "0", "0", "N/A", "0:00", "", "None", "", "demo.moe-1", "moe-1"));
    assert_int_equal(rows.count, 1); // what was its mark is known by its number, if at all
    assert_string_equal(rows.at[0].directory, "/runs/demo/moe-1");
    assert_string_equal(rows.at[0].tag, "");
    assert_int_equal(rows.others, 2);
    rows_release(&rows);
}

static void assert_aside(const char *line)
{
    struct text text;
    text_init(&text, 1 << 20);
    text_add(&text, GOOD);
    text_add(&text, line);
    text_add(&text, GOOD);
    struct rows rows;
    rows_parse(&rows, ROWS_FULL, text.at, text.length);
    if (rows.count != 2 || rows.malformed != 1)
        fail_msg("%zu rows and %zu aside with this line between two good ones: %s", rows.count, rows.malformed, line);
    rows_release(&rows);
    text_release(&text);
}

static void test_malformed_lines(void **state)
{
    (void)state;
    assert_aside("\x1f\n");
    assert_aside("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n");
    assert_aside(FULL("", "RUNNING", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("x1", "RUNNING", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1_[2-4]", "RUNNING", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("-1", "RUNNING", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("99999999999999999999", "RUNNING", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "running", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "?", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "3:x", "0", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "0", "-1", "N/A", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "0", "0", "2026-11-30T07:00:00", "0:00", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "0", "0", "N/A", "1:2:3:4", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "0", "0", "N/A", "1:2-3", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "0", "0", "N/A", "1:", "", "None", MARK, "a", "/a"));
    assert_aside(FULL("1", "RUNNING", "0", "0", "N/A", "0:00", "", "None", MARK, "a", "/a\x1f/b"));
    assert_aside("1\x1fRUNNING\x1f" "0\x1f" "0\x1fN/A\x1f" "0:00\x1f\x1fNone\x1f" MARK "\x1f" "a\n"); // a field short
}

static void test_cut_off_at_the_end(void **state)
{
    (void)state;
    static const char text[] = GOOD GOOD;
    for (size_t length = 0; length < sizeof text - 1; length++) {
        struct rows rows;
        rows_parse(&rows, ROWS_FULL, text, length);
        size_t whole = length / strlen(GOOD);
        assert_int_equal(rows.count, whole);
        assert_int_equal(rows.malformed, length % strlen(GOOD) ? 1 : 0);
        rows_release(&rows);
    }
}

static void test_odd_bytes(void **state)
{
    (void)state;
    char nul[] = GOOD;
    nul[20] = 0;
    struct rows rows;
    rows_parse(&rows, ROWS_FULL, nul, sizeof nul - 1);
    assert_int_equal(rows.count, 0);
    assert_int_equal(rows.malformed, 1);
    rows_release(&rows);
    rows = parsed(ROWS_FULL, FULL("1", "PENDING", "0", "0", "N/A", "0:00", "n\x01", "\x1b[31mred", MARK, "a\tb", "/a\xff"));
    assert_int_equal(rows.count, 1);
    assert_string_equal(rows.at[0].reason, "?[31mred");
    assert_string_equal(rows.at[0].nodes, "n?");
    assert_string_equal(rows.at[0].name, "a?b");
    assert_string_equal(rows.at[0].directory, "/a\xff");
    rows_release(&rows);
    char *longest = allocate(ROW_LINE_MAX + 100, 1);
    memset(longest, 'a', ROW_LINE_MAX + 50);
    longest[ROW_LINE_MAX + 50] = '\n';
    rows = parsed(ROWS_FULL, longest);
    assert_int_equal(rows.malformed, 1);
    assert_int_equal(strlen(rows.sample), ROWS_SAMPLE_MAX - 1);
    rows_release(&rows);
    free(longest);
}

static uint64_t seed = 88172645463325252;
static unsigned any(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 33) % below;
}

// Random bytes, and good lines with random damage: nothing but whole lines of the right form become rows, and each line is counted once.
static void test_random_lines(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char bytes[1200];
        size_t count = 0;
        bool damaged = any(2);
        if (damaged)
            for (unsigned i = 0; i < 3; i++) {
                memcpy(bytes + count, GOOD, strlen(GOOD));
                count += strlen(GOOD);
            }
        else
            for (count = 0; count < any(600); count++)
                bytes[count] = "\x1f\n:0123RUNING_ab"[any(16)];
        for (unsigned i = damaged ? any(4) : 0; i > 0; i--)
            bytes[any((unsigned)count)] = (char)any(256);
        size_t lines = 0;
        for (size_t i = 0, length = 0; i < count; i++) {
            length = bytes[i] == '\n' ? 0 : length + 1;
            if (length == 1)
                lines++;
        }
        for (int form = ROWS_FULL; form <= ROWS_ACCOUNTING; form++) {
            struct rows rows;
            rows_parse(&rows, (enum rows_form)form, bytes, count);
            assert_int_equal(rows.count + rows.others + rows.malformed, lines);
            for (size_t i = 0; i < rows.count; i++) {
                assert_true(strspn(rows.at[i].id, "0123456789_+") == strlen(rows.at[i].id) && rows.at[i].id[0]);
                assert_true(rows.at[i].state[0] >= 'A' && rows.at[i].state[0] <= 'Z');
                const struct row *row = &rows.at[i];
                bool marked = strlen(row->tag) + strlen(row->array) == 32, named = row->directory && strchr(row->name, '.');
                assert_true(form == ROWS_ACCOUNTING || marked || named);
                assert_true(rows.at[i].code >= -1 && rows.at[i].code <= 255);
            }
            rows_release(&rows);
        }
    }
}

static void test_marks(void **state)
{
    (void)state;
    char mark[MARK_MAX], tag[33], array[33];
    int64_t submission = 0;
    mark_write(mark, TAG, SUBMISSION_MAX);
    assert_true(mark_read(mark, tag, &submission, array));
    assert_string_equal(tag, TAG);
    assert_true(submission == SUBMISSION_MAX);
    mark_write(mark, TAG, SUBMISSION_MAX + 1); // raised once more it would come to one that no mark can be read with
    assert_false(mark_read(mark, tag, &submission, array));
    assert_false(mark_read("switchyard:" TAG, tag, &submission, array));
    assert_false(mark_read("switchyard:0123456789ABCDEF0123456789abcdef:1", tag, &submission, array));
    assert_false(mark_read("switchyard:" TAG "0:1", tag, &submission, array));
    assert_false(mark_read("switchyard:" TAG ":-1", tag, &submission, array));
    assert_false(mark_read("xswitchyard:" TAG ":1", tag, &submission, array));
    assert_true(mark_read("switchyard:array:" TAG, tag, &submission, array));
    assert_string_equal(array, TAG);
    assert_string_equal(tag, "");
    assert_false(mark_read("switchyard:array:" TAG ":1", tag, &submission, array));
    assert_false(mark_read("switchyard:array:" TAG "0", tag, &submission, array));
    assert_false(mark_read("switchyard:array:0123", tag, &submission, array));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_plain_and_accounting),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_unknown_state_is_kept),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_malformed_lines),
        cmocka_unit_test(test_cut_off_at_the_end),
        cmocka_unit_test(test_odd_bytes),
        cmocka_unit_test(test_random_lines),
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
