#include "worker/train/batch.h"
#include "schema/base/text.h"
#include "schema/shape/cost.h"

#include <stdlib.h>
#include <string.h>

static int64_t validation_samples(const struct spec *spec)
{
    return spec->training.validation.interval > 0 ? spec->training.validation.iterations * spec->training.global_batch_size : 0;
}

// Where sample indices are kept: the directory of data.cache, else a folder beside the first pair, if it can be written.
static char *cache_directory(const struct job *job)
{
    if (job->spec.data.cache)
        return string_copy(job->spec.data.cache);
    const char *prefix = job->parts[0].prefix, *slash = strrchr(prefix, '/');
    return string_format("%.*ssample-indices", slash ? (int)(slash + 1 - prefix) : 0, prefix);
}

static int open_splits(struct batches *batches, const struct job *job, struct sampling sampling, struct error *err)
{
    const struct spec_training *training = &job->spec.training;
    int64_t wanted = samples_before(&job->spec, training->iterations + 1);
    sampling.which = SPLIT_TRAIN;
    if (blend_open(&batches->train, job->parts, job->part_count, &sampling, wanted, err) != 0)
        return -1;
    if (blend_count(batches->train) < wanted)
        return error_set(err, "the data holds %lld samples in one epoch; %lld are needed, and pairs without weights are read once",
            (long long)blend_count(batches->train), (long long)wanted);
    wanted = validation_samples(&job->spec);
    sampling.which = SPLIT_VALID;
    return wanted > 0 ? blend_open(&batches->valid, job->parts, job->part_count, &sampling, wanted, err) : 0;
}

static int start(struct batches *batches, const struct job *job, int64_t data_rank, int64_t data_size, struct error *err)
{
    const struct spec_data *data = &job->spec.data;
    size_t S = (size_t)data->sequence_length, T = (size_t)job->spec.training.micro_batch_size * S;
    *batches = (struct batches){.spec = &job->spec, .data_rank = data_rank, .data_size = data_size};
    batches->row = allocate(S + 1, sizeof *batches->row);
    batches->tokens = allocate(T, sizeof *batches->tokens);
    batches->targets = allocate(T, sizeof *batches->targets);
    batches->positions = data->reset_position_ids ? allocate(T, sizeof *batches->positions) : NULL;
    batches->first_key = data->reset_attention_mask ? allocate(T, sizeof *batches->first_key) : NULL;
    bool ends = data->eod_mask_loss || data->reset_position_ids || data->reset_attention_mask;
    return ends ? document_end_token(&batches->end_token, data->tokenizer, data->eod_token, err) : 0;
}

static struct sampling sampling_of(const struct spec *spec, const char *cache)
{
    return (struct sampling){.split = spec->data.split, .sequence_length = spec->data.sequence_length, .seed = spec->training.seed,
        .cache = cache, .cache_needed = spec->data.cache != NULL};
}

int batches_open(struct batches *batches, const struct job *job, int64_t data_rank, int64_t data_size, struct error *err)
{
    if (start(batches, job, data_rank, data_size, err) != 0)
        return -1;
    char *cache = cache_directory(job);
    struct sampling sampling = sampling_of(&job->spec, cache);
    int status = open_splits(batches, job, sampling, err);
    free(cache);
    return status;
}

int batches_open_split(struct batches *batches, const struct job *job, enum data_split which, int64_t *samples, struct error *err)
{
    if (start(batches, job, 0, 1, err) != 0)
        return -1;
    struct sampling sampling = sampling_of(&job->spec, NULL);
    sampling.which = which;
    sampling.cache_needed = false;
    if (blend_open(&batches->valid, job->parts, job->part_count, &sampling, 0, err) != 0)
        return -1;
    *samples = blend_count(batches->valid);
    return 0;
}

void batches_release(struct batches *batches)
{
    blend_close(batches->train);
    blend_close(batches->valid);
    free(batches->row);
    free(batches->tokens);
    free(batches->targets);
    free(batches->positions);
    free(batches->first_key);
}

int64_t batches_micro_batches(const struct batches *batches, int64_t samples)
{
    return samples / (batches->spec->training.micro_batch_size * batches->data_size);
}

static int read_row(struct batches *batches, bool validation, int64_t position, struct error *err)
{
    const struct spec *spec = batches->spec;
    blend_read(validation ? batches->valid : batches->train, position, batches->row);
    for (int64_t i = 0; i <= spec->data.sequence_length; i++)
        if (batches->row[i] < 0 || batches->row[i] >= spec->model.vocab_size)
            return error_set(err, "sample %lld of the data holds token %d, but the vocabulary has %lld (model.vocab_size)", (long long)position,
                batches->row[i], (long long)spec->model.vocab_size);
    return 0;
}

// The row read last as sequence b of the micro batch.
static void place_row(struct batches *batches, int64_t b, bool counts)
{
    const int64_t S = batches->spec->data.sequence_length;
    int32_t *tokens = batches->tokens + b * S, *targets = batches->targets + b * S;
    memcpy(tokens, batches->row, (size_t)S * sizeof *tokens);
    memcpy(targets, batches->row + 1, (size_t)S * sizeof *targets);
    for (int64_t i = 0; i < S; i++)
        if (!counts || (batches->spec->data.eod_mask_loss && tokens[i] == batches->end_token))
            targets[i] = -1; // what follows the end of a document is another's beginning: not to be learnt
    if (batches->first_key)
        document_starts(batches->first_key + b * S, tokens, S, batches->end_token);
    if (!batches->positions)
        return;
    int32_t *positions = batches->positions + b * S;
    document_starts(positions, tokens, S, batches->end_token);
    for (int64_t i = 0; i < S; i++)
        positions[i] = (int32_t)i - positions[i];
}

int batches_read_at(struct batches *batches, bool validation, int64_t first, int64_t end, struct micro_batch *out, struct error *err)
{
    for (int64_t b = 0; b < batches->spec->training.micro_batch_size; b++) {
        if (first + b < end && read_row(batches, validation, first + b, err) != 0)
            return -1;
        place_row(batches, b, first + b < end);
    }
    *out = (struct micro_batch){batches->tokens, batches->targets, batches->positions, batches->first_key, first};
    return 0;
}

int batches_read(struct batches *batches, bool validation, int64_t step, int64_t micro_batch, struct micro_batch *out, struct error *err)
{
    const struct spec *spec = batches->spec;
    int64_t first = validation ? (step - 1) * spec->training.global_batch_size : samples_before(spec, step);
    first += (micro_batch * batches->data_size + batches->data_rank) * spec->training.micro_batch_size;
    return batches_read_at(batches, validation, first, INT64_MAX, out, err);
}

void batches_hash(const struct batches *batches, int64_t step, char hex[HASH_HEX])
{
    const int64_t S = batches->spec->data.sequence_length, end = samples_before(batches->spec, step + 1);
    struct hash *hash = hash_new();
    for (int64_t sample = samples_before(batches->spec, step); sample < end; sample++) {
        blend_read(batches->train, sample, batches->row);
        hash_add(hash, batches->row, ((size_t)S + 1) * sizeof *batches->row);
    }
    hash_end(hash, hex);
}

struct json *batches_identity(const struct job *job, struct error *err)
{
    const struct spec *spec = &job->spec;
    struct hash *hash = hash_new();
    char hex[HASH_HEX];
    int status = 0;
    for (size_t i = 0; i < job->part_count && status == 0; i++) {
        status = indexed_fingerprint(hex, job->parts[i].prefix, err);
        hash_add(hash, hex, HASH_HEX - 1);
        hash_add(hash, &job->parts[i].weight, sizeof job->parts[i].weight);
    }
    hash_end(hash, hex);
    if (status != 0)
        return NULL;
    struct json *identity = js_object(), *split = js_array();
    for (int i = 0; i < 3; i++)
        js_append(split, js_real(spec->data.split[i]));
    js_set(identity, "data.fingerprint", js_string(hex));
    js_set(identity, "data.split", split);
    js_set(identity, "data.sequence_length", js_integer(spec->data.sequence_length));
    js_set(identity, "data.eod_mask_loss", js_boolean(spec->data.eod_mask_loss));
    js_set(identity, "training.seed", js_integer(spec->training.seed));
    js_set(identity, "samples", js_integer(samples_before(spec, spec->training.iterations + 1))); // how many are laid out in order
    return identity;
}
