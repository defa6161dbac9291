// What every system must provide. Uses nothing specific to one system: `make windows` and
// `make check-wasm` run it, too.
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_library.h"
#include "base/os/os_memory.h"
#include "base/os/os_thread.h"
#include "base/os/os_time.h"
#include "base/file/out_set.h"
#include "base/os/team.h"
#include "tests/support/harness.h"

// ---- Threads -----------------------------------------------------------------------------------

enum { N_THREADS = 6, N_ROUNDS = 4000 };

typedef struct shared {
    tern_mutex lock;
    tern_condition turned;
    int n, turn;
    atomic_int n_entered;
    bool ok;
} shared;

static void count_up(void *ctx) {
    shared *s = ctx;
    for (int i = 0; i < N_ROUNDS; i++) {
        tern_mutex_lock(&s->lock);
        if (atomic_fetch_add(&s->n_entered, 1) != 0) s->ok = false;
        s->n++;
        atomic_fetch_sub(&s->n_entered, 1);
        tern_mutex_unlock(&s->lock);
    }
}

static bool start(tern_thread *t, void (*fn)(void *), void *ctx) {
    bool ok = tern_thread_start(t, fn, ctx);
    if (!ok && tern_n_processors() == 1) test_skip("this system has no threads");
    return ok;
}

// Seen to fail with a tern_mutex_lock that does nothing.
TEST(os_a_mutex_lets_one_thread_in) {
    shared s = {.ok = true};
    tern_thread threads[N_THREADS];
    int n = 0;
    tern_mutex_init(&s.lock);
    while (n < N_THREADS && start(&threads[n], count_up, &s)) n++;
    for (int i = 0; i < n; i++) tern_thread_join(&threads[i]);
    tern_mutex_free(&s.lock);
    CHECK(s.n == n * N_ROUNDS && s.ok);
}

static void try_lock(void *ctx) {
    shared *s = ctx;
    s->ok = tern_mutex_try_lock(&s->lock);
    if (s->ok) tern_mutex_unlock(&s->lock);
}

// Seen to hang with one that waits, and to fail with one that returns true.
TEST(os_a_mutex_is_not_waited_for_where_asked) {
    shared s = {0};
    tern_thread other;
    tern_mutex_init(&s.lock);
    for (int i = 0; i < 2; i++) {
        CHECK(tern_mutex_try_lock(&s.lock));
        if (start(&other, try_lock, &s)) {
            tern_thread_join(&other);
            CHECK(!s.ok);
        }
        tern_mutex_unlock(&s.lock);
    }
    if (start(&other, try_lock, &s)) {
        tern_thread_join(&other);
        CHECK(s.ok);
    }
    tern_mutex_free(&s.lock);
}

static void take_turns(shared *s, int mine) {
    for (int i = 0; i < 200; i++) {
        tern_mutex_lock(&s->lock);
        while (s->turn % 2 != mine) tern_condition_wait(&s->turned, &s->lock);
        s->turn++;
        tern_condition_wake_all(&s->turned);
        tern_mutex_unlock(&s->lock);
    }
}

static void odd_turns(void *ctx) { take_turns(ctx, 1); }

// Seen to hang without the call that wakes.
TEST(os_a_condition_wakes_who_waits) {
    shared s = {0};
    tern_thread other;
    tern_mutex_init(&s.lock);
    tern_condition_init(&s.turned);
    if (start(&other, odd_turns, &s)) {
        take_turns(&s, 0);
        tern_thread_join(&other);
        CHECK(s.turn == 400);
    }
    tern_condition_free(&s.turned);
    tern_mutex_free(&s.lock);
}

enum { N_STEPS = 20, N_ITEMS = 1000 };

typedef struct steps {
    int written[N_STEPS][64];  // by thread
    atomic_int taken[N_ITEMS]; // how often each item was claimed
    atomic_size_t counter, guided;
    atomic_int n_bad;
} steps;

static void do_steps(void *ctx, const tern_team *team) {
    steps *s = ctx;
    size_t first, last;
    for (int i = 0; i < N_STEPS; i++) {
        s->written[i][team->thread]++;
        tern_team_barrier(team);
        for (int t = 0; t < team->n_threads; t++)
            if (s->written[i][t] != s->written[i][team->thread]) atomic_fetch_add(&s->n_bad, 1);
    }
    while (tern_team_claim(&s->counter, N_ITEMS, 7, &first, &last))
        for (; first < last; first++) atomic_fetch_add(&s->taken[first], 1);
    while (tern_team_claim_guided(team, &s->guided, (tern_claim){N_ITEMS, 4, 8}, &first, &last))
        for (; first < last; first++) atomic_fetch_add(&s->taken[first], 1);
}

// With more threads than any core, so that they also sleep. Seen to hang with a
// barrier that the last but one passes, and to fail with claimed blocks one item too short.
TEST(os_a_team_walks_in_step_and_claims_each_item_once) {
    static const int sizes[] = {1, 2, 3, 16};
    tern_error err = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tern_team *team;
        steps s = {0};
        tern_status status = tern_team_open(&team, sizes[i], &err);
        if (status != TERN_OK && tern_n_processors() < sizes[i]) {
            CHECK_MSG(status == TERN_ERR_MEMORY, "%s", err.message);
            continue;
        }
        REQUIRE_OK(status, err);
        CHECK(team->thread == 0 && team->n_threads == sizes[i]);
        for (int run = 0; run < 50; run++) {
            atomic_store(&s.counter, 0);
            atomic_store(&s.guided, 0);
            tern_team_run(team, do_steps, &s);
        }
        tern_team_close(team);
        CHECK_MSG(atomic_load(&s.n_bad) == 0, "%d threads", sizes[i]);
        int n_wrong = 0;
        for (int k = 0; k < N_ITEMS; k++) n_wrong += atomic_load(&s.taken[k]) != 100;
        CHECK_MSG(n_wrong == 0 && s.written[N_STEPS - 1][0] == 50, "%d threads", sizes[i]);
    }
    tern_team *team;
    CHECK(tern_team_open(&team, -1, &err) == TERN_ERR_ARGUMENT && !team);
    tern_team_close(NULL);
}

// ---- Time --------------------------------------------------------------------------------------

// Seen to fail with a sleep that returns at once.
TEST(os_time_passes_and_seeds_differ) {
    struct tm now = {0};
    double begin = tern_seconds();
    tern_sleep(0.03);
    double slept = tern_seconds() - begin;
    CHECK_MSG(slept > 0.025, "slept %g s", slept);
    CHECK(tern_local_time(&now) && now.tm_year >= 69); // a clock that was never set says 1970
    uint64_t seeds[64];
    for (int i = 0; i < 64; i++) {
        seeds[i] = tern_random_seed();
        for (int k = 0; k < i; k++) CHECK(seeds[k] != seeds[i]);
    }
}

// ---- Memory ------------------------------------------------------------------------------------

TEST(os_memory_is_aligned_and_zeroed) {
    enum { N = 2 * (int)TERN_PAGES_BYTES };
    for (int huge = 0; huge < 2; huge++) {
        unsigned char *p = tern_pages_take(N, huge);
        if (!p) continue; // the heap is used instead
        size_t sum = 0;
        for (size_t i = 0; i < N; i += 64) sum += p[i];
        CHECK((uintptr_t)p % TERN_PAGES_BYTES == 0 && sum == 0);
        memset(p, 1, N);
        tern_pages_give(p, N);
    }
    for (size_t n = 64; n < 1 << 20; n *= 4) {
        void *p = tern_heap_take(n);
        REQUIRE(p);
        memset(p, 1, n);
        CHECK((uintptr_t)p % 64 == 0);
        tern_heap_give(p);
    }
}

// Seen to fail with a mapping without the file (MAP_ANONYMOUS).
TEST(os_a_mapped_file_keeps_its_bytes) {
    enum { N = 300000 };
    tern_error err = {0};
    uint64_t n;
    int fd;
    unsigned char *bytes = tern_alloc(TERN_MEM_MISC, N);
    for (int i = 0; i < N; i++) bytes[i] = (unsigned char)(i * 7 >> 3);
    REQUIRE_OK(tern_file_write(test_tmp("mapped"), bytes, N, &err), err);
    REQUIRE_OK(tern_file_open_regular(&fd, test_tmp("mapped"), &n, &err), err);
    REQUIRE(n == N);
    char *mapped = tern_map(fd, N);
    CHECK(tern_fd_close(fd));
    if (!mapped) test_skip("a system that maps files");
    if (mapped) {
        CHECK(!memcmp(mapped, bytes, N));
        tern_map_drop(mapped + 5, N - 9);
        CHECK(!memcmp(mapped, bytes, N));
        tern_unmap(mapped, N);
    }
    tern_free(bytes);
}

// Seen to fail with reads that begin at 0, and with an empty stamp.
TEST(os_a_file_is_read_anywhere) {
    tern_error err = {0};
    char text[10] = "";
    uint64_t n;
    int fd;
    REQUIRE_OK(tern_file_write(test_tmp("anywhere"), "0123456789", 10, &err), err);
    REQUIRE_OK(tern_file_open_regular(&fd, test_tmp("anywhere"), &n, &err), err);
    tern_stamp stamp = tern_fd_stamp(fd), named = tern_file_stamp(test_tmp("anywhere"));
    CHECK(tern_stamp_same(&stamp, &named));
    CHECK(tern_fd_read_at(fd, text, 3, 6) == 3 && !memcmp(text, "678", 3));
    CHECK(tern_fd_read_at(fd, text, 3, 1) == 3 && !memcmp(text, "123", 3));
    CHECK(tern_fd_read_at(fd, text, 5, 8) == 2 && !memcmp(text, "89", 2)); // the end
    CHECK(tern_fd_read_at(fd, text, 5, 10) == 0 && tern_fd_read_at(fd, text, 5, 1000) == 0);
    CHECK(tern_fd_close(fd));
    CHECK(tern_fd_read_at(fd, text, 3, 0) == -1);
}

// Below "mödel 你", folders whose names together are longer than Windows' 260 units. What the real
// name of one is can be joined to. Seen to fail on Windows with names of the code page; Wine takes
// long names without "\\\\?\\" in front, too.
TEST(os_names_have_any_length_and_characters) {
    enum { DEPTH = 5, LENGTH = 80 };
    char name[LENGTH + 1] = "m\xc3\xb6"
                            "del \xe4\xbd\xa0",
                       *paths[DEPTH + 1];
    tern_names names = {0};
    tern_error err = {0};
    paths[0] = tern_strdup(TERN_MEM_MISC, test_tmp("long"));
    REQUIRE_OK(tern_folder_make(paths[0], &err), err);
    for (int i = 1; i <= DEPTH; i++) {
        paths[i] = tern_path_join(paths[i - 1], name);
        REQUIRE_OK(tern_folder_make(paths[i], &err), err);
        memset(name, 'd', LENGTH);
    }
    // Wine knows no real names of more than 260 characters.
    char *real = tern_path_real(paths[0]);
    char *deep = tern_path_join(real ? real : ".", paths[DEPTH] + strlen(paths[0]) + 1);
    char *file = tern_path_join(deep, "a"), *renamed = tern_path_join(paths[DEPTH], "\xc3\xbc");
    REQUIRE(real && deep && file && renamed);
    CHECK(strlen(paths[DEPTH]) > 300 && !strchr(real, '?'));
    REQUIRE_OK(tern_file_write(file, "text", 4, &err), err);
    CHECK(tern_path_rename(file, renamed) && tern_path_look(renamed) == TERN_PATH_FILE);
    REQUIRE_OK(tern_folder_list(&names, paths[DEPTH], "", "", &err), err);
    CHECK(names.n == 1 && !strcmp(names.list[0], "\xc3\xbc"));
    CHECK(tern_file_remove(renamed) && tern_path_look(file) == TERN_PATH_NONE);
    for (int i = DEPTH; i > 0; i--) CHECK(tern_folder_remove(paths[i]));
    for (int i = 0; i <= DEPTH; i++) tern_free(paths[i]);
    tern_names_free(&names);
    tern_free(renamed);
    tern_free(file);
    tern_free(deep);
    tern_free(real);
}

// ---- Libraries ---------------------------------------------------------------------------------

// Seen to fail with a symbol that is looked up by another name.
TEST(os_libraries_are_loaded_by_name) {
    tern_error err = {0};
    void *library;
    char *folder;
    CHECK(tern_library_open(&library, "no-such-library", &err) == TERN_ERR_DEVICE && !library);
    CHECK_MSG(strstr(err.message, "no-such-library"), "%s", err.message);
    REQUIRE_OK(tern_program_folder(&folder, &err), err);
#if defined(_WIN32)
    REQUIRE_OK(tern_library_open(&library, "kernel32.dll", &err), err);
    CHECK(tern_library_symbol(library, "Sleep") && !tern_library_symbol(library, "Slept"));
#elif defined(__linux__)
    if (!tern_can_load_libraries()) { // `make test` has a static program of these tests
        CHECK_MSG(tern_library_open(&library, "libm.so.6", &err) == TERN_ERR_DEVICE && !library &&
                      strstr(err.message, "libm.so.6: this program is linked statically"),
                  "%s", err.message);
        tern_free(folder);
        return;
    }
    REQUIRE_OK(tern_library_open(&library, "libm.so.6", &err), err);
    void *cosine = tern_library_symbol(library, "cos");
    char *path = tern_library_of(cosine);
    CHECK(cosine && !tern_library_symbol(library, "cosy"));
    CHECK_MSG(path && strstr(path, "libm"), "%s", path ? path : "NULL");
    CHECK_MSG(tern_folder_is(folder), "%s", folder);
    tern_free(path);
#endif
    tern_free(folder);
}

// ---- Files -------------------------------------------------------------------------------------

// Seen to fail with write() in place of pwrite().
TEST(os_descriptors_write_in_place_and_cut) {
    char text[16] = {0};
    tern_error err = {0};
    uint64_t n;
    tern_file_remove(test_tmp("fd"));
    int fd = tern_file_create(test_tmp("fd"), "");
    REQUIRE(fd >= 0);
    CHECK(tern_file_create(test_tmp("fd"), "") < 0 && errno == EEXIST);
    CHECK(tern_fd_write(fd, "0123456789", 10) && tern_fd_write_at(fd, "ab", 2, 3));
    CHECK(tern_fd_write(fd, "xy", 2) && tern_fd_size(fd) == 12); // still at the end
    CHECK(tern_fd_cut(fd, 11) && tern_fd_sync(fd) && tern_fd_close(fd));
    REQUIRE_OK(tern_file_open_regular(&fd, test_tmp("fd"), &n, &err), err);
    CHECK(n == 11 && tern_fd_read(fd, text, sizeof text) == 11);
    CHECK_MSG(!strcmp(text, "012ab56789x"), "%s", text);
    tern_fd_close(fd);
    CHECK(tern_file_open_regular(&fd, test_tmp("."), &n, &err) == TERN_ERR_IO && fd < 0);
    CHECK(tern_file_open_regular(&fd, test_tmp("none"), &n, &err) == TERN_ERR_IO);
    CHECK(errno == ENOENT);
}

static bool file_is(const char *path, const char *text) {
    char got[64] = {0};
    uint64_t n;
    int fd;
    if (tern_file_open_regular(&fd, path, &n, NULL) != TERN_OK) return false;
    bool same = tern_fd_read(fd, got, sizeof got - 1) >= 0 && !strcmp(got, text);
    tern_fd_close(fd);
    return same;
}

static void put(const char *folder, const char *name, const char *text) {
    char *path = tern_path_join(folder, name);
    tern_error err = {0};
    CHECK_MSG(tern_file_write(path, text, strlen(text), &err) == TERN_OK, "%s", err.message);
    tern_free(path);
}

// Seen to fail without flock; and under WASI with a descriptor, which does not follow a renaming.
TEST(os_an_open_folder_keeps_its_entries_and_its_lock) {
    tern_error err = {0};
    tern_folder f, again;
    tern_names names = {0};
    char *a = tern_strdup(TERN_MEM_MISC, test_tmp("open-a"));
    char *b = tern_strdup(TERN_MEM_MISC, test_tmp("open-b"));
    REQUIRE(tern_folder_create(a, true));
    CHECK(!tern_folder_create(a, true) && errno == EEXIST);
    put(a, "x", "new");
    put(a, "y", "other");
    REQUIRE(tern_folder_open_private(&f, a, test_tmp(".")));
    tern_lock_state state = tern_folder_lock(&f);
    REQUIRE(tern_folder_open(&again, a, false));
    CHECK(tern_folder_lock(&again) == (state == TERN_LOCK_HELD ? TERN_LOCK_TAKEN : state));
    tern_folder_close(&again);
    CHECK(tern_folder_rename(&f, a, b) && !tern_folder_is(a) && tern_folder_has_name(&f));
    REQUIRE(tern_folder_open(&again, b, false));
    CHECK(tern_folder_lock(&again) == (state == TERN_LOCK_HELD ? TERN_LOCK_TAKEN : state));
    REQUIRE_OK(tern_folder_names(&f, &names, &err), err);
    CHECK(names.n == 2 && !tern_folder_has_folder(&f, "x"));
    put(test_tmp("."), "moved", "old");
    CHECK(tern_folder_move_entry(&f, "x", test_tmp("moved")) && file_is(test_tmp("moved"), "new"));
    CHECK(!tern_folder_remove(b) && tern_folder_remove_entry(&f, "y"));
    tern_folder_close(&f);
    if (state == TERN_LOCK_HELD) CHECK(tern_folder_lock(&again) == TERN_LOCK_HELD);
    tern_folder_close(&again);
    CHECK(tern_folder_remove(b) && !tern_folder_open(&f, b, true) && errno == ENOENT);
    tern_names_free(&names);
    tern_free(a);
    tern_free(b);
}

// Files of a set change together, and a link is not its target.
TEST(os_sets_of_files_replace_older_ones) {
    static const char *const texts[] = {"first", "second"};
    tern_error err = {0};
    const char *folder = test_tmp("set");
    for (int i = 0; i < 2; i++) {
        tern_out_set set;
        REQUIRE_OK(tern_out_open(&set, folder, true, &err), err);
        REQUIRE_OK(tern_out_put(&set, "a", texts[i], strlen(texts[i]), &err), err);
        REQUIRE_OK(tern_out_put(&set, "b", texts[i], strlen(texts[i]), &err), err);
        REQUIRE_OK(tern_out_commit(&set, "a", &err), err);
        tern_out_close(&set);
        CHECK(file_is(test_tmp("set/a"), texts[i]) && file_is(test_tmp("set/b"), texts[i]));
        CHECK(tern_out_check(folder, "a", &err) == TERN_OK);
    }
    tern_names names = {0};
    REQUIRE_OK(tern_folder_list(&names, folder, "", "", &err), err);
    CHECK_MSG(names.n == 2, "%zu names are left", names.n);
    tern_names_free(&names);
    CHECK(tern_path_same(test_tmp("set/a"), test_tmp("set/./a")));
    CHECK(!tern_path_same(test_tmp("set/a"), test_tmp("set/b")));
    CHECK(tern_path_look(test_tmp("set/a")) == TERN_PATH_FILE);
    CHECK(tern_path_look(test_tmp("set/c")) == TERN_PATH_NONE && errno == ENOENT);
}
