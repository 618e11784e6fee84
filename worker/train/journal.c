#include "worker/train/journal.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAY_SECONDS = 2 };

int journal_open(struct journal *journal, const struct job *job, struct error *err)
{
    *journal = (struct journal){.job = job, .loss_is_finite = true, .norm_is_finite = true};
    journal->writer = record_writer_open(job->run_directory, job->attempt, job->project, job->name, job->run_id, err);
    if (!journal->writer)
        return -1;
    balance_watch_init(&journal->balance, &job->spec);
    return heartbeat_start(&journal->heartbeat, job->run_directory, job->attempt, err);
}

void journal_close(struct journal *journal)
{
    heartbeat_end(journal->heartbeat);
    balance_watch_release(&journal->balance);
    record_writer_close(journal->writer);
    *journal = (struct journal){0};
}

int journal_start(struct journal *journal, struct json *worker, int64_t resumed, struct error *err)
{
    if (!journal->writer) {
        js_free(worker);
        return 0;
    }
    struct json *members = js_object();
    js_set(members, "worker", worker);
    js_set(members, "resumed_from", resumed >= 0 ? js_integer(resumed) : js_null());
    if (record_other(journal->writer, "start", members, err) != 0)
        return -1;
    if (resumed < 0)
        return 0;
    char *text = string_format("continuing after step %lld from its checkpoint", (long long)resumed);
    journal_tell(journal, text);
    int status = record_event(journal->writer, resumed, "resumed", text, err);
    free(text);
    return status;
}

static int warn(struct journal *journal, int64_t step, const char *event, const char *title, const char *what, double value, struct error *err)
{
    char *text = string_format("the %s of step %lld is %s; training goes on", what, (long long)step, isnan(value) ? "NaN" : "infinite");
    int status = record_event(journal->writer, step, event, text, err);
    if (status == 0)
        status = record_alert(journal->writer, step, "error", title, text, err);
    fprintf(stderr, "step %lld: %s\n", (long long)step, text);
    free(text);
    return status;
}

// Once, where it begins. A loss that is not finite has such gradients too: one sentence says it.
static int note_finiteness(struct journal *journal, int64_t step, const struct step_result *result, struct error *err)
{
    bool loss_was = journal->loss_is_finite, norm_was = journal->norm_is_finite;
    journal->loss_is_finite = isfinite(result->loss);
    journal->norm_is_finite = isfinite(result->gradient_norm) || result->skipped; // a skipped step has an event of its own
    if (!journal->loss_is_finite)
        return loss_was ? warn(journal, step, "non_finite_loss", "non-finite loss", "loss", result->loss, err) : 0;
    if (!journal->norm_is_finite && norm_was)
        return warn(journal, step, "non_finite_gradients", "non-finite gradients", "gradient norm", result->gradient_norm, err);
    return 0;
}

static int note_balance(struct journal *journal, int64_t step, const struct step_result *result, struct error *err)
{
    const struct spec *spec = &journal->job->spec;
    int64_t layer = balance_watch_step(&journal->balance, &result->routing, spec);
    if (layer < 0)
        return 0;
    char *text = string_format("the load balancing loss of layer %lld has been exactly %.17g for %d steps: nothing balances its experts any more",
        (long long)layer, result->routing.losses[MOE_LOSS_AUX][layer], BALANCE_STEPS);
    int status = record_event(journal->writer, step, "balance_constant", text, err);
    if (status == 0)
        status = record_alert(journal->writer, step, "warn", "constant load balancing loss", text, err);
    fprintf(stderr, "step %lld: %s\n", (long long)step, text);
    free(text);
    return status;
}

// At most one line in two seconds, and the first, the last and every validated step.
static void say(struct journal *journal, int64_t step, const struct step_result *result)
{
    const struct spec *spec = &journal->job->spec;
    double now = clock_steady();
    if (journal->first_step == 0) {
        journal->first_step = step;
        journal->began = now - result->seconds;
    } else if (now - journal->said < SAY_SECONDS && step != spec->training.iterations && !result->validated)
        return;
    journal->said = now;
    double each = (now - journal->began) / (double)(step - journal->first_step + 1);
    int64_t left = (int64_t)(each * (double)(spec->training.iterations - step) + 0.5);
    double rate = (double)(result->samples * spec->data.sequence_length) / result->seconds;
    fprintf(stderr, "step %lld/%lld  loss %.4f", (long long)step, (long long)spec->training.iterations, result->loss);
    if (result->validated)
        fprintf(stderr, "  validation %.4f", result->validation_loss);
    fprintf(stderr, "  %.0f tokens/s  %lld:%02lld left\n", rate, (long long)(left / 60), (long long)(left % 60));
}

static int record_data(struct journal *journal, int64_t step, const char *samples_hex, struct error *err)
{
    struct json *members = js_object();
    js_set(members, "step", js_integer(step));
    js_set(members, "samples_sha256", js_string(samples_hex));
    return record_other(journal->writer, "data", members, err);
}

// A skipped step is an event, but of many only each that doubles their number.
static int note_skip(struct journal *journal, int64_t step, const struct step_result *result, struct error *err)
{
    enum { ALL_SKIPS = 16 };
    int64_t count = result->skipped_steps;
    if (!result->skipped || (count > ALL_SKIPS && (count & (count - 1)) != 0))
        return 0;
    char text[160];
    snprintf(text, sizeof text, "gradients overflow at a loss scale of %.15g: no update is made of this step (%lld skipped so far)",
        result->loss_scale, (long long)count);
    return record_event(journal->writer, step, "skipped", text, err);
}

int journal_step(struct journal *journal, int64_t step, const struct step_result *result, const char *samples_hex, bool logged, struct error *err)
{
    if (!journal->writer)
        return 0;
    const struct spec *spec = &journal->job->spec;
    heartbeat_step_is(journal->heartbeat, step);
    if (record_data(journal, step, samples_hex, err) != 0)
        return -1;
    if (logged && spec_is_moe(spec) && spec->logging.expert_load) {
        struct json *load = routing_load(&result->routing, spec);
        js_set(load, "step", js_integer(step));
        if (record_other(journal->writer, "expert_load", load, err) != 0)
            return -1;
    }
    if (logged && record_metrics(journal->writer, step, step_metrics(result, spec), err) != 0)
        return -1;
    if (note_finiteness(journal, step, result, err) != 0 || note_skip(journal, step, result, err) != 0 ||
        note_balance(journal, step, result, err) != 0)
        return -1;
    say(journal, step, result);
    return 0;
}

int journal_checkpoint(struct journal *journal, int64_t step, int64_t bytes, struct error *err)
{
    if (!journal->writer)
        return 0;
    struct json *members = js_object();
    char *directory = run_checkpoint_directory(journal->job->run_directory, step);
    js_set(members, "step", js_integer(step));
    js_set(members, "directory", js_string(directory));
    js_set(members, "bytes", js_integer(bytes));
    free(directory);
    return record_other(journal->writer, "checkpoint", members, err);
}

void journal_tell(const struct journal *journal, const char *text)
{
    if (journal->writer)
        fprintf(stderr, "%s\n", text);
}

int journal_event(struct journal *journal, int64_t step, const char *event, const char *text, struct error *err)
{
    return journal->writer ? record_event(journal->writer, step, event, text, err) : 0;
}

void journal_end(struct journal *journal, int code, struct json *members)
{
    if (!journal->writer) {
        js_free(members);
        return;
    }
    js_set(members, "code", js_integer(code));
    record_other(journal->writer, "end", members, NULL);
}
