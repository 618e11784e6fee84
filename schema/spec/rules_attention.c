// What keys of positions, of attention and of document ends demand of each other.
#include "schema/spec/rules.h"

#include <inttypes.h>
#include <string.h>

// Keys that do nothing without another one: what they are used by.
static void check_unused(struct check *check)
{
    const struct spec_model *model = &check->spec->model;
    const struct {
        const char *key, *needs;
        bool used;
    } keys[] = {
        {"model.max_position_embeddings", "by `position: learned`", model->position == POSITION_LEARNED},
        {"model.rope_base", "by `position: rope`", model->position == POSITION_ROPE},
        {"model.rope_scaling_factor", "by `position: rope`", model->position == POSITION_ROPE},
        {"model.rope_scaling_low_freq_factor", "with a `rope_scaling_factor`", model->rope_scaling_factor > 0},
        {"model.rope_scaling_high_freq_factor", "with a `rope_scaling_factor`", model->rope_scaling_factor > 0},
        {"model.rope_scaling_original_length", "with a `rope_scaling_factor`", model->rope_scaling_factor > 0},
        {"model.qk_norm_over", "with `qk_norm: true`", model->qk_norm},
        {"data.reset_position_ids", "by a model with positions", model->position != POSITION_NONE || !check->spec->data.reset_position_ids},
    };
    if (!rule_reads(check, "model.position", "model.rope_scaling_factor", "model.qk_norm", NULL))
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!keys[i].used && rule_written(check, keys[i].key) && rule_reads(check, keys[i].key, NULL))
            check_at(check, keys[i].key, true, "`%s` is used %s only", keys[i].key, keys[i].needs);
}

static void check_positions(struct check *check)
{
    const struct spec *spec = check->spec;
    const struct spec_model *model = &spec->model;
    if (rule_reads(check, "model.position", "model.head_dim", "model.hidden_size", "model.attention_heads", NULL) && model->position == POSITION_ROPE &&
        model->head_dim % 2 && (rule_written(check, "model.head_dim") || model->hidden_size % model->attention_heads == 0))
        check_at(check, "model.head_dim", false, "rotary positions need an even `model.head_dim`, and it is %" PRId64, model->head_dim);
    if (rule_reads(check, "model.position", "model.max_position_embeddings", "data.sequence_length", NULL) && model->position == POSITION_LEARNED &&
        spec->data.sequence_length > model->max_position_embeddings)
        check_at(check, "model.max_position_embeddings", false, "`model.max_position_embeddings` %" PRId64 " is less than `data.sequence_length` %" PRId64,
            model->max_position_embeddings, spec->data.sequence_length);
    if (!rule_reads(check, "model.rope_scaling_factor", NULL) || model->rope_scaling_factor == 0)
        return;
    if (model->rope_scaling_factor < 1)
        check_at(check, "model.rope_scaling_factor", false, "`model.rope_scaling_factor` %.15g is less than 1: it stretches wavelengths",
            model->rope_scaling_factor);
    if (rule_reads(check, "model.rope_scaling_low_freq_factor", "model.rope_scaling_high_freq_factor", NULL) &&
        model->rope_scaling_high_freq_factor <= model->rope_scaling_low_freq_factor)
        check_at(check, "model.rope_scaling_high_freq_factor", false,
            "`model.rope_scaling_high_freq_factor` %.15g is not more than `rope_scaling_low_freq_factor` %.15g", model->rope_scaling_high_freq_factor,
            model->rope_scaling_low_freq_factor);
}

// Which token ends a document is known of the byte tokenizer, and said of others.
static void check_document_ends(struct check *check)
{
    static const char *const keys[] = {"data.eod_mask_loss", "data.reset_position_ids", "data.reset_attention_mask"};
    const struct spec_data *data = &check->spec->data;
    const bool set[] = {data->eod_mask_loss, data->reset_position_ids, data->reset_attention_mask};
    if (!rule_reads(check, "data.tokenizer", "data.eod_token", NULL) || !data->tokenizer)
        return;
    bool byte = strcmp(data->tokenizer, "byte") == 0;
    if (byte && data->eod_token)
        check_at(check, "data.eod_token", false, "`data.eod_token` needs a tokenizer.json: the byte tokenizer ends documents with a token of its own");
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !byte && !data->eod_token; i++)
        if (set[i] && rule_reads(check, keys[i], NULL))
            check_at(check, keys[i], false, "`%s` needs `data.eod_token`: which token ends a document is known of the byte tokenizer only", keys[i]);
}

void check_attention(struct check *check)
{
    check_positions(check);
    check_document_ends(check);
    check_unused(check);
}
