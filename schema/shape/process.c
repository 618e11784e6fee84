#include "schema/shape/process.h"

// Measured on Debian 12 with its Open MPI 4.1, and rounded: private pages of the program and of its libraries, the heap, stacks.
enum {
    PROGRAM = 3 << 20,
    SEVERAL_RANKS = 4 << 20,          // what the MPI library allocates to reach others
    THREAD = 1 << 20,                 // one that computes: its stack, and the blocks that products pack
    ATTENTION_KEYS = 5,               // (S, D) of an attention head that a thread keeps: packed keys and values, sums of their gradients
    ATTENTION_QUERIES = 32,           // rows of scores at a time
    SUMMED_ROWS = 64,                 // rows whose parts of a norm's gradient are summed together
};

// What rounding a segment's arrays to pages adds: gradients, both moments, fp32 parameters, and narrow weights beside them.
static size_t segment_rounding(const struct spec *spec, size_t elements)
{
    size_t wide = mapped_bytes(4 * elements) - 4 * elements, narrow = mapped_bytes(2 * elements) - 2 * elements;
    return 4 * wide + (spec->training.precision == PRECISION_FP32 ? 0 : narrow);
}

size_t process_bytes(const struct spec *spec, const struct model_sizes *s, const struct process_holding *h)
{
    size_t threads = spec->resources.threads_per_rank > 0 ? (size_t)spec->resources.threads_per_rank : 1;
    size_t attention = 4 * (ATTENTION_KEYS * s->S * s->D + ATTENTION_QUERIES * s->S);
    size_t sums = 4 * (s->T / SUMMED_ROWS) * s->C * (s->centred ? 2 : 1);
    size_t rounding = segment_rounding(spec, h->dense) + segment_rounding(spec, h->expert) + mapped_bytes(h->arena) - h->arena +
        mapped_bytes(h->dispatch) - h->dispatch;
    size_t fixed = spec_world_size(spec) > 1 ? PROGRAM + SEVERAL_RANKS : PROGRAM;
    return fixed + threads * (THREAD + attention) + sums + rounding;
}
