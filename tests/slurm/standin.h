// Inside the stand-in for Slurm's commands: an answer that is being made, and the faults that are done to it (standin_faults.c).
#pragma once
#include "schema/base/text.h"
#include "tests/slurm/simulation.h"

enum { ANSWER_MAX = 16 << 20 };

struct answer {
    struct simulation *simulation;
    enum program program;
    enum fault fault;
    bool act; // what was asked for is done, now
    int64_t elements; // of the array that sbatch is asked for; 0: none
    int64_t throttle; // … of them at once; 0: all
    struct text out, talk;
    int code;
};

static const char no_database[] = "sacct: error: Problem talking to the database: Connection refused";

int fail(struct answer *answer, int code, const char *format, ...) __attribute__((format(printf, 3, 4))); // -1
// --name=value → value; NULL: another option. "--name" alone has the value "".
const char *option(const char *word, const char *name);
int unknown_option(struct answer *answer, const char *word); // -1

void do_sbatch(struct answer *answer, char **words);
enum fault draw_fault(struct simulation *simulation, enum program program);
void spoil(struct answer *answer);
