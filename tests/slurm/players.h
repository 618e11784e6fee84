// Inside the simulated world: what is true of the runs (world.c), for what befalls them (befall.c).
#pragma once
#include "tests/slurm/world.h"

enum { SAVE_SECONDS = 2 }; // that a worker takes to save and end
#define BIT(state) (1u << (state))

static inline bool chance(struct world *world, double probability)
{
    return simulation_chance(world->simulation, probability);
}
static inline double draw(struct world *world, double least, double most)
{
    return least + (most - least) * (double)simulation_draw(world->simulation, 1000000) / 1e6;
}

struct player *player_of(struct world *world, const struct simulated_job *job); // NULL: nobody's any more
struct execution *execution_of(struct world *world, const struct simulated_job *job); // that the controller knows of; NULL: none
// The job is the run's: its number is the file's, or the one before a number that was never sent, which may be taken back.
bool is_current(const struct player *player, const struct simulated_job *job);

// The ends that are true from now on, and those that may be said where Slurm forgets too soon: a bit for each run_state.
void settle(struct world *world, struct player *player, unsigned allowed, unsigned doubtful);
// A script ended, or a job without one. state: Slurm's last word; code < 0: no exit record.
void settle_end(struct world *world, struct player *player, const char *state, int64_t code);

// It has had as many attempts as one gets that makes no step.
bool is_given_up(const struct player *player);

// Slurm's last word about a job.
void end_job(struct world *world, struct simulated_job *job, const char *state, int64_t code, int signal, const char *reason);
void finish_job(struct world *world, struct simulated_job *job, const char *state, int64_t code);
// Puts the job to its end where the script ends at once, claiming nothing. Where the file's number is not sent, or an old one, it waits for another.
void launch(struct world *world, struct simulated_job *job, struct player *player);
void step_execution(struct world *world, struct execution *execution);
// The script's end, by itself or not. code: -1: without an exit record.
void finish_execution(struct world *world, struct execution *execution, int64_t code);
void write_claim(const struct player *player, int64_t submission, const struct simulated_job *job);
bool has_claim(const struct player *player, const struct simulated_job *job); // it has begun, before all others of its number
void job_number(char out[32], const struct simulated_job *job);
void write_exit(struct world *world, const struct execution *execution, int64_t code, bool cancelled);
