// A simulated cluster moved by hand, for scripts:
//
//   slurm_simulate FILE new SEED                 an empty cluster
//   slurm_simulate FILE cluster KEY=NUMBER…      now, down, accounting, accounting_down, old
//   slurm_simulate FILE job ID KEY=VALUE…        state, reason, nodes, code, signal, restarts, started, ended, expected, by, listed
//   slurm_simulate FILE again ID                 what accounting keeps of a start that was not the last one
//   slurm_simulate formats                       what the daemon asks squeue and sacct for, a line each
#include "daemon/exec/slurm/rows.h"
#include "tests/slurm/simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_key(const char *word, const char *key, const char **value)
{
    size_t length = strlen(key);
    if (strncmp(word, key, length) != 0 || word[length] != '=')
        return false;
    *value = word + length + 1;
    return true;
}

static int set_cluster(struct simulation *simulation, const char *word)
{
    const char *value;
    if (is_key(word, "now", &value))
        simulation->now = strtod(value, NULL);
    else if (is_key(word, "down", &value))
        simulation->down = value[0] == '1';
    else if (is_key(word, "accounting", &value))
        simulation->accounting = value[0] == '1';
    else if (is_key(word, "accounting_down", &value))
        simulation->accounting_down = value[0] == '1';
    else if (is_key(word, "old", &value))
        simulation->old = value[0] == '1';
    else if (is_key(word, "slow", &value))
        for (int program = 0; program < PROGRAMS; program++)
            simulation->rates[program][FAULT_TIMEOUT] = value[0] == '1';
    else
        return 2;
    return 0;
}

static int set_job(struct simulated_job *job, const char *word)
{
    const char *value;
    if (is_key(word, "state", &value))
        snprintf(job->state, sizeof job->state, "%s", value);
    else if (is_key(word, "reason", &value))
        snprintf(job->reason, sizeof job->reason, "%s", value);
    else if (is_key(word, "nodes", &value))
        snprintf(job->nodes, sizeof job->nodes, "%s", value);
    else if (is_key(word, "code", &value))
        job->code = strtoll(value, NULL, 10);
    else if (is_key(word, "signal", &value))
        job->signal = (int)strtol(value, NULL, 10);
    else if (is_key(word, "restarts", &value))
        job->restarts = strtoll(value, NULL, 10);
    else if (is_key(word, "started", &value))
        job->started = strtod(value, NULL);
    else if (is_key(word, "ended", &value))
        job->ended = strtod(value, NULL);
    else if (is_key(word, "expected", &value))
        job->expected = strtod(value, NULL);
    else if (is_key(word, "by", &value))
        job->cancelled_by = strtoll(value, NULL, 10);
    else if (is_key(word, "listed", &value))
        job->listed = value[0] == '1';
    else
        return 2;
    return 0;
}

static int keep_start(struct simulation *simulation, const char *id)
{
    struct simulated_job *job = simulation_job(simulation, id);
    struct simulated_job copy = job ? *job : (struct simulated_job){0};
    struct simulated_job *kept = job ? simulation_add(simulation) : NULL;
    if (!kept)
        return 1;
    copy.serial = kept->serial;
    copy.listed = false;
    *kept = copy;
    simulation->next_id--;
    return 0;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "formats") == 0) {
        for (int form = ROWS_FULL; form <= ROWS_ACCOUNTING; form++)
            puts(rows_format((enum rows_form)form));
        return 0;
    }
    if (count == 4 && strcmp(words[2], "new") == 0)
        return simulation_new(words[1], strtoull(words[3], NULL, 10)) ? 0 : 1;
    struct simulation *simulation = count > 3 ? simulation_open(words[1]) : NULL;
    if (!simulation)
        return 2;
    int status = 0;
    simulation_lock(simulation);
    if (strcmp(words[2], "cluster") == 0)
        for (int i = 3; i < count && status == 0; i++)
            status = set_cluster(simulation, words[i]);
    else if (strcmp(words[2], "again") == 0)
        status = keep_start(simulation, words[3]);
    else {
        struct simulated_job *job = simulation_job(simulation, words[3]);
        status = job ? 0 : 1;
        for (int i = 4; i < count && status == 0; i++)
            status = set_job(job, words[i]);
    }
    simulation_unlock(simulation);
    return status;
}
