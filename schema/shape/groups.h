// Rank arithmetic of every parallel group, in Megatron's order tp-cp-ep-dp-pp, leftmost fastest (facts: Megatron's RankGenerator).
// Dense layers: rank = tp + TP·(cp + CP·(dp + DP·pp)). Expert layers: rank = etp + ETP·(ep + EP·(edp + EDP·pp)).
// Pure functions: no process is needed to test them.
#pragma once
#include "schema/spec/spec.h"
#include <stddef.h>
#include <stdint.h>

struct layout {
    int64_t world, tp, cp, dp, pp;  // dense
    int64_t etp, ep, edp;           // expert layers; world = etp·ep·edp·pp
};

enum group_kind {
    GROUP_TP, GROUP_CP, GROUP_DP, GROUP_PP, GROUP_ETP, GROUP_EP, GROUP_EDP, GROUP_DP_CP, GROUP_TP_CP, GROUP_ETP_EP, GROUP_EMBEDDING
};

// The layout that a spec asks for; an error says with the numbers why its ranks or experts cannot be split so.
int layout_from_spec(struct layout *layout, const struct spec *spec, struct error *err);

// Number of ranks in each group of this kind. GROUP_EMBEDDING joins the first and the last pipeline stage; ranks of other stages are in no
// such group: no ranks, index -1, color -1.
int64_t group_size(const struct layout *layout, enum group_kind kind);
// Writes the ranks of the group that `rank` is in, ascending; returns how many. ranks holds at least group_size entries.
int64_t group_ranks(const struct layout *layout, enum group_kind kind, int64_t rank, int64_t *ranks);
// Index of `rank` within its group, and a number that all members of a group share and no other group has (MPI_Comm_split's color).
int64_t group_index(const struct layout *layout, enum group_kind kind, int64_t rank);
int64_t group_color(const struct layout *layout, enum group_kind kind, int64_t rank);
