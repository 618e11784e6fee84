// Where the buffers of one micro batch lie on a rank: sizes of the model as that rank sees it, and the offsets of every buffer of
// schema/shape/slots.inc in two arenas (activations, and the exchange of MoE layers). `plan` adds it up, the worker allocates by it.
#pragma once
#include "schema/shape/groups.h"
#include "schema/shape/params.h"

enum { LOSS_LOGITS_MAX = 1 << 22 }; // elements of the logits buffer; loss_rows = min(T, max(1, LOSS_LOGITS_MAX / V))

enum arena_routing { ROUTING_BALANCED, ROUTING_WORST }; // rows that reach a rank: its even share, or the most that can

// Sizes of one micro batch on one rank, by the letters of worker/device/device.h.
struct model_sizes {
    size_t B, S, T, C, H, G, D, A, Q, V, F; // A = H·D, Q = (H + 2G)·D, F ffn width of dense layers; A, Q, F: this rank's part (TP)
    size_t t;                       // tokens that norms, residuals and the router see: fewer than T with sequence parallelism
    bool centred;                   // layer norm: means are kept beside the inverse deviations
    size_t gates;                   // matrices before the activation: 2 (gate, up) with SwiGLU, else 1
    size_t E, K, local, X;          // of a MoE layer: experts, top-k, experts of this rank, width; E 0 in a dense layer
    size_t J, N, R;                 // slots of a token (K, or E where experts choose), rows that a rank sends at most, and that reach it
    bool limited, balanced, biased; // experts may be full; losses of balance pull; a bias for choosing
    size_t Z, Y;                    // of a MoE layer: width of its shared expert and of its dense branch; 0: none
    bool shared_gate;               // the shared expert is weighed by a gate
    size_t layers, loss_rows;
    size_t P;                       // rows whose gradients are between an expert's matrices at a time, at most
    bool biases;                    // matrices have biases: the rows of all experts go through them at a time
    size_t q_pieces, k_pieces;      // of a token's queries and keys that are normalised by themselves: heads, or 1; 0: none are
    bool any_dense, exchanged;      // exchanged: rows travel between ranks
    bool positions, documents, drops; // tokens have positions; attention ends at documents; hidden values are dropped
    enum arena_routing routing;
    size_t ep, etp;
    const struct spec_moe *moe;     // lent by the spec
};

// Tokens that an expert takes of so many that a rank routes in a layer with so many experts; 0: any number. In training, and in validation.
size_t expert_capacity(const struct spec_moe *moe, size_t tokens, size_t experts, bool training);

// The sizes of the layer with most experts (E 0 in a dense model).
void model_sizes_init(struct model_sizes *sizes, const struct spec *spec, const struct layout *layout, enum arena_routing routing);
// The same for a layer with so many experts (0: dense).
struct model_sizes model_sizes_of(const struct model_sizes *sizes, size_t experts);

// Rows that go through an FFN of this width (its gates' included) together, so that what one matrix made is still in cache for the
// activation and for the other.
enum { ROWS_TOGETHER = 768, REALS_TOGETHER = 1 << 20 };
static inline size_t rows_together(size_t width)
{
    size_t rows = REALS_TOGETHER / width / ROWS_TOGETHER * ROWS_TOGETHER;
    return rows > ROWS_TOGETHER ? rows : ROWS_TOGETHER;
}

static inline size_t ffn_rows(const struct model_sizes *sizes, size_t width)
{
    size_t rows = rows_together(sizes->gates * width);
    return rows < sizes->T ? rows : sizes->T;
}

// Room for so many rows of the width; the larger of two.
static inline size_t ffn_room(const struct model_sizes *sizes, size_t width, size_t other)
{
    size_t one = width ? ffn_rows(sizes, width) * width : 0, two = other ? ffn_rows(sizes, other) * other : 0;
    return one > two ? one : two;
}

#define LAYER_SLOT(name, ...) LAYER_##name,
enum layer_slot {
#include "schema/shape/slots.inc"
    LAYER_SLOTS
};
#define ONCE_SLOT(name, ...) ONCE_##name,
enum once_slot {
#include "schema/shape/slots.inc"
    ONCE_SLOTS
};
#define DISPATCH_SLOT(name, ...) DISPATCH_##name,
enum dispatch_slot {
#include "schema/shape/slots.inc"
    DISPATCH_SLOTS
};

// ---- recomputation ----

// Full recomputation makes chunks of layers anew in backward, each from its first layer's input: the chunk of a layer, CHUNK_NONE where all
// that backward needs is kept. All chunks share one place. The last one is still there when backward begins: it is not made again.
enum { CHUNK_NONE = -1 };
int64_t recompute_chunk(const struct spec *spec, int64_t layer);
// Whether the layer's forward pass runs twice, and whether it is the chunk's last: then only up to what backward needs.
bool recompute_repeats(const struct spec *spec, int64_t layer, bool *last);

// Bytes of layers: what is kept of each, and the place they share, where recomputation makes the rest anew. Zero before the first layer.
struct layers_space {
    size_t kept, shared;            // so far
    size_t used;                    // of the shared place, by this chunk
    int64_t count, chunk;           // layers so far, and the chunk of the last
};
// Adds the next layer of a stage; sizes: its own.
void layers_space_add(struct layers_space *space, const struct spec *spec, const struct model_sizes *sizes, size_t real_bytes);

enum { ARENA_ABSENT = -1 };

struct arena {
    size_t bytes, dispatch_bytes;   // of both arenas
    struct layers_space space;      // of all layers; the shared place lies behind what is kept
    int64_t (*layers)[LAYER_SLOTS]; // offset of each layer's buffers; ARENA_ABSENT: the layer has none
    int64_t once[ONCE_SLOTS];
    int64_t dispatch[DISPATCH_SLOTS]; // in the arena of the exchange
};

// All layers of the model on this rank; real_bytes: of one real of the device.
void arena_init(struct arena *arena, const struct spec *spec, const struct model_sizes *sizes, size_t real_bytes);
void arena_release(struct arena *arena);

// The buffers around the layers, and those of the exchange.
size_t once_bytes(const struct model_sizes *sizes, size_t real_bytes);
size_t dispatch_bytes(const struct model_sizes *sizes, size_t real_bytes);
