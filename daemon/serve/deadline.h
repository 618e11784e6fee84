// How long a request may take to arrive. A server's own time limit counts from the last byte, so that a client which sends one byte now and
// then would hold a connection for ever, and a hundred of them would keep everybody else out.
#pragma once

struct deadlines;
struct deadline; // of one connection

struct deadlines *deadlines_new(double seconds); // starts a thread
void deadlines_free(struct deadlines *deadlines);

struct deadline *deadline_open(struct deadlines *deadlines, int socket); // runs from here on
void deadline_restart(struct deadlines *deadlines, struct deadline *deadline);
void deadline_pause(struct deadlines *deadlines, struct deadline *deadline); // the request is here: its answer may take its time
void deadline_close(struct deadlines *deadlines, struct deadline *deadline); // before the socket is closed
