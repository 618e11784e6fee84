// Names inside a run directory (the only place where daemon and worker meet). All results are free()d by the caller.
#pragma once
#include "schema/base/text.h"
#include <stdbool.h>
#include <stdint.h>

#define RUN_FILE "run.json"
#define STOP_FILE "stop"
#define RECORDS_FILE "records.jsonl"
#define HEARTBEAT_FILE "heartbeat.json"
#define BEGIN_FILE "begin.json"
#define EXIT_FILE "exit.json"
#define JOB_FILE "job.json"
#define MEMORY_FILE "memory.json"
#define COMPLETE_FILE "complete.json"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_BAD_INPUT = 2, EXIT_STOPPED = 75 }; // worker exit codes

// Environment variables that carry a run's identity to its processes. SWITCHYARD_TAG marks every process of a run: <run_id>.
#define TAG_VARIABLE "SWITCHYARD_TAG"
#define ATTEMPT_VARIABLE "SWITCHYARD_ATTEMPT" // number of the attempt that job.sh claimed

char *run_attempt_directory(const char *run_directory, int64_t attempt);             // …/attempt-N
char *run_attempt_file(const char *run_directory, int64_t attempt, const char *name); // …/attempt-N/name
char *run_checkpoint_directory(const char *run_directory, int64_t step);             // …/checkpoints/step-0000120
int64_t run_last_attempt(const char *run_directory);                                 // highest N with a directory; 0 if none
int64_t run_checkpoint_step(const char *name);                                       // 120 of "step-0000120"; -1 of other names
// Newest step with a complete checkpoint under directory/checkpoints; -1 if none.
int64_t run_last_checkpoint(const char *run_directory);
bool run_has_checkpoint(const char *run_directory, int64_t step);                    // … a complete one of this very step
int64_t run_last_checkpoint_before(const char *run_directory, int64_t step); // the newest of those with a lower step
