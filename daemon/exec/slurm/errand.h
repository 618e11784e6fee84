// Between submit.c and send.c: one run on its way to Slurm, and the calls of sbatch.
#pragma once
#include "daemon/exec/slurm/inside.h"
#include "daemon/exec/word_list.h"

enum step { LOOK, RAISE, FENCE, SEND, SENDING, CHECK, REFUSED };

// One call of sbatch, held by the errands that it is for; the last one to leave ends it.
struct parcel {
    struct command *command;
    size_t count, holders;
    bool judged; // what its answer says of arrays has been taken in
};

struct errand {
    enum step step;
    uint64_t number;   // in the order in which they came
    double since;      // answers to questions asked from here on count
    double not_before; // of RAISE after a CHECK, steady seconds; 0: not yet decided
    int tries;         // calls of sbatch that led to nothing
    struct word_list argv, environment, options, modules;
    char key[HASH_HEX];    // runs with the same may share a call; empty: none may
    double begun;          // steady seconds
    struct parcel *parcel; // of SENDING
    size_t element;        // its place in the parcel
    bool refused; // in CHECK: sbatch's answer was a clear no
    char fault[600];
};

// ---- submit.c ----
void errand_go(struct errand *errand, enum step step);
// From here on a job of its number may come. False: that cannot be written down now.
bool errand_mark_sent(struct entry *entry);

// ---- send.c ----
void errand_take_answer(struct slurm *slurm, struct entry *entry); // of SENDING
void errand_leave_parcel(struct slurm *slurm, struct errand *errand);
