// What the keys of routing demand of each other. A key that would change nothing is a fault: who wrote it thinks that it does.
#include "schema/spec/rules.h"

#include <inttypes.h>

#define MOE "model.moe."

// Keys that have no meaning where something else decides: a row's key is at fault if its value is not the default.
struct useless {
    const char *key;
    bool is_set;
};

static void refuse_all(struct check *check, const struct useless *keys, size_t count, const char *where)
{
    for (size_t i = 0; i < count; i++)
        if (rule_reads(check, keys[i].key, NULL) && keys[i].is_set)
            check_at(check, keys[i].key, false, "`%s` has no meaning %s", keys[i].key, where);
}

static void check_expert_choice(struct check *check)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    const struct useless keys[] = {
        {MOE "pre_softmax", moe->pre_softmax}, {MOE "expert_bias", moe->expert_bias}, {MOE "num_groups", moe->num_groups > 0},
        {MOE "drop_policy", moe->drop_policy != DROP_PROBS}, {MOE "pad_to_capacity", moe->pad_to_capacity},
        {MOE "renormalise_after_drop", moe->renormalise_after_drop}, {MOE "force_balance", moe->force_balance},
    };
    refuse_all(check, keys, sizeof keys / sizeof *keys, "where experts choose their tokens (`routing: expert_choice`)");
}

static void check_forced(struct check *check)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    const struct useless keys[] = {{MOE "expert_bias", moe->expert_bias}, {MOE "num_groups", moe->num_groups > 0}};
    refuse_all(check, keys, sizeof keys / sizeof *keys, "where tokens take experts in turn (`force_balance: true`)");
}

static void needs_capacity(struct check *check, const char *key, bool is_set)
{
    if (rule_reads(check, key, NULL) && is_set)
        check_at(check, key, false, "`%s` needs a `capacity_factor`", key);
}

static void check_capacity(struct check *check, bool experts_choose)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    if (!rule_reads(check, MOE "capacity_factor", NULL) || experts_choose)
        return;
    if (moe->capacity_factor == 0) {
        needs_capacity(check, MOE "pad_to_capacity", moe->pad_to_capacity);
        needs_capacity(check, MOE "eval_capacity_factor", moe->eval_capacity_factor > 0);
        needs_capacity(check, MOE "min_capacity", moe->min_capacity > 0);
        needs_capacity(check, MOE "drop_policy", moe->drop_policy != DROP_PROBS);
        needs_capacity(check, MOE "renormalise_after_drop", moe->renormalise_after_drop);
        return;
    }
    if (!rule_reads(check, MOE "renormalise_after_drop", MOE "pre_softmax", MOE "top_k", NULL) || !moe->renormalise_after_drop)
        return;
    if (moe->pre_softmax)
        check_at(check, MOE "renormalise_after_drop", false, "`model.moe.renormalise_after_drop` has no meaning with `pre_softmax`: those weights are not normalised");
    else if (moe->top_k == 1)
        check_at(check, MOE "renormalise_after_drop", false, "`model.moe.renormalise_after_drop` has no meaning with `top_k` 1: a token that is dropped has no other expert");
}

void check_routing(struct check *check)
{
    const struct spec_moe *moe = &check->spec->model.moe;
    if (rule_reads(check, MOE "pre_softmax", MOE "score_function", NULL) && moe->pre_softmax && moe->score_function != SCORE_SOFTMAX)
        check_at(check, MOE "pre_softmax", false, "`model.moe.pre_softmax` has no meaning for a `score_function` other than `softmax`");
    if (rule_reads(check, MOE "expert_bias", MOE "score_function", NULL) && moe->expert_bias && moe->score_function == SCORE_SOFTMAX)
        check_at(check, MOE "expert_bias", false, "`model.moe.expert_bias` needs `score_function: sigmoid` or `sqrtsoftplus`");
    if (rule_reads(check, MOE "expert_bias", MOE "bias_update_rate", NULL) && !moe->expert_bias && moe->bias_update_rate != 1e-3)
        check_at(check, MOE "bias_update_rate", false, "`model.moe.bias_update_rate` needs `expert_bias: true`");
    if (rule_reads(check, MOE "group_topk", MOE "top_k", NULL) && moe->group_topk > moe->top_k)
        check_at(check, MOE "group_topk", false,
            "`model.moe.group_topk` %" PRId64 " is more than `model.moe.top_k` %" PRId64 ": groups are compared by their top_k / group_topk best experts",
            moe->group_topk, moe->top_k);
    if (!rule_reads(check, MOE "routing", NULL))
        return;
    bool experts_choose = moe->routing == ROUTING_EXPERT_CHOICE;
    check_capacity(check, experts_choose);
    if (experts_choose)
        check_expert_choice(check);
    else if (rule_reads(check, MOE "force_balance", NULL) && moe->force_balance)
        check_forced(check);
}
