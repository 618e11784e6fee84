// sacct, for the jobs that squeue lists no longer: by their numbers, or, where those are not known, by their names. One question at a time; the
// two kinds take turns.
#include "daemon/exec/slurm/command.h"
#include "daemon/exec/slurm/queue.h"
#include "schema/base/clock.h"
#include "schema/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ASKED_MAX = 200, ID_MAX = 32, NAME_MAX_BYTES = 160, ANSWER_MAX = 8 << 20 }; // jobs of one question, bytes of an id, a name, an answer
#define ABSENT_AGAIN 3600.0                                    // seconds until a cluster without accounts is asked again

struct ids {
    char at[ASKED_MAX][ID_MAX];
    size_t count;
};

struct names {
    char at[ASKED_MAX][NAME_MAX_BYTES];
    size_t count;
    double since; // wall seconds: the earliest that is wanted
};

struct account {
    struct queue_settings settings;
    struct command *command;
    double next, backoff;
    struct ids wanted, asked;   // asked: of the command that runs, then of the answer
    struct names seek, sought; // … by name
    struct rows rows;
    bool answered;
    enum account_state state;
    double silent_since, heard; // wall seconds
    char fault[512];
};

struct account *account_new(const struct queue_settings *settings)
{
    struct account *account = allocate(1, sizeof *account);
    account->settings = *settings;
    return account;
}

void account_free(struct account *account)
{
    if (!account)
        return;
    command_free(account->command);
    rows_release(&account->rows);
    free(account);
}

static bool is_in(const struct ids *ids, const char *id)
{
    for (size_t i = 0; i < ids->count; i++)
        if (strcmp(ids->at[i], id) == 0)
            return true;
    return false;
}

void account_want(struct account *account, const char *id)
{
    struct ids *wanted = &account->wanted;
    if (wanted->count < ASKED_MAX && strlen(id) < ID_MAX && !is_in(wanted, id))
        strcpy(wanted->at[wanted->count++], id);
}

static bool is_named(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->at[i], name) == 0)
            return true;
    return false;
}

// A comma would make two of it.
void account_seek(struct account *account, const char *name, double since)
{
    struct names *seek = &account->seek;
    if (seek->count == 0 || since < seek->since)
        seek->since = since;
    if (seek->count < ASKED_MAX && strlen(name) < NAME_MAX_BYTES && !strchr(name, ',') && !is_named(seek, name))
        strcpy(seek->at[seek->count++], name);
}

static void name_jobs(struct account *account, struct text *jobs)
{
    text_add(jobs, "--jobs=");
    for (size_t i = 0; i < account->wanted.count; i++)
        text_addf(jobs, "%s%s", i ? "," : "", account->wanted.at[i]);
    account->asked = account->wanted;
    account->wanted.count = account->sought.count = 0;
}

static void name_names(struct account *account, struct text *names, char since[40])
{
    text_add(names, "--name=");
    for (size_t i = 0; i < account->seek.count; i++)
        text_addf(names, "%s%s", i ? "," : "", account->seek.at[i]);
    struct tm parts;
    time_t second = (time_t)account->seek.since;
    strftime(since, 40, "--starttime=%Y-%m-%dT%H:%M:%S", localtime_r(&second, &parts));
    account->sought = account->seek;
    account->seek.count = account->asked.count = 0;
}

// Duplicates too: a job that was requeued has one line for each time that it ran, the newest last.
static void ask(struct account *account)
{
    struct text which;
    char since[40];
    text_init(&which, ASKED_MAX * (NAME_MAX_BYTES + 1) + 16);
    const char *argv[] = {"sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", "--delimiter=\x1f", rows_format(ROWS_ACCOUNTING), NULL,
        NULL, NULL};
    bool by_name = account->seek.count && (account->wanted.count == 0 || account->asked.count);
    if (by_name)
        name_names(account, &which, since);
    else
        name_jobs(account, &which);
    argv[7] = which.at;
    argv[8] = by_name ? since : NULL;
    const char **environment = command_environment();
    struct command_request request = {
        .argv = argv, .environment = environment, .deadline = account->settings.deadline, .output_max = ANSWER_MAX};
    struct error err = {0};
    account->answered = false;
    account->command = command_start(&request, &err);
    if (!account->command)
        snprintf(account->fault, sizeof account->fault, "%.500s", err.text);
    free(environment);
    text_release(&which);
}

static void be_silent(struct account *account)
{
    account->state = ACCOUNT_SILENT;
    account->backoff = fmin(account->backoff > 0 ? account->backoff * 2 : account->settings.interval, account->settings.interval_max);
    account->next = clock_steady() + account->backoff;
    if (account->silent_since == 0)
        account->silent_since = account->heard > 0 ? account->heard : clock_wall();
}

static bool keeps_no_accounts(const struct command_result *result)
{
    return strstr(result->talk.at, "accounting storage is disabled") || strstr(result->talk.at, "running a supported accounting_storage");
}

static void take_result(struct account *account, const struct command_result *result)
{
    if (result->end == COMMAND_EXITED && result->code == 0 && !command_is_refuted(result) && !keeps_no_accounts(result)) {
        rows_release(&account->rows);
        rows_parse(&account->rows, ROWS_ACCOUNTING, result->output.at, result->output.length);
        account->state = ACCOUNT_WORKS;
        account->answered = true;
        account->backoff = account->silent_since = 0;
        account->heard = clock_wall();
        account->fault[0] = 0;
        account->next = clock_steady() + fmin(fmax(account->settings.interval, 10 * result->took), account->settings.interval_max);
        return;
    }
    command_describe(account->fault, sizeof account->fault, result);
    if (result->end == COMMAND_EXITED && keeps_no_accounts(result)) {
        account->state = ACCOUNT_ABSENT;
        account->silent_since = 0;
        account->next = clock_steady() + ABSENT_AGAIN;
    } else {
        be_silent(account);
    }
}

bool account_turn(struct account *account)
{
    bool news = false;
    if (account->command) {
        const struct command_result *result = command_poll(account->command);
        if (!result)
            return false;
        take_result(account, result);
        command_free(account->command);
        account->command = NULL;
        news = account->answered;
    }
    if ((account->wanted.count || account->seek.count) && clock_steady() >= account->next && !news) {
        ask(account);
        if (!account->command)
            be_silent(account);
    }
    return news;
}

struct rows *account_answer(struct account *account)
{
    return account->answered ? &account->rows : NULL;
}

bool account_has_asked(const struct account *account, const char *id)
{
    return account->answered && is_in(&account->asked, id);
}

bool account_has_sought(const struct account *account, const char *name)
{
    return account->answered && is_named(&account->sought, name);
}

enum account_state account_state(const struct account *account)
{
    return account->state;
}

double account_silent_since(const struct account *account)
{
    return account->silent_since;
}

const char *account_fault(const struct account *account)
{
    return account->fault;
}
