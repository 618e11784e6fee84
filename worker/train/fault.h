// SIGBUS: the way the kernel says that a file which is mapped has no bytes there any more. It becomes a sentence that names the file.
#pragma once

void fault_explain(void);
