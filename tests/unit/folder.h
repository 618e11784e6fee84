// A folder for a whole group of tests: its file defines `folder`, a template that ends in six X, before this.
#pragma once
#include "schema/base/file.h"

#include <stdlib.h>

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return directory_remove(folder, NULL);
}
