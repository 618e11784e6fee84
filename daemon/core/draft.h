// Drafts: the runs of a submission while it is being taken in. A draft's directory is prepared beside its final place under a name of its
// own (.new-<run_id>) and renamed when all of the submission is good. Whatever is on the disk of a draft, the database knew before: a
// daemon that was killed finds it again (submissions.c).
#pragma once
#include "daemon/core/core.h"
#include "daemon/exec/slurm/tally.h"
#include "schema/spec/spec.h"
#include <stdatomic.h>

enum { RELATIONS_MAX = 100000, FROM_NONE = -1 };

struct draft {
    struct run_row row;
    struct spec spec; // of a train run
    bool has_spec;
    bool spec_held;         // spec is to be released: also of a stage that was asked for with one
    char *root;             // where its project's directory is
    bool root_made;         // there was no such directory before
    char *staging;          // prepared directory; NULL: not made, or in its place already
    bool placed;            // it is in its final place
    char key[33];           // dataset it needs or makes; empty: none
    char *text_path;        // what is tokenised
    ptrdiff_t user;         // index of the draft by whose spec it is launched: its own, or that of one that needs what it makes
    ptrdiff_t from_sibling; // index of the draft whose weights it starts from
    int64_t from_run;       // stored run whose weights it starts from; 0: none
    char *from_directory;
    bool dropped;    // a tokenize draft that turned out not to be needed
    int64_t instead; // dropped: the stored run that makes the same; 0: it is made
    const struct json *relation; // of the submission, to its other runs; NULL: none
};

struct drafts {
    struct draft *at; // tokenize drafts first, so that they are first in the queue too
    size_t count;
    size_t first; // where those that were asked for begin, in the order of the submission
    struct json *makers; // {dataset key: index of the draft that makes it}
};

// A submission under way, as everybody sees it.
struct submission {
    char id[33]; // the client's word for it; empty: none
    size_t runs;
    atomic_size_t done;
    const char *_Atomic phase;
    atomic_bool cancelled;
    struct submission *next; // under the lock
};

// ---- submissions.c ----
void submission_open(struct daemon *daemon, struct submission *submission, const struct json *body);
void submission_close(struct daemon *daemon, struct submission *submission);
void submission_phase(struct submission *submission, const char *phase); // nothing of it is done yet
// So many runs more. -1, with the sentence: the whole of it is not wanted any more.
int submission_step(struct daemon *daemon, struct submission *submission, size_t runs, struct error *err);
// At most limit of a complete submission's runs into the queue, or of an incomplete one's rows away: how many, or -1. What cannot be queued now,
// the tick will.
int64_t submission_queue_some(struct daemon *daemon, int64_t experiment, int64_t limit, struct error *err);
int64_t submission_drop_some(struct daemon *daemon, int64_t experiment, int64_t limit, struct error *err);
// At the start: undoes what a daemon before had not completed, and finishes what it had.
void submissions_recover(struct daemon *daemon);
// Puts into the queue what a complete submission still holds back, because the disk was full, say. In a tick.
void submissions_finish(struct daemon *daemon);

// Specs, data and content keys: all that can be wrong with what was asked for. On failure answer says why.
int drafts_prepare(struct daemon *daemon, struct drafts *drafts, const struct json *body, struct submission *submission, struct answer *answer);
int draft_make_plan(struct draft *draft, struct error *err); // its plan as JSON: made when it is needed, it is long
void draft_forget_documents(struct draft *draft);
// Removes what is not in its place; with undo, what was put there too.
void drafts_release(struct drafts *drafts, bool undo);

// ---- draft_directory.c ----
// The directory of a draft that has its name, with what it was made of. before: the one before it that has a spec, or NULL.
int draft_make_directory(struct daemon *daemon, struct draft *draft, const struct draft *before, const struct json *body, struct error *err);
// run.json and job.json; a job for Slurm is counted.
int draft_write_files(struct daemon *daemon, const struct drafts *drafts, struct draft *draft, struct slurm_tally *tally, struct error *err);
// The prepared directory takes the name in one step, if nobody has it: an empty directory there gives way, any other makes this fail.
int draft_place(struct daemon *daemon, struct draft *draft, struct error *err);
bool draft_same_place(const struct draft *a, const struct draft *b); // the same project's directory; a may be NULL
char *draft_staging(const char *directory, const char *run_id); // the name of its directory before it is in its place; free()
// Removes what lies at a draft's final place. It leaves the name in one step, for a staging name that the next daemon clears away: half
// removed there, it would be nobody's and keep the name.
void draft_free_name(const struct draft *draft);
void draft_remove(struct draft *draft, bool undo); // what is not in its place; with undo, what was put there too
void draft_remove_parents(struct draft *draft, bool root); // the folder around it, or with root the one around that, where nothing else is in it

// ---- relations.c ----
int relations_check(const struct json *body, size_t count, struct error *err);
const struct json *relation_of(const struct json *body, size_t index);
// A draft that has its row: its needs, and what it is a trial of. Inside the transaction.
int relations_store(struct daemon *daemon, const struct drafts *drafts, const struct draft *draft, struct error *err);
