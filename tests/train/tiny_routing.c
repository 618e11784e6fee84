#include "tests/train/tiny_routing.h"

static void with_losses(struct spec *spec)
{
    static const struct spec_moe_loss_term all[] = {{MOE_LOSS_AUX, 0.3}, {MOE_LOSS_SEQ_AUX, 0.2}, {MOE_LOSS_GLOBAL_AUX, 0.4}, {MOE_LOSS_Z, 0.05}};
    for (size_t i = 0; i < SPEC_MOE_LOSSES_MAX; i++)
        spec->model.moe.losses[i] = all[i];
    spec->model.moe.losses_count = SPEC_MOE_LOSSES_MAX;
}

static void sequence_loss(struct spec *spec)
{
    spec->model.moe.losses[0] = (struct spec_moe_loss_term){MOE_LOSS_SEQ_AUX, 0.3};
    spec->model.moe.losses_count = 1;
}

static void global_loss(struct spec *spec)
{
    spec->model.moe.losses[0] = (struct spec_moe_loss_term){MOE_LOSS_GLOBAL_AUX, 0.3};
    spec->model.moe.losses_count = 1;
}

static void z_loss(struct spec *spec)
{
    spec->model.moe.losses[0] = (struct spec_moe_loss_term){MOE_LOSS_Z, 0.1};
    spec->model.moe.losses_count = 1;
}

static void sigmoid(struct spec *spec)
{
    spec->model.moe.score_function = SCORE_SIGMOID;
    with_losses(spec);
}

static void softplus(struct spec *spec)
{
    spec->model.moe.score_function = SCORE_SQRTSOFTPLUS;
    spec->model.moe.scaling_factor = 2.5;
    with_losses(spec);
}

static void biased(struct spec *spec)
{
    sigmoid(spec);
    spec->model.moe.expert_bias = true;
    spec->model.moe.bias_update_rate = 1e-3;
}

static void grouped(struct spec *spec)
{
    spec->model.moe.num_groups = 4;
    spec->model.moe.group_topk = 2;
}

static void biased_groups(struct spec *spec)
{
    biased(spec);
    grouped(spec);
}

static void limited(struct spec *spec)
{
    spec->model.moe.capacity_factor = 1;
    with_losses(spec);
}

static void first_come(struct spec *spec)
{
    spec->model.moe.capacity_factor = 0.5;
    spec->model.moe.min_capacity = 2;
    spec->model.moe.drop_policy = DROP_POSITION;
    spec->model.moe.eval_capacity_factor = 2;
}

static void renormalised(struct spec *spec)
{
    limited(spec);
    spec->model.moe.renormalise_after_drop = true;
}

static void padded(struct spec *spec)
{
    limited(spec);
    spec->model.moe.pad_to_capacity = true;
}

static void experts_choose(struct spec *spec)
{
    spec->model.moe.routing = ROUTING_EXPERT_CHOICE;
    with_losses(spec);
}

static void experts_choose_more(struct spec *spec)
{
    experts_choose(spec);
    spec->model.moe.score_function = SCORE_SIGMOID;
    spec->model.moe.capacity_factor = 1.5;
}

static void jittered(struct spec *spec)
{
    spec->model.moe.input_jitter = 0.2;
}

static void forced(struct spec *spec)
{
    spec->model.moe.force_balance = true;
    with_losses(spec);
}

static void in_double(struct spec *spec)
{
    spec->model.moe.router_dtype = ROUTER_FP64;
}

// What stands beside experts, with slots that are not used.
static void beside(struct spec *spec)
{
    padded(spec);
    spec->model.bias = true;
    spec->model.moe.score_function = SCORE_SIGMOID;
    spec->model.moe.residual = true;
    spec->model.moe.shared_expert_size = 7;
    spec->model.moe.shared_expert_gate = true;
    spec->model.moe.input_jitter = 0.1;
}

static void experts_choose_beside(struct spec *spec)
{
    experts_choose(spec);
    spec->model.bias = true;
    spec->model.moe.residual = true;
}

const struct tiny_routing tiny_routings[] = {
    {"all losses", {.experts = 8, .top_k = 2, .change = with_losses}},
    {"all losses, pre_softmax", {.experts = 8, .top_k = 3, .pre_softmax = true, .change = with_losses}},
    {"loss of sequences", {.experts = 4, .top_k = 2, .change = sequence_loss}},
    {"global loss", {.experts = 4, .top_k = 2, .change = global_loss}},
    {"z loss", {.experts = 4, .top_k = 2, .change = z_loss}},
    {"sigmoid", {.experts = 8, .top_k = 2, .change = sigmoid}},
    {"sigmoid, one expert a token", {.experts = 8, .top_k = 1, .change = sigmoid}},
    {"square root of softplus", {.experts = 8, .top_k = 3, .change = softplus}},
    {"expert bias", {.experts = 8, .top_k = 2, .change = biased}},
    {"groups", {.experts = 8, .top_k = 2, .change = grouped}},
    {"groups, pre_softmax", {.experts = 8, .top_k = 4, .pre_softmax = true, .change = grouped}},
    {"groups, expert bias", {.experts = 8, .top_k = 4, .change = biased_groups}},
    {"capacity", {.experts = 8, .top_k = 2, .change = limited}},
    {"capacity, first come", {.experts = 8, .top_k = 2, .balance = 0.1, .grouped_gemm = true, .change = first_come}},
    {"capacity, renormalised", {.experts = 8, .top_k = 2, .change = renormalised}},
    {"capacity, padded", {.experts = 8, .top_k = 2, .change = padded}},
    {"experts choose", {.experts = 8, .top_k = 2, .change = experts_choose}},
    {"experts choose by sigmoid", {.experts = 4, .top_k = 2, .change = experts_choose_more}},
    {"jitter", {.experts = 8, .top_k = 2, .balance = 0.1, .change = jittered}},
    {"forced balance", {.experts = 8, .top_k = 3, .change = forced}},
    {"router in double", {.experts = 8, .top_k = 2, .balance = 0.1, .change = in_double}},
    {"padded, beside a shared expert and a branch", {.experts = 8, .top_k = 2, .change = beside}},
    {"experts choose, beside a branch", {.experts = 8, .top_k = 2, .layer_frequency = 2, .change = experts_choose_beside}},
};
const size_t tiny_routings_count = sizeof tiny_routings / sizeof *tiny_routings;
