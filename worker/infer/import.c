// `import`: the model section of a spec, as YAML, from a directory of Hugging Face's, so that a run can start from its weights.
#include "schema/base/file.h"
#include "schema/base/json.h"
#include "schema/record/layout.h"
#include "worker/infer/infer.h"
#include "schema/shape/params.h"
#include "worker/infer/options.h"
#include "worker/infer/trained.h"
#include "worker/infer/tokenizer.h"
#include "worker/weights/hugging_face.h"
#include "worker/weights/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char import_usage[] =
    "import DIRECTORY [-o FILE]\n"
    "  -o FILE                write there, which must not exist, instead of on stdout\n";

static void add_real(struct text *out, const char *key, double value)
{
    text_addf(out, "%s: ", key);
    js_write_real(out, value);
    text_add(out, "\n");
}

// A path as a YAML scalar: JSON's string is one.
static void add_path(struct text *out, const char *path)
{
    struct json *json = js_string(path);
    js_write(out, json);
    js_free(json);
}

static void add_moe(struct text *out, const struct spec_model *model)
{
    const struct spec_moe *moe = &model->moe;
    text_addf(out, "  moe:\n    experts: %" PRId64 "\n    top_k: %" PRId64 "\n    expert_ffn_hidden_size: %" PRId64 "\n", moe->experts, moe->top_k,
        moe->expert_ffn_hidden_size);
    text_addf(out, "    pre_softmax: %s\n", moe->pre_softmax ? "true" : "false");
    if (moe->losses_count) {
        text_add(out, "    losses: [{type: aux_loss, ");
        text_add(out, "coefficient: ");
        js_write_real(out, moe->losses[0].coefficient);
        text_add(out, "}]\n");
    }
}

static void add_model(struct text *out, const struct spec *spec, const char *directory)
{
    const struct spec_model *m = &spec->model;
    const struct { const char *key; int64_t value; } sizes[] = {{"layers", m->layers}, {"hidden_size", m->hidden_size},
        {"ffn_hidden_size", m->ffn_hidden_size}, {"attention_heads", m->attention_heads}, {"kv_heads", m->kv_heads}, {"head_dim", m->head_dim},
        {"vocab_size", m->vocab_size}};
    text_add(out, "model:\n");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        text_addf(out, "  %s: %" PRId64 "\n", sizes[i].key, sizes[i].value);
    text_addf(out, "  tied_embeddings: %s\n  norm: rmsnorm\n", m->tied_embeddings ? "true" : "false");
    add_real(out, "  norm_epsilon", m->norm_epsilon);
    text_add(out, "  activation: swiglu\n  position: rope\n");
    add_real(out, "  rope_base", m->rope_base);
    if (m->rope_scaling_factor != 0) {
        add_real(out, "  rope_scaling_factor", m->rope_scaling_factor);
        add_real(out, "  rope_scaling_low_freq_factor", m->rope_scaling_low_freq_factor);
        add_real(out, "  rope_scaling_high_freq_factor", m->rope_scaling_high_freq_factor);
        text_addf(out, "  rope_scaling_original_length: %" PRId64 "\n", m->rope_scaling_original_length);
    }
    if (m->bias)
        text_add(out, "  bias: true\n");
    if (m->qk_norm)
        text_addf(out, "  qk_norm: true\n  qk_norm_over: %s\n", m->qk_norm_over == QK_NORM_HEAD ? "head" : "projection");
    if (m->attention_window)
        text_addf(out, "  attention_window: %" PRId64 "\n", m->attention_window);
    text_add(out, "  init: {std: ");
    js_write_real(out, m->init.std);
    text_add(out, "}\n");
    if (m->moe.experts)
        add_moe(out, m);
    text_add(out, "  from: {path: ");
    add_path(out, directory);
    text_add(out, "}\n");
}

static void add_preamble(struct text *out, const struct spec *spec, const char *name, const char *directory)
{
    text_addf(out, "# The model of a spec, from a %s that transformers wrote. Take it up by `base: THIS_FILE` in a spec of yours, and add what it\n"
                   "# does not say: project, data, training.\n", name);
    if (spec->data.sequence_length)
        text_addf(out, "# It was made for sequences of up to %" PRId64 " tokens.\n", spec->data.sequence_length);
    if (!tokenizer_is_bytes(directory))
        text_addf(out, "# Its tokens are those of its own tokenizer: the data must be tokenised by it (%" PRId64 " tokens).\n", spec->model.vocab_size);
    text_add(out, "\n");
}

struct check {
    const struct tensor_set *set;
    const char *directory;
    struct error *err;
    int status; // of the first tensor that is not as it should be
};

static void check_tensor(void *context, const struct param *param)
{
    struct check *check = context;
    struct tensor_info info;
    char shape[TENSOR_SHAPE_TEXT];
    if (check->status != 0)
        return;
    if (!tensor_set_find(check->set, param->name, &info))
        check->status = error_set(check->err, "%s: no tensor %s in it, which the model of config.json has", check->directory, param->name);
    else if (!tensor_has_shape(&info, param->rows, param->columns))
        check->status = error_set(check->err, "%s: %s is %s, but that of config.json's model is %lld × %lld", info.file, param->name,
            tensor_shape_text(shape, &info), (long long)param->rows, (long long)param->columns);
}

// A run would find it out too, but later.
static int check_tensors(const struct spec *spec, const struct tensor_set *set, const char *directory, struct error *err)
{
    struct check check = {set, directory, err, 0};
    param_walk(spec, check_tensor, &check);
    return check.status;
}

static int write_out(const struct text *out, const char *file, struct error *err)
{
    if (!file) {
        fputs(out->at, stdout);
        return 0;
    }
    if (access(file, F_OK) == 0)
        return error_set(err, "%s: is there already", file);
    return file_write_atomic(file, out->at, out->length, 0644, err);
}

// A directory without config.json: what it is instead.
static int check_directory(const char *directory, struct error *err)
{
    struct stat info;
    if (stat(directory, &info) != 0)
        return error_set(err, "%s: %s", directory, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return error_set(err, "%s: not a directory", directory);
    if (directory_has(directory, HF_CONFIG_FILE))
        return 0;
    if (directory_has(directory, COMPLETE_FILE))
        return error_set(err, "%s: a checkpoint of a run, which needs no import: `model.from: {path: …}` starts from it", directory);
    if (directory_has(directory, RUN_FILE))
        return error_set(err, "%s: a run directory, which needs no import: `model.from: {run: PROJECT/NAME}` starts from its weights", directory);
    return error_set(err, "%s: no model of transformers: there is no " HF_CONFIG_FILE " in it", directory);
}

int import_command(int argc, char **argv)
{
    const char *words[1], *file = NULL, *name;
    const struct option_row rows[] = {{"-o", OPTION_TEXT, &file, 0, 0}, {"--output", OPTION_TEXT, &file, 0, 0}, {0}};
    int code = options_command(import_usage, rows, words, 1, argc, argv);
    if (code >= 0)
        return code;
    struct error err = {0};
    struct spec spec;
    struct text out;
    struct tensor_set *set = NULL;
    char *directory = path_absolute(words[0], NULL);
    spec_init(&spec);
    text_init(&out, 1 << 20);
    code = EXIT_BAD_INPUT;
    if (check_directory(directory, &err) == 0 && foreign_model(&spec, &name, directory, &err) == 0 &&
        tensor_set_open(&set, directory, "model", &err) == 0 && check_tensors(&spec, set, directory, &err) == 0) {
        add_preamble(&out, &spec, name, directory);
        add_model(&out, &spec, directory);
        code = write_out(&out, file, &err) == 0 ? EXIT_DONE : EXIT_FAILED;
    }
    if (code != EXIT_DONE)
        complain(&err, code);
    tensor_set_close(set);
    text_release(&out);
    spec_release(&spec);
    free(directory);
    return code;
}
