// What may not change unseen between a checkpoint and the run that goes on from it: the data and its order, the schedule, the model.
#include "schema/shape/params.h"
#include "worker/train/checkpoint_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES_SHOWN = 6, CHANGES_TEXT = ERROR_TEXT_MAX / 2 };

static void leave_out(struct json *object, const char *const *keys)
{
    for (; *keys; keys++)
        js_remove(object, *keys);
}

static struct json *part_of(const struct spec *spec, const char *section)
{
    struct json *whole = spec_to_json(spec), *part = js_copy(js_get(whole, section));
    js_free(whole);
    return part;
}

// All of `training` but what says how it is computed, not what. (The seed is the data's.)
struct json *schedule_identity(const struct spec *spec)
{
    static const char *const others[] = {"micro_batch_size", "deterministic", "seed", "recompute", "cross_entropy_fusion", "distributed_optimizer",
        "overlap", "validation", "gpu_sniff_test_interval", NULL};
    struct json *schedule = part_of(spec, "training");
    leave_out(schedule, others);
    return schedule;
}

// All of `model` but where its first weights came from and how its experts are reached.
struct json *model_identity(const struct spec *spec)
{
    static const char *const others[] = {"from", "init", NULL}, *const experts[] = {"dispatcher", "grouped_gemm", "per_layer_metrics", NULL};
    struct json *model = part_of(spec, "model");
    leave_out(model, others);
    if (js_get(model, "moe"))
        leave_out(js_get(model, "moe"), experts);
    return model;
}

struct changes {
    struct text text;       // "`training.learning_rate.peak` was 0.003 and is 0.005", joined by ", "
    size_t count;
};

static void note(struct changes *changes, const char *path, const struct json *saved, const struct json *now)
{
    if (changes->count++ >= CHANGES_SHOWN)
        return;
    text_addf(&changes->text, "%s`%s` was ", changes->count > 1 ? ", " : "", path);
    if (saved)
        js_write(&changes->text, saved);
    else
        text_add(&changes->text, "absent");
    text_add(&changes->text, " and is ");
    if (now)
        js_write(&changes->text, now);
    else
        text_add(&changes->text, "absent");
}

static void compare_values(struct changes *changes, const char *path, const struct json *saved, const struct json *now, const struct json *standard);

static void compare_key(struct changes *changes, const char *path, const char *key, const struct json *saved, const struct json *now,
    const struct json *standard)
{
    char *whole = string_format("%s%s%s", path, *path ? "." : "", key);
    compare_values(changes, whole, js_get(saved, key), js_get(now, key), js_get(standard, key));
    free(whole);
}

// Down to the keys. One that only one side has is at its default on the other, where it has one: an older build did not write it.
static void compare_values(struct changes *changes, const char *path, const struct json *saved, const struct json *now, const struct json *standard)
{
    if (js_kind(saved ? saved : now) != JSON_KIND_OBJECT) {
        saved = saved ? saved : standard;
        now = now ? now : standard;
        if (saved != now && !(saved && now && js_equal(saved, now)))
            note(changes, path, saved, now);
        return;
    }
    for (void *i = js_first(now); i; i = js_next(now, i))
        compare_key(changes, path, js_key(i), saved, now, standard);
    for (void *i = js_first(saved); i; i = js_next(saved, i))
        if (!js_get(now, js_key(i)))
            compare_key(changes, path, js_key(i), saved, now, standard);
}

bool change_is_accepted(const struct spec *spec, const char *what)
{
    const struct spec_list *list = &spec->checkpoint.accept_changed;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], what) == 0)
            return true;
    return false;
}

static void changes_end(struct changes *changes)
{
    if (changes->count > CHANGES_SHOWN)
        text_addf(&changes->text, " and %zu more", changes->count - CHANGES_SHOWN);
}

int identity_check(const struct training_state *state, const struct json *saved, const char *directory, char **accepted, struct error *err)
{
    struct spec defaults;
    spec_init(&defaults);
    const struct spec *spec = &state->job->spec;
    struct json *standard = spec_to_json(&defaults);
    const struct { const char *what, *path; struct json *now; const struct json *standard; } parts[] = {
        {"data", "", js_keep(state->identity), NULL},
        {"schedule", "training", schedule_identity(spec), js_get(standard, "training")},
        {"model", "model", model_identity(spec), js_get(standard, "model")},
    };
    struct changes refused = {0}, taken = {0};
    struct text wanted;
    text_init(&refused.text, CHANGES_TEXT);
    text_init(&taken.text, CHANGES_TEXT);
    text_init(&wanted, 256);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool good = change_is_accepted(spec, parts[i].what);
        size_t before = refused.count;
        const struct json *then = js_get(saved, parts[i].what);
        if (then)
            compare_values(good ? &taken : &refused, parts[i].path, then, parts[i].now, parts[i].standard);
        if (good || refused.count > before)
            text_addf(&wanted, "%s%s", wanted.length ? ", " : "", parts[i].what);
        js_free(parts[i].now);
    }
    changes_end(&refused);
    changes_end(&taken);
    struct error unfit = {0};
    const struct json *model = js_get(saved, "model");
    int status = 0;
    if (refused.count + taken.count > 0 && model && params_fit(spec, model, &unfit) != 0)
        status = error_set(err, "%s: cannot continue from it: %s%s%s; nothing accepts that: %s", directory, refused.text.at,
            refused.count && taken.count ? ", " : "", taken.text.at, unfit.text);
    else if (refused.count > 0)
        status = error_set(err, "%s: cannot continue from it: %s; `checkpoint.accept_changed: [%s]` accepts that", directory, refused.text.at, wanted.at);
    *accepted = status == 0 && taken.count > 0 ? string_copy(taken.text.at) : NULL;
    text_release(&wanted);
    text_release(&taken.text);
    text_release(&refused.text);
    js_free(standard);
    spec_release(&defaults);
    return status;
}
