// Two runs side by side, bit for bit, from what they recorded: no run is trained here.
#include "schema/base/hash.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"
#include "worker/check/check.h"
#include "worker/weights/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 1 << 20, DIFFERENCES_MAX = 100, LINES_AT_ONCE = 1 << 20 };

// ---- what a run recorded ----

struct steps {
    struct json **at;  // by step: its metrics, and "samples_sha256"; NULL: nothing recorded
    int64_t count;     // highest step + 1
};

static struct json *step_of(struct steps *steps, int64_t step)
{
    if (step < 0 || step >= STEPS_MAX)
        return NULL;
    if (step >= steps->count) {
        steps->at = reallocate(steps->at, (size_t)step + 1, sizeof *steps->at);
        memset(steps->at + steps->count, 0, (size_t)(step + 1 - steps->count) * sizeof *steps->at);
        steps->count = step + 1;
    }
    if (!steps->at[step])
        steps->at[step] = js_object();
    return steps->at[step];
}

static bool is_measurement(const char *name)
{
    static const char *const ends[] = {"_ms", "_per_second", "_mb", "tflops"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (length >= end && strcmp(name + length - end, ends[i]) == 0)
            return true;
    }
    return false;
}

static void take_line(void *context, const struct json *line, const char *raw, size_t raw_bytes, int64_t offset)
{
    (void)raw, (void)raw_bytes, (void)offset;
    struct steps *steps = context;
    const char *kind = js_string_of(js_get(line, "kind"), "");
    bool metric = strcmp(kind, "metric") == 0, data = strcmp(kind, "data") == 0;
    struct json *step = metric || data ? step_of(steps, js_integer_of(js_get(line, "step"), -1)) : NULL;
    if (!step)
        return;
    if (data)
        js_set(step, "samples_sha256", js_keep(js_get(line, "samples_sha256")));
    const struct json *metrics = metric ? js_get(line, "metrics") : NULL;
    for (void *i = js_first(metrics); i; i = js_next(metrics, i))
        if (!is_measurement(js_key(i)))
            js_set(step, js_key(i), js_keep(js_value(i)));
}

// All attempts in order: a step that was repeated counts as it was last.
static int read_steps(struct steps *steps, const char *run_directory, struct error *err)
{
    int64_t last = run_last_attempt(run_directory);
    *steps = (struct steps){0};
    for (int64_t attempt = 1; attempt <= last; attempt++) {
        struct record_reader reader = {0};
        char *path = run_attempt_file(run_directory, attempt, RECORDS_FILE);
        int64_t taken = record_read(&reader, path, LINES_AT_ONCE, take_line, steps, err);
        free(path);
        if (taken < 0)
            return -1;
    }
    return steps->count > 0 ? 0 : error_set(err, "%s: no steps are recorded there", run_directory);
}

static void release_steps(struct steps *steps)
{
    for (int64_t i = 0; i < steps->count; i++)
        js_free(steps->at[i]);
    free(steps->at);
}

// ---- differences ----

static void add_difference(struct json *result, int64_t step, const char *name, const struct json *first, const struct json *second)
{
    struct json *list = js_get(result, "differences"), *item = js_object();
    js_set(result, "equal", js_boolean(false));
    js_set(item, "step", step > 0 ? js_integer(step) : js_null());
    js_set(item, "name", js_string(name));
    js_set(item, "first", first ? js_keep(first) : js_null());
    js_set(item, "second", second ? js_keep(second) : js_null());
    if (js_count(list) < DIFFERENCES_MAX)
        js_append(list, item);
    else
        js_free(item);
}

static void compare_step(struct json *result, int64_t step, const struct json *first, const struct json *second)
{
    static const char *const shown[] = {"loss", "load_balancing_loss", "grad_norm", "grad_zeros"};
    struct json *row = js_object();
    bool equal = js_equal(first, second);
    js_set(row, "step", js_integer(step));
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (js_get(first, shown[i]))
            js_set(row, shown[i], js_keep(js_get(first, shown[i])));
    js_set(row, "equal", js_boolean(equal));
    js_append(js_get(result, "steps"), row);
    if (equal)
        return;
    for (void *i = js_first(first); i; i = js_next(first, i))
        if (!js_equal(js_value(i), js_get(second, js_key(i))))
            add_difference(result, step, js_key(i), js_value(i), js_get(second, js_key(i)));
    for (void *i = js_first(second); i; i = js_next(second, i))
        if (!js_get(first, js_key(i)))
            add_difference(result, step, js_key(i), NULL, js_value(i));
}

// ---- the last checkpoint ----

struct other {
    const struct tensor_set *set;
    const char *kind;
    struct json *result;
    struct hash *hash; // over names and hashes of all tensors of the first
    int64_t tensors;
    bool equal;
    struct error *err;
    int status;
};

static int hash_tensor(char hex[HASH_HEX], const struct tensor_info *info, struct error *err)
{
    char *bytes = allocate((size_t)info->bytes + 1, 1);
    int status = tensor_read_bytes(info, bytes, err);
    if (status == 0)
        hash_bytes(hex, bytes, (size_t)info->bytes);
    free(bytes);
    return status;
}

static void compare_tensor(void *context, const char *name, const struct tensor_info *info)
{
    struct other *other = context;
    struct tensor_info twin;
    char hex[HASH_HEX] = "", twin_hex[HASH_HEX] = "";
    if (other->status != 0)
        return;
    bool there = tensor_set_find(other->set, name, &twin);
    other->status = hash_tensor(hex, info, other->err);
    if (other->status == 0 && there)
        other->status = hash_tensor(twin_hex, &twin, other->err);
    hash_add(other->hash, name, strlen(name) + 1);
    hash_add(other->hash, hex, HASH_HEX - 1);
    other->tensors++;
    if (other->status != 0 || strcmp(hex, twin_hex) == 0)
        return;
    struct json *first = js_string(hex), *second = there ? js_string(twin_hex) : NULL;
    other->equal = false;
    add_difference(other->result, 0, name, first, second);
    js_free(first);
    js_free(second);
}

static int compare_set(struct json *result, const char *first, const char *second, const char *kind, const char *name, struct error *err)
{
    struct tensor_set *ours = NULL, *theirs = NULL;
    char hex[HASH_HEX];
    if (tensor_set_open(&ours, first, kind, err) != 0)
        return -1;
    if (tensor_set_open(&theirs, second, kind, err) != 0) {
        tensor_set_close(ours);
        return -1;
    }
    struct other other = {.set = theirs, .kind = kind, .result = result, .hash = hash_new(), .equal = true, .err = err};
    tensor_set_walk(ours, compare_tensor, &other);
    hash_end(other.hash, hex);
    struct json *row = js_object();
    js_set(row, "name", js_string(name));
    js_set(row, "tensors", js_integer(other.tensors));
    js_set(row, "sha256", js_string(hex));
    js_set(row, "equal", js_boolean(other.equal));
    js_append(js_get(result, "state"), row);
    tensor_set_close(ours);
    tensor_set_close(theirs);
    return other.status;
}

static int compare_checkpoints(struct json *result, const char *first, const char *second, struct error *err)
{
    int64_t a = run_last_checkpoint(first), b = run_last_checkpoint(second);
    if (a != b) {
        struct json *x = js_integer(a), *y = js_integer(b);
        add_difference(result, 0, "step of the last checkpoint", x, y);
        js_free(x);
        js_free(y);
        return 0;
    }
    if (a < 0)
        return 0;
    char *ours = run_checkpoint_directory(first, a), *theirs = run_checkpoint_directory(second, a);
    int status = compare_set(result, ours, theirs, "model", "parameters", err);
    if (status == 0)
        status = compare_set(result, ours, theirs, "optimizer", "optimizer's state", err);
    if (status == 0)
        status = compare_set(result, ours, theirs, "extra", "counters and the like", err);
    free(ours);
    free(theirs);
    return status;
}

struct json *determinism_compare(const char *first, const char *second, struct error *err)
{
    struct steps a = {0}, b = {0};
    struct json *result = js_object();
    int64_t compared = 0;
    js_set(result, "iterations", js_integer(0));
    js_set(result, "equal", js_boolean(true));
    js_set(result, "steps", js_array());
    js_set(result, "state", js_array());
    js_set(result, "differences", js_array());
    int status = read_steps(&a, first, err) == 0 && read_steps(&b, second, err) == 0 ? 0 : -1;
    for (int64_t step = 0; status == 0 && (step < a.count || step < b.count); step++) {
        const struct json *ours = step < a.count ? a.at[step] : NULL, *theirs = step < b.count ? b.at[step] : NULL;
        if (!ours && !theirs)
            continue;
        compare_step(result, step, ours, theirs);
        compared++;
    }
    js_set(result, "iterations", js_integer(compared));
    if (status == 0)
        status = compare_checkpoints(result, first, second, err);
    release_steps(&a);
    release_steps(&b);
    if (status == 0)
        return result;
    js_free(result);
    return NULL;
}

// ---- for people ----

static void print_value(const struct json *value, int width)
{
    struct text text;
    text_init(&text, 4096);
    if (js_kind(value) == JSON_KIND_NULL)
        text_add(&text, "none");
    else if (js_kind(value) == JSON_KIND_STRING)
        text_add(&text, js_string_of(value, ""));
    else
        js_write(&text, value);
    printf("%*s", width, text.at);
    text_release(&text);
}

static void print_steps(const struct json *steps)
{
    bool balance = js_get(js_at(steps, 0), "load_balancing_loss") != NULL;
    printf("%6s  %22s  %s%22s  %12s  %s\n", "step", "loss", balance ? "   load_balancing_loss  " : "", "grad_norm", "grad_zeros", "bits");
    for (size_t i = 0; i < js_count(steps); i++) {
        const struct json *row = js_at(steps, i);
        print_value(js_get(row, "step"), 6);
        printf("  ");
        print_value(js_get(row, "loss"), 22);
        printf("  ");
        if (balance) {
            print_value(js_get(row, "load_balancing_loss"), 22);
            printf("  ");
        }
        print_value(js_get(row, "grad_norm"), 22);
        printf("  ");
        print_value(js_get(row, "grad_zeros"), 12);
        printf("  %s\n", js_boolean_of(js_get(row, "equal"), false) ? "equal" : "DIFFERENT");
    }
}

// In fp16 a run begins with steps that only find its scale: they change nothing, so they prove little.
static void print_skipped(const struct json *steps)
{
    size_t skipped = 0;
    for (size_t i = 0; i < js_count(steps); i++)
        skipped += !js_get(js_at(steps, i), "grad_norm");
    if (skipped)
        printf("%zu of them were skipped by the loss scale: a lower training.loss_scale.initial skips fewer\n", skipped);
}

void determinism_print(const struct json *result)
{
    const struct json *state = js_get(result, "state"), *differences = js_get(result, "differences"), *worst = js_at(differences, 0);
    print_steps(js_get(result, "steps"));
    for (size_t i = 0; i < js_count(state); i++) {
        const struct json *row = js_at(state, i);
        printf("%s at the end: %lld tensors, sha256 %.16s  %s\n", js_string_of(js_get(row, "name"), ""), (long long)js_integer_of(js_get(row, "tensors"), 0),
            js_string_of(js_get(row, "sha256"), ""), js_boolean_of(js_get(row, "equal"), false) ? "equal" : "DIFFERENT");
    }
    if (js_boolean_of(js_get(result, "equal"), false)) {
        printf("deterministic: %lld iterations twice, every bit equal\n", (long long)js_integer_of(js_get(result, "iterations"), 0));
        print_skipped(js_get(result, "steps"));
        return;
    }
    printf("NOT deterministic: the first difference is ");
    if (js_kind(js_get(worst, "step")) == JSON_KIND_INTEGER)
        printf("in step %lld, ", (long long)js_integer_of(js_get(worst, "step"), 0));
    printf("%s: ", js_string_of(js_get(worst, "name"), ""));
    print_value(js_get(worst, "first"), 0);
    printf(" and ");
    print_value(js_get(worst, "second"), 0);
    printf("\n");
}
