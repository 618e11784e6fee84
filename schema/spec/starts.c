// Whether one run's weights fit another's model (model.from): the sizes of both, and experts out of a dense model only where asked for.
#include "schema/spec/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Keys of `model` that decide which tensors there are and how large.
static const char *const sizes[] = {"layers", "hidden_size", "ffn_hidden_size", "attention_heads", "kv_heads", "head_dim", "vocab_size",
    "tied_embeddings", "norm", "activation", "position", "bias", "qk_norm", NULL};
static const char *const expert_sizes[] = {"experts", "expert_ffn_hidden_size", "shared_expert_size", "shared_expert_gate", "residual", NULL};

static bool same_values(struct text *why, const struct json *here, const struct json *there, const char *section,
    const char *const *keys, const char *source)
{
    for (; *keys; keys++) {
        const struct json *mine = js_get(here, *keys), *theirs = js_get(there, *keys);
        if ((!mine && !theirs) || (mine && theirs && js_equal(mine, theirs)))
            continue;
        text_addf(why, "`%s.%s` is ", section, *keys);
        js_write(why, mine);
        text_add(why, " and in run `");
        text_addf(why, "%s` ", source);
        js_write(why, theirs);
        text_add(why, ": its weights do not fit");
        return false;
    }
    return true;
}

// The width of the dense FFN matters only where some layer has one, or experts are made of it.
static bool same_sizes(struct text *why, const struct spec *spec, const struct spec *source, const char *name)
{
    struct json *here = spec_to_json(spec), *there = spec_to_json(source);
    struct json *model = js_get(here, "model"), *other = js_get(there, "model");
    bool dense_layers = spec_moe_layers(spec) < spec->model.layers;
    if (!dense_layers && !spec->model.from.upcycle.present) {
        js_remove(model, "ffn_hidden_size");
        js_remove(other, "ffn_hidden_size");
    }
    bool same = same_values(why, model, other, "model", sizes, name);
    if (same && spec_is_moe(spec) && spec_is_moe(source))
        same = same_values(why, js_get(model, "moe"), js_get(other, "moe"), "model.moe", expert_sizes, name);
    js_free(here);
    js_free(there);
    return same;
}

bool spec_fits_source(struct text *why, const struct spec *spec, const struct spec *source, const char *name)
{
    const struct spec_moe *moe = &spec->model.moe;
    bool upcycle = spec->model.from.upcycle.present;
    if (upcycle && spec_is_moe(source)) {
        text_addf(why, "`model.from.upcycle` takes a dense model, and run `%s` has %" PRId64 " experts a layer", name, source->model.moe.experts);
        return false;
    }
    if (!upcycle && spec_is_moe(spec) && !spec_is_moe(source)) {
        int64_t slices = moe->expert_ffn_hidden_size > 0 ? spec->model.ffn_hidden_size / moe->expert_ffn_hidden_size : 1;
        text_addf(why, "run `%s` is dense and this one has %" PRId64 " experts a layer: `model.from.upcycle: {granularity: %" PRId64 "}` makes them of its FFN",
            name, moe->experts, slices > 0 ? slices : 1);
        return false;
    }
    if (!spec_is_moe(spec) && spec_is_moe(source)) {
        text_addf(why, "run `%s` has %" PRId64 " experts a layer and this one has none", name, source->model.moe.experts);
        return false;
    }
    if (!same_sizes(why, spec, source, name))
        return false;
    for (int64_t layer = 0; !upcycle && layer < spec->model.layers; layer++) {
        int64_t here = spec_layer_experts(spec, layer), there = spec_layer_experts(source, layer);
        if (here == there)
            continue;
        text_addf(why, "layer %" PRId64 " has %" PRId64 " experts and in run `%s` %" PRId64 ": its weights do not fit", layer, here, name, there);
        return false;
    }
    return true;
}
