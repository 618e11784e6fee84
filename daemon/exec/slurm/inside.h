// What the files of the executor share: all that is known of each run that was asked for, by its tag.
#pragma once
#include "daemon/exec/slurm/array.h"
#include "daemon/exec/slurm/command.h"
#include "daemon/exec/slurm/marks.h"
#include "daemon/exec/slurm/slurm.h"
#include <pthread.h>

enum { BUCKETS = 1024, CANCELS_MAX = 200, SCANCELS_MAX = 4 };
#define ENTRY_KEPT 900.0    // seconds after the last call for it
#define ATTENDED 10.0       // seconds after the last call for it in which it may be submitted
#define CANCEL_AGAIN 15.0   // seconds until a job that is still there is cancelled once more
#define FAULT_AGAIN 5.0     // seconds until something that failed on disk is tried again
#define WHO_WAIT 10.0       // seconds that accounting gets to say who cancelled a job
#define ARRAY_KEPT 3600.0   // seconds after it was last listed
#define LACKING_MIN 2       // answers in succession that must lack a job

enum account_verdict { ACCOUNT_NOT_ASKED, ACCOUNT_HAS_NONE, ACCOUNT_HAS_LIVE, ACCOUNT_HAS_END };

// Whether Slurm itself ended a job, or holds it, because a node would not start it.
enum refusal {
    REFUSAL_NONE,     // it does not look like it
    REFUSAL_ASKED,    // its node is asked
    REFUSAL_UNPROVEN, // it looks like it, and the node does not say so
    REFUSAL_CERTAIN
};

struct errand; // submit.c

struct entry {
    char tag[33];
    struct entry *next;          // of its bucket
    char *directory, *name;      // run directory; job's name, or NULL
    double touched;              // steady seconds of the last call for it
    uint64_t polled;             // number of the last poll that asked for it
    // submission
    int64_t serial;      // what the file holds; 0: there is none
    bool serial_known;   // it has been read
    bool unsent;         // serial was never given to sbatch, and the file says so: a job of the number before may be taken back
    bool clean;          // no job with this number, or below, can be there or come
    struct errand *errand; // NULL: nothing is being submitted
    double fault_until;  // steady seconds until which the file is not tried again
    // the job that poll tells of
    char id[32];         // empty: not known
    int64_t told;        // its submission; 0: whichever there is
    int64_t claimed;     // the number that is known to be claimant's, whichever job else has it; 0: none
    char claimant[32];
    bool handed;         // it is in Slurm's hands, by an answer of sbatch or of squeue
    double handed_over;  // steady seconds of sbatch's answer
    // what squeue says
    double seen;         // steady seconds when the last answer was asked for; -INFINITY: there is none yet
    bool listed;
    struct row row;      // of the last answer that listed it; its directory is not kept
    size_t live;         // rows with its tag that have not ended
    unsigned lacking;    // answers in succession that did not list it
    double lacking_since; // steady
    unsigned array_listed; // … of those, since it was last listed, that knew its array
    bool ended;          // end holds how it ended, and nothing newer is known
    bool presumed;        // end, from what waited and is not there any more
    double accounted;     // steady seconds when accounting told the end; 0: it did not
    struct row end;
    double cancelled_since; // steady seconds when it was first seen as cancelled
    enum refusal refusal;   // of the job's last row
    double refusal_since;   // steady seconds since when its node is asked; 0: it is not
    // what sacct says
    enum account_verdict verdict;
    char account_state[64];
    int64_t sought;                // the number whose job accounting has been asked for by name; 0: none
    char array_name[160];          // of the array's job that it went out in under this number; empty: it went by itself
    double seek_since, written;    // steady seconds since when it is asked for, 0: it is not; wall seconds when the number was written down
    // end
    double find_since, kill_since; // steady seconds from which on an answer counts; 0: not wanted
    bool killed;                   // by us, in this process's life
    double cancel_asked;           // steady
    // for ingesting an answer
    const struct row *best;
};

// What scancel is to do, in the order in which it came.
struct cancels {
    struct cancel {
        char id[32], name[160], tag[33]; // of the job, as squeue has just listed it
        bool signal;                     // USR1 to job.sh, not the end
        bool waits;                      // an array's element that has not begun: it may have no record of its own
    } at[CANCELS_MAX];
    size_t count;
};

// One scancel that runs, and what it was told.
struct scancel {
    struct command *command; // NULL: none
    bool parts;              // it is an scontrol yet, which gives elements records of their own
    struct cancels told;
};

struct slurm {
    pthread_mutex_t lock;
    struct slurm_settings settings;
    char *job_script;
    struct queue *queue;
    struct account *account;
    struct marks *marks;
    struct entry *buckets[BUCKETS];
    struct array *arrays;
    size_t array_now; // elements that the next array may have at most: fewer for a while where Slurm did not take so many at once
    double swept;     // steady seconds when leftovers of arrays were last looked for
    uint64_t polls, errands; // so many there have been
    int sending; // sbatch commands that run
    struct cancels cancels; // that wait
    struct scancel scancels[SCANCELS_MAX];
    char cancel_fault[512];
};

// ---- entries.c ----
struct entry *entry_of(struct slurm *slurm, const struct job *job); // made where there is none
struct entry *entry_find(struct slurm *slurm, const char *tag);     // NULL: none
void entries_free(struct slurm *slurm);
void entries_each(struct slurm *slurm, void (*visit)(struct slurm *slurm, struct entry *entry));
void entries_take_rows(struct slurm *slurm);     // a new answer of squeue
// Rows of jobs that have lost our mark get back what it said, where they are known without it.
void unmarked_complete(struct slurm *slurm, struct rows *rows);
void entries_take_accounts(struct slurm *slurm); // a new answer of sacct
bool row_is_live(const struct row *row);         // not ended: an unknown state too
// The job that counts now is listed, under this very submission or a newer one.
bool entry_is_listed(const struct entry *entry);
// A job of the number before one that was never sent is listed: the file must get its number again.
bool entry_may_take_back(const struct entry *entry);
// The lowest number of a job that counts.
int64_t entry_lowest(const struct entry *entry);
// How the job ended, by squeue or by accounting.
void entry_note_end(struct entry *entry, const struct row *row);
// The job is in Slurm's hands under this id.
void entry_hand_over(struct entry *entry, const char *id, double when);

// Whether the last answer of squeue knows the entry's array: lists another element, or the array as one that has ended without having begun.
bool entry_array_is_listed(struct slurm *slurm, const struct entry *entry);

// ---- claim.c ----
// The job that has begun under this number, looked up; NULL: none, or not known yet.
const char *claim_look(struct entry *entry, int64_t submission);
// By what was looked up: the job has done nothing, and will do nothing.
bool claim_is_anothers(const struct entry *entry, int64_t submission, const char *id);

// ---- refusal.c ----
enum refusal refusal_look(struct slurm *slurm, struct entry *entry, const struct row *row);
// Nothing of the row's job has begun, for all that is seen.
bool refusal_is_unbegun(struct entry *entry, const struct row *row);

// ---- tell.c ----
// Fills what is poll's from what is known.
void entry_tell(struct slurm *slurm, struct entry *entry, struct job *job);

// ---- submit.c ----
int submission_read(struct entry *entry, struct error *err); // the file's number into entry->serial; a file that is not there is 0
int submission_raise(struct entry *entry, struct error *err); // what has a lower number is over: for good
void submission_take_back(struct entry *entry);              // gives the file the number before again; where that fails, later
void errand_begin(struct slurm *slurm, struct entry *entry, const struct job *job);
void errand_turn(struct slurm *slurm, struct entry *entry);
void errands_send(struct slurm *slurm); // those whose turn it is to be given to sbatch
bool errand_is_refused(const struct entry *entry, const char **fault);
const char *errand_words(const struct entry *entry); // how far it is
bool errand_is_sending(const struct entry *entry);   // sbatch runs: whether there is a job will be known when it has ended
void errand_end(struct slurm *slurm, struct entry *entry);

// ---- seek.c ----
double submission_written(const struct entry *entry); // when the number that counts was written down, wall seconds; 0: it cannot be said
// True while accounting has yet to say whether it knows the job that counts. squeue does not list it.
bool seek_waits(struct slurm *slurm, struct entry *entry);
void seek_take(struct slurm *slurm, struct entry *entry); // a new answer of sacct

// ---- cancel.c ----
// now: the same for all jobs of one look, so that each of an entry's is cancelled, and none too often.
void cancel_job(struct slurm *slurm, struct entry *entry, const struct row *row, double now);
void signal_job(struct slurm *slurm, const struct entry *entry); // the listed one
void cancel_turn(struct slurm *slurm);
bool cancel_is_open(const struct slurm *slurm, const char *tag); // an id of this run's is to be cancelled or signalled, or that is being done
void cancels_free(struct slurm *slurm);
