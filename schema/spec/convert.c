// A merged tree into a struct spec: each key finds its row, each row converts its value, missing required keys are named, defaults that
// depend on other keys are filled in.
#include "schema/spec/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct field_state *state_of(const struct check *check, const char *path)
{
    const struct field *field = field_find(path);
    if (!field)
        abort(); // a rule names a key that the table does not have
    return &check->states[field_index(field)];
}

struct problem check_place(const struct check *check, const struct field *field)
{
    for (; field; field = field_parent(field)) {
        const struct field_state *state = &check->states[field_index(field)];
        const struct node *node = field->type == FIELD_SECTION || !state->value ? state->key : state->value;
        if (node)
            return (struct problem){.source = node->source, .line = node->line, .column = node->column};
    }
    return (struct problem){.source = check->root->source, .line = check->root->line, .column = check->root->column};
}

void check_at(struct check *check, const char *path, bool warning, const char *format, ...)
{
    struct problem place = check_place(check, field_find(path));
    if (!warning)
        state_of(check, path)->faulted = true;
    va_list args;
    va_start(args, format);
    char *message = NULL;
    if (vasprintf(&message, format, args) < 0)
        abort();
    va_end(args);
    problem_add(check->problems, place.source, place.line, place.column, warning, "%s", message);
    free(message);
}

// ---- the walk ----

static void convert_map(struct check *check, const struct node *map, const char *section);

static void convert_key(struct check *check, const struct node *key, const struct node *value, const char *section)
{
    char *path = *section ? string_format("%s.%s", section, key->text) : string_copy(key->text);
    const struct field *field = strchr(key->text, '.') ? NULL : field_find(path);
    if (!field || (field->internal && !key->source->json)) {
        unknown_key(check, key, section);
        free(path);
        return;
    }
    struct field_state *state = &check->states[field_index(field)];
    state->key = key;
    state->value = value;
    if (field->type == FIELD_SECTION) {
        if (value->kind == NODE_MAP)
            convert_map(check, value, path);
        else
            state->bad = !value_refuse(check, field, value, NULL);
        if (field->offset)
            *(bool *)field_at(field, check->spec) = true;
    } else if (field->type == FIELD_PLAN) {
        check_plan_key(check, field, value);
    } else {
        state->bad = !value_convert(check, field, value);
    }
    free(path);
}

static void convert_map(struct check *check, const struct node *map, const char *section)
{
    for (size_t i = 0; i < map->count; i++)
        convert_key(check, map->keys[i], map->items[i], section);
}

// ---- what is missing ----

// Whether the key's section asks for its required keys: an optional section only where it is written.
static bool is_wanted(const struct check *check, const struct field *field)
{
    for (const struct field *section = field_parent(field); section; section = field_parent(section)) {
        const struct field_state *state = &check->states[field_index(section)];
        if (state->bad || (section->optional && !state->key))
            return false;
    }
    return true;
}

// A section that is not a map says nothing about its keys: none of them may be judged by its default.
static void spread_bad(struct check *check)
{
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *section = field_parent(&spec_fields[i]);
        if (section && check->states[field_index(section)].bad)
            check->states[i].bad = true;
    }
}

static void require(struct check *check)
{
    struct text wanted;
    text_init(&wanted, 4096);
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (!field->required || check->states[i].key || !is_wanted(check, field))
            continue;
        if (field->instead && state_of(check, field->instead)->key)
            continue;
        check->states[i].bad = true;
        text_clear(&wanted);
        field_expectation(&wanted, field);
        check_at(check, field->path, false, "the required key `%s` is missing: %s (%s)", field->path, wanted.at, field->help);
    }
    text_release(&wanted);
}

static bool is_good(const struct check *check, const char *path)
{
    return !state_of(check, path)->bad;
}

// What the machines did, not the run: those ends are worth another try whatever is trained.
static void derive_retry(struct spec_list *on)
{
    static const char *const causes[] = {"node_failed", "preempted", "lost"};
    on->items = allocate(3, sizeof *on->items);
    for (on->count = 0; on->count < 3; on->count++)
        on->items[on->count] = string_copy(causes[on->count]);
}

static void derive(struct check *check)
{
    struct spec *spec = check->spec;
    struct spec_model *model = &spec->model;
    if (!model->kv_heads)
        model->kv_heads = model->attention_heads;
    if (!model->head_dim && model->attention_heads)
        model->head_dim = model->hidden_size / model->attention_heads;
    for (size_t i = 0; i < model->moe.experts_per_layer.count && !state_of(check, "model.moe.experts")->key; i++)
        if (model->moe.experts_per_layer.items[i] > model->moe.experts)
            model->moe.experts = model->moe.experts_per_layer.items[i];
    if (!model->max_position_embeddings && model->position == POSITION_LEARNED)
        model->max_position_embeddings = spec->data.sequence_length;
    if (model->moe.experts && !model->moe.expert_ffn_hidden_size)
        model->moe.expert_ffn_hidden_size = model->ffn_hidden_size;
    if (model->from.upcycle.present && !model->from.upcycle.granularity && model->moe.expert_ffn_hidden_size > 0)
        model->from.upcycle.granularity = model->ffn_hidden_size > model->moe.expert_ffn_hidden_size
            ? model->ffn_hidden_size / model->moe.expert_ffn_hidden_size : 1;
    if (!spec->resources.ranks_per_node)
        spec->resources.ranks_per_node = spec->resources.gpus_per_node ? spec->resources.gpus_per_node : 1;
    if (!spec->training.learning_rate.total_iterations)
        spec->training.learning_rate.total_iterations = spec->training.iterations;
    if (spec->retry.limit && !state_of(check, "retry.on")->key)
        derive_retry(&spec->retry.on);
    if (!state_of(check, "executor")->key && is_good(check, "slurm"))
        spec->executor = spec->slurm.present ? EXECUTOR_SLURM : EXECUTOR_LOCAL;
}

void convert(struct check *check, const struct node *root, bool required)
{
    check->root = root;
    check->states = allocate(spec_fields_count, sizeof *check->states);
    if (root->kind != NODE_MAP) {
        problem_at(check->problems, root, "a spec is a map of keys, such as `project: NAME`");
        for (size_t i = 0; i < spec_fields_count; i++)
            check->states[i].bad = true;
        return;
    }
    convert_map(check, root, "");
    spread_bad(check);
    if (!required)
        return;
    require(check);
    derive(check);
}
