// What goes wrong with one call of a stand-in's command.
#include "tests/slurm/standin.h"

#include <string.h>

static const char unreachable[] = "Unable to contact slurm controller (connect failure)";
static const char timed_out[] = "Socket timed out on send/recv operation";

enum fault draw_fault(struct simulation *simulation, enum program program)
{
    double at = (double)simulation_draw(simulation, 1000000) / 1e6;
    for (int fault = FAULT_NONE + 1; fault < FAULTS; fault++) {
        at -= simulation->rates[program][fault];
        if (at < 0)
            return (enum fault)fault;
    }
    return FAULT_NONE;
}

// What a command says that cannot reach the controller, in its own form.
static void say_unreachable(struct answer *answer, const char *why)
{
    text_clear(&answer->out);
    text_clear(&answer->talk);
    switch (answer->program) {
    case PROGRAM_SBATCH: fail(answer, 1, "sbatch: error: Batch job submission failed: %s", why); break;
    case PROGRAM_SQUEUE: fail(answer, 1, "slurm_load_jobs error: %s", why); break;
    case PROGRAM_SACCT: fail(answer, 1, "%s", no_database); break;
    case PROGRAM_SCANCEL: fail(answer, 8, "scancel: error: Kill job error on job id 1: %s", why); break;
    default: fail(answer, 1, "%s: error: %s", program_names[answer->program], why); break;
    }
}

static void add_garbage(struct simulation *simulation, struct text *out)
{
    uint64_t count = simulation_draw(simulation, 200);
    for (uint64_t i = 0; i < count; i++) {
        char byte = (char)simulation_draw(simulation, simulation_chance(simulation, 0.5) ? 256 : 96);
        text_add_bytes(out, &byte, 1);
    }
    text_add(out, "\n");
}

// Line by line: left out, or with garbage before it.
static void spoil_lines(struct answer *answer)
{
    struct simulation *simulation = answer->simulation;
    struct text whole = answer->out;
    text_init(&answer->out, ANSWER_MAX);
    for (const char *at = whole.at; *at;) {
        size_t length = strcspn(at, "\n") + 1;
        if (answer->fault == FAULT_GARBAGE && simulation_chance(simulation, 0.3))
            add_garbage(simulation, &answer->out);
        if (answer->fault == FAULT_GARBAGE || simulation_chance(simulation, 0.5))
            text_add_bytes(&answer->out, at, length);
        at += length;
    }
    if (answer->fault == FAULT_GARBAGE)
        add_garbage(simulation, &answer->out);
    text_release(&whole);
}

void spoil(struct answer *answer)
{
    struct simulation *simulation = answer->simulation;
    bool lacks = answer->fault == FAULT_EMPTY || answer->fault == FAULT_PARTIAL || answer->fault == FAULT_GARBAGE || answer->fault == FAULT_TRUNCATED;
    if (lacks && answer->program == PROGRAM_SQUEUE)
        simulation->lacking = simulation->now;
    switch (answer->fault) {
    case FAULT_EMPTY: text_clear(&answer->out); break;
    case FAULT_PARTIAL:
    case FAULT_GARBAGE: spoil_lines(answer); break;
    case FAULT_TRUNCATED:
        answer->out.length = simulation_draw(simulation, answer->out.length + 1);
        answer->out.at[answer->out.length] = 0;
        break;
    case FAULT_ERROR: say_unreachable(answer, unreachable); break;
    case FAULT_TIMEOUT: say_unreachable(answer, timed_out); break;
    case FAULT_CODE: answer->code = answer->act ? 1 : 0; break;
    default: break;
    }
}
