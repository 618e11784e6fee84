#include "daemon/exec/slurm/queue.h"
#include "daemon/exec/slurm/command.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAX = 32 << 20 }; // bytes
#define SOON 0.25               // of the interval: the pause before a question that somebody waits for
#define LOAD 10.0               // the pause is at least so many times what the last answer took, up to the longest: a busy scheduler is asked less
#define REST 2.0                // … and in any case so many times: it works on our questions a third of the time at most

struct queue {
    struct queue_settings settings;
    struct command *command; // NULL: none is asked at present
    double next, next_soon;  // steady seconds before which none is asked
    double backoff;          // seconds; 0: the last one was answered
    double wanted;           // steady seconds; -INFINITY: nobody wants an answer
    bool soon;
    enum rows_form form;
    struct rows rows;
    double asked; // of rows; NAN: there are none yet
    struct queue_health health;
};

struct queue *queue_new(const struct queue_settings *settings)
{
    struct queue *queue = allocate(1, sizeof *queue);
    *queue = (struct queue){.settings = *settings, .wanted = -INFINITY, .asked = NAN, .form = ROWS_FULL};
    return queue;
}

void queue_free(struct queue *queue)
{
    if (!queue)
        return;
    command_free(queue->command);
    rows_release(&queue->rows);
    free(queue);
}

void queue_want(struct queue *queue, double since, bool soon)
{
    if (since > queue->wanted)
        queue->wanted = since;
    queue->soon |= soon;
}

// All of this user's jobs: elements of arrays one a row, hidden partitions too, and for a while those that have ended.
static void ask(struct queue *queue)
{
    char user[32];
    snprintf(user, sizeof user, "--user=%u", (unsigned)geteuid());
    const char *argv[] = {"squeue", "--noheader", "--all", "--array", "--states=all", user, rows_format(queue->form), NULL};
    const char **environment = command_environment();
    struct command_request request = {
        .argv = argv, .environment = environment, .deadline = queue->settings.deadline, .output_max = ANSWER_MAX};
    struct error err = {0};
    queue->command = command_start(&request, &err);
    queue->health.asked_ever = true;
    queue->soon = false;
    free(environment);
    if (!queue->command)
        snprintf(queue->health.fault, sizeof queue->health.fault, "%.500s", err.text);
}

static void be_silent(struct queue *queue)
{
    double now = clock_steady();
    const struct queue_settings *settings = &queue->settings;
    queue->backoff = fmin(queue->backoff > 0 ? queue->backoff * 2 : settings->interval, settings->interval_max);
    queue->next = queue->next_soon = now + queue->backoff;
    if (queue->health.silent_since == 0)
        queue->health.silent_since = queue->health.answered > 0 ? queue->health.answered : clock_wall();
}

// An option or a field that this squeue does not know: asked again at once in the older form.
static bool is_too_new(const struct command_result *result)
{
    static const char *const complaints[] = {"Invalid job format specification", "unrecognized option", "invalid option", "Invalid field"};
    for (size_t i = 0; i < sizeof complaints / sizeof *complaints; i++)
        if (strstr(result->talk.at, complaints[i]))
            return true;
    return false;
}

static void take_answer(struct queue *queue, const struct command_result *result)
{
    rows_release(&queue->rows);
    rows_parse(&queue->rows, queue->form, result->output.at, result->output.length);
    queue->asked = result->asked;
    queue->backoff = 0;
    double pause = fmin(fmax(queue->settings.interval, LOAD * result->took), queue->settings.interval_max);
    double ended = result->asked + result->took, rest = REST * result->took;
    queue->next = ended + fmax(pause, rest);
    queue->next_soon = ended + fmax(SOON * pause, rest);
    struct queue_health *health = &queue->health;
    health->answered_ever = true;
    health->silent_since = 0;
    health->answered = clock_wall();
    health->fault[0] = 0;
    health->malformed = queue->rows.malformed;
    memcpy(health->sample, queue->rows.sample, sizeof health->sample);
    if (queue->wanted <= queue->asked)
        queue->wanted = -INFINITY;
}

static bool take_result(struct queue *queue, const struct command_result *result)
{
    if (queue->form == ROWS_FULL && result->end == COMMAND_EXITED && is_too_new(result)) {
        queue->form = ROWS_PLAIN;
        queue->health.plain = true;
        queue->next = queue->next_soon = 0;
        return false;
    }
    if (result->end == COMMAND_EXITED && result->code == 0 && !command_is_refuted(result)) {
        take_answer(queue, result);
        return true;
    }
    command_describe(queue->health.fault, sizeof queue->health.fault, result);
    be_silent(queue);
    return false;
}

bool queue_turn(struct queue *queue)
{
    bool news = false;
    if (queue->command) {
        const struct command_result *result = command_poll(queue->command);
        if (!result)
            return false;
        news = take_result(queue, result);
        command_free(queue->command);
        queue->command = NULL;
    }
    if (queue->wanted > -INFINITY && clock_steady() >= (queue->soon ? queue->next_soon : queue->next)) {
        ask(queue);
        if (!queue->command)
            be_silent(queue);
    }
    return news;
}

struct rows *queue_answer(struct queue *queue, double *asked)
{
    if (isnan(queue->asked))
        return NULL;
    *asked = queue->asked;
    return &queue->rows;
}

const struct queue_health *queue_health(const struct queue *queue)
{
    return &queue->health;
}
