// `generate`: tokens after a prompt, one by one, each from the model's own continuation of all before it. Keys and values are kept, so a token costs
// one row of every product; experts are read where they lie in the checkpoint, when they are first chosen (mapped.h).
//
// A prompt and what follows it fit into the context (data.sequence_length; model.max_position_embeddings where that is given): a longer prompt is an
// error, and generation ends where the context is full. The context does not slide: the model has seen no position beyond it.
#include "schema/base/clock.h"
#include "schema/record/layout.h"
#include "worker/data/data.h"
#include "worker/infer/infer.h"
#include "worker/infer/loaded.h"
#include "worker/infer/mapped.h"
#include "worker/infer/options.h"
#include "worker/infer/sample.h"
#include "worker/train/fault.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char generate_usage[] =
    "generate RUN_OR_CHECKPOINT (--prompt TEXT | --prompt-tokens N,N,…) [option…]\n"
    "  --prompt TEXT          what to go on from (byte tokenizer); empty: the beginning of a document\n"
    "  --prompt-tokens LIST   the same as numbers, for any tokenizer; what follows is printed as numbers too\n"
    "  --max-tokens N         at most so many new tokens (default 128)\n"
    "  --temperature T        0 (default): always the likeliest; 1: as the model says\n"
    "  --top-k K, --top-p P   draw from the K likeliest, from the likeliest that have the share P together\n"
    "  --seed S               the same tokens for the same seed (default 0)\n"
    "  --step N               of a run's checkpoint (default: the last complete one)\n"
    "  --threads N            default: every processor that this process may use\n"
    "  --json                 all of it as JSON at the end, instead of text as it comes\n";

enum { PIECE = 32 }; // most tokens of the prompt at a time

struct generation {
    struct trained trained;
    struct mapped_experts mapped;
    struct loaded loaded;
    bool uses_map;
    const char *prompt, *prompt_tokens;
    bool text, as_json, terminal;       // text: tokens are bytes
    struct sampling_options sampling;
    int64_t max_tokens, context;
    int32_t *tokens;                    // (context + 1): the prompt, then what was made
    int64_t prompt_count, count;
    const char *stop;                   // why it ended
    double prompt_seconds, seconds;
};

// ---- the prompt ----

static int take_bytes(struct generation *g, struct error *err)
{
    int64_t length = (int64_t)strlen(g->prompt);
    if (length > g->context)
        return error_set(err, "the prompt has %" PRId64 " tokens, and the context %" PRId64, length, g->context);
    for (int64_t i = 0; i < length; i++)
        g->tokens[g->count++] = (unsigned char)g->prompt[i];
    if (g->count == 0)
        g->tokens[g->count++] = BYTE_TOKEN_EOD; // what follows the end of a document is the beginning of one
    return 0;
}

static int take_numbers(struct generation *g, struct error *err)
{
    int64_t V = g->trained.job.spec.model.vocab_size;
    const char *at = g->prompt_tokens;
    for (char *end; *at; at = *end == ',' ? end + 1 : end) {
        long long token = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || (*end && !end[1]) || token < 0 || token >= V)
            return error_set(err, "--prompt-tokens are numbers from 0 to %" PRId64 " with commas between, not '%s'", V - 1, at);
        if (g->count == g->context)
            return error_set(err, "the prompt has more than %" PRId64 " tokens, which is the context", g->context);
        g->tokens[g->count++] = (int32_t)token;
    }
    return g->count ? 0 : error_set(err, "--prompt-tokens names no token");
}

static int take_prompt(struct generation *g, struct error *err)
{
    const struct spec *spec = &g->trained.job.spec;
    g->text = !g->prompt_tokens;
    g->context = spec->model.max_position_embeddings ? spec->model.max_position_embeddings : spec->data.sequence_length;
    if (g->context <= 0)
        return error_set(err, "config.json has no max_position_embeddings, so how long a text may be is not known");
    if (g->text && !trained_is_bytes(&g->trained))
        return error_set(err, "--prompt is for the byte tokenizer, and this model has another: give it --prompt-tokens");
    g->tokens = allocate((size_t)g->context + 1, sizeof *g->tokens);
    int status = g->text ? take_bytes(g, err) : take_numbers(g, err);
    g->prompt_count = g->count;
    return status;
}

// ---- the model ----

// What a token is depends on its company in these: there is no answer for one token.
static int check_shape(const struct spec *spec, struct error *err)
{
    const struct spec_moe *moe = &spec->model.moe;
    const char *key = !spec_is_moe(spec)                  ? NULL
        : moe->capacity_factor > 0                        ? "model.moe.capacity_factor: full experts drop tokens by what else is in the batch"
        : moe->eval_capacity_factor > 0                   ? "model.moe.eval_capacity_factor: full experts drop tokens by what else is in the batch"
        : moe->routing == ROUTING_EXPERT_CHOICE           ? "model.moe.routing expert_choice: experts choose among all tokens of a batch"
        : moe->force_balance                              ? "model.moe.force_balance: tokens take experts in turn, by their place in the batch"
                                                          : NULL;
    return key ? error_set(err, "cannot generate token by token from a model with %s", key) : 0;
}

// One sequence, so many tokens at a time, positions counted from its beginning.
static void fit_spec(struct spec *spec, int64_t context)
{
    spec->training.micro_batch_size = spec->training.global_batch_size = 1;
    spec->model.max_position_embeddings = context;
    spec->data.sequence_length = context < PIECE ? context : PIECE;
    spec->data.reset_position_ids = spec->data.reset_attention_mask = false;
}

static int open_model(struct generation *g, int64_t threads, struct error *err)
{
    struct spec *spec = &g->trained.job.spec;
    if (check_shape(spec, err) != 0)
        return -1;
    fit_spec(spec, g->context);
    g->uses_map = spec_is_moe(spec) && !spec->model.bias; // experts' biases lie beside their matrices in memory
    if (loaded_prepare(&g->loaded, &g->trained, threads, err) != 0)
        return -1;
    if (g->uses_map && mapped_open(&g->mapped, spec, g->loaded.device, g->trained.checkpoint, err) != 0)
        return -1;
    if (loaded_read(&g->loaded, &g->trained, g->uses_map ? &g->mapped.store : NULL, err) != 0)
        return -1;
    model_keep(g->loaded.model, (size_t)g->context);
    return 0;
}

// ---- the text ----

static void say(const struct generation *g, int32_t token)
{
    if (g->as_json)
        return;
    if (!g->text) {
        printf("%s%d", g->count > g->prompt_count ? "," : "", token);
    } else if (token < BYTE_TOKEN_EOD) {
        bool harmless = token >= 0x20 || token == '\n' || token == '\t';
        putchar(g->terminal && (!harmless || token == 0x7f) ? '?' : token); // a model may write what a terminal obeys
    }
    fflush(stdout);
}

// Returns the row of the last piece whose logits say what follows.
static size_t read_prompt(struct generation *g)
{
    double began = clock_steady();
    size_t most = (size_t)g->trained.job.spec.data.sequence_length, piece = 0;
    for (int64_t at = 0; at < g->prompt_count; at += (int64_t)piece) {
        piece = (size_t)(g->prompt_count - at) < most ? (size_t)(g->prompt_count - at) : most;
        model_extend(g->loaded.model, g->tokens + at, piece);
    }
    g->prompt_seconds = clock_steady() - began;
    return piece - 1;
}

// Why it ends with this token; NULL: it goes on.
static const char *end_after(const struct generation *g, int32_t token)
{
    if (token == g->trained.eod)
        return "end_of_document";
    if (g->count - g->prompt_count == g->max_tokens)
        return "max_tokens";
    return g->count > g->context ? "context" : NULL; // the last token is said, but there is no position to go on from it
}

// Weights that have overflowed give logits that are no numbers, of which none is the likeliest.
static int check_logits(const struct generation *g, const double *logits, struct error *err)
{
    for (int64_t v = 0; v < g->trained.job.spec.model.vocab_size; v++)
        if (!isfinite(logits[v]))
            return error_set(err, "%s: the model gives %s for token %" PRId64 " of the vocabulary after %" PRId64 " tokens: its weights have diverged",
                g->trained.checkpoint, isnan(logits[v]) ? "NaN" : "an infinite value", v, g->count);
    return 0;
}

static int run(struct generation *g, struct error *err)
{
    size_t V = (size_t)g->trained.job.spec.model.vocab_size, row = read_prompt(g);
    double *logits = allocate(V, sizeof *logits), began = clock_steady();
    int32_t *order = allocate(V, sizeof *order);
    int status = 0;
    while (!g->stop) {
        model_logits(g->loaded.model, row, logits);
        status = check_logits(g, logits, err);
        if (status != 0)
            break;
        int32_t token = sample_token(logits, V, &g->sampling, (uint64_t)(g->count - g->prompt_count), order);
        say(g, token);
        g->tokens[g->count++] = token;
        g->stop = end_after(g, token);
        if (!g->stop)
            model_extend(g->loaded.model, &token, 1);
        row = 0;
    }
    g->seconds = clock_steady() - began;
    free(order);
    free(logits);
    return status;
}

// ---- what is told at the end ----

static struct json *experts_json(const struct mapped_experts *mapped)
{
    struct json *json = js_object();
    js_set(json, "chosen", js_integer(mapped->chosen));
    js_set(json, "all", js_integer(mapped->all));
    js_set(json, "bytes_touched", js_integer(mapped->bytes));
    js_set(json, "bytes", js_integer(mapped->all_bytes));
    js_set(json, "matrices_in_place", js_integer(mapped->in_place));
    return json;
}

static void print_json(const struct generation *g)
{
    struct json *json = js_object(), *tokens = js_array();
    struct text bytes, out;
    int64_t made = g->count - g->prompt_count;
    text_init(&bytes, (size_t)made + 1);
    for (int64_t i = g->prompt_count; i < g->count; i++) {
        js_append(tokens, js_integer(g->tokens[i]));
        char byte = g->tokens[i] ? (char)g->tokens[i] : '\xFF'; // a NUL would end the string
        if (g->tokens[i] < BYTE_TOKEN_EOD)
            text_add_bytes(&bytes, &byte, 1);
    }
    js_set(json, "tokens", tokens);
    js_set(json, "text", g->text ? js_string(bytes.at) : js_null());
    js_set(json, "stop", js_string(g->stop));
    js_set(json, "prompt_tokens", js_integer(g->prompt_count));
    js_set(json, "context", js_integer(g->context));
    js_set(json, "seed", js_integer((int64_t)g->sampling.seed));
    js_set(json, "prompt_seconds", js_real(g->prompt_seconds));
    js_set(json, "seconds", js_real(g->seconds));
    js_set(json, "tokens_per_second", js_real(g->seconds > 0 ? (double)made / g->seconds : 0));
    js_set(json, "experts", g->uses_map ? experts_json(&g->mapped) : js_null());
    text_init(&out, (size_t)1 << 30);
    js_write_pretty(&out, json);
    fputs(out.at, stdout);
    text_release(&out);
    text_release(&bytes);
    js_free(json);
}

static void tell(const struct generation *g)
{
    int64_t made = g->count - g->prompt_count;
    if (g->as_json)
        print_json(g);
    else
        putchar('\n');
    fflush(stdout);
    fprintf(stderr, "%" PRId64 " tokens in %.2f s, %.1f a second (%s); a prompt of %" PRId64 " in %.2f s\n", made, g->seconds,
        g->seconds > 0 ? (double)made / g->seconds : 0, g->stop, g->prompt_count, g->prompt_seconds);
    if (g->uses_map)
        fprintf(stderr, "experts: %" PRId64 " of %" PRId64 " chosen, %.1f of %.1f MB read\n", g->mapped.chosen, g->mapped.all, (double)g->mapped.bytes / 1e6,
            (double)g->mapped.all_bytes / 1e6);
}

static void release(struct generation *g)
{
    if (g->loaded.self)
        loaded_close(&g->loaded);
    if (g->mapped.cells)
        mapped_close(&g->mapped);
    free(g->tokens);
    trained_release(&g->trained);
}

static int check_options(const struct generation *g, struct error *err)
{
    if (!g->prompt && !g->prompt_tokens)
        return error_set(err, "generate needs something to go on from: --prompt TEXT, or --prompt-tokens N,N,...");
    if (g->prompt && g->prompt_tokens)
        return error_set(err, "--prompt and --prompt-tokens are both given: generate goes on from one of them");
    if (g->sampling.temperature == 0 && (g->sampling.top_k > 0 || g->sampling.top_p < 1))
        return error_set(err, "%s says what to draw from, and without --temperature nothing is drawn (1: as the model says)",
            g->sampling.top_k > 0 ? "--top-k" : "--top-p");
    return 0;
}

int generate_command(int argc, char **argv)
{
    const char *words[1];
    int64_t step = 0, threads = 0, seed = 0;
    struct error err = {0};
    struct generation g = {.max_tokens = 128, .sampling = {.top_p = 1}, .terminal = isatty(STDOUT_FILENO)};
    const struct option_row rows[] = {{"--prompt", OPTION_TEXT, &g.prompt, 0, 0}, {"--prompt-tokens", OPTION_TEXT, &g.prompt_tokens, 0, 0},
        {"--max-tokens", OPTION_WHOLE, &g.max_tokens, 1, 0x1p31}, {"--temperature", OPTION_REAL, &g.sampling.temperature, 0, 1000},
        {"--top-p", OPTION_REAL, &g.sampling.top_p, 0, 1}, {"--top-k", OPTION_WHOLE, &g.sampling.top_k, 0, 0x1p31},
        {"--seed", OPTION_WHOLE, &seed, 0, OPTION_WHOLE_MOST}, {"--step", OPTION_WHOLE, &step, 0, OPTION_WHOLE_MOST}, {"--threads", OPTION_WHOLE, &threads, 1, 4096},
        {"--json", OPTION_FLAG, &g.as_json, 0, 0}, {0}};
    int code = options_command(generate_usage, rows, words, 1, argc, argv);
    if (code >= 0)
        return code;
    g.sampling.seed = (uint64_t)seed;
    fault_explain();
    if (check_options(&g, &err) != 0)
        code = -1;
    else
        code = trained_open(&g.trained, words[0], step, &err) == 0 && take_prompt(&g, &err) == 0 ? open_model(&g, threads, &err) : -1;
    if (code != 0) {
        code = complain(&err, EXIT_BAD_INPUT);
    } else if (run(&g, &err) != 0) {
        code = complain(&err, EXIT_FAILED);
    } else {
        tell(&g);
        code = EXIT_DONE;
    }
    release(&g);
    return code;
}
