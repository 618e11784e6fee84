// `switchyard export RUN DIRECTORY`: a checkpoint for Hugging Face's transformers.
#include "daemon/cli/worker.h"

static int run_export(const struct arguments *arguments)
{
    return worker_become(arguments, true);
}

static const struct command_option export_options[] = {
    {"step", 0, "N", false, "of this checkpoint (default: the last complete one)"},
    {"dtype", 0, "TYPE", false, "fp32 (default: the checkpoint's own bits) or bf16"},
    {"max-shard-size", 0, "SIZE", false, "cut the weights into files of at most this size, as far as tensors allow (default 5GB)"},
    MODEL_OPTION_ROWS,
    {0},
};

const struct command command_export = {
    .name = "export",
    .summary = "Write a run's model as a directory that transformers loads",
    .usage = "RUN DIRECTORY",
    .least = 2,
    .most = 2,
    .options = export_options,
    .description = "RUN is a run, or a directory: of a run, or a checkpoint. DIRECTORY must not exist; it appears whole or not at all.\n"
                   "The model becomes a LlamaForCausalLM (dense), MixtralForCausalLM (experts) or OlmoeForCausalLM (experts, model.qk_norm and\n"
                   "qk_norm_over: projection); a shape that none of them can express is refused with the keys that are why. Byte tokens get a tokenizer.json.",
    .run = run_export,
};
