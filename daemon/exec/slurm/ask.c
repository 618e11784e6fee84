#include "daemon/exec/slurm/ask.h"
#include "daemon/exec/slurm/command.h"
#include "daemon/exec/word_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 4 << 20, LOOK_MS = 5 };
#define ESTIMATE_SECONDS 10.0

bool slurm_ask(struct slurm_answer *answer, const char *const *argv, double seconds)
{
    const char **environment = command_environment();
    struct command_request request = {.argv = argv, .environment = environment, .deadline = seconds, .output_max = ANSWER_MAX};
    struct command *command = command_start(&request, NULL);
    const struct command_result *result = NULL;
    *answer = (struct slurm_answer){0};
    text_init(&answer->output, ANSWER_MAX);
    text_init(&answer->talk, COMMAND_TALK_MAX);
    while (command && !(result = command_poll(command)))
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    if (result) {
        answer->code = result->code;
        text_add_bytes(&answer->output, result->output.at, result->output.length);
        text_add_bytes(&answer->talk, result->talk.at, result->talk.length);
    }
    bool ended = result && result->end == COMMAND_EXITED;
    command_free(command);
    free(environment);
    return ended;
}

void slurm_answer_release(struct slurm_answer *answer)
{
    text_release(&answer->output);
    text_release(&answer->talk);
}

// "sbatch: Job 7 to start at 1764488000 using 16 processors on nodes n[1-2] in partition main"
static bool read_start(struct slurm_estimate *estimate, const char *talk)
{
    const char *start = strstr(talk, " to start at "), *nodes = start ? strstr(start, " on nodes ") : NULL;
    if (!start)
        return false;
    estimate->starts = strtod(start + strlen(" to start at "), NULL);
    if (nodes && !memchr(start, '\n', (size_t)(nodes - start))) {
        nodes += strlen(" on nodes ");
        snprintf(estimate->nodes, sizeof estimate->nodes, "%.*s", (int)strcspn(nodes, " \n"), nodes);
    }
    return true;
}

// What sbatch says before the reason, when it is the job that does not please it; anything else is a Slurm that is not there.
static bool read_refusal(struct slurm_estimate *estimate, const char *talk)
{
    static const char *const heads[] = {"allocation failure: ", "Batch job submission failed: ", "sbatch: error: invalid ", "sbatch: error: Invalid "};
    static const char *const silent[] = {"ontact slurm controller", "ocket timed out", "onfiguration source", "onnection refused"};
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (strstr(talk, silent[i]))
            return false;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const char *at = strstr(talk, heads[i]);
        if (!at)
            continue;
        at += i < 2 ? strlen(heads[i]) : strlen("sbatch: error: ");
        snprintf(estimate->refusal, sizeof estimate->refusal, "%.*s", (int)strcspn(at, "\n"), at);
        return true;
    }
    return false;
}

bool slurm_estimate(struct slurm_estimate *estimate, const char *const *options)
{
    struct word_list words = {0};
    struct slurm_answer answer;
    *estimate = (struct slurm_estimate){0};
    word_list_add(&words, "sbatch");
    word_list_add(&words, "--test-only");
    for (; *options; options++)
        word_list_add(&words, *options);
    word_list_add(&words, "--wrap=:"); // the script does not count
    bool ended = slurm_ask(&answer, (const char *const *)words.at, ESTIMATE_SECONDS);
    bool asked = ended && (answer.code == 0 ? read_start(estimate, answer.talk.at) : read_refusal(estimate, answer.talk.at));
    const char *talk = answer.talk.length ? answer.talk.at : "";
    if (!asked && *talk)
        snprintf(estimate->silence, sizeof estimate->silence, "%.*s", (int)strcspn(talk, "\n"), talk);
    else if (!asked && !command_on_path("sbatch"))
        snprintf(estimate->silence, sizeof estimate->silence, "there is no sbatch on PATH");
    else if (!asked)
        snprintf(estimate->silence, sizeof estimate->silence, "sbatch gave no estimate");
    slurm_answer_release(&answer);
    word_list_release(&words);
    return asked;
}
