// What rank 0 tells the world: records for the daemon, the heartbeat, and now and then a line on stderr for a person. On all other ranks
// a journal is closed and takes nothing.
#pragma once
#include "schema/record/record.h"
#include "worker/train/heartbeat.h"
#include "worker/train/job.h"
#include "worker/train/metrics.h"
#include "worker/train/routing.h"

struct journal {
    struct record_writer *writer;   // NULL: closed
    struct heartbeat *heartbeat;
    const struct job *job;
    double said;                    // clock_steady of the last line on stderr
    double began;                   // of the first step
    int64_t first_step;
    bool loss_is_finite, norm_is_finite; // of the last step
    struct balance_watch balance;
};

int journal_open(struct journal *journal, const struct job *job, struct error *err);
void journal_close(struct journal *journal);

int journal_start(struct journal *journal, struct json *worker, int64_t resumed, struct error *err); // takes worker
// A step: metrics, data, expert load (at the logging interval), and an event and an alert where the loss stops being finite, the
// gradients do under a loss that still is, or a layer's balance loss stops moving.
int journal_step(struct journal *journal, int64_t step, const struct step_result *result, const char *samples_hex, bool logged, struct error *err);
int journal_checkpoint(struct journal *journal, int64_t step, int64_t bytes, struct error *err);
void journal_tell(const struct journal *journal, const char *text); // to people, on stderr, by the rank that writes
int journal_event(struct journal *journal, int64_t step, const char *event, const char *text, struct error *err);
void journal_end(struct journal *journal, int code, struct json *members); // takes members; a fault here changes nothing any more
