// Jobs that Slurm itself ends before anything of them begins, because their node would not start them. Seen of 22.05, where a controller was
// killed before it had saved what it knew, has forgotten a job whose script still runs, and gave its number to ours:
//
//   CANCELLED by SlurmdUser ("by root"), of a job that may not be requeued. The node refuses a second job of that number; slurmctld takes the
//       node out of service with the reason "Duplicate jobid". By itself it looks as if an administrator had cancelled it: the node is asked.
//   PENDING, "launch failed requeued held", of one that may: the same, and Slurm leaves it to a person to release it.
//   FAILED with exit code 1 after no time, where the node has just been told to end all of that number ("credential revoked"), or could not start
//       it for another such reason. job.sh's own exit codes come with a claim or an exit record, or with words. An old squeue says no code.
//
// That nothing began is known by the claim (claim.c): job.sh makes it before all else. A job that somebody cancels while its node makes itself
// ready (a long prolog, say) leaves the very same row as the first kind, but no mark on the node: it stays cancelled, and so it does where the mark
// has been taken away since, by an administrator who put the node back into service.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LAUNCH_SECONDS 60.0 // that a launch takes at most until it is given up (slurm.conf's MessageTimeout and its repetitions)
#define MARK_WAIT 10.0      // seconds until a node's mark must be there, at most (the patience that accounting gets)
#define CLOCKS_DIFFER 2.0   // seconds, Slurm's and that of the run directory's disk
#define HELD "launch failed requeued held"

static bool is_held_by_failure(const struct row *row)
{
    char reason[sizeof row->reason];
    snprintf(reason, sizeof reason, "%s", row->reason);
    for (char *at = reason; *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return row->word && row->word->phase == JOB_PENDING && strcmp(reason, HELD) == 0;
}

static bool ended_at_once(const struct row *row, enum job_end end)
{
    bool short_lived = isfinite(row->used) && row->used <= LAUNCH_SECONDS;
    return row->word && row->word->phase == JOB_ENDED && row->word->end == end && row->nodes[0] && short_lived;
}

// By root, or it is not said by whom: slurmd speaks for its own user, which is root's on every cluster with more users than one.
static bool may_be_nodes_doing(const struct entry *entry, const struct row *row)
{
    return !entry->killed && row->by <= 0 && ended_at_once(row, END_CANCELLED);
}

bool refusal_is_unbegun(struct entry *entry, const struct row *row)
{
    return !claim_look(entry, row->submission > 0 ? row->submission : entry->told > 0 ? entry->told : entry->serial);
}

static bool could_not_be_started(struct entry *entry, const struct row *row)
{
    if (!ended_at_once(row, END_FAILED) || row->signal)
        return false;
    return row->code == 1 || (row->code < 0 && strcmp(row->reason, "NonZeroExitCode") == 0 && refusal_is_unbegun(entry, row));
}

// What the nodes say, asked for until it is said or there is no use in asking on.
static enum refusal ask_nodes(struct slurm *slurm, struct entry *entry, const char *nodes, double from, double to)
{
    double now = clock_steady();
    if (entry->refusal_since == 0)
        entry->refusal_since = now;
    double since = entry->refusal_since, wait = fmin(MARK_WAIT, slurm->settings.patience);
    if (marks_look(slurm->marks, nodes, since, from, to) == MARKS_REFUSED)
        return REFUSAL_CERTAIN;
    if (marks_look(slurm->marks, nodes, since + wait, from, to) == MARKS_OF_OTHER || now - since >= wait + slurm->settings.patience)
        return REFUSAL_UNPROVEN;
    marks_want(slurm->marks, nodes);
    return REFUSAL_ASKED;
}

enum refusal refusal_look(struct slurm *slurm, struct entry *entry, const struct row *row)
{
    bool cancelled = may_be_nodes_doing(entry, row), held = is_held_by_failure(row);
    bool failed = could_not_be_started(entry, row);
    if (!cancelled && !held && !failed) {
        entry->refusal_since = 0;
        entry->refusal = REFUSAL_NONE;
        return REFUSAL_NONE;
    }
    if (failed)
        return REFUSAL_CERTAIN;
    if (!refusal_is_unbegun(entry, row))
        return REFUSAL_NONE;
    if (entry->refusal != REFUSAL_CERTAIN && entry->refusal != REFUSAL_UNPROVEN) {
        double from = held ? submission_written(entry) - CLOCKS_DIFFER : row->starts - 1, to = held ? INFINITY : row->starts + row->used + LAUNCH_SECONDS;
        entry->refusal = ask_nodes(slurm, entry, held ? "" : row->nodes, from, to);
    }
    return entry->refusal;
}
