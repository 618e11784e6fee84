// `export`: a checkpoint becomes a directory that transformers loads. Tensors go from file to file in pieces: no model is built.
//
//   config.json                     which model it is
//   model.safetensors               the tensors, under the names of that architecture; beyond --max-shard-size cut into
//                                   model-0000I-of-0000N.safetensors with model.safetensors.index.json, the map of tensor to file
//   generation_config.json, tokenizer.json, tokenizer_config.json   where tokens are bytes
//
// The directory is made under another name and renamed when it is whole. One that is there already is left alone.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/data/data.h"
#include "worker/infer/infer.h"
#include "worker/infer/options.h"
#include "worker/infer/placed.h"
#include "worker/infer/tokenizer.h"
#include "worker/infer/trained.h"
#include "worker/weights/hugging_face.h"
#include "worker/weights/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char export_usage[] =
    "export RUN_OR_CHECKPOINT DIRECTORY [--step N] [--dtype fp32|bf16] [--max-shard-size SIZE] [--json]\n"
    "  --step N               of a run's checkpoint (default: the last complete one)\n"
    "  --dtype TYPE           fp32 (default: the bits of the checkpoint) or bf16\n"
    "  --max-shard-size SIZE  cut the weights into files of at most this size, as far as tensors allow (5GB by default; digits alone are bytes)\n"
    "  --json                 say as JSON what was written\n";

struct export {
    struct trained trained;
    struct tensor_set *set;
    enum hf_architecture architecture;
    bool bf16;
    int64_t shard_bytes;        // at most, but for a larger tensor
    struct source { struct tensor_info info; int64_t shard; } *sources;
    struct tensor_entry *entries;
    size_t count, room;
    int64_t shards, total_bytes;
    struct error *err;
    int status;                 // of what callbacks cannot return
};

// Collects one tensor of the table: where it lies, and what it will be called.
static void collect(void *context, const struct param *param)
{
    struct export *export = context;
    if (export->status != 0)
        return;
    if (export->count == export->room) {
        export->room = export->room ? 2 * export->room : 64;
        export->sources = reallocate(export->sources, export->room, sizeof *export->sources);
        export->entries = reallocate(export->entries, export->room, sizeof *export->entries);
    }
    char shape[TENSOR_SHAPE_TEXT];
    struct source *source = &export->sources[export->count];
    struct tensor_entry *entry = &export->entries[export->count];
    if (!tensor_set_find(export->set, param->name, &source->info)) {
        export->status = error_set(export->err, "%s: no tensor %s in it, which its model needs", export->trained.checkpoint, param->name);
        return;
    }
    if (!tensor_has_shape(&source->info, param->rows, param->columns)) {
        export->status = error_set(export->err, "%s: %s is %s, but its model's is %lld × %lld", source->info.file, param->name,
            tensor_shape_text(shape, &source->info), (long long)param->rows, (long long)param->columns);
        return;
    }
    bool vector = param->init != INIT_NORMAL;
    *entry = (struct tensor_entry){.shape = {vector ? param->columns : param->rows, vector ? 1 : param->columns}, .dimensions = vector ? 1 : 2,
        .dtype = export->bf16 ? "BF16" : "F32"};
    hf_tensor_name(entry->name, export->architecture, param);
    export->count++;
}

// Files are filled in order; a tensor that does not fit begins the next.
static void cut_into_shards(struct export *export)
{
    int64_t used = 0;
    for (size_t i = 0; i < export->count; i++) {
        int64_t bytes = export->sources[i].info.elements * (export->bf16 ? 2 : 4);
        if (used > 0 && used + bytes > export->shard_bytes) {
            export->shards++;
            used = 0;
        }
        used += bytes;
        export->total_bytes += bytes;
        export->sources[i].shard = export->shards;
        export->entries[i].source = &export->sources[i];
    }
    export->shards++;
}

// Rounds to the nearest brain float, ties to even. What is no number stays none: its quiet bit survives the cut.
static uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bool none = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)((none ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void fetch(void *context, void *host, const struct tensor_entry *entry, size_t at, size_t bytes)
{
    struct export *export = context;
    const struct source *source = entry->source;
    size_t size = export->bf16 ? 2 : 4, count = bytes / size;
    float *values = export->bf16 ? allocate(count, sizeof *values) : host;
    if (export->status == 0 && placed_is_interrupted())
        export->status = error_set(export->err, "interrupted");
    if (export->status == 0)
        export->status = tensor_read_part(&source->info, (int64_t)(at / size), (int64_t)count, values, export->err);
    if (!export->bf16)
        return;
    uint16_t *out = host;
    for (size_t i = 0; i < count; i++)
        out[i] = narrow(values[i]);
    free(values);
}

static char *shard_name(const struct export *export, int64_t shard)
{
    return export->shards == 1 ? string_copy("model.safetensors")
                               : string_format("model-%05lld-of-%05lld.safetensors", (long long)shard + 1, (long long)export->shards);
}

static int write_shards(struct export *export, const char *directory)
{
    for (size_t first = 0, end; first < export->count; first = end) {
        for (end = first; end < export->count && export->sources[end].shard == export->sources[first].shard; end++)
            continue;
        char *name = shard_name(export, export->sources[first].shard), *path = path_join(directory, name), hex[HASH_HEX];
        int64_t bytes;
        fprintf(stderr, "%s: %zu tensor%s\n", name, end - first, end - first == 1 ? "" : "s");
        int status = safetensors_write(path, export->entries + first, end - first, fetch, export, &bytes, hex, export->err);
        free(path);
        free(name);
        if (status != 0 || export->status != 0)
            return -1;
    }
    return 0;
}

static int write_json(const char *directory, const char *name, struct json *json, struct error *err)
{
    struct text text;
    text_init(&text, 1 << 28);
    js_write_pretty(&text, json);
    char *path = path_join(directory, name);
    int status = file_write_atomic(path, text.at, text.length, 0644, err);
    free(path);
    text_release(&text);
    js_free(json);
    return status;
}

static struct json *weight_map(const struct export *export)
{
    struct json *index = js_object(), *metadata = js_object(), *map = js_object();
    for (size_t i = 0; i < export->count; i++) {
        char *name = shard_name(export, export->sources[i].shard);
        js_set(map, export->entries[i].name, js_string(name));
        free(name);
    }
    js_set(metadata, "total_size", js_integer(export->total_bytes));
    js_set(index, "metadata", metadata);
    js_set(index, "weight_map", map);
    return index;
}

static int write_all(struct export *export, const char *directory)
{
    const struct spec *spec = &export->trained.job.spec;
    struct error *err = export->err;
    bool bytes = trained_is_bytes(&export->trained);
    int64_t eod = bytes ? BYTE_TOKEN_EOD : -1;
    if (write_shards(export, directory) != 0)
        return -1;
    if (export->shards > 1 && write_json(directory, "model.safetensors.index.json", weight_map(export), err) != 0)
        return -1;
    if (write_json(directory, HF_CONFIG_FILE, hf_config_of(spec, export->architecture, export->bf16 ? "bfloat16" : "float32", eod), err) != 0)
        return -1;
    if (!bytes)
        return 0;
    struct json *generation = js_object();
    js_set(generation, "eos_token_id", js_integer(eod));
    js_set(generation, "pad_token_id", js_integer(eod));
    if (write_json(directory, "generation_config.json", generation, err) != 0 ||
        write_json(directory, "tokenizer.json", tokenizer_of_bytes(), err) != 0)
        return -1;
    return write_json(directory, "tokenizer_config.json", tokenizer_config_of_bytes(spec->data.sequence_length), err);
}

static int write_directory(struct export *export, const char *path)
{
    struct placed placed;
    int status = placed_begin(&placed, path, export->err);
    if (status == 0 && (status = placed_make(&placed, export->err)) == 0)
        status = write_all(export, placed.temporary);
    return placed_end(&placed, status, export->err);
}

static void tell(const struct export *export, const char *path, bool as_json)
{
    int64_t elements = export->total_bytes / (export->bf16 ? 2 : 4);
    struct json *config = hf_config_of(&export->trained.job.spec, export->architecture, "", -1);
    const char *class = js_string_of(js_at(js_get(config, "architectures"), 0), "");
    if (as_json) {
        struct json *json = js_object();
        struct text text;
        js_set(json, "directory", js_string(path));
        js_set(json, "architecture", js_string(class));
        js_set(json, "dtype", js_string(export->bf16 ? "bf16" : "fp32"));
        js_set(json, "step", export->trained.step < 0 ? js_null() : js_integer(export->trained.step));
        js_set(json, "parameters", js_integer(elements));
        js_set(json, "files", js_integer(export->shards));
        text_init(&text, 1 << 16);
        js_write_pretty(&text, json);
        fputs(text.at, stdout);
        text_release(&text);
        js_free(json);
    } else {
        printf("%s: %s, %" PRId64 " parameters in %s, %" PRId64 " file%s\n", path, class, elements, export->bf16 ? "bf16" : "fp32", export->shards,
            export->shards == 1 ? "" : "s");
    }
    js_free(config);
}

static int run(struct export *export, const char *path, const char *directory, int64_t step)
{
    if (trained_open(&export->trained, path, step, export->err) != 0 ||
        hf_architecture_of(&export->architecture, &export->trained.job.spec, export->err) != 0 ||
        trained_verify(&export->trained, VERIFY_WEIGHTS, export->err) != 0 ||
        tensor_set_open(&export->set, export->trained.checkpoint, "model", export->err) != 0)
        return EXIT_BAD_INPUT;
    param_walk(&export->trained.job.spec, collect, export);
    if (export->status != 0)
        return EXIT_BAD_INPUT;
    cut_into_shards(export);
    return write_directory(export, directory) == 0 ? EXIT_DONE : EXIT_FAILED;
}

int export_command(int argc, char **argv)
{
    const char *words[2], *dtype = "fp32";
    int64_t step = 0;
    bool as_json = false;
    struct error err = {0};
    struct export export = {.shard_bytes = 5000000000, .err = &err};
    const struct option_row rows[] = {{"--step", OPTION_WHOLE, &step, 0, OPTION_WHOLE_MOST}, {"--dtype", OPTION_TEXT, &dtype, 0, 0},
        {"--max-shard-size", OPTION_SIZE, &export.shard_bytes, 1, OPTION_WHOLE_MOST}, {"--json", OPTION_FLAG, &as_json, 0, 0}, {0}};
    int code = options_command(export_usage, rows, words, 2, argc, argv);
    if (code >= 0)
        return code;
    export.bf16 = strcmp(dtype, "bf16") == 0;
    if (!export.bf16 && strcmp(dtype, "fp32") != 0) {
        error_set(&err, "--dtype is fp32 or bf16, not '%s'", dtype);
        return complain(&err, EXIT_BAD_INPUT);
    }
    code = run(&export, words[0], words[1], step);
    if (code == EXIT_DONE)
        tell(&export, words[1], as_json);
    else
        complain(&err, code);
    free(export.sources);
    free(export.entries);
    tensor_set_close(export.set);
    trained_release(&export.trained);
    return code;
}
