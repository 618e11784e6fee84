// The judgement: what three witnesses say about a run's last attempt → its state, and why. A pure function, so that every combination
// can be tested. Nothing is ended by the absence of one witness.
//   executor     the scheduler, or the process table
//   exit record  exit.json, written last by job.sh
//   heartbeat    the worker's sign of life; also the end that the worker itself wrote (its `end` record, a finished dataset)
//
// The worker writes its end when all of its ranks have agreed that everything is recorded and saved. An end with code 0 is a success, whatever
// befell the processes after it: a launcher that was killed on its way out, or that makes a code of its own of a rank's death, undoes nothing.
//
// A process table is asked anew each time and knows of no second start. A scheduler answers late, may start a job again by itself under the
// same id, and may be silent: its answer counts only if it was asked for after what it is held against was seen (`stale`), its silence ends
// nothing, and an exit record other than success is final only when it says that it will not start the job again.
#pragma once
#include "daemon/exec/executor.h"
#include "daemon/store/state.h"
#include <stdbool.h>
#include <stdint.h>

// Seconds.
#define SILENCE_LOST 60.0   // all witnesses silent for so long: lost
#define END_RECORD_WAIT 3.0 // processes gone, no exit record, but the worker's own end record: job.sh was killed; wait so long for it
#define DESERTED_WAIT 2.0   // not one process of it on this machine, in every look for so long: what it held here is free
#define LEFTOVER_WAIT 2.0   // exit record there, processes still alive: they get so long to go before they are killed
#define TOLD_WAIT 15.0      // a scheduler says that the job ended, without an exit record: so long without a heartbeat, it is believed
#define SETTLE_WAIT 60.0    // exit record there, and a scheduler that says nothing new: what is left is killed; success is believed
#define DEAF_SAID 30.0      // a scheduler silent for so long is spoken of
#define IDLE_MAX 10         // attempts in a row that came no further than those before them, after which a run is not continued any more
#define UNBEGUN_MAX 5       // jobs in a row that ended without having begun an attempt, after which no other is handed over

enum cause { // why an attempt ended without success: what `retry.on` names
    CAUSE_NONE,
    CAUSE_FAILED,
    CAUSE_TIMED_OUT,
    CAUSE_OUT_OF_MEMORY,
    CAUSE_LOST,
    CAUSE_NODE_FAILED,
    CAUSE_PREEMPTED
};
enum { CAUSES = CAUSE_PREEMPTED + 1 };
const char *cause_name(enum cause cause); // "failed", …; of CAUSE_NONE: "none"

struct witnesses {
    enum run_state state;     // before
    enum job_phase phase;     // executor
    bool queues;              // it is a scheduler with a queue of its own, not a process table
    bool stale;               // its answer was asked for before the attempt, or its exit record, was first seen: it says nothing
    enum job_end end;         // of JOB_ENDED
    int64_t job_code;         // of JOB_ENDED: the script's exit code; -1: none
    int job_signal;           // of JOB_ENDED; 0: none
    const char *phase_reason; // in words; may be NULL
    bool unlaunched;          // of JOB_GONE, JOB_ENDED: the scheduler could not start it, or not once more, as phase_reason says
    bool strange;             // of JOB_UNKNOWN: the scheduler calls its state something that we do not know, as phase_reason says
    const char *nodes;        // where it runs or ran; may be NULL or empty
    double gone_for;          // seconds since the executor first said that it is gone, or has ended (0: it did not)
    double unseen_for;        // seconds since any witness last showed a sign of life, in this daemon's watch
    bool exit_present;        // exit record
    int64_t exit_code;
    int exit_signal;       // 0: none
    bool exit_cancelled;   // the scheduler told the job, not us, that somebody cancelled it
    double exit_seen_for;  // seconds since we first saw the exit record
    bool started;          // the attempt's directory is there
    bool vanished;         // it was there
    bool away;             // the run directory cannot be seen, nor that of its project: its disk is not mounted here, most likely
    bool removed;          // the run directory is not there any more, that of its project is
    bool before_alive;     // this attempt has not begun, and an earlier one that left no exit record beat less than SILENCE_LOST ago
    int64_t idle;          // attempts in a row, the last one among them, that made no new step
    int64_t unbegun;       // jobs in a row that ended well, or could not be started, without having begun an attempt, before this one
    bool done_before;      // an earlier attempt ended with exit code 0: this one should not be
    bool records_complete; // every line of records.jsonl is in the store
    bool says_end;         // a scheduler's launcher started it, and the worker writes an end of its own: success is what that says
    bool all_saved;        // there is a complete checkpoint of its last step
    bool end_present;      // the worker's own end
    int64_t end_code;
    double heartbeat_age; // seconds; INFINITY: none
    int64_t diverged;     // step from which on its loss is not finite; 0: it is. It ends no run, but a success is told with it
    bool cancel_requested;
    bool killed;          // this daemon has killed what was left of it
    bool over_time;       // the attempt has had its time limit (a scheduler keeps its own: never set then)
    bool memory_evidence; // somebody was killed for want of memory since the attempt began
    const char *memory_reason; // by the run's own witness, a sentence; NULL: the evidence is the machine's, and says only that it may be so
    int64_t attempt;
    const char *last_words; // last lines of stderr; may be NULL
};

// A heartbeat as it was last seen. Seconds.
struct pulse {
    double time; // its own, by the clock of the machine that wrote it; 0: none yet
    double seen; // when it was first seen, by our steady clock
};
// Seconds since the heartbeat last changed (INFINITY: none), by our steady clock: the time in it is another clock's, which may be set, on this
// machine or on a node. Only of the first one that is seen the age by wall clocks is believed, as far as it can be true. time NAN: unreadable.
double pulse_age(struct pulse *pulse, double time, double wall, double steady);

struct judgement {
    enum run_state to;   // equal to witnesses.state: nothing changes, but perhaps the reason
    bool requeue;        // goes back to our queue, to be continued
    bool again;          // the scheduler starts it again under the same id: this attempt is over, the next one waits
    bool kill;           // every process and job of the run must go now
    bool stop;           // what still runs is asked to save and end: no job of the scheduler's that could be killed
    enum cause cause;    // of an end without success
    const char *witness; // static string
    char reason[1024];   // empty: nothing is said
};

// A launcher's code is not always its worker's: srun ends with 0 where a step that was ended takes too long to go, and by a signal where it
// was killed after the worker had saved. Then what the worker says of its end takes the place of the exit record's code. judge does it too.
void witnesses_settle(struct witnesses *witnesses);
void judge(struct judgement *judgement, const struct witnesses *witnesses);
