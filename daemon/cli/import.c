// `switchyard import DIRECTORY`: the model section of a spec that starts from weights of Hugging Face's.
#include "daemon/cli/worker.h"

static int run_import(const struct arguments *arguments)
{
    return worker_become(arguments, false);
}

static const struct command_option import_options[] = {
    {"output", 'o', "FILE", false, "write there, which must not exist, instead of on stdout"},
    {0},
};

const struct command command_import = {
    .name = "import",
    .summary = "Write the model section of a spec from a model of transformers",
    .usage = "DIRECTORY",
    .least = 1,
    .most = 1,
    .options = import_options,
    .description = "DIRECTORY has config.json and *.safetensors of a Llama, Mistral, Mixtral or OLMoE. The section ends in `from: {path: DIRECTORY}`: a run starts\n"
                   "from those weights as they lie there. Take the file up by `base:` in a spec that adds project, data and training.",
    .run = run_import,
};
