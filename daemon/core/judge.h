// The judgement: what three witnesses say about a run's last attempt → its state, and why. A pure function, so that every combination
// can be tested. Nothing is ended by the absence of one witness.
//   executor     the scheduler, or the process table
//   exit record  exit.json, written last by job.sh
//   heartbeat    the worker's sign of life; also the end that the worker itself wrote (its `end` record, a finished dataset)
#pragma once
#include "daemon/exec/executor.h"
#include "daemon/store/state.h"
#include <stdbool.h>
#include <stdint.h>

// Seconds.
#define SILENCE_LOST 60.0   // all witnesses silent for so long: lost
#define END_RECORD_WAIT 3.0 // processes gone, no exit record, but the worker's own end record: job.sh was killed; wait so long for it
#define LEFTOVER_WAIT 2.0   // exit record there, processes still alive: they get so long to go before they are killed
#define REQUEUES_MAX 100    // attempts after which a run that stops to be continued is not continued any more

struct witnesses {
    enum run_state state;     // before
    enum job_phase phase;     // executor
    const char *phase_reason; // in words; may be NULL
    double gone_for;          // seconds since the executor first said that it is gone (0: it did not)
    double unseen_for;        // seconds since any witness last showed a sign of life, in this daemon's watch
    bool exit_present;        // exit record
    int64_t exit_code;
    int exit_signal;       // 0: none
    double exit_seen_for;  // seconds since we first saw the exit record
    bool started;          // the attempt's directory is there
    bool records_complete; // every line of records.jsonl is in the store
    bool end_present;      // the worker's own end
    int64_t end_code;
    double heartbeat_age; // seconds; INFINITY: none
    bool cancel_requested;
    bool over_time;       // the attempt has had its time limit
    bool memory_evidence; // the kernel counted an out-of-memory kill since the attempt began
    int64_t attempt;
    const char *last_words; // last lines of stderr; may be NULL
};

struct judgement {
    enum run_state to;   // equal to witnesses.state: nothing changes
    bool requeue;        // goes back to the queue, to be continued
    bool kill;           // processes of the run must go now
    const char *witness; // static string
    char reason[1024];
};

void judge(struct judgement *judgement, const struct witnesses *witnesses);
