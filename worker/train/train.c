// `train RUN_DIR`: from run.json to a trained model. Preparation is a list of stages; after each, all ranks agree whether it went well,
// so that a fault on one rank is one sentence and one exit code for all, and nobody is left waiting in an exchange.
#include "worker/train/train.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/compute.h"
#include "worker/train/fault.h"
#include "worker/train/loop.h"
#include "worker/train/stop.h"
#include "worker/train/version.h"
#include "worker/parallel/reduce.h"
#include "worker/weights/hugging_face.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_job(struct trainer *trainer, const char *run_directory, struct error *err)
{
    if (job_open(&trainer->job, run_directory, "train", err) != 0)
        return -1;
    int64_t wanted = spec_world_size(&trainer->job.spec);
    if (wanted != trainer->world->size)
        return error_set(err, "run.json is for %lld ranks (nodes * ranks_per_node), but %lld were started", (long long)wanted,
            (long long)trainer->world->size);
    return compute_device(&trainer->device, &trainer->threads, &trainer->job.spec, err);
}

static int open_journal(struct trainer *trainer, struct error *err)
{
    int64_t attempt = 0;
    int status = 0;
    if (trainer->world->rank == 0) {
        status = job_claim(&trainer->job, err);
        if (status == 0)
            status = journal_open(&trainer->journal, &trainer->job, err);
        attempt = trainer->job.attempt;
    }
    trainer->world->ops->broadcast(trainer->world, &attempt, sizeof attempt, 0);
    trainer->job.attempt = attempt;
    return status;
}

static int open_data(struct trainer *trainer, struct error *err)
{
    const struct parallel *parallel = &trainer->parallel;
    if (batches_open(&trainer->batches, &trainer->job, parallel->dp->rank, parallel->dp->size, err) != 0)
        return -1;
    if (trainer->world->rank == 0)
        trainer->identity = batches_identity(&trainer->job, err);
    return trainer->world->rank == 0 && !trainer->identity ? -1 : 0;
}

// Each owner of state beyond parameters and moments adds it here (worker/train/checkpoint.h says what that means).
static void register_state(struct trainer *trainer)
{
    extra_states_add(&trainer->extra, "optimizer.updates", EXTRA_I64, &trainer->optimizer.updates, 1, EXTRA_PROGRESS);
    extra_states_add(&trainer->extra, "optimizer.samples", EXTRA_I64, &trainer->optimizer.samples, 1, EXTRA_PROGRESS);
    extra_states_add_model(&trainer->extra, trainer->model);
    if (trainer->job.spec.training.precision != PRECISION_FP16)
        return;
    extra_states_add(&trainer->extra, "loss_scale.scale", EXTRA_F64, &trainer->loss_scale.scale, 1, EXTRA_SCHEDULE);
    extra_states_add(&trainer->extra, "loss_scale.good_steps", EXTRA_I64, &trainer->loss_scale.good_steps, 1, EXTRA_SCHEDULE);
    extra_states_add(&trainer->extra, "loss_scale.hysteresis_left", EXTRA_I64, &trainer->loss_scale.hysteresis_left, 1, EXTRA_SCHEDULE);
    extra_states_add(&trainer->extra, "loss_scale.skipped_steps", EXTRA_I64, &trainer->loss_scale.skipped_steps, 1, EXTRA_SCHEDULE);
}

static int open_model(struct trainer *trainer, struct error *err)
{
    const struct spec *spec = &trainer->job.spec;
    if (model_new(&trainer->model, spec, trainer->device, &trainer->parallel, err) != 0)
        return -1;
    optimizer_init(&trainer->optimizer, trainer->model);
    loss_scale_init(&trainer->loss_scale, spec);
    step_result_init(&trainer->result, spec);
    register_state(trainer);
    struct training_state state = training_state_of(trainer);
    saver_open(&trainer->saver, &state);
    return 0;
}

// A directory that somebody else made (Hugging Face's, say) has no complete.json; its config.json, if there is one, must describe this model.
static int verify_source(const struct spec *spec, const char *directory, struct error *err)
{
    char *mark = path_join(directory, COMPLETE_FILE);
    int status = file_exists(mark) ? checkpoint_verify(directory, VERIFY_WEIGHTS, err) : hf_config_check(spec, directory, err);
    free(mark);
    return status;
}

// Parameters: this run's own checkpoint first, else those of the run it starts from, else the initial values.
static int restore(struct trainer *trainer, struct resumed *resumed, struct error *err)
{
    struct training_state state = training_state_of(trainer);
    if (checkpoint_resume(&state, resumed, err) != 0)
        return -1;
    trainer->step = state.step;
    if (resumed->step >= 0 || !trainer->job.from)
        return 0;
    int status = trainer->world->rank == 0 ? verify_source(&trainer->job.spec, trainer->job.from, err) : 0;
    if (status == 0 && checkpoint_start(trainer->model, trainer->job.from, err) != 0)
        status = error_context(err, "model.from");
    if (status == 0 && extra_states_load_model(&trainer->extra, trainer->job.from, err) != 0)
        status = error_context(err, "model.from");
    return status;
}

static struct json *worker_json(const struct trainer *trainer)
{
    struct json *worker = version_json();
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    js_set(worker, "device", js_string(trainer->device->name));
    js_set(worker, "isa", js_string(trainer->device->isa));
    js_set(worker, "threads", js_integer(trainer->threads));
    js_set(worker, "ranks", js_integer(trainer->world->size));
    js_set(worker, "host", js_string(host));
    js_set(worker, "pid", js_integer(getpid()));
    return worker;
}

// Rank 0: from where this attempt starts, and what a person should know of it.
static int record_start(struct trainer *trainer, const struct resumed *resumed, struct error *err)
{
    struct journal *journal = &trainer->journal;
    int status = journal_start(journal, worker_json(trainer), resumed->step, err);
    char *damaged = string_format("a newer checkpoint is damaged and was set aside: %s", resumed->damaged ? resumed->damaged : "");
    char *changed = string_format("going on although %s (checkpoint.accept_changed)", resumed->changed ? resumed->changed : "");
    if (status == 0 && resumed->damaged)
        status = journal_event(journal, resumed->step, "checkpoint_damaged", damaged, err);
    if (status == 0 && resumed->changed)
        status = journal_event(journal, resumed->step, "changed", changed, err);
    if (resumed->damaged)
        journal_tell(journal, damaged);
    if (resumed->changed)
        journal_tell(journal, changed);
    free(damaged);
    free(changed);
    return status;
}

int trainer_open(struct trainer *trainer, const char *run_directory, struct error *err)
{
    struct comm *world = trainer->world;
    int status = -1;
    struct resumed resumed = {.step = -1};
    if (agree(world, open_job(trainer, run_directory, err), err) != 0 || agree(world, open_journal(trainer, err), err) != 0 ||
        agree(world, parallel_init(&trainer->parallel, &trainer->job.spec, world, err), err) != 0 ||
        agree(world, open_data(trainer, err), err) != 0 || agree(world, open_model(trainer, err), err) != 0 ||
        agree(world, restore(trainer, &resumed, err), err) != 0)
        goto out;
    status = agree(world, world->rank == 0 ? record_start(trainer, &resumed, err) : 0, err);
out:
    free(resumed.damaged);
    free(resumed.changed);
    return status;
}

// What the run cost, from what was allocated and counted. Collective.
static struct json *account(struct trainer *trainer, bool prepared)
{
    struct json *members = js_object();
    if (!prepared)
        return members; // some rank has no model: nothing to ask all ranks
    struct json *parameters = js_object();
    const struct param_table *table = &trainer->model->table;
    struct comm *world = trainer->world;
    int64_t resident[2] = {0}, total;
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].resident)
            resident[table->items[i].expert >= 0] += (int64_t)param_elements(&table->items[i]);
    total = resident[1];
    all_reduce_integers(trainer->parallel.ep, &total, 1);
    int64_t bytes = trainer->alltoall_bytes;
    all_reduce_integers(world, &bytes, 1);
    js_set(parameters, "total", js_integer(total + resident[0]));
    js_set(parameters, "active", js_integer(param_count(&trainer->job.spec).active));
    js_set(parameters, "resident_dense", js_integer(resident[0]));
    js_set(parameters, "resident_experts", js_integer(resident[1]));
    // A rank's bytes in one training step of the full batch, as the mean over ranks and steps: what arrives depends on the routing, its mean
    // does not.
    double steps = (double)trainer->samples_run / (double)trainer->job.spec.training.global_batch_size;
    js_set(members, "alltoall_bytes_per_step", js_integer(steps > 0 ? (int64_t)((double)bytes / (steps * (double)world->size)) : 0));
    js_set(members, "peak_memory_bytes", js_integer((int64_t)trainer->peak_memory_bytes));
    js_set(members, "expert_bytes", js_integer((int64_t)model_bytes(trainer->model, "experts")));
    js_set(members, "parameters", parameters);
    js_set(members, "step", js_integer(trainer->step));
    return members;
}

void trainer_close(struct trainer *trainer)
{
    schedule_release(&trainer->schedule);
    step_result_release(&trainer->result);
    saver_close(trainer->saver);
    extra_states_release(&trainer->extra);
    optimizer_release(&trainer->optimizer);
    model_free(trainer->model);
    js_free(trainer->identity);
    batches_release(&trainer->batches);
    parallel_release(&trainer->parallel);
    journal_close(&trainer->journal);
    job_release(&trainer->job);
}

int train_run(struct comm *world, const char *run_directory)
{
    struct trainer trainer = {.world = world};
    struct error err = {0};
    int code = EXIT_BAD_INPUT;
    stop_catch_signals();
    fault_explain();
    bool prepared = trainer_open(&trainer, run_directory, &err) == 0;
    if (prepared)
        code = train_loop(&trainer, &err);
    if (code != EXIT_DONE && code != EXIT_STOPPED && world->rank == 0) {
        fprintf(stderr, "switchyard-worker: %s\n", err.text);
        journal_event(&trainer.journal, trainer.step, "failed", err.text, NULL);
    }
    struct json *members = account(&trainer, prepared);
    journal_end(&trainer.journal, code, members);
    trainer_close(&trainer);
    return code;
}
