// What a job's processes find around them.
#pragma once

// This process's own environment, cleaned, with on_top and then `last` over it (each NULL-terminated NAME=VALUE, or NULL); later entries
// win. NULL-terminated; the list is free()d by the caller, its entries are lent.
const char **job_environment(const char *const *on_top, const char *const *last);
