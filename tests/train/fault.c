// A mapped file that is cut short under a process: it ends by the signal, and says so in one piece, however many speak at the same time.
#include "worker/train/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { FILE_BYTES = 4096, WORDS_BYTES = 4096 };

static void read_what_is_gone(int file, int words)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    dup2(words, STDERR_FILENO);
    const volatile char *bytes = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
    fault_explain();
    if (bytes == MAP_FAILED || ftruncate(file, 0) != 0)
        _exit(1);
    _exit(bytes[FILE_BYTES / 2]);
}

static void names_the_file_in_one_piece(void **state)
{
    (void)state;
    char path[] = "/tmp/switchyard-fault-XXXXXX", words[WORDS_BYTES] = "", expected[WORDS_BYTES];
    int ends[2], file = mkstemp(path), status;
    assert_true(file >= 0 && ftruncate(file, FILE_BYTES) == 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0); // keeps apart what is written apart
    pid_t child = fork();
    if (child == 0)
        read_what_is_gone(file, ends[1]);
    close(ends[1]);
    assert_true(read(ends[0], words, sizeof words - 1) > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    snprintf(expected, sizeof expected, "switchyard-worker: %s: gone while in use: the file was cut short, or its disk is full or failing\n", path);
    assert_string_equal(words, expected);
    char more;
    assert_int_equal(read(ends[0], &more, 1), 0);
    close(ends[0]), close(file), unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_the_file_in_one_piece)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
