// `switchyard generate RUN --prompt TEXT`: what a trained model says next.
#include "daemon/cli/worker.h"

static int run_generate(const struct arguments *arguments)
{
    return worker_become(arguments, true);
}

static const struct command_option generate_options[] = {
    {"prompt", 'p', "TEXT", false, "what to go on from (byte tokenizer); empty: the beginning of a document"},
    {"prompt-tokens", 0, "N,N,...", false, "the same as numbers, for any tokenizer; what follows is printed as numbers too"},
    {"max-tokens", 'n', "N", false, "at most so many new tokens (default 128)"},
    {"temperature", 't', "T", false, "0 (default): always the likeliest; 1: as the model says"},
    {"top-k", 0, "K", false, "with a temperature: draw from the K likeliest"},
    {"top-p", 0, "P", false, "with a temperature: draw from the likeliest that have the share P together"},
    {"seed", 0, "S", false, "the same tokens for the same seed (default 0)"},
    {"step", 0, "N", false, "of this checkpoint (default: the last complete one)"},
    {"threads", 0, "N", false, "default: every processor"},
    MODEL_OPTION_ROWS,
    {0},
};

const struct command command_generate = {
    .name = "generate",
    .summary = "Let a trained model go on from a prompt",
    .usage = "RUN --prompt TEXT",
    .least = 1,
    .most = 1,
    .options = generate_options,
    .description = "RUN is a run, or a directory: of a run, a checkpoint, or a model of transformers. Text comes as it is made; speed, and how many bytes of\n"
                   "experts were read, are told at the end. Experts stay in the checkpoint's file until they are first chosen.\n"
                   "Prompt and text fit into the context (data.sequence_length): a longer prompt is refused, and a full context ends the text.",
    .run = run_generate,
};
