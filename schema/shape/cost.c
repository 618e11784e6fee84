// FLOPs, tokens, and bytes of each collective a step.
#include "schema/shape/cost.h"
#include "schema/shape/arena.h"

int64_t tokens_per_step(const struct spec *spec)
{
    return spec->training.global_batch_size * spec->data.sequence_length;
}

int64_t micro_batches(const struct spec *spec)
{
    int64_t each = spec->training.micro_batch_size * spec_data_parallel_size(spec);
    return each > 0 ? spec->training.global_batch_size / each : 0;
}

// Keys that a query sees on average: half of all positions, or with a window w of them except at the start.
static double keys_per_query(const struct spec *spec)
{
    double S = (double)spec->data.sequence_length, w = (double)spec->model.attention_window;
    return w > 0 && w < S ? w - w * w / (2 * S) : S / 2;
}

double flops_per_token(const struct spec *spec)
{
    struct dims n = dims_of(spec);
    const struct spec_moe *moe = &spec->model.moe;
    double matrices = n.gated ? 3 : 2;
    double width = (double)(n.L - n.moe_layers) * (double)n.F; // of all FFNs that a token goes through
    width += (double)n.moe_layers * (double)(n.K * n.X + moe->shared_expert_size + (moe->residual ? n.X : 0));
    double C = (double)n.C, A = (double)(n.H * n.D), kv = (double)(n.G * n.D), L = (double)n.L;
    double ffn = C * matrices * width;
    double projections = L * (C * (A + 2 * kv) + A * C);
    double scores = 2 * A * L * keys_per_query(spec); // q·k and p·v
    return 6 * (ffn + projections + scores + C * (double)n.V); // 2 a multiply-add; forward once, backward twice
}

// ---- volumes ----

struct reduced { // gradients of one pipeline stage that are summed over ranks
    const struct spec *spec;
    const struct layout *layout;
    int64_t stage, dense, expert;
};

static void add_gradient(void *context, const struct param *param)
{
    struct reduced *reduced = context;
    int64_t here = param_elements_on(param, reduced->spec, reduced->layout, reduced->stage);
    *(param->expert < 0 ? &reduced->dense : &reduced->expert) += here;
}

// Rows that a rank sends in the MoE layers of a stage for one micro batch, each way; and those that recomputed layers send once more: the
// way there, and the way back where the layer's output is needed.
struct sent {
    int64_t rows, there_again, back_again;
};

static struct sent sent_by(const struct spec *spec, const struct layout *layout, int64_t stage)
{
    struct sent sent = {0};
    struct model_sizes sizes;
    model_sizes_init(&sizes, spec, layout, ROUTING_BALANCED);
    for (int64_t layer = 0; layer < spec->model.layers; layer++) {
        int64_t experts = spec_layer_experts(spec, layer), rows;
        bool last;
        if (!experts || layer_stage(spec, layout, layer) != stage)
            continue;
        rows = (int64_t)model_sizes_of(&sizes, (size_t)experts).N;
        sent.rows += rows;
        if (!recompute_repeats(spec, layer, &last))
            continue;
        sent.there_again += rows;
        sent.back_again += last ? 0 : rows;
    }
    return sent;
}

void volume_cost(struct volume_cost *cost, const struct spec *spec, const struct layout *layout)
{
    struct dims n = dims_of(spec);
    *cost = (struct volume_cost){0};
    struct sent sent = {0};
    for (int64_t stage = 0; stage < layout->pp; stage++) {
        struct sent here = sent_by(spec, layout, stage);
        sent = here.rows > sent.rows ? here : sent;
        struct reduced reduced = {.spec = spec, .layout = layout, .stage = stage};
        param_walk(spec, add_gradient, &reduced);
        int64_t bytes = 4 * ((layout->dp * layout->cp > 1 ? reduced.dense : 0) + (layout->edp > 1 ? reduced.expert : 0));
        cost->gradient_reduce = bytes > cost->gradient_reduce ? bytes : cost->gradient_reduce;
    }
    if (layout->ep == 1 || spec->model.moe.dispatcher == DISPATCHER_ALLGATHER)
        return;
    int64_t real = spec->training.precision == PRECISION_FP32 ? 4 : 2, times = micro_batches(spec);
    int64_t probability = spec->engine != ENGINE_NATIVE && spec->model.moe.router_dtype == ROUTER_BF16 ? 2 : 4;
    cost->alltoall_rows = 4 * sent.rows * n.C * real * times;
    cost->alltoall_probabilities = 2 * sent.rows * probability * times;
    cost->alltoall_recompute = ((sent.there_again + sent.back_again) * n.C * real + sent.there_again * probability) * times;
    cost->alltoall_total = cost->alltoall_rows + cost->alltoall_probabilities + cost->alltoall_recompute;
}
