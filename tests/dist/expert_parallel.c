// Expert and data parallel ranks against one rank: under mpirun every rank works on its share of the global batch, and on the side as a
// single rank on all of it, with the same micro batches. Loss, gradient norm, every gradient, bytes exchanged and bytes held are compared.
//
//   mpirun -n N expert_parallel EP EXPERTS [staged] [bf16|fp16]     staged: a device whose memory the communicator cannot reach
//
// In bf16 and fp16 rows travel in two bytes, which shows in nothing but their number. Only one step is compared there: gradients that were
// added in another order round weights another way now and then.
#include "schema/base/text.h"
#include "schema/shape/cost.h"
#include "tests/train/tiny_routing.h"
#include "worker/parallel/reduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 8, SEQUENCES = 2, EXPERTS_MAX = 8, TOP_K = 2, SEQUENCES_A_STEP = 8 };
static const double rate = 0.05;

struct side { // one way of running: all ranks together, or one alone
    struct spec spec;
    struct parallel parallel;
    struct model *model;
};

static struct comm *world;
static int64_t experts, together_size; // the size of the expert-parallel group

#define REQUIRE(what, ...)                                                                \
    do {                                                                                  \
        if (!(what)) {                                                                    \
            fprintf(stderr, "rank %" PRId64 ": %s:%d: ", world->rank, __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                                                 \
            fputc('\n', stderr);                                                          \
            comm_abort(world, 1);                                                         \
        }                                                                                 \
    } while (0)

static void *no_view(void *at)
{
    (void)at;
    return NULL;
}

// Everything that a layer can have beside its experts, dropout, and a second layer with fewer of them.
static void every_shape(struct spec *spec)
{
    static int64_t layers[TINY_LAYERS];
    layers[0] = experts;
    layers[1] = experts > together_size ? experts / 2 : experts; // both sides have the same, so it is what can be spread
    spec->model.norm = NORM_LAYERNORM;
    spec->model.activation = ACTIVATION_GELU;
    spec->model.bias = true;
    spec->model.moe.experts_per_layer = (struct spec_integers){layers, TINY_LAYERS};
    spec->model.moe.shared_expert_size = 7;
    spec->model.moe.shared_expert_gate = true;
    spec->model.moe.residual = true;
    spec->model.qk_norm = true;
    spec->model.attention_dropout = spec->model.hidden_dropout = 0.2; // of a token's place in the step, whoever reads it
    spec->data.reset_attention_mask = spec->data.reset_position_ids = true;
}

static void every_shape_recomputed(struct spec *spec)
{
    every_shape(spec);
    spec->training.recompute = (struct spec_recompute_keys){RECOMPUTE_FULL, RECOMPUTE_UNIFORM, 1};
}

static void (*change)(struct spec *); // what the models of this case are
static const struct tiny_routing *routing; // or, if not NULL, one of the list

// The global loss counts the micro batches of all ranks so far, which are others in another layout: it has a test of its own.
static void make_local(struct spec_moe *moe)
{
    for (size_t i = 0; i < moe->losses_count; i++)
        if (moe->losses[i].type == MOE_LOSS_GLOBAL_AUX)
            moe->losses[i].type = MOE_LOSS_AUX;
}

static void side_init(struct side *side, struct comm *ranks, int64_t expert_parallel, const struct device *device)
{
    struct error err = {{0}};
    struct tiny tiny = {.experts = experts, .top_k = TOP_K, .balance = 0.05, .grouped_gemm = true, .change = change};
    if (routing)
        tiny = routing->tiny;
    tiny.micro_batch = SEQUENCES;
    tiny.ranks = ranks->size;
    tiny.expert_parallel = expert_parallel;
    tiny_spec(&side->spec, &tiny);
    make_local(&side->spec.model.moe);
    side->spec.training.global_batch_size = SEQUENCES_A_STEP;
    side->spec.training.precision = device->format == FORMAT_BF16 ? PRECISION_BF16 : device->format == FORMAT_FP16 ? PRECISION_FP16 : PRECISION_FP32;
    REQUIRE(parallel_init(&side->parallel, &side->spec, ranks, &err) == 0, "%s", err.text);
    REQUIRE(model_new(&side->model, &side->spec, device, &side->parallel, &err) == 0, "%s", err.text);
    tiny_values(side->model, 0.4);
}

static void side_release(struct side *side)
{
    model_free(side->model);
    parallel_release(&side->parallel);
}

struct outcome {
    double loss, norm, balance[TINY_LAYERS];
    int64_t zeros, counts[TINY_LAYERS * EXPERTS_MAX];
};

// Gradients of one step; the micro batches of a step are dealt to the ranks in turn.
static struct outcome gradients(struct side *side, int64_t step)
{
    struct outcome outcome = {0};
    int64_t ranks = side->parallel.dp->size, micro_batches = SEQUENCES_A_STEP / SEQUENCES / ranks;
    double scale = side->model->device->format == FORMAT_FP16 ? 4096 : 1; // small gradients would vanish
    model_zero_gradients(side->model);
    model_statistics_reset(side->model);
    for (int64_t m = 0; m < micro_batches; m++) {
        struct micro_batch *batch = tiny_batch(&side->spec, step * SEQUENCES_A_STEP + (m * ranks + side->parallel.dp->rank) * SEQUENCES);
        outcome.loss += model_forward(side->model, batch, true, scale / (double)micro_batches) / (double)micro_batches;
        free(batch);
        model_backward(side->model);
    }
    all_reduce_doubles(side->parallel.dp, &outcome.loss, 1);
    outcome.loss /= (double)ranks;
    struct moe_report report;
    moe_report_init(&report, &side->spec);
    model_statistics_global(side->model, &report);
    memcpy(outcome.counts, report.counts, (size_t)(TINY_LAYERS * experts) * sizeof *report.counts);
    memcpy(outcome.balance, report.losses[MOE_LOSS_AUX], sizeof outcome.balance);
    moe_report_release(&report);
    model_reduce_gradients(side->model);
    outcome.norm = model_gradient_norm(side->model, &outcome.zeros);
    return outcome;
}

static void descend(struct segment *segment, const struct device *device)
{
    device->ops->scale(segment->gradients, -rate, segment->count);
    device->ops->add(segment->params, segment->params, segment->gradients, segment->count);
}

static double relative(double a, double b)
{
    return fabs(a - b) / fabs(b);
}

static void compare_tensors(const struct side *together, const struct side *alone)
{
    for (size_t i = 0; i < together->model->table.count; i++) {
        const struct param *mine = &together->model->table.items[i], *whole = &alone->model->table.items[i];
        if (!mine->resident)
            continue;
        size_t count = param_elements(mine);
        double *a = tiny_read(together->model, model_gradient(together->model, mine), count);
        double *b = tiny_read(alone->model, model_gradient(alone->model, whole), count), difference = 0, size = 0;
        for (size_t j = 0; j < count; j++) {
            difference += (a[j] - b[j]) * (a[j] - b[j]);
            size += b[j] * b[j];
        }
        REQUIRE(sqrt(difference) <= 1e-5 * sqrt(size), "%s: difference %g of %g", mine->name, sqrt(difference), sqrt(size));
        free(a);
        free(b);
    }
}

static void same_everywhere(const void *bytes, size_t count, const char *what)
{
    char *all = allocate(count, (size_t)world->size);
    world->ops->allgather(world, all, bytes, (int64_t)count);
    for (int64_t r = 0; r < world->size; r++)
        REQUIRE(memcmp(all + (size_t)r * count, bytes, count) == 0, "%s differs from rank %" PRId64 "'s", what, r);
    free(all);
}

static void compare(const struct outcome *together, const struct outcome *alone, int64_t step)
{
    REQUIRE(relative(together->loss, alone->loss) < 1e-5, "step %" PRId64 ": loss %.9g, alone %.9g", step, together->loss, alone->loss);
    REQUIRE(relative(together->norm, alone->norm) < 1e-5, "step %" PRId64 ": gradient norm %.9g, alone %.9g", step, together->norm, alone->norm);
    REQUIRE(!memcmp(together->counts, alone->counts, sizeof alone->counts), "step %" PRId64 ": expert counts differ", step);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++)
        REQUIRE(relative(together->balance[layer], alone->balance[layer]) < 1e-5 || (!together->balance[layer] && !alone->balance[layer]), "step %" PRId64 ": balance of layer %zu: %.9g, alone %.9g",
            step, layer, together->balance[layer], alone->balance[layer]);
    same_everywhere(together, sizeof *together, "outcome of the step");
}

// The arenas are what `plan` says of the worst routing.
static void as_planned(const struct side *side)
{
    struct memory_cost cost;
    memory_cost(&cost, &side->spec, &side->parallel.layout);
    size_t activations = model_bytes(side->model, "activations"), dispatch = model_bytes(side->model, "dispatch");
    size_t parameters = model_bytes(side->model, "parameters");
    REQUIRE((size_t)cost.activations_worst == activations, "activations: %zu bytes, planned %" PRId64, activations, cost.activations_worst);
    REQUIRE((size_t)cost.dispatch_worst == dispatch, "dispatch: %zu bytes, planned %" PRId64, dispatch, cost.dispatch_worst);
    REQUIRE((size_t)cost.parameters == parameters, "parameters: %zu bytes, planned %" PRId64, parameters, cost.parameters);
}

static void eight_steps(int64_t expert_parallel, const struct device *device)
{
    struct side together, alone;
    struct comm *self = comm_self();
    side_init(&together, world, expert_parallel, device);
    side_init(&alone, self, 1, device);
    for (int64_t step = 0; step < (device->format == FORMAT_FP32 ? STEPS : 1); step++) {
        struct outcome a = gradients(&together, step), b = gradients(&alone, step);
        compare(&a, &b, step);
        if (step == 0) {
            REQUIRE(a.loss == b.loss, "the first loss %.17g, alone %.17g", a.loss, b.loss);
            compare_tensors(&together, &alone);
        }
        struct side *sides[] = {&together, &alone};
        for (size_t i = 0; i < 2; i++) {
            descend(&sides[i]->model->dense, device);
            descend(&sides[i]->model->experts, device);
        }
        if (world->rank == 0)
            printf("step %" PRId64 ": loss %.7f, alone %.7f; gradient norm %.7f, alone %.7f\n", step, a.loss, b.loss, a.norm, b.norm);
    }
    size_t mine = model_bytes(together.model, "experts"), whole = model_bytes(alone.model, "experts");
    REQUIRE(mine * (size_t)expert_parallel == whole, "holds %zu bytes of experts of %zu", mine, whole);
    as_planned(&together);
    as_planned(&alone);
    side_release(&together);
    side_release(&alone);
    self->ops->free(self);
}

static void zero_routers(struct side *side)
{
    for (size_t layer = 0; layer < TINY_LAYERS; layer++) {
        const struct param *router = param_find(&side->model->table, PARAM_ROUTER, (int64_t)layer, -1);
        side->model->device->memory->zero(model_param(side->model, router), param_elements(router) * side->model->device->real_bytes);
    }
}

// All logits equal: every token takes the lowest experts, which are rank 0's, and the last rank gets no rows.
static void a_rank_without_rows(int64_t expert_parallel, const struct device *device)
{
    struct side together, alone;
    struct comm *self = comm_self();
    side_init(&together, world, expert_parallel, device);
    side_init(&alone, self, 1, device);
    zero_routers(&together);
    zero_routers(&alone);
    struct outcome a = gradients(&together, 0), b = gradients(&alone, 0);
    for (int64_t e = 0; e < experts; e++)
        REQUIRE((a.counts[e] == 0) == (e >= TOP_K), "expert %" PRId64 " got %" PRId64 " rows", e, a.counts[e]);
    compare(&a, &b, 0);
    compare_tensors(&together, &alone);
    side_release(&together);
    side_release(&alone);
    self->ops->free(self);
}

// Rows and probabilities, forth and back, forward and backward. What a rank sends back is what it got, so the sum over ranks is exact.
static void bytes_exchanged(int64_t expert_parallel, const struct device *device)
{
    struct side side;
    side_init(&side, world, expert_parallel, device);
    gradients(&side, 0);
    int64_t T = SEQUENCES * TINY_SEQUENCE, micro_batches = SEQUENCES_A_STEP / SEQUENCES;
    int64_t rows = T * TOP_K * TINY_HIDDEN * (int64_t)device->weight_bytes, probabilities = T * TOP_K * (int64_t)device->real_bytes; // of one exchange
    int64_t wanted = micro_batches * TINY_LAYERS * (4 * rows + 2 * probabilities);
    if (side.spec.training.recompute.granularity == RECOMPUTE_FULL) // the way there again, in every layer but the last
        wanted += micro_batches * (TINY_LAYERS - 1) * (rows + probabilities);
    struct volume_cost cost;
    volume_cost(&cost, &side.spec, &side.parallel.layout);
    REQUIRE(cost.alltoall_total * world->size == wanted, "planned %" PRId64 " bytes a rank", cost.alltoall_total);
    int64_t counted = side.parallel.ep->alltoall_bytes + side.parallel.dp->alltoall_bytes + side.parallel.edp->alltoall_bytes;
    all_reduce_integers(world, &counted, 1);
    if (world->rank == 0)
        printf("all-to-all of a step: %" PRId64 " bytes over all ranks\n", counted);
    REQUIRE(counted == wanted, "all-to-all: %" PRId64 " bytes over all ranks, by formula %" PRId64, counted, wanted);
    side_release(&side);
}

static void same_bits(const void *a, const void *b, size_t count, const struct device *device)
{
    void *copies[2] = {allocate(count, device->real_bytes), allocate(count, device->real_bytes)};
    device->memory->read_back(copies[0], a, count * device->real_bytes);
    device->memory->read_back(copies[1], b, count * device->real_bytes);
    REQUIRE(memcmp(copies[0], copies[1], count * device->real_bytes) == 0, "recomputation changes gradients");
    free(copies[0]);
    free(copies[1]);
}

// The exchange is repeated, and every bit comes out as before.
static void recomputed_is_kept(int64_t expert_parallel, const struct device *device)
{
    struct side kept, again;
    change = every_shape;
    side_init(&kept, world, expert_parallel, device);
    change = every_shape_recomputed;
    side_init(&again, world, expert_parallel, device);
    struct outcome a = gradients(&kept, 0), b = gradients(&again, 0);
    REQUIRE(memcmp(&a, &b, sizeof a) == 0, "recomputation changes the step: loss %.9g and %.9g", a.loss, b.loss);
    same_bits(kept.model->dense.gradients, again.model->dense.gradients, kept.model->dense.count, device);
    same_bits(kept.model->experts.gradients, again.model->experts.gradients, kept.model->experts.count, device);
    as_planned(&again);
    side_release(&kept);
    side_release(&again);
    bytes_exchanged(expert_parallel, device);
}

// Every way of routing: one step as one rank does it, arenas as planned, no more bytes than planned, and exactly those where every expert
// is filled up.
static void every_routing(int64_t expert_parallel, const struct device *device)
{
    int64_t asked = experts;
    for (size_t i = 0; i < tiny_routings_count; i++) {
        struct side together, alone;
        struct comm *self = comm_self();
        struct volume_cost cost;
        routing = &tiny_routings[i];
        experts = routing->tiny.experts;
        side_init(&together, world, expert_parallel, device);
        side_init(&alone, self, 1, device);
        int64_t before = together.parallel.ep->alltoall_bytes + together.parallel.dp->alltoall_bytes + together.parallel.edp->alltoall_bytes;
        struct outcome a = gradients(&together, 0), b = gradients(&alone, 0);
        int64_t bytes = together.parallel.ep->alltoall_bytes + together.parallel.dp->alltoall_bytes + together.parallel.edp->alltoall_bytes - before;
        if (world->rank == 0)
            printf("%s: loss %.7f, alone %.7f\n", routing->name, a.loss, b.loss);
        compare(&a, &b, 0);
        compare_tensors(&together, &alone);
        as_planned(&together);
        as_planned(&alone);
        all_reduce_integers(world, &bytes, 1);
        volume_cost(&cost, &together.spec, &together.parallel.layout);
        const struct spec_moe *moe = &together.spec.model.moe;
        bool may_drop = moe->capacity_factor > 0 && moe->routing == ROUTING_TOP_K && !moe->pad_to_capacity;
        REQUIRE(bytes == cost.alltoall_total * world->size || (may_drop && bytes < cost.alltoall_total * world->size),
            "%s: %" PRId64 " bytes over all ranks, planned %" PRId64 " a rank", routing->name, bytes, cost.alltoall_total);
        side_release(&together);
        side_release(&alone);
        self->ops->free(self);
    }
    routing = NULL;
    experts = asked;
}

// ---- the global loss: of one micro batch a rank it is the plain loss of all of them as one, and so is its gradient ----

static void lay_out_global(struct side *side, struct comm *ranks, enum spec_moe_loss type, int64_t sequences, const struct device *device)
{
    struct error err = {{0}};
    tiny_spec(&side->spec, &(struct tiny){.experts = experts, .top_k = TOP_K, .balance = 1, .micro_batch = sequences, .ranks = ranks->size,
        .expert_parallel = ranks->size > 1 ? together_size : 1});
    side->spec.model.moe.losses[0].type = type;
    REQUIRE(parallel_init(&side->parallel, &side->spec, ranks, &err) == 0, "%s", err.text);
    REQUIRE(model_new(&side->model, &side->spec, device, &side->parallel, &err) == 0, "%s", err.text);
    tiny_values(side->model, 0.4);
}

static double routing_gradients(struct side *side, enum spec_moe_loss type)
{
    int64_t sequences = side->spec.training.micro_batch_size, count = sequences * TINY_SEQUENCE;
    int32_t *tokens = allocate((size_t)count, sizeof *tokens), *targets = allocate((size_t)count, sizeof *targets);
    struct moe_report report;
    double loss = 0;
    tiny_tokens(&side->spec, tokens, targets, side->parallel.dp->rank * sequences, sequences);
    for (int64_t t = 0; t < count; t++)
        targets[t] = -1; // nothing but the losses of routing
    model_zero_gradients(side->model);
    model_statistics_reset(side->model);
    model_forward(side->model, &(struct micro_batch){.tokens = tokens, .targets = targets}, true, 1);
    model_backward(side->model);
    model_reduce_gradients(side->model);
    moe_report_init(&report, &side->spec);
    model_statistics_global(side->model, &report);
    for (size_t layer = 0; layer < TINY_LAYERS; layer++)
        loss += report.losses[type][layer];
    moe_report_release(&report);
    free(tokens);
    free(targets);
    return loss;
}

static void global_loss_is_of_all_ranks(const struct device *device)
{
    struct side together, alone;
    struct comm *self = comm_self();
    lay_out_global(&together, world, MOE_LOSS_GLOBAL_AUX, 1, device);
    lay_out_global(&alone, self, MOE_LOSS_AUX, world->size, device);
    double a = routing_gradients(&together, MOE_LOSS_GLOBAL_AUX), b = routing_gradients(&alone, MOE_LOSS_AUX);
    REQUIRE(relative(a, b) < 1e-6, "global loss %.9g, of all ranks' tokens as one micro batch %.9g", a, b);
    compare_tensors(&together, &alone);
    if (world->rank == 0)
        printf("global loss %.7f, as one micro batch %.7f\n", a, b);
    side_release(&together);
    side_release(&alone);
    self->ops->free(self);
}

int main(int argc, char **argv)
{
    int64_t expert_parallel = argc > 2 ? strtol(argv[1], NULL, 10) : 0;
    experts = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    together_size = expert_parallel;
    world = comm_world();
    REQUIRE(expert_parallel > 1 && world->size >= expert_parallel, "started with %" PRId64 " ranks", world->size);
    REQUIRE(experts >= expert_parallel && experts <= EXPERTS_MAX, "started with %" PRId64 " experts", experts);
    struct device_memory memory = *device_reference()->memory;
    const char *last = argc > 3 ? argv[argc - 1] : "";
    struct device device = *device_reference_in(!strcmp(last, "bf16") ? FORMAT_BF16 : !strcmp(last, "fp16") ? FORMAT_FP16 : FORMAT_FP32);
    device.memory = &memory;
    if (argc > 3 && !strcmp(argv[3], "staged"))
        memory.host_view = no_view;

    eight_steps(expert_parallel, &device);
    a_rank_without_rows(expert_parallel, &device);
    bytes_exchanged(expert_parallel, &device);
    change = every_shape;
    eight_steps(expert_parallel, &device);
    recomputed_is_kept(expert_parallel, &device);
    change = NULL;
    if (device.format == FORMAT_FP32) {
        every_routing(expert_parallel, &device);
        global_loss_is_of_all_ranks(&device);
    }
    if (world->rank == 0)
        printf("%" PRId64 " ranks, expert parallel %" PRId64 ": as one rank\n", world->size, expert_parallel);
    comm_finish(world);
    return 0;
}
