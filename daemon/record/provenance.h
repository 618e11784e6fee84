// What a run was made of, collected at submission, written to <run>/provenance/ and stored with the run.
#pragma once
#include "schema/spec/spec.h"

// {"code": {path, commit, branch, dirty, staged, unstaged, untracked[…], remote (userinfo stripped)}, "image": {path, size, sha256},
//  "data": {"manifest", files: [{path, size, sha256}]}, "environment": {…, secrets masked as "***"}, "masked": [names], "machine": {…},
//  "versions": {switchyard, worker, libraries…}, "argv": […]}. Files: commit, diff.patch, data.json, environment.json, image.json.
// environment: the submitter's variables (spec's plus process's allow-list). Takes seconds for large data: call it outside the daemon's lock.
struct json *provenance_collect(const struct spec *spec, const struct json *environment, const char *directory, struct error *err);
