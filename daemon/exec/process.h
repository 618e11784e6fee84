// The process table as a witness: who is alive, since when, and which processes carry a run's tag. Linux's /proc only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// Start time in clock ticks since boot (field 22 of /proc/PID/stat): with the pid, an identity that is not reused. 0 if there is no such
// process, or if it is a zombie, which runs nothing any more. parent may be NULL.
double process_started(pid_t pid, pid_t *parent);

// Seconds since such a start time, by the clock that it was read from: setting the time of day does not change it.
double process_age(double started);

// Whether the process's environment says SWITCHYARD_TAG=<tag>. tag NULL: reads the tag into found (33 bytes) instead, true if there is one.
bool process_has_tag(pid_t pid, const char *tag, char *found);

// Its environment reads as empty: it is between two programs (exec), or a thread of the kernel.
bool process_in_exec(pid_t pid);

// Whether the process has a handler for this signal (SigCgt in /proc/PID/status): without one, most signals would end it.
bool process_catches(pid_t pid, int signal_number);

// Calls visit for every process of ours that carries a tag, this process itself left out. Zombies carry none.
void process_each_tagged(void (*visit)(void *context, pid_t pid, const char *tag), void *context);

// All of them at one moment, so that many runs can be looked up at the cost of one look at the machine.
struct process_entry {
    char tag[33];
    pid_t pid;
};
struct process_table {
    struct process_entry *at; // by tag, then pid
    size_t count, room;
    double taken; // steady seconds; 0: never
};
enum { PROCESS_TABLE_MAX = 1 << 18 };
void process_table_take(struct process_table *table);
// One that was started since: it is there although the table was taken before.
void process_table_add(struct process_table *table, pid_t pid, const char *tag);
// The first entry of a tag; *count of them follow each other. They may have ended since.
const struct process_entry *process_table_find(const struct process_table *table, const char *tag, size_t *count);
void process_table_release(struct process_table *table);

// Sends a signal to the process if, and only if, it still carries the tag: looked at again after the process is held by a descriptor, so
// that a number which went to another process in between is left alone.
bool process_signal_tagged(pid_t pid, const char *tag, int signal_number);
