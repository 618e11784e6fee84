// What a run was made of, collected at submission, written to <run>/provenance/ and stored with the run.
#pragma once
#include "schema/spec/spec.h"

// {"code": {path, commit, branch, dirty, staged, unstaged, untracked[…], untracked_count, diff_sha256, diff_truncated, remote (userinfo stripped)},
//    or null with "code_reason" saying why; dirty: a tracked file differs from the commit; staged, unstaged: numbers of files;
//  "image": {path, size, sha256} or null, "data": {"manifest", files: [{path, size, sha256}]},
//  "environment": {…, secrets masked as "***"}, "masked": [names], "machine": {hostname, kernel, system, cpu, cores, memory_bytes},
//  "versions": {switchyard, worker: {what it says of itself} or null, libraries…}, "argv": […], "collected": time}.
// Files, for their owner only: commit, diff.patch (git apply takes it), data.json, environment.json, image.json, machine.json.
struct provenance_request {
    const struct spec *spec;
    const struct json *environment; // {name: value} of the submitter; the spec's variables are added to it. NULL: none
    const struct json *argv;        // what will be executed; NULL: not known yet
    const struct json *libraries;   // {name: version} of the daemon's libraries; NULL: none
    const char *directory;          // the run's; files go to its provenance/. NULL: nothing is written
    const char *worker;             // switchyard-worker, asked with --version --json; NULL: not asked
    const char *digests;            // file where digests of large files are remembered by size, times and inode. NULL: nothing is remembered
};

// Fails where the spec names what is not there: a commit that is not checked out, an image or data that cannot be read. Takes seconds for
// large data: call it outside the daemon's lock.
struct json *provenance_collect_for(const struct provenance_request *request, struct error *err);
// The same with nothing but these.
struct json *provenance_collect(const struct spec *spec, const struct json *environment, const char *directory, struct error *err);

// A copy of {name: value} in which secrets are "***" and no URL has a user or password; masked (an array, may be NULL) gets the names. For
// every place where variables are shown: a value is a secret by its variable's name or by its look.
struct json *provenance_mask(const struct json *variables, struct json *masked);
// A record that another run of the same submission has collected, for this one: a copy, and the same files in its directory.
struct json *provenance_share(const struct json *record, const char *from_directory, const char *to_directory, struct error *err);
