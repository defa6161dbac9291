// A lock in turns. With a mutex instead of turns, the thread that waits is passed.
#include <stdatomic.h>
#include "base/turns.h"
#include "tests/harness.h"

typedef struct contest {
    tern_turns turns;
    atomic_int n_passed; // turns that the first thread had while the second waited
    int seen;            // by the second
} contest;

static void second(void *arg) {
    contest *c = arg;
    tern_turns_take(&c->turns);
    c->seen = atomic_load(&c->n_passed);
    tern_turns_give(&c->turns);
}

TEST(turns_are_in_the_order_of_asking) {
    for (int round = 0; round < 20; round++) {
        contest c = {.seen = -1};
        tern_thread t;
        tern_turns_init(&c.turns);
        tern_turns_take(&c.turns);
        CHECK(tern_thread_start(&t, second, &c));
        while (tern_turns_waiting(&c.turns) < 2) {
        }
        tern_turns_give(&c.turns);
        tern_turns_take(&c.turns); // at once again: it is the other's turn
        atomic_fetch_add(&c.n_passed, 1);
        tern_turns_give(&c.turns);
        tern_thread_join(&t);
        CHECK(c.seen == 0);
        tern_turns_free(&c.turns);
    }
}
