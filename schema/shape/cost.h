// What a run costs, by arithmetic alone: FLOPs (Megatron's count), bytes of memory a rank by category, bytes of each collective a step.
#pragma once
#include "schema/shape/groups.h"
#include "schema/shape/params.h"

// Forward + backward FLOP of one token: Megatron's num_floating_point_operations / tokens. Router, norms, softmax left out; attention
// counts the causal half, or the window.
double flops_per_token(const struct spec *spec);

// Bytes on the rank that holds most. State is exact, by training.precision: fp32 has 4 bytes of parameter, 4 of gradient, 8 of moments;
// bf16 and fp16 have 2, 4 (fp32) and 12 (master and moments). The distributed optimizer divides the last by the data-parallel size, for
// experts by their own. Activations (of 2 bytes in bf16 and fp16 on GPUs, else 4) are what schema/shape/arena.h lays out (the worker allocates the worst case); with recomputation or
// several pipeline stages they are an estimate by the same table.
struct memory_cost {
    int64_t parameters, gradients, optimizer, activations_balanced, activations_worst;
    int64_t checkpoint;                        // host memory: the copy of weights and moments that is written behind the training; 0: none is made
    int64_t process;                           // host memory on CPUs: rounding to pages, scratch, libraries (schema/shape/process.h); else 0
    int64_t dispatch_balanced, dispatch_worst; // arenas of the MoE exchange: routing balanced, and the worst that can reach a rank
    int64_t state;                             // parameters + gradients + optimizer
    int64_t total;                             // state + activations + dispatch, balanced; on CPUs process and the checkpoint's copy too
    int64_t total_worst;                       // the same, worst
    int64_t stage;                             // the pipeline stage that these are of
};
void memory_cost(struct memory_cost *cost, const struct spec *spec, const struct layout *layout);

// Bytes one rank hands to the communicator in one step: whole send buffers, own rows included. The way there sends T·K rows whatever the
// routing (all that experts have room for where they are filled up or choose), the way back what arrived: so this is exact for balanced
// routing, and otherwise as the mean over the expert-parallel group. With a capacity that is not filled up it is the most: dropped rows stay.
// A group of one exchanges nothing. Of several pipeline stages, the one with most.
struct volume_cost {
    int64_t alltoall_rows;          // tokens: forward dispatch + combine, backward of both
    int64_t alltoall_probabilities; // the routing weights that travel with the rows, forward and backward
    int64_t alltoall_recompute;     // both, where full recomputation runs a layer's forward pass again
    int64_t alltoall_total;         // over all layers and micro batches of a step
    int64_t gradient_reduce;        // gradients that are summed over ranks: dense over DP·CP, experts over expert DP
};
void volume_cost(struct volume_cost *cost, const struct spec *spec, const struct layout *layout);

int64_t tokens_per_step(const struct spec *spec); // once the batch has its full size
int64_t micro_batches(const struct spec *spec); // a rank and step: B / (mbs · DP), once the batch has its full size

// Which samples a step reads is a function of its number alone (steps that are skipped read theirs too): step `iteration`, from 1, reads
// step_samples of them, from position samples_before.
int64_t samples_before(const struct spec *spec, int64_t iteration);
int64_t step_samples(const struct spec *spec, int64_t iteration);

// Stage k of the ramp, from 0: the first step that has its batch. Stages without steps are left out. Returns how many; the last is the full
// batch, if the run gets that far.
struct ramp_stage { int64_t iteration, samples; };
size_t ramp_stages(const struct spec *spec, struct ramp_stage stages[SPEC_RAMP_STAGES_MAX + 1]);

// The pipeline stage that runs a layer (interleaved: chunks of layers go round the stages).
int64_t layer_stage(const struct spec *spec, const struct layout *layout, int64_t layer);
// Elements of a tensor that each rank of a stage holds: its part under tensor parallelism; experts of the first expert-parallel rank only,
// since every rank holds as many.
int64_t param_elements_on(const struct param *param, const struct spec *spec, const struct layout *layout, int64_t stage);
