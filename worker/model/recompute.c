// Recomputation: activations that the forward pass did not keep are made anew in backward, with the same bits, since every operation is
// deterministic and draws random numbers by position.
#include "worker/model/blocks.h"

// The layers of the chunk that ends with `last`, forward from its kept input.
static void run_chunk(struct model *model, size_t last)
{
    struct activations *a = model->activations;
    int64_t chunk = recompute_chunk(model->spec, (int64_t)last);
    size_t first = last;
    while (first > 0 && recompute_chunk(model->spec, (int64_t)first - 1) == chunk)
        first--;
    a->again = true;
    for (size_t layer = first; layer <= last; layer++) {
        attention_block_forward(model, layer);
        mlp_block_forward(model, layer, layer < last ? a->layers[layer + 1].x : NULL);
    }
    a->again = false;
}

void recompute(struct model *model, size_t layer)
{
    bool last;
    switch (model->spec->training.recompute.granularity) {
    case RECOMPUTE_NONE:
        break;
    case RECOMPUTE_SELECTIVE:
        if (layer + 1 == model->activations->sizes.layers) // the last layer's are still there
            break;
        attention_block_refresh(model, layer);
        mlp_block_refresh(model, layer);
        break;
    case RECOMPUTE_FULL:
        if (recompute_repeats(model->spec, (int64_t)layer, &last) && last)
            run_chunk(model, layer);
        break;
    }
}
