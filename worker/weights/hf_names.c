#include "worker/weights/hf_names.h"

#include <stdio.h>

bool hf_alias(struct hf_alias *alias, const char *name, int number)
{
    static const char *const projections[] = {NULL, "gate_proj", "down_proj", "up_proj"}; // of w1, w2, w3
    int layer, expert, w, end = 0;
    *alias = (struct hf_alias){.expert = -1, .parts = 1};
    sscanf(name, "model.layers.%d.block_sparse_moe.gate.weight%n", &layer, &end);
    if (end && !name[end]) {
        snprintf(alias->name, sizeof alias->name, "model.layers.%d.mlp.gate.weight", layer);
        return number == 0;
    }
    end = 0;
    sscanf(name, "model.layers.%d.block_sparse_moe.experts.%d.w%1d.weight%n", &layer, &expert, &w, &end);
    if (!end || name[end] || w < 1 || w > 3 || number > 1)
        return false;
    if (number == 0) {
        snprintf(alias->name, sizeof alias->name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, expert, projections[w]);
        return true;
    }
    snprintf(alias->name, sizeof alias->name, "model.layers.%d.mlp.experts.%s", layer, w == 2 ? "down_proj" : "gate_up_proj");
    alias->expert = expert;
    alias->part = w == 3;
    alias->parts = w == 2 ? 1 : 2;
    return true;
}
