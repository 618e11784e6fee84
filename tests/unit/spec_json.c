// A resolved spec as a value: the way to JSON and back for every key of the table, what this build can run of it, and its documentation.
#include "tests/unit/spec_support.h"
#include "schema/spec/fields.h"

// ---- JSON and back, for every key ----

#define EVERY_KEY \
    "project: every\noutput: out\nengine: megatron\nexecutor: hf-jobs\n" \
    "code: {path: c, commit: abc}\nimage: {path: i.sqsh, base: 'docker://nvcr.io#nvidia/pytorch:26.06-py3', mounts: ['/a:/b', '/c:/d']}\n" \
    "environment: {variables: {A: '1', B: two}, modules: [cuda, mpi]}\n" \
    "data: {text: text.txt, document: line, json_key: body, tokenizer: t.json, cache: k, split: [80, 15, 5], sequence_length: 128,\n" \
    "  eod_mask_loss: true, reset_position_ids: true, reset_attention_mask: true, eod_token: <|end_of_text|>,\n" \
    "  tokenize: {tasks: 100, sampling_rate: 7.4%, document_limit: 1000, cpus_per_task: 12, memory_per_task: 24GB}}\n" \
    "model: {layers: 4, hidden_size: 64, ffn_hidden_size: 96, attention_heads: 8, kv_heads: 4, head_dim: 16, vocab_size: 300,\n" \
    "  tied_embeddings: true, norm: layernorm, norm_epsilon: 1e-6, activation: gelu, position: learned, rope_base: 500000,\n" \
    "  max_position_embeddings: 1024, rope_scaling_factor: 8, rope_scaling_low_freq_factor: 2, rope_scaling_high_freq_factor: 16,\n" \
    "  rope_scaling_original_length: 4096, bias: true, qk_norm: true, qk_norm_over: projection, attention_window: 32, attention_dropout: 0.1, hidden_dropout: 0.2,\n" \
    "  init: {std: 0.01}, from: {run: other, step: 20},\n" \
    "  moe: {experts: 16, experts_per_layer: [8, 16], top_k: 3,\n" \
    "    expert_ffn_hidden_size: 32, dispatcher: flex, grouped_gemm: true, router_dtype: fp64,\n" \
    "    losses: [{type: aux_loss, coefficient: 1e-2}, {type: z_loss, coefficient: 0.001}], score_function: sigmoid,\n" \
    "    scaling_factor: 2.5, expert_bias: true, bias_update_rate: 1e-2, num_groups: 4, group_topk: 2, capacity_factor: 1.25,\n" \
    "    eval_capacity_factor: 2, min_capacity: 4, drop_policy: position, pad_to_capacity: true, renormalise_after_drop: true, shared_expert_size: 16,\n" \
    "    shared_expert_gate: true, residual: true, layer_frequency: 2, input_jitter: 0.01, per_layer_metrics: true}}\n" \
    "training: {iterations: 10, micro_batch_size: 2, global_batch_size: 32, precision: bf16, deterministic: false, seed: 5,\n" \
    "  rampup_batch_size: {start: 8, increment: 8, samples: 1000}, gpu_sniff_test_interval: 20,\n" \
    "  loss_scale: {initial: 65536, minimum: 2, window: 500, hysteresis: 3},\n" \
    "  recompute: {granularity: full, method: block, layers: 2}, cross_entropy_fusion: te, distributed_optimizer: true,\n" \
    "  overlap: {gradient_reduce: true, parameter_gather: true},\n" \
    "  optimizer: {name: sgd, beta1: 0.8, beta2: 0.99, eps: 1e-7, weight_decay: 0.2, clip_grad: 0.5},\n" \
    "  learning_rate: {schedule: wsd, peak: 1e-3, minimum: 1e-4, initial: 1e-5, warmup_iterations: 2, decay_iterations: 3,\n" \
    "    total_iterations: 20, decay_style: cosine, expert_peak: 3e-4},\n" \
    "  validation: {interval: 5, iterations: 2}}\n" \
    "parallelism: {tensor: 2, pipeline: 2, context: 2, expert: 2, expert_tensor: 1, sequence: true, virtual_pipeline: 2}\n" \
    "resources: {nodes: 2, gpus_per_node: 8, gpu_memory: 80GB, ranks_per_node: 8, threads_per_rank: 3, memory: 1TB, time_limit: 90m, device: cuda}\n" \
    "slurm: {partition: p, account: a, qos: q, reservation: r, constraint: c, nodelist: n, exclude: e, mpi: pmix, exclusive: true,\n" \
    "  requeue: true, signal: USR1@60, grace: 90s}\n" \
    "hf-jobs: {flavor: h200x8, timeout: 10m}\npreflight: {image: d.sqsh, dcgm: 2, alltoall: {size: 1GiB, iterations: 5, at_least: 80%}}\n" \
    "checkpoint: {interval: 5, keep: 3, asynchronous: false, accept_changed: [data, model]}\nlogging: {interval: 2, expert_load: false}\n" \
    "retry: {limit: 2, on: [failed, lost], delay: 5s}\n"

static const struct json *at_path(const struct json *json, const char *path)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *save = NULL, *word = strtok_r(copy, ".", &save); word && json; word = strtok_r(NULL, ".", &save))
        json = js_get(json, word);
    return json;
}

// Reads back what was written, and writes it again: nothing may differ.
static struct json *there_and_back(const struct spec *spec)
{
    struct json *json = spec_to_json(spec);
    struct text text;
    text_init(&text, 1 << 20);
    js_write(&text, json);
    struct error err = {0};
    struct json *parsed = js_parse(text.at, text.length, &err);
    assert_non_null(parsed);
    struct spec back;
    if (spec_from_json(&back, parsed, &err) != 0)
        fail_msg("%s", err.text);
    struct json *again = spec_to_json(&back);
    if (!js_equal(json, again)) {
        js_write(&text, again);
        fail_msg("differs: %s", text.at);
    }
    spec_release(&back);
    js_free(parsed);
    js_free(again);
    text_release(&text);
    return json;
}

static void test_json_has_every_key(void **state)
{
    (void)state;
    enum { VARIANTS = 7 };
    static const char *const variants[VARIANTS][3] = {
        {NULL},
        {"data={text: null, prefix: pre}", "model.moe={layer_frequency: 1, layers: [1, 3]}", NULL},
        {"data={text: null, manifest: man}", "model.from={run: null, path: ck}", NULL},
        {"model.from.upcycle={granularity: 2}",
            "model.moe={experts: 4, experts_per_layer: null, num_groups: null, group_topk: null, expert_ffn_hidden_size: 48, top_k: 2, shared_expert_size: null, "
            "shared_expert_gate: null, residual: null}", NULL},
        {"training.deterministic=true", "training.cross_entropy_fusion=none", NULL},
        {"model.moe={routing: expert_choice, expert_bias: null, bias_update_rate: null, num_groups: null, group_topk: null, drop_policy: null, "
            "pad_to_capacity: null, renormalise_after_drop: null}", NULL},
        {"model.moe={score_function: null, pre_softmax: true, force_balance: true, expert_bias: null, bias_update_rate: null, num_groups: null, "
            "group_topk: null, renormalise_after_drop: null}", NULL},
    };
    struct json *copies[VARIANTS], *plain;
    struct spec_file file;
    for (size_t i = 0; i < VARIANTS; i++) {
        load_good(&file, "# A question.\n" EVERY_KEY "runs: {dense: {}}\n", variants[i]);
        copies[i] = there_and_back(&file.runs[0].spec);
        spec_file_release(&file);
    }
    struct spec defaults;
    spec_init(&defaults);
    plain = spec_to_json(&defaults);
    spec_release(&defaults);
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field->type == FIELD_SECTION || field->type == FIELD_PLAN)
            continue;
        bool differs = false;
        for (size_t j = 0; j < VARIANTS; j++) {
            const struct json *value = at_path(copies[j], field->path);
            differs = differs || (value && !js_equal(value, at_path(plain, field->path)));
        }
        if (!differs)
            fail_msg("`%s` is not set, or not in the resolved copy, by any variant", field->path);
    }
    for (size_t i = 0; i < VARIANTS; i++)
        js_free(copies[i]);
    js_free(plain);
}

static void test_json_of_a_small_spec(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC, NULL);
    struct json *json = there_and_back(&file.runs[0].spec);
    assert_null(at_path(json, "model.moe"));
    assert_null(at_path(json, "model.from"));
    assert_null(at_path(json, "slurm"));
    assert_null(at_path(json, "resources.time_limit"));
    assert_int_equal(js_integer_of(at_path(json, "model.kv_heads"), 0), 4);
    assert_string_equal(js_string_of(at_path(json, "name"), ""), "spec");
    js_free(json);
    spec_file_release(&file);
    // Sections that are there without a key of their own stay there.
    load_good(&file, GOOD_SPEC "slurm: {}\npreflight: {alltoall: {}}\n", NULL);
    json = there_and_back(&file.runs[0].spec);
    assert_non_null(at_path(json, "slurm"));
    assert_non_null(at_path(json, "preflight.alltoall"));
    assert_string_equal(js_string_of(at_path(json, "executor"), ""), "slurm");
    js_free(json);
    spec_file_release(&file);
}

static void test_json_is_checked(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC, NULL);
    struct json *json = spec_to_json(&file.runs[0].spec);
    spec_file_release(&file);
    struct json *model = js_get(json, "model");
    js_set(model, "layers", js_string("2"));
    js_set(model, "kv_heads", js_integer(3));
    js_set(model, "nonsense", js_boolean(true));
    js_set(json, "sweep", js_object());
    struct spec spec;
    struct error err;
    assert_int_equal(spec_from_json(&spec, json, &err), -1);
    assert_non_null(strstr(err.text, "`model.layers` expects a whole number from 1 to 1024, not the string `2`"));
    assert_non_null(strstr(err.text, "`model.attention_heads` 4 is not divisible by `model.kv_heads` 3 (remainder 1)"));
    assert_non_null(strstr(err.text, "unknown key `nonsense` in `model`"));
    assert_non_null(strstr(err.text, "`sweep` is no part of a resolved spec"));
    js_free(json);
    static const char *const odd[] = {"[]", "3", "null", "{}", "{\"model\": []}", "{\"data\": {\"split\": [1]}}"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        json = js_parse(odd[i], strlen(odd[i]), NULL);
        assert_int_equal(spec_from_json(&spec, json, &err), -1);
        js_free(json);
    }
}

// A variable's name, a tilde or a unit in a resolved spec is the value itself.
static void test_json_is_final(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC "code: {commit: '$${HOME}$$'}\n", NULL);
    assert_string_equal(file.runs[0].spec.code.commit, "${HOME}$");
    js_free(there_and_back(&file.runs[0].spec));
    spec_file_release(&file);
}

// ---- what this build can run ----

static void test_unrunnable_keys(void **state)
{
    (void)state;
    static const char *const refused[] = {"engine=megatron", "image.path=x",
        "training.distributed_optimizer=true", "training.overlap.gradient_reduce=true", "training.optimizer.name=sgd",
        "resources.nodes=2",
        "resources.device=cuda", "preflight.dcgm=1", "preflight.alltoall={}", "data.tokenizer=t.json",
        "model.moe={experts: 4, dispatcher: flex}",
        "training.gpu_sniff_test_interval=20", "data.tokenize.tasks=100", "data.tokenize.sampling_rate=7.4%",
        "data.tokenize.document_limit=1000", "data.tokenize.cpus_per_task=12", "data.tokenize.memory_per_task=24GB",
        "image.base=docker://a/b:1.2", "preflight.image=d.sqsh"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct spec_file file;
        const char *sets[] = {refused[i], NULL};
        load_good(&file, GOOD_SPEC, sets);
        const struct json *item = js_at(file.runs[0].unsupported, 0);
        const char *text = js_string_of(js_get(item, "text"), "");
        if (js_count(file.runs[0].unsupported) != 1 || !strstr(text, "this build cannot ") || !strstr(text, " yet\n"))
            fail_msg("--set %s: %zu refusals: %s", refused[i], js_count(file.runs[0].unsupported), text);
        char *start = string_format("--set %s: ", refused[i]);
        if (strncmp(text, start, strlen(start)) != 0)
            fail_msg("no place: %s", text);
        free(start);
        struct error err;
        const char *key = js_string_of(js_get(item, "key"), "");
        assert_int_equal(spec_runnable(&file.runs[0].spec, &err), -1);
        assert_true(strncmp(err.text, key, strlen(key)) == 0);
        spec_file_release(&file);
    }
    static const char *const taken[] = {"training.precision=bf16", "training.precision=fp16", "model.norm=layernorm", "model.activation=gelu", "model.moe={experts: 4, shared_expert_size: 8, residual: true}",
        "training.recompute={granularity: full, method: block}", "model.moe={experts_per_layer: [4, 2]}", "model.moe={experts: 4, layers: [1]}",
        "resources.device=reference", "training.deterministic=true", "training.learning_rate.schedule=constant",
        "training.learning_rate.schedule=cosine", "training.learning_rate.schedule=linear", "training.learning_rate.schedule=inverse_square_root",
        "training.learning_rate.expert_peak=1e-3", "training.rampup_batch_size={start: 2, increment: 2, samples: 100}",
        "model.moe={experts: 4, pre_softmax: true, grouped_gemm: true, per_layer_metrics: true}", "model.from={path: /ck}", "checkpoint.interval=5",
        "data.eod_mask_loss=true", "data.reset_position_ids=true", "data.reset_attention_mask=true", "model.position=none",
        "model.position=learned", "model.rope_scaling_factor=8", "model.bias=true", "model.qk_norm=true", "model.attention_window=5",
        "model.attention_dropout=0.1", "model.hidden_dropout=0.1", "parallelism.expert_tensor=1", "model.moe={experts: 4, layer_frequency: 2}",
        "model.moe={experts: 4, score_function: sigmoid, expert_bias: true}", "model.moe={experts: 4, routing: expert_choice}",
        "model.moe={experts: 4, losses: [{type: z_loss, coefficient: 1}, {type: seq_aux_loss, coefficient: 1}, {type: global_aux_loss, coefficient: 1}]}",
        "model.moe={experts: 4, capacity_factor: 1.5, pad_to_capacity: true}", "model.moe={experts: 4, router_dtype: bf16, input_jitter: 0.1}", "hf-jobs={flavor: h200x8}"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        struct spec_file file;
        const char *sets[] = {taken[i], NULL};
        load_good(&file, GOOD_SPEC, sets);
        assert_int_equal(js_count(file.runs[0].unsupported), 0);
        spec_file_release(&file);
    }
}

// Rented machines: the section alone only warns, the executor is refused, and so is the section that it would use.

static void test_experts_of_a_layer(void **state)
{
    (void)state;
    static const struct { const char *moe; int64_t experts[4], most; } cases[] = {
        {"{experts: 4}", {4, 4, 4, 4}, 4},
        {"{experts: 4, layer_frequency: 2}", {4, 0, 4, 0}, 4},
        {"{experts: 4, layer_frequency: 3}", {4, 0, 0, 4}, 4},
        {"{experts: 4, layers: [1, 2]}", {0, 4, 4, 0}, 4},
        {"{experts_per_layer: [16, 8, 4, 2]}", {16, 8, 4, 2}, 16},
        {"{experts_per_layer: [2, 8], layers: [0, 3]}", {2, 0, 0, 8}, 8},
        {"{experts: 8, experts_per_layer: [2, 8], layer_frequency: 2}", {2, 0, 8, 0}, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\nmodel: {layers: 4, moe: %s}\n", cases[i].moe);
        load_good(&file, text, NULL);
        const struct spec *spec = &file.runs[0].spec;
        int64_t layers = 0;
        for (int64_t layer = 0; layer < 4; layer++) {
            assert_int_equal(spec_layer_experts(spec, layer), cases[i].experts[layer]);
            layers += cases[i].experts[layer] > 0;
        }
        assert_int_equal(spec_moe_layers(spec), layers);
        assert_int_equal(spec->model.moe.experts, cases[i].most);
        js_free(there_and_back(spec));
        spec_file_release(&file);
        free(text);
    }
}

// What has no fault may be reasoned about, whatever is wrong elsewhere.
static void test_documentation(void **state)
{
    (void)state;
    struct text text;
    text_init(&text, 1 << 20);
    spec_schema_markdown(&text);
    struct json *schema = spec_schema_json();
    assert_false(text.overflowed);
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        char path[160] = "properties";
        char copy[96];
        snprintf(copy, sizeof copy, "%s", field->path);
        for (char *save = NULL, *word = strtok_r(copy, ".", &save); word; word = strtok_r(NULL, ".", &save)) {
            size_t used = strlen(path);
            snprintf(path + used, sizeof path - used, "%s.%s", used > 10 ? ".properties" : "", word);
        }
        const struct json *at = at_path(schema, path);
        assert_int_equal(at != NULL, !field->internal);
        char *row = field->type == FIELD_SECTION ? string_format("\n## `%s`\n", field->path) : string_format("| `%s` | ", field_key(field));
        assert_true(field->internal || strstr(text.at, row));
        free(row);
        if (!field->internal) {
            assert_non_null(js_get(at, "description"));
            if (field->standard && field->type != FIELD_LOSSES)
                assert_non_null(js_get(at, "default"));
        }
    }
    js_free(schema);
    text_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_has_every_key),
        cmocka_unit_test(test_json_of_a_small_spec),
        cmocka_unit_test(test_json_is_checked),
        cmocka_unit_test(test_json_is_final),
        cmocka_unit_test(test_unrunnable_keys),
        cmocka_unit_test(test_experts_of_a_layer),
        cmocka_unit_test(test_documentation),
    };
    return cmocka_run_group_tests_name("spec json", tests, enter_folder, leave_folder);
}
