// `evaluate`: the mean loss of a trained model over the samples of a split, in the order in which validation reads them, and what follows
// from it.
//
// loss          cross-entropy in nats, the mean over all counted targets (all of them, but with data.eod_mask_loss)
// perplexity    e to the loss
// bits_per_byte the sum of those losses in bits, by the bytes of text that were predicted: of the byte tokenizer every counted target is one,
//               but for end-of-document tokens, whose loss counts and which are no bytes
#include "schema/base/clock.h"
#include "schema/record/layout.h"
#include "worker/data/data.h"
#include "worker/infer/infer.h"
#include "worker/infer/loaded.h"
#include "worker/infer/options.h"
#include "worker/train/batch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char evaluate_usage[] =
    "evaluate RUN_OR_CHECKPOINT [--split valid|test|train] [--batches N] [--step N] [--threads N] [--json]\n"
    "  --split NAME           which part of the run's data (default valid)\n"
    "  --batches N            so many micro batches (default: the whole split, once)\n"
    "  --step N               of a run's checkpoint (default: the last complete one)\n"
    "  --threads N            default: every processor that this process may use\n"
    "  --json                 as JSON\n";

struct evaluation {
    struct trained trained;
    struct loaded loaded;
    struct batches batches;
    int64_t samples;                // to be read
    int64_t done, counted, bytes;   // samples, targets that count, bytes among them
    double nats;                    // the sum over counted targets
    const char *split;
};

static enum data_split split_of(const char *name)
{
    return strcmp(name, "train") == 0 ? SPLIT_TRAIN : strcmp(name, "test") == 0 ? SPLIT_TEST : SPLIT_VALID;
}

static int evaluate_batch(struct evaluation *e, struct error *err)
{
    const struct spec *spec = &e->trained.job.spec;
    int64_t rows = spec->training.micro_batch_size, count = rows * spec->data.sequence_length, counted = 0;
    struct micro_batch batch;
    if (batches_read_at(&e->batches, true, e->done, e->samples, &batch, err) != 0)
        return -1;
    for (int64_t i = 0; i < count; i++) {
        counted += batch.targets[i] >= 0;
        e->bytes += batch.targets[i] >= 0 && batch.targets[i] < BYTE_TOKEN_EOD;
    }
    e->nats += model_forward(e->loaded.model, &batch, false, 0) * (double)counted;
    e->counted += counted;
    e->done = e->done + rows < e->samples ? e->done + rows : e->samples;
    return 0;
}

static int open_all(struct evaluation *e, const char *path, int64_t step, int64_t batches, int64_t threads, struct error *err)
{
    const struct spec *spec = &e->trained.job.spec;
    if (trained_open(&e->trained, path, step, err) != 0)
        return -1;
    if (!e->trained.ours)
        return error_set(err, "%s: evaluate needs the data that a run names, and this is no run's", path);
    if (batches_open_split(&e->batches, &e->trained.job, split_of(e->split), &e->samples, err) != 0)
        return -1;
    if (batches > 0 && batches < (e->samples + spec->training.micro_batch_size - 1) / spec->training.micro_batch_size)
        e->samples = batches * spec->training.micro_batch_size;
    return loaded_open(&e->loaded, &e->trained, threads, err);
}

// Said at the end, and before it each time that 2 s and a twentieth of the samples have passed, or 30 s: a log of a long one stays short.
static bool is_time_to_say(const struct evaluation *e, double seconds, int64_t samples)
{
    return e->done == e->samples || seconds > 30 || (seconds > 2 && samples >= e->samples / 20);
}

static int run(struct evaluation *e, struct error *err)
{
    double began = clock_steady(), said = began;
    int64_t said_samples = 0;
    while (e->done < e->samples) {
        if (evaluate_batch(e, err) != 0)
            return -1;
        double now = clock_steady();
        if (!is_time_to_say(e, now - said, e->done - said_samples))
            continue;
        int64_t left = (int64_t)((now - began) / (double)e->done * (double)(e->samples - e->done) + 0.5);
        fprintf(stderr, "%" PRId64 " of %" PRId64 " samples  loss %.4f  %" PRId64 ":%02" PRId64 " left\n", e->done, e->samples,
            e->nats / (double)e->counted, left / 60, left % 60);
        said = now;
        said_samples = e->done;
    }
    return 0;
}

static void tell(const struct evaluation *e, bool as_json)
{
    double loss = e->nats / (double)e->counted;
    bool bytes_known = trained_is_bytes(&e->trained) && e->bytes > 0;
    double bits = bytes_known ? e->nats / log(2) / (double)e->bytes : 0;
    if (!as_json) {
        printf("%s, step %" PRId64 ": %" PRId64 " samples, %" PRId64 " tokens\n", e->split, e->trained.step, e->done, e->counted);
        printf("loss           %.6f\nperplexity     %.6f\n", loss, exp(loss));
        if (bytes_known)
            printf("bits_per_byte  %.6f  over %" PRId64 " bytes\n", bits, e->bytes);
        return;
    }
    struct json *json = js_object();
    struct text text;
    js_set(json, "split", js_string(e->split));
    js_set(json, "step", e->trained.step < 0 ? js_null() : js_integer(e->trained.step));
    js_set(json, "samples", js_integer(e->done));
    js_set(json, "tokens", js_integer(e->counted));
    js_set(json, "bytes", bytes_known ? js_integer(e->bytes) : js_null());
    js_set(json, "loss", js_real(loss));
    js_set(json, "perplexity", js_real(exp(loss)));
    js_set(json, "bits_per_byte", bytes_known ? js_real(bits) : js_null());
    text_init(&text, 1 << 16);
    js_write_pretty(&text, json);
    fputs(text.at, stdout);
    text_release(&text);
    js_free(json);
}

int evaluate_command(int argc, char **argv)
{
    const char *words[1];
    int64_t step = 0, batches = 0, threads = 0;
    bool as_json = false;
    struct error err = {0};
    struct evaluation e = {.split = "valid"};
    const struct option_row rows[] = {{"--split", OPTION_TEXT, &e.split, 0, 0}, {"--batches", OPTION_WHOLE, &batches, 1, OPTION_WHOLE_MOST},
        {"--step", OPTION_WHOLE, &step, 0, OPTION_WHOLE_MOST}, {"--threads", OPTION_WHOLE, &threads, 1, 4096}, {"--json", OPTION_FLAG, &as_json, 0, 0}, {0}};
    int code = options_command(evaluate_usage, rows, words, 1, argc, argv);
    if (code >= 0)
        return code;
    if (strcmp(e.split, "valid") != 0 && strcmp(e.split, "test") != 0 && strcmp(e.split, "train") != 0) {
        error_set(&err, "--split is valid, test or train, not '%s'", e.split);
        return complain(&err, EXIT_BAD_INPUT);
    }
    code = open_all(&e, words[0], step, batches, threads, &err) != 0 || run(&e, &err) != 0 ? complain(&err, EXIT_BAD_INPUT) : EXIT_DONE;
    if (code == EXIT_DONE)
        tell(&e, as_json);
    batches_release(&e.batches);
    if (e.loaded.self)
        loaded_close(&e.loaded);
    trained_release(&e.trained);
    return code;
}
