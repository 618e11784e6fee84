// `switchyard evaluate RUN`: loss, perplexity and bits per byte of a checkpoint on a split of the run's data.
#include "daemon/cli/worker.h"

static int run_evaluate(const struct arguments *arguments)
{
    return worker_become(arguments, true);
}

static const struct command_option evaluate_options[] = {
    {"split", 0, "NAME", false, "valid (default), test or train"},
    {"batches", 0, "N", false, "so many micro batches (default: the whole split, once)"},
    {"step", 0, "N", false, "of this checkpoint (default: the last complete one)"},
    {"threads", 0, "N", false, "default: every processor"},
    MODEL_OPTION_ROWS,
    {0},
};

const struct command command_evaluate = {
    .name = "evaluate",
    .summary = "Compute loss, perplexity and bits per byte on a split",
    .usage = "RUN",
    .least = 1,
    .most = 1,
    .options = evaluate_options,
    .description = "RUN is a run, or a directory: of a run, or a checkpoint. Samples come in the order in which validation reads them.\n"
                   "Bits per byte: the losses of all predicted tokens in bits, by the bytes of text among them. Of the byte tokenizer every token is one byte,\n"
                   "but for the end of a document, which is none and whose loss counts.",
    .run = run_evaluate,
};
