// What a run costs, by arithmetic alone: FLOPs (Megatron's count), bytes of memory a rank by category, bytes of each collective a step.
#pragma once
#include "schema/shape/groups.h"
#include "schema/shape/params.h"

// Forward + backward FLOP of one token: Megatron's num_floating_point_operations / tokens. Router, norms, softmax left out.
double flops_per_token(const struct spec *spec);

struct memory_cost { // bytes on the rank that holds most
    int64_t parameters, gradients, optimizer, activations_balanced, activations_worst;
    int64_t dispatch_balanced, dispatch_worst; // arenas of the MoE exchange: routing balanced, and the worst that can reach a rank
    int64_t state;                             // parameters + gradients + optimizer
    int64_t total;                             // state + activations + dispatch, balanced
};
void memory_cost(struct memory_cost *cost, const struct spec *spec, const struct layout *layout);

struct volume_cost { // bytes one rank hands to the communicator in one step, whole send buffers, own rows included, balanced routing
    int64_t alltoall_rows;          // tokens: forward dispatch + combine, backward of both
    int64_t alltoall_probabilities; // the routing weights that travel with the rows, forward and backward
    int64_t alltoall_total;         // over all layers and micro batches of a step: rows + probabilities
    int64_t gradient_reduce;        // data parallel gradients
};
void volume_cost(struct volume_cost *cost, const struct spec *spec, const struct layout *layout);

int64_t tokens_per_step(const struct spec *spec);
int64_t micro_batches(const struct spec *spec); // a rank and step: B / (mbs · DP)
