// Prints loss, logits, balance losses and every gradient of a trained model on given tokens as JSON, for transformers to judge:
//   checkpoint_probe RUN_OR_DIRECTORY DEVICE < {"tokens": [[…]], "targets": [[…]]}
#include "schema/base/file.h"
#include "schema/base/json.h"
#include "tests/peers/probe.h"
#include "tests/train/tiny_model.h"
#include "worker/infer/loaded.h"
#include "worker/weights/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const struct error *err)
{
    fprintf(stderr, "checkpoint_probe: %s\n", err->text);
    exit(1);
}

static struct json *read_input(void)
{
    struct text text;
    struct error err = {0};
    text_init(&text, 1 << 24);
    if (file_read_any("/dev/stdin", &text, &err) != 0)
        stop(&err);
    struct json *input = js_parse(text.at, text.length, &err);
    if (!input)
        stop(&err);
    text_release(&text);
    return input;
}

static int32_t *read_rows(const struct json *rows, size_t B, size_t S)
{
    int32_t *out = allocate(B * S, sizeof *out);
    for (size_t b = 0; b < B; b++)
        for (size_t s = 0; s < S; s++)
            out[b * S + s] = (int32_t)js_integer_of(js_at(js_at(rows, b), s), -1);
    return out;
}

// Every tensor through the file's own precision into the device's, which may be double.
static void load(struct model *model, const char *directory)
{
    struct tensor_set *set;
    struct error err = {0};
    if (tensor_set_open(&set, directory, "model", &err) != 0)
        stop(&err);
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        struct tensor_info info;
        size_t count = param_elements(param);
        if (!tensor_set_find(set, param->name, &info) || (size_t)info.elements != count) {
            error_set(&err, "no tensor %s of this size", param->name);
            stop(&err);
        }
        float *values = allocate(count, sizeof *values);
        double *wide = allocate(count, sizeof *wide);
        if (tensor_read(&info, values, &err) != 0)
            stop(&err);
        for (size_t j = 0; j < count; j++)
            wide[j] = values[j];
        model->device->ops->from_double(model_param(model, param), wide, count);
        free(wide);
        free(values);
    }
    tensor_set_close(set);
    model_refresh_weights(model);
}

static struct json *result_of(struct model *model, const struct json *input)
{
    size_t B = (size_t)model->spec->training.micro_batch_size, S = (size_t)model->spec->data.sequence_length, V = (size_t)model->spec->model.vocab_size;
    int32_t *tokens = read_rows(js_get(input, "tokens"), B, S), *targets = read_rows(js_get(input, "targets"), B, S);
    struct json *result = js_object(), *logits = js_array(), *gradients = js_object();
    double *row = allocate(V, sizeof *row);
    js_set(result, "loss", js_real(model_forward(model, &(struct micro_batch){.tokens = tokens, .targets = targets}, true, 1)));
    model_backward(model);
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        double *values = tiny_read(model, model_gradient(model, param), param_elements(param));
        js_set(gradients, param->name, numbers(values, param_elements(param)));
        free(values);
    }
    model_forward(model, &(struct micro_batch){.tokens = tokens, .targets = targets}, false, 0);
    for (size_t t = 0; t < B * S; t++) {
        model_logits(model, t, row);
        js_append(logits, numbers(row, V));
    }
    js_set(result, "gradients", gradients);
    js_set(result, "logits", logits);
    free(row);
    free(tokens);
    free(targets);
    return result;
}

int main(int argc, char **argv)
{
    struct trained trained;
    struct parallel parallel;
    struct model *model;
    struct error err = {0};
    if (argc != 3)
        return 2;
    struct json *input = read_input();
    if (trained_open(&trained, argv[1], 0, &err) != 0)
        stop(&err);
    struct spec *spec = &trained.job.spec;
    spec->training.micro_batch_size = spec->training.global_batch_size = (int64_t)js_count(js_get(input, "tokens"));
    spec->data.sequence_length = (int64_t)js_count(js_at(js_get(input, "tokens"), 0));
    spec->model.moe.losses_count = 0; // the loss alone is compared
    struct comm *self = comm_self();
    if (parallel_init(&parallel, spec, self, &err) != 0 || model_new(&model, spec, find_device(argv[2]), &parallel, &err) != 0)
        stop(&err);
    load(model, trained.checkpoint);
    struct json *result = result_of(model, input);
    struct text text;
    text_init(&text, 512 << 20);
    js_write(&text, result);
    puts(text.at);
    text_release(&text);
    js_free(result);
    js_free(input);
    model_free(model);
    parallel_release(&parallel);
    comm_finish(self);
    trained_release(&trained);
    return 0;
}
