// What our code says about schedules, batch ramps and AdamW, as JSON, for Megatron and PyTorch to judge:
//   optimise_probe rates < [{"spec": {…}, "positions": [samples, …]}, …]    rates at these positions, and the batch of every step
//   optimise_probe adamw DEVICE                                             parameters of a small model over 100 updates
#include "schema/base/json.h"
#include "schema/shape/cost.h"
#include "schema/shape/lr.h"
#include "tests/train/tiny_model.h"
#include "worker/train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UPDATES = 100, BATCH = 4, INPUT_MAX = 64 << 20 };

static int complain(const char *text)
{
    fprintf(stderr, "optimise_probe: %s\n", text);
    return 1;
}

static int print(struct json *json)
{
    struct text text;
    text_init(&text, 256 << 20);
    js_write(&text, json);
    puts(text.at);
    text_release(&text);
    js_free(json);
    return 0;
}

// ---- rates and batches ----

static struct json *answer(const struct spec *spec, const struct json *positions)
{
    struct json *object = js_object(), *rates = js_array(), *batches = js_array();
    for (size_t i = 0; i < js_count(positions); i++) {
        struct json *pair = js_array();
        int64_t samples = js_integer_of(js_at(positions, i), -1);
        js_append(pair, js_real(learning_rate(spec, samples)));
        js_append(pair, js_real(expert_learning_rate(spec, samples)));
        js_append(rates, pair);
    }
    for (int64_t step = 1; step <= spec->training.iterations; step++)
        js_append(batches, js_integer(step_samples(spec, step)));
    js_set(object, "rates", rates);
    js_set(object, "batches", batches);
    return object;
}

static int print_rates(void)
{
    struct error err;
    char *input = allocate(INPUT_MAX, 1);
    size_t length = fread(input, 1, INPUT_MAX, stdin);
    struct json *cases = js_parse(input, length, &err), *answers = js_array();
    free(input);
    if (!cases)
        return complain(err.text);
    for (size_t i = 0; i < js_count(cases); i++) {
        struct spec spec;
        if (spec_from_json(&spec, js_get(js_at(cases, i), "spec"), &err) != 0 || spec_runnable(&spec, &err) != 0)
            return complain(err.text);
        js_append(answers, answer(&spec, js_get(js_at(cases, i), "positions")));
        spec_release(&spec);
    }
    js_free(cases);
    return print(answers);
}

// ---- AdamW ----

static struct json *values_of(const struct model *model)
{
    struct json *object = js_object();
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        double *values = tiny_read(model, model_param(model, param), param_elements(param));
        struct json *array = js_array();
        for (size_t j = 0; j < param_elements(param); j++)
            js_append(array, js_real(values[j]));
        js_set(object, param->name, array);
        free(values);
    }
    return object;
}

// Element j of tensor i in update k: (random − ½) · 2^(k mod 7 − 5), so that some updates are clipped and others are not.
static void make_gradients(struct model *model, int64_t update)
{
    for (size_t i = 0; i < model->table.count; i++) {
        const struct param *param = &model->table.items[i];
        size_t count = param_elements(param);
        double *values = allocate(count, sizeof *values);
        for (size_t j = 0; j < count; j++)
            values[j] = ldexp(tiny_random((uint64_t)update * 1000 + i, j) - 0.5, (int)(update % 7) - 5);
        model->device->ops->from_double(model_gradient(model, param), values, count);
        free(values);
    }
}

static void make_spec(struct spec *spec)
{
    tiny_spec(spec, &(struct tiny){.experts = 3, .top_k = 2, .untied = true});
    spec->training.iterations = UPDATES;
    spec->training.global_batch_size = BATCH;
    spec->training.optimizer = (struct spec_optimizer){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 1};
    spec->training.learning_rate = (struct spec_learning_rate){.schedule = SCHEDULE_COSINE, .peak = 3e-3, .minimum = 1e-4, .initial = 1e-5,
        .warmup_iterations = 10, .total_iterations = UPDATES, .expert_peak = 1e-3};
}

static int print_adamw(const char *name)
{
    struct spec spec;
    struct parallel parallel;
    struct model *model;
    struct optimizer optimizer = {0};
    struct error err;
    const struct device *device = !strcmp(name, "reference_f64") ? device_reference_f64() : !strcmp(name, "cpu") ? device_cpu(2) : device_reference();
    make_spec(&spec);
    struct comm *world = comm_self();
    if (parallel_init(&parallel, &spec, world, &err) < 0 || model_new(&model, &spec, device, &parallel, &err) < 0)
        return complain(err.text);
    optimizer_init(&optimizer, model);
    tiny_values(model, 0.5);
    struct json *object = js_object(), *norms = js_array();
    js_set(object, "0", values_of(model));
    for (int64_t update = 1; update <= UPDATES; update++) {
        int64_t zeros;
        char key[24];
        make_gradients(model, update);
        double norm = model_gradient_norm(model, &zeros);
        js_append(norms, js_real(norm));
        optimizer_step(&optimizer, model, norm, 1, BATCH);
        snprintf(key, sizeof key, "%lld", (long long)update);
        if (update == 1 || update == 10 || update == UPDATES)
            js_set(object, key, values_of(model));
    }
    js_set(object, "norms", norms);
    optimizer_release(&optimizer);
    model_free(model);
    parallel_release(&parallel);
    comm_finish(world);
    return print(object);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "rates") == 0)
        return print_rates();
    return argc == 3 && strcmp(argv[1], "adamw") == 0 ? print_adamw(argv[2]) : complain("usage: rates | adamw DEVICE");
}
