// A simulated cluster in one shared file: what the stand-in's commands (standin.c) show and change, and what the test that plays the world
// (events.c) moves. Everything in it is guarded by `lock`; times are seconds since 1970 by the cluster's own clock, `now`, which only the
// world sets.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMULATED_JOBS_MAX = 2048, SIMULATED_NODES = 8 }; // nodes n1 … n8

// What goes wrong with one call of one command. Drawn for each call by the rates below.
enum fault {
    FAULT_NONE,
    FAULT_EMPTY,     // nothing is printed, exit code 0
    FAULT_PARTIAL,   // some lines are missing, exit code 0
    FAULT_GARBAGE,   // lines of anything among the others, or instead of them
    FAULT_TRUNCATED, // the answer ends in the middle
    FAULT_SLOW,      // late, but within its time
    FAULT_HANG,      // no answer; what it was to do is done or not
    FAULT_ERROR,     // the controller cannot be reached: nothing is done
    FAULT_TIMEOUT,   // the controller is slow: an error is told, and what it was to do is done, perhaps later
    FAULT_CODE,      // done and told, but the exit code says that it was not; or not done, and the exit code says that it was
    FAULTS
};
extern const char *const fault_names[FAULTS];

enum program { PROGRAM_SBATCH, PROGRAM_SQUEUE, PROGRAM_SACCT, PROGRAM_SCANCEL, PROGRAM_SINFO, PROGRAM_SCONTROL, PROGRAM_SRUN, PROGRAMS };
extern const char *const program_names[PROGRAMS];

struct simulated_job {
    uint64_t serial; // its own for ever
    int64_t id;      // as in a real cluster, an id can come twice: after a controller that forgot. Of an element, its array's
    int64_t element; // of an array; -1: it is none
    char name[160], comment[96], directory[256], partition[64], nodes[64], reason[160];
    char state[32];          // as squeue prints it
    char run_directory[256]; // the script's first word, or by the list of its array
    int64_t submission;      // SWITCHYARD_SUBMISSION in its environment, or by the list of its array; -1: there is none
    long long cancelled_by;  // -1: nobody
    int64_t code;            // exit code of the script
    int signal;              // that ended it; 0: none
    int64_t restarts;
    bool may_requeue;               // --requeue
    bool listed;                    // the controller knows it
    bool accounted;                 // accounting knows it
    bool cancel_asked, signalled;   // scancel reached it; so did scancel --signal
    bool requeue_asked;             // scontrol requeue
    int64_t throttle;               // of an array, elements that may run at once; 0: any
    bool by_outsider;               // cancel_asked: of somebody else, whoever cancelled_by is
    bool refused;                   // its node would not start it: its end, or its hold, is Slurm's own doing
    bool parted;                    // an element that has a record of its own before it has begun
    bool forgotten;                 // by the world too: its place may be taken
    double appears;                 // not there before: a request that the controller answers late
    double submitted, started, ended, expected; // 0: not yet
};

struct simulation {
    uint32_t version;
    pthread_mutex_t lock; // shared between processes, robust
    uint64_t seed, draws;
    double now;
    int64_t next_id;
    uint64_t next_serial;
    bool down;               // slurmctld cannot be reached
    bool accounting, accounting_down;
    int64_t array_max;       // elements that an array may have (MaxArraySize)
    bool old;                // a squeue from before --Format knew exit codes
    struct {
        char reason[64];     // why it takes no jobs; empty: it does
        double since;
    } nodes[SIMULATED_NODES];
    double lacking;          // when squeue last said less than there is, as if that were all
    double hang;             // real seconds that a hanging command hangs
    double rates[PROGRAMS][FAULTS];
    uint64_t calls[PROGRAMS], injected[PROGRAMS][FAULTS];
    size_t job_count;
    struct simulated_job jobs[SIMULATED_JOBS_MAX];
};

struct simulation *simulation_new(const char *path, uint64_t seed); // NULL: it cannot be made
struct simulation *simulation_open(const char *path);               // NULL: there is none
void simulation_close(struct simulation *simulation);
void simulation_lock(struct simulation *simulation);
void simulation_unlock(struct simulation *simulation);

// The rest is called with the lock held.
uint64_t simulation_draw(struct simulation *simulation, uint64_t below); // 0 … below - 1
bool simulation_chance(struct simulation *simulation, double probability);
// The newest of that id ("12", "12_3") that the controller knows; NULL.
struct simulated_job *simulation_job(struct simulation *simulation, const char *id);
struct simulated_job *simulation_serial(struct simulation *simulation, uint64_t serial); // NULL: forgotten
struct simulated_job *simulation_add(struct simulation *simulation); // NULL: the cluster is full; moves the others
bool simulation_has_room(struct simulation *simulation, size_t count); // for so many more, without moving any
// Of an array, and one that waits: its record is that of all of them, not its own.
bool simulated_job_shares(const struct simulated_job *job);
bool simulated_job_over(const struct simulated_job *job);
