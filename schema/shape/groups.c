// Rank arithmetic. A rank is a number in mixed radix; a group is what is left when the digits of its dimensions run and the others stand.
#include "schema/shape/groups.h"

#include <assert.h>

// Digits in their order, fastest first. Dense and expert layers split the same ranks by different digits.
enum digit { TP, CP, DP, PP, ETP = 0, EP, EDP, DIGITS = 4 };

struct radix {
    int64_t size[DIGITS];
    bool runs[DIGITS]; // the group's own digits
};

static struct radix dense(const struct layout *layout, bool tp, bool cp, bool dp, bool pp)
{
    return (struct radix){{layout->tp, layout->cp, layout->dp, layout->pp}, {tp, cp, dp, pp}};
}

static struct radix expert(const struct layout *layout, bool etp, bool ep, bool edp)
{
    return (struct radix){{layout->etp, layout->ep, layout->edp, layout->pp}, {etp, ep, edp, false}};
}

static struct radix radix_of(const struct layout *layout, enum group_kind kind)
{
    switch (kind) {
    case GROUP_TP:
        return dense(layout, true, false, false, false);
    case GROUP_CP:
        return dense(layout, false, true, false, false);
    case GROUP_DP:
        return dense(layout, false, false, true, false);
    case GROUP_PP:
    case GROUP_EMBEDDING: // of these only the first and the last
        return dense(layout, false, false, false, true);
    case GROUP_DP_CP:
        return dense(layout, false, true, true, false);
    case GROUP_TP_CP:
        return dense(layout, true, true, false, false);
    case GROUP_ETP:
        return expert(layout, true, false, false);
    case GROUP_EP:
        return expert(layout, false, true, false);
    case GROUP_EDP:
        return expert(layout, false, false, true);
    case GROUP_ETP_EP:
        return expert(layout, true, true, false);
    }
    assert(!"a group kind of the enumeration");
    return (struct radix){0};
}

// The number that the chosen digits of rank spell, fastest first.
static int64_t spell(const struct radix *radix, int64_t rank, bool running)
{
    int64_t number = 0, weight = 1;
    for (int i = 0; i < DIGITS; i++) {
        int64_t digit = rank % radix->size[i];
        rank /= radix->size[i];
        if (radix->runs[i] != running)
            continue;
        number += digit * weight;
        weight *= radix->size[i];
    }
    return number;
}

// The rank whose running digits spell `index` and whose others are those of `rank`.
static int64_t rank_at(const struct radix *radix, int64_t rank, int64_t index)
{
    int64_t result = 0, stride = 1;
    for (int i = 0; i < DIGITS; i++) {
        int64_t digit = rank % radix->size[i];
        rank /= radix->size[i];
        if (radix->runs[i]) {
            digit = index % radix->size[i];
            index /= radix->size[i];
        }
        result += digit * stride;
        stride *= radix->size[i];
    }
    return result;
}

static bool outside(const struct layout *layout, enum group_kind kind, int64_t rank)
{
    int64_t stage = rank / (layout->world / layout->pp);
    return kind == GROUP_EMBEDDING && stage != 0 && stage != layout->pp - 1;
}

int64_t group_size(const struct layout *layout, enum group_kind kind)
{
    if (kind == GROUP_EMBEDDING)
        return layout->pp > 1 ? 2 : 1;
    struct radix radix = radix_of(layout, kind);
    int64_t size = 1;
    for (int i = 0; i < DIGITS; i++)
        size *= radix.runs[i] ? radix.size[i] : 1;
    return size;
}

int64_t group_ranks(const struct layout *layout, enum group_kind kind, int64_t rank, int64_t *ranks)
{
    assert(rank >= 0 && rank < layout->world);
    if (outside(layout, kind, rank))
        return 0;
    struct radix radix = radix_of(layout, kind);
    int64_t size = group_size(layout, kind);
    for (int64_t i = 0; i < size; i++)
        ranks[i] = rank_at(&radix, rank, kind == GROUP_EMBEDDING && i == 1 ? layout->pp - 1 : i);
    return size;
}

int64_t group_index(const struct layout *layout, enum group_kind kind, int64_t rank)
{
    assert(rank >= 0 && rank < layout->world);
    if (outside(layout, kind, rank))
        return -1;
    struct radix radix = radix_of(layout, kind);
    int64_t index = spell(&radix, rank, true);
    return kind == GROUP_EMBEDDING && index > 0 ? 1 : index;
}

int64_t group_color(const struct layout *layout, enum group_kind kind, int64_t rank)
{
    assert(rank >= 0 && rank < layout->world);
    if (outside(layout, kind, rank))
        return -1;
    struct radix radix = radix_of(layout, kind);
    return spell(&radix, rank, false);
}

static int64_t at_least_one(int64_t size)
{
    return size > 0 ? size : 1;
}

int layout_from_spec(struct layout *layout, const struct spec *spec, struct error *err)
{
    const struct spec_parallelism *wanted = &spec->parallelism;
    struct layout l = {
        .world = spec_world_size(spec),
        .tp = at_least_one(wanted->tensor), .cp = at_least_one(wanted->context), .pp = at_least_one(wanted->pipeline),
        .etp = at_least_one(wanted->expert_tensor ? wanted->expert_tensor : wanted->tensor), .ep = at_least_one(wanted->expert),
    };
    if (l.world < 1 || l.world % (l.tp * l.cp * l.pp) != 0)
        return error_set(err, "%lld ranks cannot be split into tensor %lld x context %lld x pipeline %lld", (long long)l.world,
            (long long)l.tp, (long long)l.cp, (long long)l.pp);
    if (l.world % (l.etp * l.ep * l.pp) != 0)
        return error_set(err, "%lld ranks cannot be split into expert tensor %lld x expert %lld x pipeline %lld", (long long)l.world,
            (long long)l.etp, (long long)l.ep, (long long)l.pp);
    for (int64_t layer = 0; layer < spec->model.layers; layer++)
        if (spec_layer_experts(spec, layer) % l.ep != 0)
            return error_set(err, "%lld experts cannot be split over expert parallelism %lld", (long long)spec_layer_experts(spec, layer),
                (long long)l.ep);
    l.dp = l.world / (l.tp * l.cp * l.pp);
    l.edp = l.world / (l.etp * l.ep * l.pp);
    *layout = l;
    return 0;
}
