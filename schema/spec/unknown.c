// Keys that no row of the table has, and what was meant by them: a slip of the fingers, a key of another section, the name that another tool
// has for it, or a part of a longer name.
#include "schema/base/near.h"
#include "schema/base/text.h"
#include "schema/spec/check.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MEANT_MAX = 3 }; // more keys that share a word are no hint

// Names of Hugging Face's configurations, Megatron's and DeepSpeed's options and common habit, where neither letters nor words lead to ours.
static const struct { const char *theirs, *ours; } other_names[] = {
    {"lr", "training.learning_rate.peak"}, {"min_lr", "training.learning_rate.minimum"}, {"lr_decay_style", "training.learning_rate.schedule"},
    {"lr_scheduler_type", "training.learning_rate.schedule"}, {"warmup_steps", "training.learning_rate.warmup_iterations"},
    {"steps", "training.iterations"}, {"max_steps", "training.iterations"}, {"train_iters", "training.iterations"},
    {"dtype", "training.precision"}, {"torch_dtype", "training.precision"}, {"bf16", "training.precision"}, {"fp16", "training.precision"},
    {"gradient_clipping", "training.optimizer.clip_grad"}, {"gradient_clip", "training.optimizer.clip_grad"},
    {"max_grad_norm", "training.optimizer.clip_grad"}, {"gradient_accumulation_steps", "training.global_batch_size"},
    {"eval_interval", "training.validation.interval"}, {"eval_iters", "training.validation.iterations"},
    {"save_interval", "checkpoint.interval"}, {"save_steps", "checkpoint.interval"}, {"save_total_limit", "checkpoint.keep"},
    {"log_interval", "logging.interval"}, {"seq_length", "data.sequence_length"}, {"seq_len", "data.sequence_length"},
    {"block_size", "data.sequence_length"}, {"context_length", "data.sequence_length"}, {"n_layer", "model.layers"},
    {"d_model", "model.hidden_size"}, {"n_embd", "model.hidden_size"}, {"d_ff", "model.ffn_hidden_size"},
    {"intermediate_size", "model.ffn_hidden_size"}, {"n_head", "model.attention_heads"}, {"n_heads", "model.attention_heads"},
    {"num_heads", "model.attention_heads"}, {"num_key_value_heads", "model.kv_heads"}, {"num_query_groups", "model.kv_heads"},
    {"kv_channels", "model.head_dim"}, {"rope_theta", "model.rope_base"}, {"rotary_base", "model.rope_base"},
    {"rms_norm_eps", "model.norm_epsilon"}, {"hidden_act", "model.activation"}, {"tie_word_embeddings", "model.tied_embeddings"},
    {"sliding_window", "model.attention_window"}, {"num_experts", "model.moe.experts"},
    {"num_local_experts", "model.moe.experts"}, {"n_routed_experts", "model.moe.experts"}, {"num_experts_per_tok", "model.moe.top_k"}, {"moe_router_topk", "model.moe.top_k"},
    {"moe_intermediate_size", "model.moe.expert_ffn_hidden_size"}, {"router_aux_loss_coef", "model.moe.losses"},
    {"moe_aux_loss_coeff", "model.moe.losses"}, {"moe_z_loss_coeff", "model.moe.losses"},
    {"time", "resources.time_limit"}, {"walltime", "resources.time_limit"}, {"mem", "resources.memory"}, {"gres", "resources.gpus_per_node"},
    {"gpus-per-node", "resources.gpus_per_node"}, {"ntasks", "resources.ranks_per_node"}, {"ntasks_per_node", "resources.ranks_per_node"},
    {"ntasks-per-node", "resources.ranks_per_node"}, {"tasks_per_node", "resources.ranks_per_node"},
    {"cpus_per_task", "resources.threads_per_rank"}, {"cpus-per-task", "resources.threads_per_rank"}};

static bool is_in_section(const struct field *field, const char *section)
{
    size_t length = strlen(section);
    return length ? strncmp(field->path, section, length) == 0 && field->path[length] == '.' && !strchr(field->path + length + 1, '.')
                  : !strchr(field->path, '.');
}

static const struct field *by_other_name(const char *key)
{
    const struct field *field = NULL;
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
        const struct field *ours = field_find(other_names[i].ours);
        assert(ours);
        if (strcmp(other_names[i].theirs, key) == 0)
            field = ours;
    }
    return field;
}

// The key whose letters are nearly these, in the section itself.
static const struct field *by_letters(const char *key, const char *section)
{
    const char **names = allocate(spec_fields_count, sizeof *names);
    size_t count = 0;
    for (size_t i = 0; i < spec_fields_count; i++)
        if (is_in_section(&spec_fields[i], section) && !spec_fields[i].internal)
            names[count++] = field_key(&spec_fields[i]);
    const char *near = near_name(key, names, count);
    free(names);
    for (size_t i = 0; near && i < spec_fields_count; i++)
        if (field_key(&spec_fields[i]) == near)
            return &spec_fields[i];
    return NULL;
}

// The key of that very name in another section.
static const struct field *by_name_elsewhere(const char *key)
{
    for (size_t i = 0; i < spec_fields_count; i++)
        if (strcmp(field_key(&spec_fields[i]), key) == 0 && !spec_fields[i].internal && strchr(spec_fields[i].path, '.'))
            return &spec_fields[i];
    return NULL;
}

// Whether every word of `some` (parted by '_') is one of all's.
static bool words_are_of(const char *some, const char *all)
{
    for (const char *word = some; *word;) {
        size_t length = strcspn(word, "_");
        bool found = false;
        for (const char *at = all; *at && !found;) {
            size_t other = strcspn(at, "_");
            found = other == length && strncmp(at, word, length) == 0;
            at += other + strspn(at + other, "_");
        }
        if (!found)
            return false;
        word += length + strspn(word + length, "_");
    }
    return *some != '\0';
}

enum where { IN_SECTION, BENEATH_SECTION, ANYWHERE };

static bool is_there(const struct field *field, const char *section, enum where where)
{
    size_t length = strlen(section);
    return where == ANYWHERE || (where == IN_SECTION ? is_in_section(field, section)
                                                     : length && strncmp(field->path, section, length) == 0 && field->path[length] == '.');
}

// Keys that have all words of this one, or of which this one has all words (farther away only if they are several: `name` is a word of much).
// Returns how many, of which at most MEANT_MAX are written.
static size_t by_words(const char *key, const char *section, enum where where, const struct field *meant[MEANT_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < spec_fields_count; i++) {
        const struct field *field = &spec_fields[i];
        if (field->internal || !is_there(field, section, where))
            continue;
        const char *name = field_key(field);
        bool telling = where == IN_SECTION || (where == BENEATH_SECTION && strchr(name, '_'));
        if ((words_are_of(key, name) || (telling && words_are_of(name, key))) && count++ < MEANT_MAX)
            meant[count - 1] = field;
    }
    return count;
}

// What may have been meant, the surest first. Returns how many keys there are.
static size_t find_meant(const char *key, const char *section, const struct field *meant[MEANT_MAX])
{
    if ((meant[0] = by_other_name(key)) || (meant[0] = by_letters(key, section)) || (meant[0] = by_name_elsewhere(key)))
        return 1;
    size_t count = 0;
    for (enum where where = IN_SECTION; where <= ANYWHERE && count == 0; where++)
        count = by_words(key, section, where, meant);
    return count <= MEANT_MAX ? count : 0;
}

static void add_meant(struct text *text, const struct field *const meant[MEANT_MAX], size_t count, bool here)
{
    for (size_t i = 0; i < count; i++)
        text_addf(text, "%s`%s`", i == 0 ? here ? "; did you mean " : "; " : i + 1 < count ? ", " : here ? " or " : " and ",
            here ? field_key(meant[i]) : meant[i]->path);
    text_add(text, count == 0 ? "" : here ? "?" : count > 1 ? " are keys" : " is a key");
}

const struct field *unknown_path_meant(const char *path)
{
    const char *dot = strrchr(path, '.'), *key = dot ? dot + 1 : path;
    char *section = string_format("%.*s", (int)(dot ? dot - path : 0), path);
    const struct field *meant = by_other_name(key);
    if (!meant)
        meant = by_letters(key, section);
    if (!meant)
        meant = by_name_elsewhere(key);
    free(section);
    return meant && meant->type != FIELD_SECTION && meant->type != FIELD_PLAN ? meant : NULL;
}

void unknown_key(struct check *check, const struct node *key, const char *section)
{
    static const char *const of_file[] = {"runs", "base"};
    if (!*section && (strcmp(key->text, of_file[0]) == 0 || strcmp(key->text, of_file[1]) == 0)) {
        problem_at(check->problems, key, "`%s` stands at the top of a file, not inside a run", key->text);
        return;
    }
    const struct field *meant[MEANT_MAX];
    const char *near = *section || by_letters(key->text, section) ? NULL : near_name(key->text, of_file, 2);
    size_t count = near ? 0 : find_meant(key->text, section, meant);
    bool here = count && is_in_section(meant[0], section);
    const struct field *faulted = field_find(*section ? section : here ? field_key(meant[0]) : "");
    if (faulted)
        check->states[field_index(faulted)].faulted = true;
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    text_addf(&text, "unknown key `%.60s`", key->text);
    if (*section)
        text_addf(&text, " in `%s`", section);
    if (near)
        text_addf(&text, "; did you mean `%s`?", near);
    add_meant(&text, meant, count, here);
    problem_at(check->problems, key, "%s", text.at);
    text_release(&text);
}
