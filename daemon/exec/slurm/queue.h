// The two questions that are asked of Slurm, each by one command for all runs together: squeue, what there is now; sacct, what became of
// jobs that squeue lists no longer. A question is asked only when somebody wants to know, never more often than the interval, and less and
// less often while no answer comes. Nothing here waits: a turn looks at what has come and starts what is due.
#pragma once
#include "daemon/exec/slurm/rows.h"
#include "schema/base/error.h"
#include <stdbool.h>

struct queue_settings {
    double interval;     // seconds between two questions, at least
    double interval_max; // to which it grows while no answer comes
    double deadline;     // seconds until a question is given up
};

// ---- squeue ----

struct queue; // opaque

struct queue *queue_new(const struct queue_settings *settings);
void queue_free(struct queue *queue);

// An answer is wanted to a question that is asked at this time (steady seconds) or later. soon: after a fraction of the interval.
void queue_want(struct queue *queue, double since, bool soon);
// True if a new answer has come.
bool queue_turn(struct queue *queue);
// The last answer, lent until the next turn; NULL: there is none yet. asked: when its question was asked, steady seconds. What rows lack may
// be filled in.
struct rows *queue_answer(struct queue *queue, double *asked);

struct queue_health {
    bool asked_ever, answered_ever;
    double silent_since; // wall seconds; 0: the last question was answered
    double answered;     // wall seconds of the last answer; 0: none
    char fault[512];     // why the last question was not answered
    bool plain;          // this squeue knows no --Format: exit codes and counts of restarts are not to be had
    size_t malformed;    // lines of the last answer
    char sample[ROWS_SAMPLE_MAX];
};
const struct queue_health *queue_health(const struct queue *queue);

// ---- sacct ----

enum account_state {
    ACCOUNT_UNKNOWN, // not asked yet
    ACCOUNT_WORKS,
    ACCOUNT_ABSENT, // this cluster keeps no accounts; asked again after an hour
    ACCOUNT_SILENT  // it does, but does not answer
};

struct account; // opaque

struct account *account_new(const struct queue_settings *settings);
void account_free(struct account *account);

// This job (a number) is to be asked for. Many are asked for at once; what is asked for twice is asked for once.
void account_want(struct account *account, const char *id);
// Jobs of this name that were submitted at this time (wall seconds) or later are to be looked for: what is known of one whose number is not.
void account_seek(struct account *account, const char *name, double since);
// True if a new answer has come.
bool account_turn(struct account *account);
// The last answer, and whether it was asked for this job (only then its absence from the rows means something). What rows lack may be
// filled in.
struct rows *account_answer( struct account *account);
bool account_has_asked(const struct account *account, const char *id);
bool account_has_sought(const struct account *account, const char *name);
enum account_state account_state(const struct account *account);
double account_silent_since(const struct account *account); // wall seconds; 0: it is not silent
const char *account_fault(const struct account *account);    // why it does not answer; empty
