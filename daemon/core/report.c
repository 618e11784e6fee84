// A project in one table: its runs in groups that differ in nothing but name, seed and the file's question, and of each group the mean and the range of what
// its finished runs came to.
#include "daemon/core/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct spread {
    double sum, least, most;
    int64_t count;
};

static const char *const last_values[] = {"validation_loss", "loss", "load_balancing_loss", "tokens_dropped", "memory_mb"};
static const char *const medians[] = {"tokens_per_second"};
enum { LAST = sizeof last_values / sizeof *last_values, MEDIANS = sizeof medians / sizeof *medians, BUSIEST = LAST + MEDIANS, SPREADS };

struct group {
    struct json *key;   // the spec without name, question and seed
    uint64_t hash;      // of it
    struct json *title, *parameters, *runs, *seeds;
    struct json *sweep; // the swept keys that they share, all but the seed; null where they are no trials
    struct spread spreads[SPREADS];
};

struct report {
    struct daemon *daemon;
    struct group *groups;
    size_t count;
    struct json *left_out; // runs that did not succeed, or came to no number
};

static void add(struct spread *spread, double value)
{
    if (!isfinite(value))
        return;
    spread->least = spread->count && spread->least < value ? spread->least : value;
    spread->most = spread->count && spread->most > value ? spread->most : value;
    spread->sum += value;
    spread->count++;
}

static struct json *key_of(const struct run_row *row)
{
    struct json *key = js_copy(row->spec);
    js_remove(key, "name");
    js_remove(key, "question");
    js_remove(js_get(key, "training"), "seed");
    return key;
}

// Every group is looked at for every run: only those of the same hash are compared.
static uint64_t hash_of(const struct json *key)
{
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    js_write(&text, key);
    uint64_t hash = string_hash(text.at);
    text_release(&text);
    return hash;
}

// Of a trial: the name that it shares with the others, and what it was swept over but for the seed.
static void name_group(struct daemon *daemon, struct group *group, const struct run_row *row)
{
    struct trial_row trial;
    group->sweep = js_null();
    if (state_get_trial(daemon->state, row->id, &trial, NULL) != 0) {
        group->title = js_copy(js_get(row->spec, "name"));
        return;
    }
    group->title = js_string(trial.entry);
    if (trial.sweep) {
        js_free(group->sweep);
        group->sweep = trial.sweep;
        js_remove(group->sweep, "training.seed");
    }
}

static struct group *group_of(struct report *report, const struct run_row *row)
{
    struct json *key = key_of(row);
    uint64_t hash = hash_of(key);
    for (size_t i = 0; i < report->count; i++)
        if (report->groups[i].hash == hash && js_equal(report->groups[i].key, key)) {
            js_free(key);
            return &report->groups[i];
        }
    report->groups = reallocate(report->groups, report->count + 1, sizeof *report->groups);
    struct group *group = &report->groups[report->count++];
    const struct json *parameters = js_get(row->plan, "parameters");
    *group = (struct group){.key = key, .hash = hash, .runs = js_array(), .seeds = js_array(), .parameters = parameters ? js_copy(parameters) : js_null()};
    name_group(report->daemon, group, row);
    return group;
}

// How many times its even share the busiest expert of a layer gets, as the mean over the layers that recorded it.
static double busiest_expert(struct daemon *daemon, const struct run_row *row)
{
    const struct json *moe = js_get(js_get(row->spec, "model"), "moe");
    double experts = (double)js_integer_of(js_get(moe, "experts"), 0);
    struct json *names = series_names(daemon->series, row->run_id);
    struct spread shares = {0};
    for (size_t i = 0; i < js_count(names); i++) {
        const char *name = js_string_of(js_at(names, i), ""), *slash = strrchr(name, '/');
        if (slash && strncmp(name, "moe/layer_", 10) == 0 && strcmp(slash, "/largest_share") == 0)
            add(&shares, series_last_value(daemon->series, row->run_id, name, NAN));
    }
    js_free(names);
    bool same_everywhere = !js_count(js_get(moe, "experts_per_layer"));
    return shares.count && same_everywhere ? experts * shares.sum / (double)shares.count : NAN;
}

static void report_curve(struct report *report, struct run_row *row)
{
    struct daemon *daemon = report->daemon;
    int64_t diverged = run_diverged(daemon, row->id, row->run_id);
    if (row->state != RUN_SUCCEEDED || diverged > 0) {
        struct json *left = js_object();
        js_set(left, "name", js_string(row->name));
        js_set(left, "state", js_string(run_state_name(row->state)));
        js_set(left, "diverged_step", diverged > 0 ? js_integer(diverged) : js_null());
        js_append(report->left_out, left);
        return;
    }
    if (state_read_documents(daemon->state, row, NULL) != 0)
        return;
    struct group *group = group_of(report, row);
    js_append(group->runs, js_string(row->name));
    js_append(group->seeds, js_copy(js_get(js_get(row->spec, "training"), "seed")));
    for (size_t i = 0; i < LAST; i++)
        add(&group->spreads[i], series_last_value(daemon->series, row->run_id, last_values[i], NAN));
    for (size_t i = 0; i < MEDIANS; i++)
        add(&group->spreads[LAST + i], recent_median(daemon, row, medians[i], series_last_step(daemon->series, row->run_id), NAN));
    add(&group->spreads[BUSIEST], busiest_expert(daemon, row));
}

// Its curve is in memory for as long as it takes.
static void report_run(struct report *report, struct run_row *row)
{
    struct series *series = report->daemon->series;
    if (strcmp(row->kind, "train") != 0)
        return;
    bool in_memory = series_has(series, row->run_id);
    series_need(report->daemon, row);
    report_curve(report, row);
    if (!in_memory && run_state_ended(row->state))
        series_forget(series, row->run_id);
}

static struct json *spread_json(const struct spread *spread)
{
    if (!spread->count)
        return js_null();
    struct json *object = js_object();
    js_set(object, "mean", js_real(spread->sum / (double)spread->count));
    js_set(object, "least", js_real(spread->least));
    js_set(object, "most", js_real(spread->most));
    return object;
}

// Takes over what the group holds, its key aside.
static struct json *group_json(const struct group *group)
{
    struct json *object = js_object(), *metrics = js_object();
    js_set(object, "name", group->title);
    js_set(object, "sweep", group->sweep);
    js_set(object, "runs", group->runs);
    js_set(object, "seeds", group->seeds);
    js_set(object, "parameters", group->parameters);
    for (size_t i = 0; i < LAST; i++)
        js_set(metrics, last_values[i], spread_json(&group->spreads[i]));
    for (size_t i = 0; i < MEDIANS; i++)
        js_set(metrics, medians[i], spread_json(&group->spreads[LAST + i]));
    js_set(metrics, "busiest_expert", spread_json(&group->spreads[BUSIEST]));
    js_set(object, "metrics", metrics);
    return object;
}

enum { ROWS_AT_ONCE = 64 }; // between them others have the lock

static int report_page(struct report *report, const char *project, int64_t *last, struct error *err)
{
    struct run_row rows[ROWS_AT_ONCE];
    size_t count = 0;
    pthread_mutex_lock(&report->daemon->lock);
    int status = state_runs_after(report->daemon->state, project, *last, ROWS_AT_ONCE, rows, &count, err);
    for (size_t i = 0; i < count; i++) {
        report_run(report, &rows[i]);
        *last = rows[i].id;
        run_row_release(&rows[i]);
    }
    pthread_mutex_unlock(&report->daemon->lock);
    return status != 0 ? -1 : count == ROWS_AT_ONCE;
}

void daemon_report(struct daemon *daemon, const char *project, struct answer *answer)
{
    struct report report = {.daemon = daemon, .left_out = js_array()};
    int64_t last = 0;
    int status;
    while ((status = report_page(&report, project, &last, &answer->error)) > 0)
        continue;
    struct json *groups = js_array();
    for (size_t i = 0; i < report.count; i++) {
        js_append(groups, group_json(&report.groups[i]));
        js_free(report.groups[i].key);
    }
    answer->status = status == 0 ? 200 : 500;
    answer->body = js_object();
    js_set(answer->body, "project", js_string(project));
    js_set(answer->body, "groups", groups);
    js_set(answer->body, "left_out", report.left_out);
    if (status != 0) {
        js_free(answer->body);
        answer->body = NULL;
    }
    free(report.groups);
}
