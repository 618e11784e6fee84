// What squeue and sacct print, line by line, as rows: fields in a fixed order with a separator that no name may hold. A line that does not
// keep the form is kept aside and counted, and the rest stands. Of squeue's lines only those with a mark of ours become rows: the others
// are somebody else's jobs, and what they are called is no business of ours.
//
// Our mark is a job's comment: "switchyard:<run_id>:<submission>", or of an array's element "switchyard:array:<array>", which all elements
// share: whose it is and under which number is for the array's own list to say (array.h).
#pragma once
#include "daemon/exec/slurm/words.h"
#include <stddef.h>
#include <stdint.h>

enum {
    ROWS_MAX = 50000,     // of one answer
    ROW_LINE_MAX = 16384,  // bytes of one line
    ROWS_SAMPLE_MAX = 200, // bytes of a malformed line that are kept
    MARK_MAX = 80          // of our mark, with its NUL
};

enum rows_form {
    ROWS_FULL,      // squeue --Format, since 20.11: with exit code and count of restarts
    ROWS_PLAIN,     // squeue --format: what every squeue knows
    ROWS_ACCOUNTING // sacct --format
};

struct row {
    char id[32];                   // of an array's element "ARRAY_ELEMENT"
    int64_t element;               // -1: it is none
    char state[64];                // as it came
    const struct state_word *word; // NULL: we do not know the state
    long long by;                  // who cancelled it, a user's number; -1: not said
    char tag[33];                  // of our mark; empty where somebody has changed the comment, in sacct's rows without comments, and of an
                                   // element whose list is not known
    char array[33];                // of an element's mark; empty: it has none
    int64_t submission;            // of our mark; 0 where there is none
    char name[160];                // job's name; cut
    char reason[256];              // raw; empty: none
    char nodes[256];               // cut
    double submitted;              // wall seconds; of sacct's rows, 0: not said
    double starts;                 // wall seconds: when it started, or is expected to; 0: not said
    double used;                   // seconds that it has run; NAN: not said
    int64_t restarts;              // -1: not said
    int64_t code;                  // exit code; -1: none, or not said
    int signal;                    // that ended it; 0: none, or not said
    bool barred;                   // its node could not enter its directory, or not open its log
    char *directory;               // working directory; NULL: not said
};

struct rows {
    struct row *at;
    size_t count;
    size_t others;                // lines of jobs that are not ours
    size_t malformed;
    bool doubtful;                // a line that cannot be read may be of a job of ours: what is not listed may be there
    char sample[ROWS_SAMPLE_MAX]; // of the first malformed line; control bytes as '?'
    bool cut;                     // there were more than ROWS_MAX
};

// Option and value as one word, for the command that prints this form.
const char *rows_format(enum rows_form form);
void rows_parse(struct rows *rows, enum rows_form form, const char *bytes, size_t count);
void rows_release(struct rows *rows);

// Submissions are counted from 1; a higher number than this one is nobody's.
#define SUBMISSION_MAX INT64_C(1000000000000)
void mark_write(char mark[MARK_MAX], const char *tag, int64_t submission);
// False if the comment is not a mark of ours. Either tag or array is filled, the other one is empty.
bool mark_read(const char *comment, char tag[33], int64_t *submission, char array[33]);
