// Where the daemon's state lives, and where the worker is.
#pragma once
#include "schema/base/error.h"

char *home_directory(void);                 // $SWITCHYARD_HOME, absolute; its default otherwise; free()
char *program_path(void);                   // this program's own file; free()
char *worker_path(struct error *err);       // switchyard-worker beside this program, else on PATH; NULL if there is none; free()
