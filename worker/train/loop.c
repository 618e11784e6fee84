#include "worker/train/loop.h"
#include "schema/base/file.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"
#include "schema/shape/cost.h"
#include "schema/shape/lr.h"
#include "worker/parallel/reduce.h"
#include "worker/train/stop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct training_state training_state_of(struct trainer *trainer)
{
    const struct step_result *last = &trainer->result;
    return (struct training_state){.job = &trainer->job, .model = trainer->model, .optimizer = &trainer->optimizer, .extra = &trainer->extra, .world = trainer->world,
        .step = trainer->step, .diverged = !isfinite(last->loss) || (!isfinite(last->gradient_norm) && !last->skipped), .identity = trainer->identity};
}

// Bad tokens show on one rank, in the middle of a step: the others wait in an exchange, so the whole job ends here.
static struct micro_batch read_batch(struct trainer *trainer, bool validation, int64_t step, int64_t micro_batch)
{
    struct error err = {0};
    struct micro_batch batch;
    if (batches_read(&trainer->batches, validation, step, micro_batch, &batch, &err) == 0)
        return batch;
    fprintf(stderr, "switchyard-worker: rank %lld: %s\n", (long long)trainer->world->rank, err.text);
    journal_event(&trainer->journal, step, "failed", err.text, NULL);
    comm_abort(trainer->world, EXIT_BAD_INPUT);
}

// The mean over data parallel ranks, added in rank order.
static double mean_over_ranks(const struct trainer *trainer, double value)
{
    all_reduce_doubles(trainer->parallel.dp, &value, 1);
    return value / (double)trainer->parallel.dp->size;
}

// The pipeline schedule of this rank for m micro batches.
static const struct schedule *schedule_of(struct trainer *trainer, int64_t m)
{
    if (trainer->schedule.count != 2 * (size_t)m) {
        schedule_release(&trainer->schedule);
        schedule_init(&trainer->schedule, m, trainer->parallel.layout.pp, 0, 1, 0);
    }
    return &trainer->schedule;
}

// That schedule, executed. Returns the mean loss of its micro batches.
static double forward_backward(struct trainer *trainer)
{
    const int64_t m = batches_micro_batches(&trainer->batches, trainer->result.samples);
    const struct schedule *schedule = schedule_of(trainer, m);
    double loss = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        const struct schedule_item *item = &schedule->items[i];
        if (item->backward) {
            model_backward(trainer->model);
            continue;
        }
        struct micro_batch batch = read_batch(trainer, false, trainer->step, item->micro_batch);
        loss += model_forward(trainer->model, &batch, true, trainer->loss_scale.scale / (double)m);
    }
    return loss / (double)m;
}

void train_step(struct trainer *trainer)
{
    struct step_result *result = &trainer->result;
    const struct spec *spec = &trainer->job.spec;
    struct model *model = trainer->model;
    int64_t bytes = trainer->parallel.ep->alltoall_bytes;
    double began = clock_steady();
    trainer->step++;
    result->samples = step_samples(spec, trainer->step);
    result->learning_rate = learning_rate(spec, trainer->optimizer.samples);
    result->expert_learning_rate = expert_learning_rate(spec, trainer->optimizer.samples);
    model_zero_gradients(model);
    model_statistics_reset(model);
    double loss = forward_backward(trainer);
    model_reduce_gradients(model);
    result->loss_scale = trainer->loss_scale.scale;
    result->gradient_norm = model_gradient_norm(model, &result->gradient_zeros) / result->loss_scale;
    result->skipped = loss_scale_update(&trainer->loss_scale, spec, isfinite(result->gradient_norm));
    result->skipped_steps = trainer->loss_scale.skipped_steps;
    if (!result->skipped)
        optimizer_step(&trainer->optimizer, model, result->gradient_norm, result->loss_scale, result->samples);
    result->loss = mean_over_ranks(trainer, loss);
    model_statistics_global(model, &result->routing);
    if (spec->model.moe.expert_bias && !result->skipped)
        model_move_expert_bias(model, &result->routing);
    result->tokens = samples_before(spec, trainer->step + 1) * spec->data.sequence_length;
    result->seconds = clock_steady() - began;
    trainer->alltoall_bytes += trainer->parallel.ep->alltoall_bytes - bytes;
    trainer->samples_run += result->samples;
}

// The same samples each time: the first of the validation split's order.
static double validate(struct trainer *trainer)
{
    const struct spec_training *training = &trainer->job.spec.training;
    const int64_t steps = training->validation.iterations, m = batches_micro_batches(&trainer->batches, training->global_batch_size);
    double loss = 0;
    for (int64_t step = 1; step <= steps; step++)
        for (int64_t micro_batch = 0; micro_batch < m; micro_batch++) {
            struct micro_batch batch = read_batch(trainer, true, step, micro_batch);
            loss += model_forward(trainer->model, &batch, false, 0);
        }
    return mean_over_ranks(trainer, loss / (double)(steps * m));
}

struct news { // what ranks tell each other after a step
    double memory_bytes;
    int64_t stop, saver_has_news;
};

struct wishes {
    bool stop;              // of any rank
    bool saver_has_news;    // on every rank
};

// Gathers the highest memory, every wish to stop and how far the saver is: all ranks get the same answer.
static struct wishes exchange_news(struct trainer *trainer)
{
    struct comm *world = trainer->world;
    struct news mine = {allocated_memory_bytes(), stop_wished(world->rank == 0 ? trainer->job.run_directory : NULL), saver_has_news(trainer->saver)};
    struct news *all = allocate((size_t)world->size, sizeof *all);
    world->ops->allgather(world, all, &mine, sizeof mine);
    struct wishes wishes = {.saver_has_news = true};
    for (int64_t r = 0; r < world->size; r++) {
        wishes.stop = wishes.stop || all[r].stop;
        wishes.saver_has_news = wishes.saver_has_news && all[r].saver_has_news;
        if (all[r].memory_bytes > trainer->peak_memory_bytes)
            trainer->peak_memory_bytes = all[r].memory_bytes;
    }
    trainer->result.memory_mb = trainer->peak_memory_bytes / 1e6;
    free(all);
    return wishes;
}

static bool is_due(int64_t interval, int64_t step)
{
    return interval > 0 && step % interval == 0;
}

static int record_step(struct trainer *trainer, struct error *err)
{
    const struct spec *spec = &trainer->job.spec;
    bool last = trainer->step == spec->training.iterations;
    bool logged = last || trainer->result.validated || trainer->step == 1 || is_due(spec->logging.interval, trainer->step);
    char hex[HASH_HEX] = "";
    if (trainer->world->rank == 0)
        batches_hash(&trainer->batches, trainer->step, hex);
    return journal_step(&trainer->journal, trainer->step, &trainer->result, hex, logged, err);
}

// A checkpoint is on record only once it is complete.
static int record_saved(struct trainer *trainer, const struct saved *saved, struct error *err)
{
    return agree(trainer->world, saved->bytes > 0 ? journal_checkpoint(&trainer->journal, saved->step, saved->bytes, err) : 0, err);
}

static int finish_save(struct trainer *trainer, struct error *err)
{
    struct saved saved;
    return saver_finish(trainer->saver, &saved, err) == 0 ? record_saved(trainer, &saved, err) : -1;
}

// One at a time: the save before this one is waited for. The last is not left to itself.
static int save(struct trainer *trainer, bool behind, struct error *err)
{
    struct training_state state = training_state_of(trainer);
    if (finish_save(trainer, err) != 0 || saver_begin(trainer->saver, &state, behind, err) != 0)
        return -1;
    return behind ? 0 : finish_save(trainer, err);
}

// Looks after the save that goes on behind the training, where every rank has come to its next stage.
static int look_after_save(struct trainer *trainer, bool has_news, struct error *err)
{
    struct saved saved;
    if (!has_news)
        return 0;
    return saver_advance(trainer->saver, &saved, err) == 0 ? record_saved(trainer, &saved, err) : -1;
}

static int finish_step(struct trainer *trainer, bool *stop, struct error *err)
{
    const struct spec *spec = &trainer->job.spec;
    int64_t iterations = spec->training.iterations;
    bool last = trainer->step == iterations;
    trainer->result.validated = trainer->batches.valid && (last || is_due(spec->training.validation.interval, trainer->step));
    if (trainer->result.validated)
        trainer->result.validation_loss = validate(trainer);
    struct wishes wishes = exchange_news(trainer);
    *stop = wishes.stop && !last;
    if (agree(trainer->world, record_step(trainer, err), err) != 0 || look_after_save(trainer, wishes.saver_has_news, err) != 0)
        return -1;
    if (*stop || is_due(spec->checkpoint.interval, trainer->step) || (last && spec->checkpoint.interval > 0))
        return save(trainer, spec->checkpoint.asynchronous && !last && !*stop, err);
    return *stop || last ? finish_save(trainer, err) : 0;
}

// Whether the stop file is job.sh's, which passes on a signal of the scheduler's to this attempt, and not a person's.
static bool asked_by_scheduler(const struct trainer *trainer, const char *path)
{
    enum { WISH_BYTES_MAX = 64 };
    struct text wish;
    text_init(&wish, WISH_BYTES_MAX);
    char *own = string_format("attempt-%lld\n", (long long)trainer->job.attempt);
    bool asked = file_size(path) <= WISH_BYTES_MAX && file_read(path, &wish, NULL) == 0 && strcmp(wish.at, own) == 0;
    free(own);
    text_release(&wish);
    return asked;
}

// A person's file that asks to stop stays until somebody takes it away: who starts the worker by hand must be told. Without a file it was a
// signal: a step of Slurm's gets it from Slurm itself, at times before job.sh has written the file.
static char *stopped_text(const struct trainer *trainer)
{
    char *path = path_join(trainer->job.run_directory, STOP_FILE);
    bool asked = file_exists(path), scheduler = asked ? asked_by_scheduler(trainer, path) : getenv("SLURM_JOB_ID") != NULL;
    char *text = string_format("stopped after step %lld%s%s; a checkpoint holds it", (long long)trainer->step,
        scheduler ? ": Slurm wants the nodes back (preempted, near its time limit, requeued or cancelled there)" : asked ? ", as asked by " : "",
        asked && !scheduler ? path : "");
    free(path);
    return text;
}

int train_loop(struct trainer *trainer, struct error *err)
{
    bool stop = false;
    if (trainer->step >= trainer->job.spec.training.iterations) {
        struct training_state state = training_state_of(trainer);
        journal_tell(&trainer->journal, "nothing is left to train: that was the last step");
        saver_tidy(trainer->saver, &state);
    }
    while (trainer->step < trainer->job.spec.training.iterations && !stop) {
        train_step(trainer);
        if (finish_step(trainer, &stop, err) != 0)
            return EXIT_FAILED;
    }
    if (!stop)
        return EXIT_DONE;
    char *text = stopped_text(trainer);
    journal_tell(&trainer->journal, text);
    int status = agree(trainer->world, journal_event(&trainer->journal, trainer->step, "stopped", text, err), err);
    free(text);
    return status == 0 ? EXIT_STOPPED : EXIT_FAILED;
}
