// Specs for tests: each test works in an empty folder with a good spec, good.yaml, from which others inherit.
#pragma once
#include "schema/base/file.h"
#include "schema/spec/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GOOD_SPEC \
    "project: good\n" \
    "data: {text: text.txt, sequence_length: 64, split: [90, 10, 0]}\n" \
    "model: {layers: 2, hidden_size: 64, ffn_hidden_size: 128, attention_heads: 4, vocab_size: 257}\n" \
    "training: {iterations: 10, micro_batch_size: 2, global_batch_size: 8, learning_rate: {peak: 1e-3}}\n"

static char here[] = "/tmp/spec-XXXXXX";

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int enter_folder(void **state)
{
    (void)state;
    if (!mkdtemp(here) || chdir(here) != 0)
        return -1;
    write_text("good.yaml", GOOD_SPEC);
    write_text("text.txt", "some text\n");
    return 0;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 ? directory_remove(here, NULL) : -1;
}

// Loads text as spec.yaml with options (NULL ends them).
static int load_text(struct spec_file *file, const char *text, const char *const *sets)
{
    struct spec_option options[8];
    size_t count = 0;
    for (; sets && sets[count]; count++)
        options[count].argument = sets[count];
    write_text("spec.yaml", text);
    return spec_file_load(file, "spec.yaml", NULL, 0, options, count);
}

__attribute__((unused)) static void load_good(struct spec_file *file, const char *text, const char *const *sets)
{
    if (load_text(file, text, sets) != 0)
        fail_msg("unexpected problems:\n%s", file->problems.at);
}

__attribute__((unused)) static bool has_message(const struct json *list, const char *message)
{
    for (size_t i = 0; i < js_count(list); i++)
        if (strcmp(js_string_of(js_get(js_at(list, i), "message"), ""), message) == 0)
            return true;
    return false;
}

// Lines behind a spec that is good bring this message, or, where it is NULL, no error.
__attribute__((unused)) static void check_rule(const char *lines, const char *expected)
{
    struct spec_file file;
    char *text = string_format("base: good.yaml\n%s\n", lines);
    load_text(&file, text, NULL);
    if (expected ? !has_message(file.problem_list, expected) : file.errors != 0)
        fail_msg("%s\n expected: %s\n actual:\n%s", lines, expected ? expected : "(good)", file.problems.at);
    spec_file_release(&file);
    free(text);
}

// The whole text of the problems, warnings left out.
__attribute__((unused)) static void expect_problems(const char *text, const char *const *sets, const char *expected)
{
    struct spec_file file;
    int status = load_text(&file, text, sets);
    assert_string_equal(file.problems.at, expected);
    assert_int_equal(status, *expected ? -1 : 0);
    spec_file_release(&file);
}
