// Arrays: many equal runs handed over by one call of sbatch. Each stays a run with a job of its own, whose number is ARRAY_ELEMENT; only the
// call is shared, and with it the command, the environment and the job's comment. What an element is, is written down before the call, in the
// folder of the runs, which the nodes see:
//
//   RUNS/.arrays/ARRAY/elements   a line an element, from 0 on: "TAG SUBMISSION NAME", NAME being the run directory's in RUNS
//   RUNS/.arrays/ARRAY/N          a symbolic link to the N-th run directory: there Slurm's own output goes
//
// job.sh finds its run there, and a daemon that was not there when the array was made finds whose job a row of squeue is: the array's
// directory is the job's working directory.
#pragma once
#include "daemon/exec/slurm/rows.h"
#include "daemon/exec/word_list.h"
#include "schema/base/error.h"
#include "schema/base/hash.h"

enum { ARRAY_MAX = 1000 }; // elements

struct element {
    char tag[33];
    int64_t submission;
    char *name; // of the run directory
};

struct array {
    char id[33];
    char *directory;
    struct element *elements; // NULL: its list is not there, or could not be read
    size_t count;
    bool made;         // by this process
    double used;       // steady seconds when it was made, or last listed
    double read_again; // steady seconds until which a list that could not be read is not tried again; INFINITY: it is not there
    struct array *next;
};

// Elements that an array may have where config.yaml says so much of max_array_size; 0: Slurm's own.
size_t array_most(int64_t max_array_size);
// How many of so many equal runs that wait go in the next call of sbatch.
size_t array_take(size_t waiting, size_t most);

// Runs with the same key may be elements of one array. False where a run cannot be one.
bool array_key(char key[HASH_HEX], const char *run_directory, const struct word_list *argv, const struct word_list *options,
    const struct word_list *environment, const struct word_list *modules);
// The command of one of its runs as that of each.
void array_argv(struct word_list *shared, const struct word_list *argv, const char *run_directory, const struct array *array);

// Writes down a new array of these runs; elements[].name is not needed. NULL: it could not be written.
struct array *array_make(struct array **arrays, char *const *run_directories, const struct element *elements, size_t count, double now, struct error *err);
// What its job is called, told from one of its runs: its first run's job's name, and how many there are besides. free(). NULL: it cannot be said.
char *array_job_name(const struct array *array, const char *job_name, const char *run_directory);
// The array that the run went out in under this number, looked for on disk among those that were made since (wall seconds); NULL: none.
const struct array *array_of_run(struct array **arrays, const char *run_directory, const char *tag, int64_t submission, double since, double now);
// Whether the array that the row is of has this run under this number as an element, as far as its list can be read.
bool array_has(struct array **arrays, const struct row *row, const char *tag, int64_t submission, double now);
// Fills what the rows of elements lack: tag, submission and run directory. False where the list of one of them could not be read just
// now: then the rows are not all of ours.
bool arrays_complete(struct array **arrays, struct rows *rows, double now);
// Drops those that were not used for so many seconds, with the directories of those that this process made.
void arrays_forget(struct array **arrays, double now, double seconds);
// Removes what a daemon before us left behind in the folder of this array's runs: whose runs are all over, and that nobody lists.
void arrays_sweep(const struct array *arrays, const struct array *beside);
void arrays_free(struct array **arrays);
