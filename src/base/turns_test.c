// A lock in turns: whoever gives it back and asks again at once does not pass one that waits, and
// nobody has it with another.
#include <stdatomic.h>
#include "base/turns.h"
#include "tests/support/harness.h"

typedef struct contest {
    tern_turns turns;
    atomic_int n_turns; // of the first thread, odd while it has the lock
    atomic_int seen;    // of them by the second, when it has the lock
} contest;

static void second(void *arg) {
    contest *c = arg;
    tern_turns_take(&c->turns);
    atomic_store(&c->seen, atomic_load(&c->n_turns));
    tern_turns_give(&c->turns);
}

// Seen to fail: with a mutex for the lock, and with take that does not wait.
TEST(turns_are_in_the_order_of_asking) {
    for (int round = 0; round < 20; round++) {
        contest c = {0};
        tern_thread t;
        atomic_init(&c.n_turns, 1);
        atomic_init(&c.seen, -1);
        tern_turns_init(&c.turns);
        tern_turns_take(&c.turns);
        CHECK(tern_thread_start(&t, second, &c));
        while (tern_turns_waiting(&c.turns) < 2 && atomic_load(&c.seen) < 0) {
        }
        atomic_store(&c.n_turns, 2);
        tern_turns_give(&c.turns);
        tern_turns_take(&c.turns); // at once again: it is the other's turn
        atomic_store(&c.n_turns, 3);
        tern_turns_give(&c.turns);
        tern_thread_join(&t);
        CHECK(atomic_load(&c.seen) == 2);
        tern_turns_free(&c.turns);
    }
}
