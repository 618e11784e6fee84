#include "worker/infer/trained.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/data/data.h"
#include "worker/infer/tokenizer.h"
#include "worker/weights/hugging_face.h"

#include <stdlib.h>
#include <string.h>

// One process computes all of the model, whatever the run was laid out for.
static void lay_out_for_one(struct spec *spec)
{
    struct spec_parallelism *p = &spec->parallelism;
    p->tensor = p->pipeline = p->context = p->expert = p->virtual_pipeline = 1;
    p->expert_tensor = 0;
    p->sequence = false;
    spec->resources.nodes = spec->resources.ranks_per_node = 1;
}

static int open_run(struct trained *trained, const char *directory, struct error *err)
{
    trained->ours = true;
    if (job_open(&trained->job, directory, "train", err) != 0)
        return -1;
    lay_out_for_one(&trained->job.spec);
    trained->eod = trained_is_bytes(trained) ? BYTE_TOKEN_EOD : -1;
    return 0;
}

static int open_step(struct trained *trained, const char *directory, int64_t step, struct error *err)
{
    if (open_run(trained, directory, err) != 0)
        return -1;
    trained->step = step > 0 ? step : run_last_checkpoint(directory);
    if (trained->step < 0)
        return error_set(err, "%s: no complete checkpoint in it", directory);
    trained->checkpoint = run_checkpoint_directory(directory, trained->step);
    if (!directory_has(trained->checkpoint, COMPLETE_FILE))
        return error_set(err, "%s: no complete checkpoint of step %lld", directory, (long long)step);
    return 0;
}

// RUN/checkpoints/step-N says in RUN/run.json what its model is.
static int open_checkpoint(struct trained *trained, const char *directory, struct error *err)
{
    char *run = path_absolute("../..", directory);
    const char *name = strrchr(directory, '/');
    int status = directory_has(run, RUN_FILE) ? open_run(trained, run, err)
                                    : error_set(err, "%s: a checkpoint, but %s/" RUN_FILE ", which says what its model is, is not there", directory, run);
    trained->checkpoint = string_copy(directory);
    trained->step = name && strncmp(name, "/step-", 6) == 0 ? strtoll(name + 6, NULL, 10) : -1;
    free(run);
    return status;
}

// What config.json says must be a model that a spec of ours could ask for: it goes through the table's own checks.
static int check_model(struct spec *spec, struct error *err)
{
    struct json *json = spec_to_json(spec);
    spec_release(spec);
    int status = spec_from_json(spec, json, err);
    js_free(json);
    return status == 0 ? spec_runnable(spec, err) : -1;
}

int foreign_model(struct spec *spec, const char **name, const char *directory, struct error *err)
{
    if (hf_config_read(spec, name, directory, err) != 0)
        return -1;
    int64_t positions = spec->data.sequence_length;
    if (!positions)
        spec->data.sequence_length = 1;
    spec->project = string_copy("huggingface"); // what a spec must have and a model does not say
    spec->name = string_copy("imported");
    spec->data.prefix = string_copy(directory);
    free(spec->data.tokenizer);
    spec->data.tokenizer = string_copy(tokenizer_is_bytes(directory) ? "byte" : directory);
    spec->training.iterations = spec->training.micro_batch_size = spec->training.global_batch_size = 1;
    spec->training.learning_rate.peak = 1;
    spec->training.learning_rate.total_iterations = 1;
    lay_out_for_one(spec);
    if (check_model(spec, err) != 0)
        return error_context(err, "%s/" HF_CONFIG_FILE, directory);
    spec->data.sequence_length = positions;
    return 0;
}

static int open_foreign(struct trained *trained, const char *directory, struct error *err)
{
    spec_init(&trained->job.spec);
    trained->checkpoint = string_copy(directory);
    trained->step = -1;
    trained->eod = hf_end_of_text(directory);
    return foreign_model(&trained->job.spec, NULL, directory, err);
}

int trained_open(struct trained *trained, const char *path, int64_t step, struct error *err)
{
    char *directory = path_absolute(path, NULL);
    *trained = (struct trained){.eod = -1};
    int status;
    if (directory_has(directory, RUN_FILE))
        status = open_step(trained, directory, step, err);
    else if (step > 0)
        status = error_set(err, "%s: not a run directory, so it has no steps to choose from", directory);
    else if (directory_has(directory, COMPLETE_FILE))
        status = open_checkpoint(trained, directory, err);
    else if (directory_has(directory, HF_CONFIG_FILE))
        status = open_foreign(trained, directory, err);
    else
        status = error_set(err, "%s: neither a run directory (" RUN_FILE "), nor a complete checkpoint (" COMPLETE_FILE
                                "), nor a model of transformers (" HF_CONFIG_FILE ")", directory);
    free(directory);
    return status;
}

int trained_verify(const struct trained *trained, enum verify_what what, struct error *err)
{
    return directory_has(trained->checkpoint, COMPLETE_FILE) ? checkpoint_verify(trained->checkpoint, what, err) : 0;
}

void trained_release(struct trained *trained)
{
    job_release(&trained->job);
    free(trained->checkpoint);
}

bool trained_is_bytes(const struct trained *trained)
{
    const struct spec *spec = &trained->job.spec;
    return spec->data.tokenizer && strcmp(spec->data.tokenizer, "byte") == 0;
}
