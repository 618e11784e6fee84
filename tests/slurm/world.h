// The world of a simulated cluster: nodes that start jobs, job scripts that claim attempts, workers that beat, save, end and are killed, and
// all that befalls them. It knows the truth of every run, against which what the daemon says is held.
#pragma once
#include "daemon/store/state.h"
#include "tests/slurm/simulation.h"

enum { PLAYERS_MAX = 256, EXECUTIONS_MAX = 4096, STORY_BYTES = 4096 };

// One run, as it really is.
struct player {
    bool used;
    char run_id[33], name[65];
    char *directory;
    bool succeeded;        // a script has ended with code 0: nothing else can be true any more
    bool cancel_requested; // by a person, through the daemon
    bool cancelled;        // by somebody else, through Slurm
    bool stuck;            // each attempt is stopped before it has made a step
    int64_t furthest;      // step that any attempt has made known
    unsigned allowed;      // a bit for each run_state that is a true end at present
    unsigned doubtful;     // … for each that may be said where Slurm has forgotten too soon what became of the job
    double settled;        // when allowed was last changed
    enum run_state shown;  // by the daemon, when it was last looked at
    char reason[200];
    char story[STORY_BYTES];
    size_t told;
};

// One script that claimed an attempt, with its worker.
struct execution {
    bool alive;
    size_t player;
    uint64_t serial; // of its job
    char job[32], node[64]; // the job's number, and where it runs
    int64_t submission, attempt;
    bool alone;      // Slurm knows nothing of it any more: its node's slurmd, or the controller's memory, is gone
    double started, next_beat, ends;
    int64_t code;    // with which it will end
    bool silent_end; // no exit record
    char final[24];  // the state that Slurm will give to its job; empty: by the code
};

struct world {
    struct simulation *simulation;
    struct player players[PLAYERS_MAX];
    struct execution executions[EXECUTIONS_MAX];
    size_t execution_count;
    bool calm; // nothing befalls anybody any more: what has begun comes to its end
    double controller_back, accounting_back; // when; 0: it is there
    int64_t refusals, undone; // jobs that their node did not start; runs started again after somebody had cancelled them, which all could see
    int64_t events, double_runs, ghosts, fenced, outsiders_hit, ours_hit;
};

void world_step(struct world *world, double seconds); // with the simulation's lock held
void player_tell(struct world *world, struct player *player, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Why the run may not be in this ended state now; NULL: it may.
const char *world_contradicts(struct world *world, const struct player *player, enum run_state state);
