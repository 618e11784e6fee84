// `switchyard adopt [RUN_DIRECTORY | JOB | RUN_ID]…`: jobs that carry our mark and are in no row of the daemon's, and taking them in.
#include "daemon/cli/client.h"
#include "daemon/cli/silence.h"
#include "daemon/cli/table.h"
#include "schema/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_TRIES = 100, ANSWER_PAUSE_US = 200000 }; // a scheduler is asked in the daemon's next rounds

static struct json *ask_strangers(struct client *client)
{
    struct json *answer = NULL;
    for (int i = 0; i < ANSWER_TRIES; i++) {
        js_free(answer);
        answer = client_get(client, "/api/v1/strangers");
        if (!answer || js_boolean_of(js_get(answer, "answered"), false))
            return answer;
        usleep(ANSWER_PAUSE_US);
    }
    js_free(answer);
    struct json *health = client_get(client, "/api/v1/health");
    if (!silence_say(health, NULL))
        fprintf(stderr, "switchyard: the scheduler does not answer\n");
    js_free(health);
    return NULL;
}

static void print_strangers(const struct json *jobs)
{
    struct table table;
    table_init(&table, "lllll");
    const char *heading[] = {"JOB", "NAME", "STATE", "RUN ID", "DIRECTORY"};
    table_row(&table, heading);
    for (size_t i = 0; i < js_count(jobs); i++) {
        const struct json *job = js_at(jobs, i);
        const char *cells[] = {js_string_of(js_get(job, "job_id"), "?"), js_string_of(js_get(job, "name"), "?"),
            js_string_of(js_get(job, "state"), "?"), js_string_of(js_get(job, "run_id"), "?"), js_string_of(js_get(job, "directory"), NULL)};
        table_row(&table, cells);
    }
    table_print(&table, stdout, 0);
    table_release(&table);
}

static int list(struct client *client, bool json)
{
    struct json *answer = ask_strangers(client);
    if (!answer)
        return CLI_NO_DAEMON;
    if (json)
        print_json(answer);
    else if (js_count(js_get(answer, "jobs")) == 0)
        fprintf(stderr, "no job of the scheduler's carries a mark that this daemon does not know\n");
    else
        print_strangers(js_get(answer, "jobs"));
    js_free(answer);
    return CLI_DONE;
}

// A job's number (N, N_M, N+M), or a run id: a scheduler need not be waited for to know that there is no other.
static bool may_be_job(const char *word)
{
    size_t digits = strspn(word, "0123456789_+");
    return word[0] && (word[digits] == 0 || (strlen(word) == 32 && word[strspn(word, "0123456789abcdef")] == 0));
}

// A path, or the directory of the job with this number or run id. free(); NULL after having said why.
static char *directory_of(struct client *client, const char *word)
{
    if (strchr(word, '/') || access(word, F_OK) == 0)
        return path_absolute(word, NULL);
    if (!may_be_job(word)) {
        fprintf(stderr, "switchyard: '%s' is no run directory, and neither a job's number nor a run id\n", word);
        return NULL;
    }
    struct json *answer = ask_strangers(client);
    const struct json *jobs = js_get(answer, "jobs");
    char *directory = NULL;
    for (size_t i = 0; i < js_count(jobs) && !directory; i++)
        if (strcmp(js_string_of(js_get(js_at(jobs, i), "job_id"), ""), word) == 0 ||
            strcmp(js_string_of(js_get(js_at(jobs, i), "run_id"), ""), word) == 0)
            directory = string_copy(js_string_of(js_get(js_at(jobs, i), "directory"), NULL));
    if (answer && !directory)
        fprintf(stderr, "switchyard: '%s' is no run directory, and no unknown job has this number or run id\n", word);
    js_free(answer);
    return directory;
}

static int adopt_one(struct client *client, const char *word, bool json)
{
    char *directory = directory_of(client, word);
    if (!directory)
        return CLI_NO_DAEMON;
    struct json *body = js_object();
    js_set(body, "directory", js_string(directory));
    struct json *run = client_post(client, "/api/v1/adopt", body);
    if (run && json)
        print_json(run);
    else if (run)
        printf("adopted %s/%s\n", js_string_of(js_get(run, "project"), "?"), js_string_of(js_get(run, "name"), "?"));
    int code = run ? CLI_DONE : CLI_NO_DAEMON;
    js_free(run);
    js_free(body);
    free(directory);
    return code;
}

static int run_adopt(const struct arguments *arguments)
{
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    bool json = argument_flag(arguments, "json");
    int code = arguments->count == 0 ? list(client, json) : CLI_DONE;
    for (size_t i = 0; i < arguments->count; i++) {
        int one = adopt_one(client, arguments->words[i], json);
        code = one != CLI_DONE ? one : code;
    }
    client_close(client);
    return code;
}

static const struct command_option adopt_options[] = {
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_adopt = {
    .name = "adopt",
    .summary = "List jobs with our mark that the daemon does not know, or take runs in",
    .usage = "[RUN_DIRECTORY | JOB | RUN_ID]...",
    .most = 64,
    .options = adopt_options,
    .description = "Without words it lists the scheduler's jobs that carry a mark of Switchyard's and belong to no run of this daemon: its database was\n"
                   "lost, or another home submitted them. With words it takes runs in, with everything they recorded: a run's\n"
                   "directory, or the job or run id of one that is listed. The home that it came from must have no daemon then; when it has one again, the\n"
                   "run is lost to it, and goes on here alone.",
    .run = run_adopt,
};
