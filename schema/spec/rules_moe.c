// What the keys of model.moe demand of each other and of the layout.
#include "schema/spec/rules.h"

#include <inttypes.h>

// The key that says how many experts a layer has, and their least number.
static const char *experts_key(const struct check *check)
{
    return rule_written(check, "model.moe.experts_per_layer") ? "model.moe.experts_per_layer" : "model.moe.experts";
}

static int64_t least_experts(const struct spec_moe *moe)
{
    int64_t least = moe->experts;
    for (size_t i = 0; i < moe->experts_per_layer.count; i++)
        if (moe->experts_per_layer.items[i] < least)
            least = moe->experts_per_layer.items[i];
    return least;
}

// Every layer's experts divided by the same number: the first that leaves a remainder is named.
static void divides_experts(struct check *check, const char *by, int64_t divisor)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    size_t bad = 0;
    while (bad < moe->experts_per_layer.count && moe->experts_per_layer.items[bad] % divisor == 0)
        bad++;
    if (bad < moe->experts_per_layer.count)
        rule_divides(check, "model.moe.experts_per_layer", moe->experts_per_layer.items[bad], by, divisor);
    else
        rule_divides(check, "model.moe.experts", moe->experts, by, divisor);
}

// Which layers have experts, and how many each.
static void check_moe_layers(struct check *check)
{
    const struct spec *spec = check->spec;
    const struct spec_moe *moe = &spec->model.moe;
    const int64_t *at = moe->layers.items;
    if (!rule_reads(check, "model.moe.layers", "model.moe.layer_frequency", "model.layers", NULL))
        return;
    if (moe->layers.count && moe->layer_frequency != 1) {
        check_at(check, "model.moe.layers", false, "`model.moe.layers` and `model.moe.layer_frequency` both say which layers have experts");
        return;
    }
    for (size_t i = 0; i < moe->layers.count; i++) {
        if (i && at[i] <= at[i - 1]) {
            check_at(check, "model.moe.layers", false, "`model.moe.layers` has %" PRId64 " behind %" PRId64 ": each layer once, ascending", at[i], at[i - 1]);
            return;
        }
    }
    if (moe->layers.count && at[moe->layers.count - 1] >= spec->model.layers) {
        check_at(check, "model.moe.layers", false, "`model.moe.layers` has %" PRId64 ", and the last of `model.layers` %" PRId64 " is %" PRId64,
            at[moe->layers.count - 1], spec->model.layers, spec->model.layers - 1);
        return;
    }
    if (!moe->experts_per_layer.count || !rule_reads(check, "model.moe.experts_per_layer", NULL))
        return;
    if ((int64_t)moe->experts_per_layer.count != spec_moe_layers(spec))
        check_at(check, "model.moe.experts_per_layer", false, "`model.moe.experts_per_layer` has %zu numbers, and there are %" PRId64 " layers with experts",
            moe->experts_per_layer.count, spec_moe_layers(spec));
    int64_t most = 0;
    for (size_t i = 0; i < moe->experts_per_layer.count; i++)
        most = moe->experts_per_layer.items[i] > most ? moe->experts_per_layer.items[i] : most;
    if (moe->experts != most)
        check_at(check, "model.moe.experts", false, "`model.moe.experts` %" PRId64 " is not the largest of `experts_per_layer`, %" PRId64
            ": leave it out", moe->experts, most);
}

static void check_groups(struct check *check)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    int64_t least = least_experts(moe);
    if (!rule_reads(check, "model.moe.num_groups", "model.moe.group_topk", NULL) || (!moe->num_groups && !moe->group_topk))
        return;
    if (!moe->num_groups || !moe->group_topk) {
        check_at(check, moe->num_groups ? "model.moe.num_groups" : "model.moe.group_topk", false,
            "`model.moe.num_groups` and `model.moe.group_topk` go together");
        return;
    }
    divides_experts(check, "`model.moe.num_groups`", moe->num_groups);
    if (moe->group_topk > moe->num_groups)
        check_at(check, "model.moe.group_topk", false, "`model.moe.group_topk` %" PRId64 " is more than `model.moe.num_groups` %" PRId64,
            moe->group_topk, moe->num_groups);
    else if (rule_reads(check, "model.moe.top_k", NULL) && moe->top_k > moe->group_topk * (least / moe->num_groups))
        check_at(check, "model.moe.top_k", false,
            "`model.moe.top_k` %" PRId64 " is more than the %" PRId64 " experts of `model.moe.group_topk` %" PRId64 " groups", moe->top_k,
            moe->group_topk * (least / moe->num_groups), moe->group_topk);
}

// Experts out of a dense FFN: whole slices, each as often as the others.
void check_upcycle(struct check *check)
{
    const struct spec_model *model = &check->spec->model;
    const struct spec_moe *moe = &model->moe;
    int64_t slices = model->from.upcycle.granularity;
    static const char key[] = "model.from.upcycle";
    if (!rule_reads(check, "model.from", key, "model.from.upcycle.granularity", "model.moe", NULL) || !model->from.upcycle.present)
        return;
    if (!rule_written(check, "model.moe")) {
        check_at(check, key, false, "`model.from.upcycle` makes experts: it needs a model with experts (`model.moe`)");
        return;
    }
    if (rule_reads(check, "model.ffn_hidden_size", "model.moe.expert_ffn_hidden_size", NULL) && slices * moe->expert_ffn_hidden_size != model->ffn_hidden_size)
        check_at(check, rule_written(check, "model.moe.expert_ffn_hidden_size") ? "model.moe.expert_ffn_hidden_size" : key, false,
            "an expert is a slice of the dense FFN: `granularity` %" PRId64 " x `expert_ffn_hidden_size` %" PRId64 " = %" PRId64
            " is not `model.ffn_hidden_size` %" PRId64, slices, moe->expert_ffn_hidden_size, slices * moe->expert_ffn_hidden_size, model->ffn_hidden_size);
    if (rule_reads(check, "model.moe.experts", "model.moe.experts_per_layer", NULL))
        divides_experts(check, "`granularity` of `model.from.upcycle`", slices);
    if (rule_reads(check, "model.moe.top_k", NULL) && moe->top_k % slices)
        check_at(check, "model.moe.top_k", true, "`model.moe.top_k` %" PRId64 " is not a multiple of `granularity` %" PRId64
            ": a token's slices do not make whole FFNs", moe->top_k, slices);
    if (rule_reads(check, "model.moe.shared_expert_size", NULL) && moe->shared_expert_size)
        check_at(check, "model.moe.shared_expert_size", false, "`model.from.upcycle` has no weights for a shared expert: the dense FFN becomes the routed ones");
    if (rule_reads(check, "model.moe.residual", NULL) && moe->residual)
        check_at(check, "model.moe.residual", false, "`model.from.upcycle` has no weights for a residual FFN: the dense FFN becomes the experts");
}

void check_moe(struct check *check)
{
    const struct spec *spec = check->spec;
    const struct spec_moe *moe = &spec->model.moe;
    if (!rule_reads(check, "model.moe", "model.moe.experts", "model.moe.experts_per_layer", NULL))
        return;
    if (!rule_written(check, "model.moe")) {
        if (rule_reads(check, "parallelism.expert", NULL) && spec->parallelism.expert > 1)
            check_at(check, "parallelism.expert", false, "`parallelism.expert` %" PRId64 " needs a model with experts (`model.moe`)",
                spec->parallelism.expert);
        return;
    }
    check_moe_layers(check);
    if (rule_reads(check, "model.moe.top_k", NULL) && moe->top_k > least_experts(moe))
        check_at(check, "model.moe.top_k", false, "`model.moe.top_k` %" PRId64 " is more than `%s` %" PRId64, moe->top_k, experts_key(check),
            least_experts(moe));
    if (rule_reads(check, "model.moe.top_k", "model.moe.pre_softmax", "model.moe.score_function", "model.moe.routing", NULL) && moe->top_k == 1 &&
        moe->experts > 1 && !moe->pre_softmax && moe->score_function == SCORE_SOFTMAX && moe->routing == ROUTING_TOP_K)
        check_at(check, "model.moe.top_k", false,
            "`model.moe.top_k` 1 of %" PRId64 " experts needs `pre_softmax: true`: a softmax over one expert is always 1, and the router would not learn",
            moe->experts);
    if (rule_reads(check, "parallelism.expert", NULL))
        divides_experts(check, "`parallelism.expert`", spec->parallelism.expert);
    if (rule_reads(check, "model.moe.expert_ffn_hidden_size", "model.ffn_hidden_size", "parallelism.expert_tensor", "parallelism.tensor", NULL))
        rule_divides(check, "model.moe.expert_ffn_hidden_size", moe->expert_ffn_hidden_size, "expert tensor parallelism",
            spec->parallelism.expert_tensor ? spec->parallelism.expert_tensor : spec->parallelism.tensor);
    check_groups(check);
    if (rule_reads(check, "model.moe.shared_expert_gate", "model.moe.shared_expert_size", NULL) && moe->shared_expert_gate && !moe->shared_expert_size)
        check_at(check, "model.moe.shared_expert_gate", false, "`model.moe.shared_expert_gate` needs a `shared_expert_size`");
    check_routing(check);
    if (rule_reads(check, "parallelism.tensor", "parallelism.sequence", NULL) && spec->parallelism.tensor > 1 && !spec->parallelism.sequence)
        check_at(check, "parallelism.tensor", false,
            "experts with `parallelism.tensor` %" PRId64 " need `parallelism.sequence: true`", spec->parallelism.tensor);
}
