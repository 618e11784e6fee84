// Inside the heart: what the files of daemon/core share, and nobody else sees.
//
// Threads: the tick thread and the HTTP threads. `lock` guards the state database, the series, the reading Trackio handle and the watches.
// Who reads takes it; who writes to the state database takes it by change_begin (change.c), and in no other way. Only what is a copy of
// Trackio's rows (curves.c: outcomes) may be written with the lock alone.
// Slow things (Trackio's lock, the process table, job files, hashing) are done without it. Only the tick thread moves a run on from
// `submitted` to its end; HTTP threads may only add runs, end queued ones, ask for a cancel, and put ended ones back into the queue.
#pragma once
#include "daemon/core/daemon.h"
#include "daemon/core/judge.h"
#include "daemon/core/retries.h"
#include "daemon/core/settings.h"
#include "daemon/exec/executor.h"
#include "daemon/exec/launch.h"
#include "daemon/exec/slurm/slurm.h"
#include "daemon/store/series.h"
#include "daemon/store/state.h"
#include "daemon/store/trackio.h"
#include "schema/record/record.h"
#include <pthread.h>
#include <stdatomic.h>

enum {
    RUNS_ALIVE_MAX = 100000,
    EXECUTORS_MAX = 4,
    WATCH_BUCKETS = 1024,
    HANDOVERS_MAX = 512, // runs on their way to a scheduler at a time: the others stay in our queue
    SPEC_TEXT_MAX = 16 << 20,
    JOB_FILE_MAX = 4 << 20,
    TICK_BUSY_MS = 200, // while something runs
    TICK_BEHIND_MS = 5,
    TICK_QUEUED_MS = 1000, // while all that there is waits or runs elsewhere
    TICK_IDLE_MS = 2000,
    INGEST_BYTES = 2 << 20, // about: one run in one tick
    EVENTS_WAIT_MAX_MS = 60000
};
#define NON_FINITE_NOTE "non_finite_loss" // the worker's event, kept as a note too: where a loss that is not finite begins
#define CHECKPOINT_NOTE "checkpoint" // the worker's line, an event and a note
#define CANCEL_GRACE 10.0  // seconds between asking a job to stop and killing it
#define TIME_LIMIT_GRACE 30.0
#define SCHEDULER_GRACE 60.0 // for a scheduler's job whose spec does not say
#define REASON_PAUSE 60.0 // a run in a scheduler's queue: changes of its reason within so many seconds of the last are no events

// What of a run's spec the tick acts on; it never changes but when a person retries.
struct facts {
    double time_limit; // seconds; 0: none
    double grace;      // seconds that a scheduler's job gets to save
    int64_t gpus;      // of a node
    int64_t memory;    // bytes of a node; 0: no limit
    int64_t iterations; // steps that it is to train; 0: it does not
    struct retry_policy retry;
};

// What the tick remembers of a run that is alive. Everything in it can be found again: it starts anew with the daemon.
struct watch {
    int64_t run;
    int64_t attempt;                                      // the attempt that these times are about
    double gone_since, seen, exit_seen_since, stop_asked; // steady seconds; 0: not
    double directory_seen;                                // when the attempt's directory was first seen
    double reason_said;                                   // when a change of reason alone was last an event
    uint64_t word;                                        // what the scheduler said of its job when it was last looked at; 0: it was not
    double looked;                                        // when that was, steady seconds
    double ran;                                           // seconds that it had run when it was last seen alive; 0: not known
    struct pulse pulse, before;                           // the last heartbeat; that of the attempt before, while this one has not begun
    int64_t furthest, idle_before;                        // highest step of the attempts before; so many of them in a row made no new one
    int64_t unbegun;                                      // jobs in a row that ended without having begun an attempt
    bool announced;                                       // in Trackio
    int64_t ingest_attempt;                               // first attempt whose records may still grow
    int64_t malformed_attempt;                            // attempt for which the one event about malformed lines has been made
    int64_t end_attempt, end_code;                        // the worker's own end record
    bool shared;                                          // its lines were read together with others' in this round
    bool behind;                                          // when it was last looked at, there was no time for all that it had written
    bool trackio_waits;                                   // the event about it has been made
    bool done_before;                                     // an earlier attempt ended with code 0
    bool left_before;                                     // the attempt before had ended when this one was first seen
    bool killed;                                          // what was left of this attempt was killed, without a cancel
    bool handing;                                         // on its way to the executor: submit has been called
    double handing_since;                                // … since then, steady seconds; 0: it is not
    double expected_start;                                // as the scheduler says, wall seconds; 0: it does not. Written under the lock
    struct facts facts;
    bool elsewhere;                                       // another home has adopted it (owner.c)
    bool recalled;                                        // the facts, that, and the worker's own end
    bool used;                                            // in this tick
    struct watch *next;
};

// An executor and the context that its calls want.
struct executor_use {
    const struct executor *calls;
    void *context;
    bool queues; // jobs wait in its own queue and take none of this machine's cores; it may start them again by itself
    int64_t most; // jobs that may be with it at once; 0: any number
};

// When the queue was last looked at, and whether there is a reason to look again.
struct queue_look {
    int64_t changes; // state_changes() of then
    bool again;      // something could not be done, or not all of it
    double due;      // wall seconds: a run's pause before a retry is over; INFINITY: none waits
    double looked;   // steady seconds
    size_t waiting;  // runs that were left in it
};

// CPU seconds of the thread that ticks, of the last rounds.
enum { TICKS_REMEMBERED = 64 };
struct tick_costs {
    int64_t count; // since the daemon began
    double recent[TICKS_REMEMBERED]; // a ring
};

// Until when a tick does something of which there may be much: CPU seconds of its thread, and steady seconds.
struct budget {
    double cpu, until;
};

// New reasons of runs that stay in their states (reasons.c).
struct reasons {
    struct reason *at;
    size_t count, room;
};

struct submission;

struct daemon {
    char *home, *trackio_path, *worker, *job_script;
    int lock_fd;
    double started;
    struct settings settings; // changed by the tick thread, under the lock
    struct machine machine;   // its GPUs and its cluster follow the settings
    struct executor_use executors[EXECUTORS_MAX];
    size_t executor_count;
    struct local_context local;
    struct slurm *slurm;
    pthread_mutex_t lock;
    pthread_cond_t changed; // the store was
    bool changing;          // a change is under way; under the lock
    pthread_mutex_t wake_lock;
    pthread_cond_t wake;
    bool awake;
    struct state *state;
    double database_tried; // steady seconds; the tick thread's
    struct trackio *writer; // the tick thread's
    struct trackio *reader; // under lock
    struct series *series;
    int64_t curve_rows; // of Trackio that were read for curves, so far; under the lock
    struct watch *watches[WATCH_BUCKETS]; // by run; found by the tick thread, or under the lock
    bool behind;                          // this tick left records for the next one: it comes at once; the tick thread's
    size_t handovers;                     // runs on their way to a scheduler; the tick thread's
    struct reasons reasons;               // that are yet to be written; the tick thread's
    double tick_began;                    // CPU seconds of the tick thread; its own
    struct budget budget;                 // of what this tick is at; the tick thread's
    int64_t pass_next;                    // the first run of the pass that this tick has not reached; 0: the pass is over. The tick thread's
    size_t waiting;                       // runs that wait with a scheduler; the tick thread's
    struct queue_look queue;              // the tick thread's
    struct submission *submissions;       // under way; under the lock
    struct tick_costs ticks;              // under the lock
    bool unqueued;                        // a complete one still has runs that are not in the queue; under the lock
    atomic_bool ending;                   // no submission will be completed any more
    size_t handovers_begun;               // … that began it in this tick
};

// What a tick needs to know of one run, copied so that it can be used without the lock.
struct view {
    int64_t id;
    enum run_state state;
    int64_t attempt;
    bool cancel_requested;
    char project[65], name[65], run_id[33], kind[16];
    char title[130]; // project.name
    const struct executor_use *executor;
    char *directory, *dataset_key, *reason, *excluded;
    char *job; // of its last attempt; NULL: it has none, or none was handed over
    double job_started;
    int64_t retries;
    double retry_at;
    struct watch *watch;
};

// views.c
struct views {
    struct view *at;
    size_t count;
};
int views_load(struct daemon *daemon, struct views *views, struct error *err); // all that are with an executor, oldest first; takes the lock itself
int views_load_one(struct daemon *daemon, struct views *views, int64_t run, struct error *err); // none, if it is not there
void views_release(struct views *views);
void watch_recall(struct daemon *daemon, const struct view *view); // what its watch holds of its facts, read once; takes the lock itself. views_load_one has done so
struct watch *watch_find(struct daemon *daemon, int64_t run); // NULL if nobody watches it; under the lock, or by the tick thread
void watches_sweep(struct daemon *daemon);                    // forgets those that this tick did not use

// executors.c: which executors there are, and a run's own; NULL for a name that this build does not know.
void executors_open(struct daemon *daemon);
void executors_close(struct daemon *daemon); // jobs stay
void executors_limit(struct daemon *daemon); // what config.yaml says of how much they take at once; under the lock, or before there is a thread
struct json *executors_health(struct daemon *daemon); // of the scheduler; null while nobody has asked it for anything
const struct executor_use *executor_named(const struct daemon *daemon, const char *name);
// What identifies a run's job to its executor.
struct job job_of(const struct view *view);
// All jobs of all executors in one round: running[i]'s job is jobs[i].
void executors_poll(struct daemon *daemon, const struct view *const *views, struct job *jobs, size_t count);

// configure.c: config.yaml at the start; gpus as the command line declares them, or -1. And where it has changed, at the beginning of a tick.
int settings_begin(struct daemon *daemon, int64_t gpus, struct error *err);
void settings_follow(struct daemon *daemon);

// log.c: what the daemon says to whoever runs it.
void core_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_run(const struct view *view, const struct error *err); // a fault about one run

// change.c: a change of the store. 0: the lock is the caller's and a transaction is open, both until change_end; -1: neither, err says why.
int change_begin(struct daemon *daemon, struct error *err);
// status 0: it is stored, and who waits for news wakes; else it is undone, and err stays as it is. 0, or -1: nothing of it is stored.
int change_end(struct daemon *daemon, int status, struct error *err);
// The same for one that was asked for by a request, which answers 500 where the database cannot be written: that is no fault of who asks.
int change_begin_for(struct daemon *daemon, struct answer *answer);
int change_end_for(struct daemon *daemon, int status, struct answer *answer);
// The same, where nobody is told of a fault but the log.
bool change_begin_of(struct daemon *daemon, const struct view *view, struct error *err);
int change_end_of(struct daemon *daemon, const struct view *view, int status, struct error *err);
void change_event(struct daemon *daemon, const struct view *view, const char *kind, const char *text, const char *witness); // one event alone
// Whether a run still waits in our queue: looked at within the change that is to start it, since a cancel may have come first.
bool core_is_queued(struct daemon *daemon, int64_t run);
// The two ways a run's story grows: within a change.
int core_change(struct daemon *daemon, int64_t run, enum run_state to, const char *reason, const char *witness, struct error *err);
void core_event(struct daemon *daemon, int64_t run, const char *kind, const char *text, const char *witness, double when);

// pass.c: goes on with the look at all runs that have a job, as far as this tick's share reaches; daemon->behind: it did not reach all.
void pass_go_on(struct daemon *daemon, const struct views *views);
// What there may be much of is done until the tick has used so many CPU seconds, or for so many from now on if that is more.
void budget_begin(struct daemon *daemon, double until, double least);
bool budget_is_spent(const struct daemon *daemon);

// tick.c
struct json *tick_costs_json(const struct tick_costs *costs); // {count, recent: how many of them count, cpu_ms_mean, cpu_ms_largest}; under the lock

// queue.c
void queue_start(struct daemon *daemon, const struct views *views); // what is queued and ready, as far as cores and GPUs reach; views: what runs

// schedule.c
void schedule_begin(struct daemon *daemon, const struct view *view, const struct launch *launch, struct json *job); // a queued run: stores the intent
void schedule_fail(struct daemon *daemon, const struct view *view, const char *reason); // a run that cannot go on for a reason of the world's
void schedule_submit(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt); // hands a stored intent over, once
int job_load(const struct view *view, struct launch *launch, struct json **job, struct error *err);

// attempts.c: whether an attempt has left its exit record, and what that says.
bool attempt_left(const struct view *view, int64_t number, struct exit_record *end);
// A run's attempts as rows. The row of this attempt, made if a job claimed it by itself: it keeps its predecessor's job, and
// whatever came before it is over. 0 or -1. Takes the lock itself.
int attempt_of(struct daemon *daemon, const struct view *view, int64_t number, struct attempt_row *attempt);
// The newest one: that the daemon knows of, or that is in the run's directory.
int attempt_last(struct daemon *daemon, const struct view *view, struct attempt_row *attempt);

// How far the attempts before this one came: their highest step (0: none), and how many of them in a row, before it, made no new one. Those
// that ended the run do not count: it was started again by a person, or by its own rule for retries. Takes the lock itself.
void attempts_progress(struct daemon *daemon, const struct view *view, int64_t number, int64_t *furthest, int64_t *idle);

// places.c: how many trials of a submission may be started at once, over one round of the queue.
struct sweep_places {
    struct sweep_place { int64_t experiment, most, taken; } *at;
    size_t count;
};
// Where this trial is to be counted when it starts; NULL: nothing limits it. Valid until the next call.
struct sweep_place *places_of(struct daemon *daemon, struct sweep_places *places, const struct queued *queued);
void places_release(struct sweep_places *places);

// ingest.c: true when every line of the run's records is in the store. over: nothing will be written any more.
bool ingest_run(struct daemon *daemon, const struct view *view, bool over);
// together.c: before that, for all that have a job: what many runs wrote meanwhile, in few transactions. attempts: the rows of their last attempts, whose
// cursors move. What it leaves, ingest_run reads.
// Returns how many of them, from the first on, it came to: no more is taken at once than a tick has room for.
size_t ingest_together(struct daemon *daemon, const struct view *const *views, struct attempt_row *const *attempts, size_t count);
// supersede.c: an attempt starts that resumes from an earlier step: rows from first_step on leave Trackio and the series. 0, 1 later, -1.
int supersede(struct daemon *daemon, const struct view *view, int64_t attempt, int64_t first_step, struct error *err);
// notes.c: one record line of ours into notes and events. Under the lock, inside a transaction.
int store_line(
    struct daemon *daemon, const struct view *view, struct watch *watch, int64_t attempt, const struct json *line, struct error *err);
int64_t checkpoint_step_said(const char *text); // the step that a checkpoint's event tells of; 0: none

// watch.c: witnesses → judgement → state, stopping and killing, for one run that has a job. attempt is the row of its last attempt.
void watch_new_job(struct watch *watch); // what was said of the last one says nothing of that which is handed over now
void watch_run(struct daemon *daemon, const struct view *view, struct attempt_row *attempt, struct job *job);

// owner.c: the run becomes this home's to go on with. -1: another home's daemon looks after it, or its directory takes no note of it.
int owner_take(const struct daemon *daemon, const char *directory, struct error *err);
char *owner_elsewhere(const struct daemon *daemon, const char *directory); // the other home that has adopted it; NULL: none has. free()
void owner_leave(struct daemon *daemon, const struct view *view); // the end of a run that is elsewhere: lost, for this home

// reasons.c: the reason of a run that stays in its state, where it is a new one; and to the store with all that were said since the last time.
void reason_say(struct daemon *daemon, const struct view *view, const struct judgement *judgement);
void reasons_write(struct daemon *daemon);

// words.c: the last lines of a log that say something (mpirun's own banners left out). free()
char *last_words(const char *run_directory, int64_t attempt);

// summary.c
struct json *run_summary(struct daemon *daemon, const struct run_row *row); // the list's members; under the lock
struct json *run_measured(struct daemon *daemon, const struct run_row *row); // the last `end` record, NULL before there is one; under the lock
// The step from which on its loss is not finite, to the last that is known; 0: it is finite, or there is none. Under the lock.
int64_t run_diverged(struct daemon *daemon, int64_t run, const char *run_id);
struct json *run_predicted(struct daemon *daemon, const struct run_row *row); // predicted.c: [{name, predicted, measured, unit}]; its curve is in memory. Under the lock
struct json *spec_shown(const struct run_row *row);                         // the spec with the secrets in its variables masked
// The run that a person named, or a failed answer. Under the lock.
int answer_run(struct daemon *daemon, const char *text, struct run_row *row, struct answer *answer);
void answer_summary(struct daemon *daemon, int64_t run, int status, struct answer *answer); // the run as it is now; takes the lock itself
int answer_fail(struct answer *answer, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

// curves.c; under the lock.
void series_need(struct daemon *daemon, const struct run_row *row); // in memory from here on, of an ended run for some minutes
struct outcome_row run_outcome(struct daemon *daemon, const struct run_row *row); // what lists say of it; js_free(.last)
void curve_settle(struct daemon *daemon, int64_t run); // nobody watches it any more: if it has ended, what came of it is kept
void curves_trim(struct daemon *daemon); // forgets the curves of ended runs that nobody has looked at for a while; takes the lock itself

// compare.c: of a metric over the last 2000 steps up to `last`; fallback where none of them is a number. Under the lock.
double recent_median(struct daemon *daemon, const struct run_row *row, const char *name, int64_t last, double fallback);
double recent_pace(struct daemon *daemon, const struct run_row *row, int64_t last); // mean milliseconds a step, of the last 100; NAN: none
