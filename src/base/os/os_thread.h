// Threads, locks and waiting. On a system without threads, such as WebAssembly without shared
// memory, tern_thread_start fails, and locks exclude nobody.
#ifndef TERN_BASE_OS_THREAD_H
#define TERN_BASE_OS_THREAD_H

#include <stdbool.h>

// Each has room for the system's object (checked in os_*.c). Not to be copied or moved.
typedef struct tern_mutex {
    union {
        void *align;
        int words[16];
    } room;
} tern_mutex;
typedef tern_mutex tern_condition;
typedef struct tern_thread {
    void *handle;
    void (*fn)(void *arg);
    void *arg;
} tern_thread;

// Not recursive: a thread that has it must not lock it again.
void tern_mutex_init(tern_mutex *m);
void tern_mutex_free(tern_mutex *m); // unlocked
void tern_mutex_lock(tern_mutex *m);
bool tern_mutex_try_lock(tern_mutex *m); // false: another thread has it
void tern_mutex_unlock(tern_mutex *m);

void tern_condition_init(tern_condition *c);
void tern_condition_free(tern_condition *c); // nobody waits
// Unlocks m while it waits. May return without a wake: check the condition again.
void tern_condition_wait(tern_condition *c, tern_mutex *m);
void tern_condition_wake_all(tern_condition *c);

// False: the system cannot start another thread. Each that was started must be joined once, and *t
// must stay where it is until then.
bool tern_thread_start(tern_thread *t, void (*fn)(void *arg), void *arg);
void tern_thread_join(tern_thread *t);

int tern_n_processors(void); // that this process may use; at least 1

#endif
