// Slurm's words and what they mean to us: every base state and flag of Slurm 22.05 to 25.11, and the reasons that it gives for waiting and
// for ending. A word that is not in the table ends nothing: it is shown as it came.
#pragma once
#include "daemon/exec/executor.h"

struct state_word {
    const char *word, *compact; // RUNNING, R
    enum job_phase phase;       // JOB_PENDING, JOB_RUNNING or JOB_ENDED
    enum job_end end;           // of JOB_ENDED
    const char *meaning;        // for people
};

// The table, closed by an entry without a word.
extern const struct state_word state_words[];

// What a state column says: the word or its compact form; "CANCELLED by 123" (by: 123; -1: nobody is named); a word of which a narrow
// column has left the beginning and a '+'. NULL: a word that we do not know.
const struct state_word *state_word_of(const char *text, long long *by);

// Why a job waits, in words, with Slurm's own behind them in parentheses: "waits for resources (Resources)". Empty where raw says nothing.
void reason_waiting(char *out, size_t size, const char *raw);
// What Slurm's reason adds to how a job ended, as "(TimeLimit)" or "its prolog failed (Prolog)". Empty where raw says nothing.
void reason_ended(char *out, size_t size, const char *raw);
