// Requests that do not arrive: who drips is shut, who pauses or starts anew in time is not.
#include "daemon/serve/deadline.h"
#include "schema/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { LATE, ANSWERED, AGAIN, KINDS };

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

// The other end of a socket that was shut down reads its end at once.
static bool is_shut(int socket)
{
    char byte;
    return recv(socket, &byte, 1, MSG_DONTWAIT) == 0;
}

static void late_ones_are_shut(void **state)
{
    (void)state;
    int pairs[KINDS][2];
    struct deadline *own[KINDS];
    struct deadlines *deadlines = deadlines_new(0.4);
    assert_non_null(deadlines);
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        own[i] = deadline_open(deadlines, pairs[i][0]);
    }
    deadline_pause(deadlines, own[ANSWERED]);
    for (double until = clock_steady() + 1.2; clock_steady() < until;) {
        sleep_ms(50);
        assert_true(is_shut(pairs[LATE][1]) || send(pairs[LATE][1], "x", 1, MSG_NOSIGNAL) == 1);
        deadline_restart(deadlines, own[AGAIN]);
    }
    assert_true(is_shut(pairs[LATE][1]));
    assert_false(is_shut(pairs[ANSWERED][1]));
    assert_false(is_shut(pairs[AGAIN][1]));
    for (int i = 0; i < KINDS; i++) {
        deadline_close(deadlines, own[i]);
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    deadlines_free(deadlines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(late_ones_are_shut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
