// A lock that threads get in the order in which they ask for it. With a mutex, a thread that gives
// it back and asks again at once usually has it again before one that waits, which could wait for
// all of a long computation instead of for one piece of it.
#ifndef TERN_BASE_TURNS_H
#define TERN_BASE_TURNS_H

#include <stdint.h>
#include "base/os/os_thread.h"

typedef struct tern_turns {
    tern_mutex lock;
    tern_condition next;
    uint64_t n_asked, n_over; // turns; the one with number n_over has the lock
} tern_turns;

void tern_turns_init(tern_turns *t);
void tern_turns_free(tern_turns *t); // nobody has it
void tern_turns_take(tern_turns *t); // waits; not recursive
void tern_turns_give(tern_turns *t);
uint64_t tern_turns_waiting(tern_turns *t); // how many have it or wait for it

#endif
