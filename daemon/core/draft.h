// Drafts: the runs of a submission while it is being checked, before anything of it is stored. A draft's directory is prepared beside its
// final place under a name of its own (.new-XXXXXX) and renamed when all of the submission is good.
#pragma once
#include "daemon/core/core.h"
#include "schema/spec/spec.h"

enum { DRAFTS_MAX = 1024, RELATIONS_MAX = 100000, FROM_NONE = -1 };

struct draft {
    struct run_row row;
    struct spec spec; // of a train run
    bool has_spec;
    bool spec_held;         // spec is to be released: also of a stage that was asked for with one
    char *root;             // where its project's directory is
    bool root_made;         // there was no such directory before
    char *staging;          // prepared directory; NULL: not made, or in its place already
    char *placed;           // final directory, once it is there
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
};

// All that needs no lock: specs, data, content keys, directories, provenance. On failure answer says why and nothing is left.
int drafts_prepare(struct daemon *daemon, struct drafts *drafts, const struct json *body, struct answer *answer);
// Removes what lies at a draft's final place. It leaves the name in one step, for a staging name that the next daemon clears away: half
// removed there, it would be nobody's and keep the name.
void draft_free_name(const struct draft *draft);
// Removes what is not in its place; with undo, what was put there too.
void drafts_release(struct drafts *drafts, bool undo);

// ---- relations.c ----
int relations_check(const struct json *body, size_t count, struct error *err);
const struct json *relation_of(const struct json *body, size_t index);
// A draft that has its row: its needs, and what it is a trial of. Inside the transaction.
int relations_store(struct daemon *daemon, const struct drafts *drafts, const struct draft *draft, struct error *err);
