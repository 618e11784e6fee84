// What stays alive between loading a file and releasing it.
#pragma once
#include "schema/spec/check.h"

// Where an entry of `runs:` or `stages:` is written. All NULL: the file's only run.
struct entry {
    const struct node *key, *overlay;
    const struct node *kind, *needs, *canary; // NULL: not written
};

struct seen { // files that were looked for: trials ask for the same ones again and again
    struct { char *path; bool there; } at[16];
    size_t next;
};

struct spec_book {
    struct pool *pool;
    struct source **sources;     // the file, what it inherits, then the options
    size_t sources_count;
    char *files[SPEC_BASE_MAX];  // absolute paths of the files among them
    char *stem;                  // name of the file's only run
    char *question;              // the comment that opens the file; NULL: none
    const struct node *overlays; // `runs:` and `stages:`; NULL without them
    const struct node *stages;
    struct entry *entries;       // as many as the file's
    struct json *names;          // of all runs and entries: {name: true}
    struct seen seen;
    struct problems problems;
    struct check *checks;        // one a run
    size_t capacity;             // of checks and runs
    const struct node *const *options; // --set, as trees; while loading
    size_t options_count;
};

// ---- read.c: trees, or NULL with a problem recorded ----
// asked: the `base:` that names this file; NULL for the first.
struct node *read_file(struct spec_book *book, const char *path, const struct node *asked);
struct node *read_option(struct spec_book *book, const char *argument);  // path.to.key=value
// The comment that opens a file, as one line: the question that it asks. free(); NULL if there is none.
char *opening_comment(const struct source *source);

// ---- entries.c: `runs:` and `stages:` ----
void entries_list(struct spec_file *file, const struct node *root);
void entries_connect(struct spec_file *file); // needs, once the runs are there

// ---- load.c ----
// Appends a run: the tree resolved under that name. The name is taken over.
struct spec_run *resolve_run(struct spec_file *file, size_t entry, const struct node *tree, char *name, bool trial);
void forget_run(struct spec_file *file); // the last one
struct only { // what --run chooses
    const char *const *names; // NULL: all
    size_t count;
    bool *used;
};
bool is_chosen(const struct only *only, const char *name);

// ---- trials.c ----
void resolve_trials(struct spec_file *file, size_t entry, const struct node *tree, const struct only *only);

// ---- faults.c ----
void render(struct spec_file *file); // problems as text and as lists, anew

// ---- inputs.c: lists of {key, file, line, column, message, text} ----
struct json *list_unsupported(const struct check *check); // what this build cannot run yet
void add_unsupported(struct json *list, const char *key, const struct node *place, const char *message);
struct json *list_missing(struct check *check, struct seen *seen); // inputs that are not there; also recorded as warnings
