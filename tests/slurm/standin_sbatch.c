// The stand-in's sbatch.
#include "tests/slurm/standin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Options that the stand-in takes without a look: what they mean is the cluster's business.
static bool is_plain_sbatch_option(const char *word)
{
    static const char *const names[] = {"parsable", "open-mode", "output", "error", "input", "nodes", "ntasks", "ntasks-per-node", "cpus-per-task",
        "gpus-per-node", "gres", "mem", "time", "signal", "account", "qos", "reservation", "constraint", "exclusive", "nodelist", "exclude",
        "export", "export-file", "no-kill", "begin", "distribution", "hint", "time-min", "get-user-env", "nice", "deadline"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (option(word, names[i]))
            return true;
    return false;
}

// 1: taken.
static int take_sbatch_option(struct answer *answer, struct simulated_job *job, const char *word)
{
    const char *value;
    if ((value = option(word, "comment")))
        snprintf(job->comment, sizeof job->comment, "%s", value);
    else if ((value = option(word, "job-name")))
        snprintf(job->name, sizeof job->name, "%s", value);
    else if ((value = option(word, "chdir")))
        snprintf(job->directory, sizeof job->directory, "%s", value);
    else if ((value = option(word, "partition")))
        snprintf(job->partition, sizeof job->partition, "%s", value);
    else if (option(word, "array"))
        return 1; // read before all others
    else if (option(word, "requeue"))
        job->may_requeue = true;
    else if (option(word, "no-requeue"))
        job->may_requeue = false;
    else if (option(word, "hold"))
        strcpy(job->reason, "JobHeldUser");
    else if (!is_plain_sbatch_option(word))
        return unknown_option(answer, word);
    return 1;
}

static int read_sbatch(struct answer *answer, struct simulated_job *job, char **words)
{
    size_t at = 1;
    for (; words[at] && strncmp(words[at], "--", 2) == 0; at++)
        if (take_sbatch_option(answer, job, words[at]) < 0)
            return -1;
    if (!words[at])
        return fail(answer, 1, "sbatch: error: this stand-in takes no script from its input");
    if (access(words[at], R_OK) != 0)
        return fail(answer, 1, "sbatch: error: Unable to open file %s", words[at]);
    if (!job->name[0])
        snprintf(job->name, sizeof job->name, "%s", strrchr(words[at], '/') ? strrchr(words[at], '/') + 1 : words[at]);
    if (answer->elements && words[at + 1]) // -a ARRAY_DIR
        snprintf(job->run_directory, sizeof job->run_directory, "%s", words[at + 2]);
    else if (words[at + 1])
        snprintf(job->run_directory, sizeof job->run_directory, "%s", words[at + 1]);
    if (answer->elements > answer->simulation->array_max)
        return fail(answer, 1, "sbatch: error: Batch job submission failed: Invalid job array specification");
    if (strcmp(job->partition, "nosuch") == 0)
        return fail(answer, 1, "sbatch: error: invalid partition specified: nosuch\nsbatch: error: Batch job submission failed: Invalid partition name specified");
    return 0;
}

// What job.sh would read when it starts: the list of the array's elements. first is the job that becomes the first of them.
static int add_elements(struct answer *answer, struct simulated_job *first)
{
    struct simulation *simulation = answer->simulation;
    char path[300], tag[64], name[128];
    snprintf(path, sizeof path, "%.270s/elements", first->run_directory);
    FILE *list = fopen(path, "re");
    long long submission;
    struct simulated_job common = *first;
    int64_t element = 0;
    for (; list && element < answer->elements && fscanf(list, "%63s %lld %127[^\n]", tag, &submission, name) == 3; element++) {
        struct simulated_job *job = element ? simulation_add(simulation) : first;
        uint64_t serial = job->serial;
        *job = common;
        job->serial = serial;
        job->element = element;
        job->throttle = answer->throttle;
        job->submission = submission;
        snprintf(job->run_directory, sizeof job->run_directory, "%.*s/%.100s", (int)(strstr(common.run_directory, "/.arrays/") - common.run_directory),
            common.run_directory, name);
    }
    if (list)
        fclose(list);
    return element == answer->elements ? 0 : fail(answer, 1, "this stand-in finds no %s with %lld lines", path, (long long)answer->elements);
}

void do_sbatch(struct answer *answer, char **words)
{
    struct simulation *simulation = answer->simulation;
    for (size_t i = 1; words[i] && strncmp(words[i], "--", 2) == 0; i++)
        if (option(words[i], "array")) {
            const char *throttle = strchr(words[i], '%');
            answer->elements = strtoll(words[i] + strlen("--array=0-"), NULL, 10) + 1;
            answer->throttle = throttle ? strtoll(throttle + 1, NULL, 10) : 0;
        }
    bool room = simulation_has_room(simulation, (size_t)answer->elements + 1);
    struct simulated_job *job = room ? simulation_add(simulation) : NULL, refused;
    if (!job) {
        fail(answer, 1, "sbatch: error: Batch job submission failed: Slurm temporarily unable to accept job, sleeping and retrying");
        return;
    }
    const char *submission = getenv("SWITCHYARD_SUBMISSION");
    if (!getcwd(job->directory, sizeof job->directory))
        job->directory[0] = 0;
    job->submission = submission ? strtoll(submission, NULL, 10) : -1;
    refused = *job;
    if (read_sbatch(answer, job, words) != 0 || !answer->act) {
        simulation->job_count--;
        simulation->next_id = refused.id;
        return;
    }
    if (answer->fault == FAULT_TIMEOUT)
        job->appears += (double)simulation_draw(simulation, 40);
    if (answer->elements && add_elements(answer, job) != 0)
        return;
    text_addf(&answer->out, "%" PRId64 "\n", job->id);
}
