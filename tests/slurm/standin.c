// A stand-in for Slurm's commands over a simulated cluster (simulation.h), for tests that need every fault and every state. One program
// that is sbatch, squeue, sacct, scancel, sinfo, scontrol or srun by the name that it is called by; SLURM_CONF names the cluster's file. What it
// prints is what the real ones print: tests/slurm/recorded.py compares both.
//
// Each call draws a fault from the cluster's rates. The answer is made whole first, then the fault is done to it: a command that hangs may
// have done its work, and one that fails may have, too.
#include "tests/slurm/standin.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int fail(struct answer *answer, int code, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    text_addf(&answer->talk, "%s\n", line);
    answer->code = code;
    return -1;
}

const char *option(const char *word, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0)
        return NULL;
    return word[2 + length] == '=' ? word + 3 + length : word[2 + length] == 0 ? "" : NULL;
}

int unknown_option(struct answer *answer, const char *word)
{
    const char *name = program_names[answer->program];
    int code = answer->program == PROGRAM_SBATCH ? 255 : 1;
    return fail(answer, code, "%s: unrecognized option '%s'\nTry \"%s --help\" for more information", name, word, name);
}

// ---- squeue ----

struct column {
    const char *name;
    void (*print)(struct text *out, const struct simulation *simulation, const struct simulated_job *job);
};

static void print_moment(struct text *out, double when, const char *none)
{
    const char *format = getenv("SLURM_TIME_FORMAT");
    char text[64];
    time_t seconds = (time_t)when;
    struct tm parts;
    if (when <= 0) {
        text_add(out, none);
        return;
    }
    strftime(text, sizeof text, format && format[0] == '%' ? format : "%Y-%m-%dT%H:%M:%S", localtime_r(&seconds, &parts));
    text_add(out, text);
}

static double used(const struct simulation *simulation, const struct simulated_job *job)
{
    if (job->started <= 0)
        return 0;
    return fmax(0, floor((job->ended > 0 ? job->ended : simulation->now) - job->started));
}

static void print_id(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_addf(out, job->element < 0 ? "%" PRId64 : "%" PRId64 "_%" PRId64, job->id, job->element);
}
static void print_state(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->state);
}
// As wait() has it.
static void print_exit(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_addf(out, "%" PRId64, job->code * 256 + job->signal);
}
static void print_restarts(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_addf(out, "%" PRId64, job->restarts);
}
static void print_start(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    print_moment(out, job->started > 0 ? job->started : job->expected, "N/A");
}
static void print_used(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    long long seconds = (long long)used(simulation, job);
    if (seconds >= 86400)
        text_addf(out, "%lld-%02lld:%02lld:%02lld", seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    else if (seconds >= 3600)
        text_addf(out, "%lld:%02lld:%02lld", seconds / 3600, seconds / 60 % 60, seconds % 60);
    else
        text_addf(out, "%lld:%02lld", seconds / 60, seconds % 60);
}
static void print_nodes(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->nodes);
}
static void print_reason(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->reason);
}
static void print_comment(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->comment[0] ? job->comment : "(null)");
}
static void print_name(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->name);
}
static void print_directory(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->directory);
}

static const struct column squeue_columns[] = {
    {"JobArrayID", print_id}, {"State", print_state}, {"exit_code", print_exit}, {"RestartCnt", print_restarts}, {"StartTime", print_start},
    {"TimeUsed", print_used}, {"NodeList", print_nodes}, {"Reason", print_reason}, {"Comment", print_comment}, {"Name", print_name},
    {"WorkDir", print_directory}, {0}};
static const struct column squeue_letters[] = {{"T", print_state}, {"S", print_start}, {"M", print_used}, {"N", print_nodes},
    {"r", print_reason}, {"k", print_comment}, {"j", print_name}, {"Z", print_directory}, {"i", print_id}, {0}};

static const struct column *column_of(const struct column *columns, const char *name, size_t length)
{
    for (; columns->name; columns++)
        if (strlen(columns->name) == length && strncmp(columns->name, name, length) == 0)
            return columns;
    return NULL;
}

// "JobID:0S,State:0S,…": S is what stands between this field and the next. A field that it does not know, squeue complains of and leaves
// out; its exit code stays 0.
static void print_long(struct answer *answer, const char *format, const struct simulated_job *job)
{
    bool old = answer->simulation->old;
    while (*format) {
        size_t length = strcspn(format, ":,"), rest = strcspn(format, ",");
        const struct column *column = column_of(squeue_columns, format, length);
        if (!column || (old && (column->print == print_exit || column->print == print_restarts))) {
            if (!job)
                text_addf(&answer->talk, "squeue: error: Invalid job format specification: %.*s\n", (int)length, format);
        } else if (job) {
            column->print(&answer->out, answer->simulation, job);
            text_add_bytes(&answer->out, format + length + 2, rest - length - 2);
        }
        format += rest + (format[rest] == ',');
    }
}

static int print_short(struct answer *answer, const char *format, const struct simulated_job *job)
{
    for (; *format; format++) {
        if (*format != '%') {
            if (job)
                text_add_bytes(&answer->out, format, 1);
            continue;
        }
        const struct column *column = column_of(squeue_letters, ++format, 1);
        if (!column)
            return fail(answer, 1, "squeue: error: Invalid job format specification: ");
        if (job)
            column->print(&answer->out, answer->simulation, job);
    }
    return 0;
}

static void do_squeue(struct answer *answer, char **words)
{
    const char *format = NULL, *letters = NULL, *value;
    for (size_t i = 1; words[i]; i++) {
        if ((value = option(words[i], "Format")))
            format = value;
        else if ((value = option(words[i], "format")))
            letters = value;
        else if (!option(words[i], "noheader") && !option(words[i], "all") && !option(words[i], "array") && !option(words[i], "states") &&
                 !option(words[i], "user")) {
            unknown_option(answer, words[i]);
            return;
        }
    }
    struct simulation *simulation = answer->simulation;
    if (format)
        print_long(answer, format, NULL);
    else if (letters && print_short(answer, letters, NULL) != 0)
        return;
    for (size_t i = 0; i < simulation->job_count; i++) {
        const struct simulated_job *job = &simulation->jobs[i];
        if (!job->listed || job->appears > simulation->now)
            continue;
        if (format)
            print_long(answer, format, job);
        else
            print_short(answer, letters ? letters : "%A %T", job);
        text_add(&answer->out, "\n");
    }
}

// ---- sacct ----

// Of an array's elements that have not begun accounting has one line, "12_[0-3%2]", which no question for one of them finds.
static bool is_bundled(const struct simulated_job *job)
{
    bool unbegun = strcmp(job->state, "PENDING") == 0 || strcmp(job->state, "CANCELLED") == 0;
    return job->element >= 0 && unbegun && !job->nodes[0] && job->restarts == 0 && !job->parted;
}
static bool is_of_bundle(const struct simulated_job *job, const struct simulated_job *other)
{
    return is_bundled(other) && other->id == job->id && other->accounted && strcmp(other->state, job->state) == 0;
}
static bool is_first_of_bundle(const struct simulation *simulation, const struct simulated_job *job)
{
    for (size_t i = 0; i < simulation->job_count && &simulation->jobs[i] != job; i++)
        if (is_of_bundle(job, &simulation->jobs[i]))
            return false;
    return true;
}
static void print_account_id(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    if (!is_bundled(job)) {
        print_id(out, simulation, job);
        return;
    }
    int64_t from = -1, to = -1;
    text_addf(out, "%" PRId64 "_[", job->id);
    for (size_t i = 0; i <= simulation->job_count; i++) {
        const struct simulated_job *other = i < simulation->job_count ? &simulation->jobs[i] : NULL;
        if (other && !is_of_bundle(job, other))
            continue;
        if (other && from >= 0 && other->element == to + 1) {
            to++;
            continue;
        }
        if (from >= 0)
            text_addf(out, "%" PRId64, from);
        if (to > from)
            text_addf(out, "-%" PRId64, to);
        if (from >= 0 && other)
            text_add(out, ",");
        from = to = other ? other->element : -1;
    }
    if (job->throttle)
        text_addf(out, "%%%" PRId64, job->throttle);
    text_add(out, "]");
}
static void print_account_state(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    print_state(out, simulation, job);
    if (strcmp(job->state, "CANCELLED") == 0 && job->cancelled_by >= 0)
        text_addf(out, " by %lld", job->cancelled_by);
}
// Of a job that was cancelled, nothing.
static void print_account_exit(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    bool said = strcmp(job->state, "CANCELLED") != 0;
    text_addf(out, "%" PRId64 ":%d", said ? job->code : 0, said ? job->signal : 0);
}
static void print_account_start(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    print_moment(out, job->started, "Unknown");
}
static void print_submit(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    print_moment(out, job->submitted, "Unknown");
}
static void print_elapsed(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    text_addf(out, "%lld", (long long)used(simulation, job));
}
static void print_account_nodes(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->nodes[0] ? job->nodes : "None assigned");
}
// Written down at the end.
static void print_account_comment(struct text *out, const struct simulation *simulation, const struct simulated_job *job)
{
    (void)simulation;
    text_add(out, job->ended > 0 ? job->comment : "");
}

static const struct column sacct_columns[] = {{"JobID", print_account_id}, {"State", print_account_state}, {"ExitCode", print_account_exit},
    {"Start", print_account_start}, {"Submit", print_submit}, {"ElapsedRaw", print_elapsed}, {"NodeList", print_account_nodes}, {"Comment", print_account_comment},
    {"JobName", print_name}, {"WorkDir", print_directory}, {0}};

static bool is_among(const char *list, const struct simulated_job *job)
{
    for (const char *at = list; *at;) {
        char *end;
        int64_t id = strtoll(at, &end, 10), element = *end == '_' ? strtoll(end + 1, &end, 10) : -1;
        if (id == job->id && (element < 0 || (element == job->element && !is_bundled(job))))
            return true;
        at = *end == ',' ? end + 1 : "";
    }
    return false;
}

static bool is_named(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == 0 || at[length] == ','))
            return true;
    return false;
}

static void print_account(struct answer *answer, const char *format, const char *delimiter, const struct simulated_job *job)
{
    for (const char *at = format; *at;) {
        size_t length = strcspn(at, ",");
        const struct column *column = column_of(sacct_columns, at, length);
        if (!column) {
            fail(answer, 1, "sacct: fatal: Invalid field requested: \"%.*s\"", (int)length, at);
            return;
        }
        column->print(&answer->out, answer->simulation, job);
        at += length + (at[length] == ',');
        text_add(&answer->out, *at ? delimiter : "\n");
    }
}

// In a window of time it shows what could have run in it: not what waits, nor what was cancelled while it was held.
static bool is_account_of(const struct simulated_job *job, const char *jobs, const char *names, bool window)
{
    bool could = strcmp(job->state, "PENDING") != 0 && strcmp(job->reason, "JobHeldUser") != 0 && !is_bundled(job);
    return (!jobs || is_among(jobs, job)) && (!names || is_named(names, job->name)) && (!window || could);
}

static void do_sacct(struct answer *answer, char **words)
{
    bool window = false;
    const char *jobs = NULL, *names = NULL, *format = "JobID", *delimiter = "|", *value;
    for (size_t i = 1; words[i]; i++) {
        if ((value = option(words[i], "jobs")))
            jobs = value;
        else if ((value = option(words[i], "name")))
            names = value;
        else if ((value = option(words[i], "format")))
            format = value;
        else if ((value = option(words[i], "delimiter")))
            delimiter = value;
        else if (option(words[i], "starttime"))
            window = true;
        else if (!option(words[i], "noheader") && !option(words[i], "allocations") && !option(words[i], "duplicates") &&
                 !option(words[i], "parsable2")) {
            unknown_option(answer, words[i]);
            return;
        }
    }
    struct simulation *simulation = answer->simulation;
    if (!simulation->accounting) {
        fail(answer, 1, "Slurm accounting storage is disabled");
        return;
    }
    if (simulation->accounting_down) {
        fail(answer, 1, "%s", no_database);
        return;
    }
    for (size_t i = 0; i < simulation->job_count && answer->code == 0; i++) {
        const struct simulated_job *job = &simulation->jobs[i];
        if (job->accounted && job->appears <= simulation->now && is_account_of(job, jobs, names, window) &&
            (!is_bundled(job) || is_first_of_bundle(simulation, job)))
            print_account(answer, format, delimiter, job);
    }
}

// ---- scancel, scontrol, srun ----

static void cancel(struct simulated_job *job, const char *signal)
{
    if (simulated_job_over(job))
        return;
    if (signal) {
        job->signalled |= strcmp(job->state, "RUNNING") == 0;
        return;
    }
    job->cancel_asked = true;
    job->cancelled_by = (long long)geteuid();
}

// Of what an array has not begun the controller has one record, and scancel with a filter ends all of it.
static void cancel_waiting(struct simulation *simulation, const struct simulated_job *element)
{
    for (size_t i = 0; i < simulation->job_count; i++) {
        struct simulated_job *job = &simulation->jobs[i];
        if (job->id == element->id && job->listed && simulated_job_shares(job))
            cancel(job, NULL);
    }
}

// A name is held against what the controller has under the number at this moment.
static void do_scancel(struct answer *answer, char **words)
{
    const char *signal = NULL, *name = NULL, *value;
    for (size_t i = 1; words[i]; i++) {
        if ((value = option(words[i], "signal"))) {
            signal = value;
        } else if ((value = option(words[i], "name"))) {
            name = value;
        } else if (words[i][0] == '-') {
            if (!option(words[i], "batch") && !option(words[i], "full") && !option(words[i], "quiet") && !option(words[i], "user")) {
                unknown_option(answer, words[i]);
                return;
            }
        } else if (answer->act) {
            struct simulated_job *job = simulation_job(answer->simulation, words[i]);
            bool waits = job && simulated_job_shares(job);
            if (job && name && waits && !signal && strcmp(name, job->name) == 0)
                cancel_waiting(answer->simulation, job);
            else if (job && (!name || strcmp(name, job->name) == 0))
                cancel(job, signal);
        }
    }
}

// scontrol update JobId=ID,ID… NAME=VALUE: an element that waits gets a record of its own, whatever is to be changed.
static void do_update(struct answer *answer, const char *list)
{
    for (const char *at = list; *at;) {
        char id[64];
        size_t length = strcspn(at, ",");
        snprintf(id, sizeof id, "%.*s", (int)length, at);
        struct simulated_job *job = simulation_job(answer->simulation, id);
        const char *fault = !job ? "Invalid job id specified" : simulated_job_over(job) ? "Job has already finished" : NULL;
        if (fault)
            fail(answer, 1, "%s: %s", id, fault);
        else if (answer->act)
            job->parted = job->element >= 0;
        at += length + (at[length] == ',');
    }
}

// A node a line: n1, since when it is marked, with what.
static void do_sinfo(struct answer *answer, char **words)
{
    const char *nodes = NULL, *format = "%N", *value;
    for (size_t i = 1; words[i]; i++) {
        if ((value = option(words[i], "nodes"))) {
            nodes = value;
        } else if ((value = option(words[i], "format"))) {
            format = value;
        } else if (!option(words[i], "noheader") && !option(words[i], "Node") && !option(words[i], "all")) {
            unknown_option(answer, words[i]);
            return;
        }
    }
    for (int i = 0; i < SIMULATED_NODES; i++) {
        const char *reason = answer->simulation->nodes[i].reason;
        char name[16];
        snprintf(name, sizeof name, "n%d", i + 1);
        if (nodes && !is_named(nodes, name))
            continue;
        for (const char *at = format; *at; at++) {
            if (*at != '%') {
                text_add_bytes(&answer->out, at, 1);
            } else if (*++at == 'N') {
                text_add(&answer->out, name);
            } else if (*at == 'H') {
                print_moment(&answer->out, reason[0] ? answer->simulation->nodes[i].since : 0, "Unknown");
            } else if (*at == 'E') {
                text_add(&answer->out, reason[0] ? reason : "none");
            } else {
                fail(answer, 1, "sinfo: fatal: Invalid node format specification: %c", *at);
                return;
            }
        }
        text_add(&answer->out, "\n");
    }
}

static void do_scontrol(struct answer *answer, char **words)
{
    const char *verb = words[1] ? words[1] : "", *id = words[1] && words[2] ? words[2] : "";
    struct simulated_job *job = simulation_job(answer->simulation, id);
    if (strcmp(verb, "update") == 0 && strncmp(id, "JobId=", strlen("JobId=")) == 0)
        do_update(answer, id + strlen("JobId="));
    else if (strcmp(verb, "requeue") != 0 && strcmp(verb, "hold") != 0 && strcmp(verb, "release") != 0)
        fail(answer, 1, "invalid keyword: %s", verb);
    else if (!job)
        fail(answer, 1, "Invalid job id specified for job %s", id);
    else if (answer->act && strcmp(verb, "requeue") == 0)
        job->requeue_asked = true;
    else if (answer->act)
        strcpy(job->reason, strcmp(verb, "hold") == 0 ? "JobHeldUser" : "None");
}

static void do_srun(struct answer *answer, char **words)
{
    if (words[1] && strcmp(words[1], "--mpi=list") == 0)
        text_add(&answer->out, "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n");
    else
        fail(answer, 1, "srun: error: this stand-in starts nothing");
}

static void answer_call(struct answer *answer, char **words)
{
    struct simulation *simulation = answer->simulation;
    simulation_lock(simulation);
    answer->fault = draw_fault(simulation, answer->program);
    if (simulation->down && answer->program != PROGRAM_SACCT && answer->program != PROGRAM_SRUN)
        answer->fault = FAULT_ERROR;
    simulation->calls[answer->program]++;
    simulation->injected[answer->program][answer->fault]++;
    bool asks = answer->program == PROGRAM_SQUEUE || answer->program == PROGRAM_SACCT || answer->program == PROGRAM_SINFO;
    bool coin = answer->fault == FAULT_HANG || (answer->fault == FAULT_CODE && !asks);
    answer->act = answer->fault != FAULT_ERROR && (!coin || simulation_chance(simulation, 0.5));
    switch (answer->program) {
    case PROGRAM_SBATCH: do_sbatch(answer, words); break;
    case PROGRAM_SQUEUE: do_squeue(answer, words); break;
    case PROGRAM_SACCT: do_sacct(answer, words); break;
    case PROGRAM_SCANCEL: do_scancel(answer, words); break;
    case PROGRAM_SINFO: do_sinfo(answer, words); break;
    case PROGRAM_SCONTROL: do_scontrol(answer, words); break;
    default: do_srun(answer, words); break;
    }
    spoil(answer);
    simulation_unlock(simulation);
}

static void wait_seconds(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&time, NULL);
}

int main(int count, char **words)
{
    const char *path = getenv("SLURM_CONF"), *name = strrchr(words[0], '/') ? strrchr(words[0], '/') + 1 : words[0];
    struct answer answer = {.program = PROGRAMS};
    for (int i = 0; i < PROGRAMS; i++)
        if (strcmp(name, program_names[i]) == 0)
            answer.program = (enum program)i;
    answer.simulation = path ? simulation_open(path) : NULL;
    if (count < 1 || answer.program == PROGRAMS || !answer.simulation) {
        fprintf(stderr, "%s: fatal: Could not establish a configuration source\n", name);
        return 1;
    }
    text_init(&answer.out, ANSWER_MAX);
    text_init(&answer.talk, ANSWER_MAX);
    answer_call(&answer, words);
    if (answer.fault == FAULT_HANG)
        wait_seconds(answer.simulation->hang);
    if (answer.fault == FAULT_SLOW)
        wait_seconds(0.02);
    fwrite(answer.talk.at, 1, answer.talk.length, stderr);
    fwrite(answer.out.at, 1, answer.out.length, stdout);
    text_release(&answer.out);
    text_release(&answer.talk);
    return answer.code;
}
