#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static test_case *first_test;
static void (*after_each)(void);
static _Atomic int n_failed_checks;
static _Atomic long n_checks;
static char skipped_because[200]; // a copy: the caller's text may be gone when it is printed
static char tmp_folder[256], memory_folder[64];

void test_register(test_case *t) {
    test_case **at = &first_test; // kept sorted, so that the order does not depend on the linker
    while (*at && strcmp((*at)->name, t->name) < 0) at = &(*at)->next;
    t->next = *at;
    *at = t;
}

void test_after_each(void (*fn)(void)) { after_each = fn; }

void test_check(bool ok, const char *file, int line, const char *format, ...) {
    n_checks++;
    if (ok) return;
    if (n_failed_checks++ > 20) return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "  %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void test_skip(const char *why) { snprintf(skipped_because, sizeof skipped_because, "%s", why); }

const char *test_skip_reason(void) { return skipped_because; }

static void make_folder(char *folder, size_t size, const char *base) {
    snprintf(folder, size, "%s/tern-test-XXXXXX", base);
    if (mkdtemp(folder)) return;
    perror(folder);
    exit(1);
}

static const char *join(const char *folder, const char *name) {
    static char paths[8][512];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *test_tmp(const char *name) {
    const char *base = getenv("TMPDIR");
    if (!tmp_folder[0]) make_folder(tmp_folder, sizeof tmp_folder, base ? base : "/tmp");
    return join(tmp_folder, name);
}

const char *test_memory_tmp(const char *name) {
    static const char shared[] = "/dev/shm";
    struct statvfs st;
    if (getenv("TMPDIR") || access(shared, W_OK) != 0 || statvfs(shared, &st) != 0 ||
        (unsigned long long)st.f_bavail * st.f_frsize < 32u << 20)
        return test_tmp(name);
    if (!memory_folder[0]) make_folder(memory_folder, sizeof memory_folder, shared);
    return join(memory_folder, name);
}

static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char inner[1024];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        remove_tree(inner);
    }
    if (dir) closedir(dir);
    remove(path);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// What the processes that run the tests share.
#define JOBS_MAX    64
#define REASONS_MAX 64
typedef struct reason {
    char text[200];
    int n; // tests skipped for it
} reason;
typedef struct run_state {
    pthread_mutex_t lock; // of the reasons
    reason reasons[REASONS_MAX];
    int n_reasons;
    _Atomic int next; // first test not begun yet
    _Atomic int n_passed, n_failed, n_skipped;
    const test_case *_Atomic now[JOBS_MAX]; // what each is running
} run_state;

// Parts of names; one after ! is of those that are not run.
static bool is_wanted(const test_case *t, char **parts, int n_parts) {
    bool wanted = false;
    int n_in = 0;
    for (int i = 0; i < n_parts; i++) {
        bool is_out = parts[i][0] == '!', found = strstr(t->name, parts[i] + is_out) != NULL;
        if (is_out && found) return false;
        if (is_out) continue;
        n_in++;
        wanted |= found;
    }
    return wanted || n_in == 0;
}

// When the room for reasons is used up, further ones are counted with the last.
static void count_reason(run_state *c, const char *why) {
    int i = 0;
    pthread_mutex_lock(&c->lock);
    while (i < c->n_reasons && strcmp(c->reasons[i].text, why) != 0) i++;
    if (i == REASONS_MAX) i--;
    if (i == c->n_reasons)
        snprintf(c->reasons[c->n_reasons++].text, sizeof c->reasons[0].text, "%s", why);
    c->reasons[i].n++;
    pthread_mutex_unlock(&c->lock);
}

static void run_test(const test_case *t, run_state *c, bool verbose) {
    n_failed_checks = 0;
    n_checks = 0;
    skipped_because[0] = 0;
    double start = now();
    t->run();
    bool checked = n_checks > 0;
    if (after_each) after_each();
    if (!checked && !skipped_because[0]) // a loop over nothing, a return too early
        test_check(false, t->name, 0, "nothing was checked");
    double seconds = now() - start;
    const char *verdict = n_failed_checks ? "FAILED" : skipped_because[0] ? "skipped" : "ok";
    if (n_failed_checks)
        c->n_failed++;
    else if (skipped_because[0]) {
        c->n_skipped++;
        count_reason(c, skipped_because);
    } else
        c->n_passed++;
    if (verbose || n_failed_checks || seconds > 5)
        printf("%-8s %s (%.2f s)%s%s\n", verdict, t->name, seconds, skipped_because[0] ? ": " : "",
               skipped_because);
    fflush(stdout);
}

// One after the other, those that no other process has begun.
static void run_tests(run_state *c, int job, bool verbose, char **parts, int n_parts) {
    int i = 0, mine = c->next++;
    for (const test_case *t = first_test; t; t = t->next) {
        if (!is_wanted(t, parts, n_parts) || i++ != mine) continue;
        c->now[job] = t;
        run_test(t, c, verbose);
        c->now[job] = NULL;
        mine = c->next++;
    }
    if (tmp_folder[0]) remove_tree(tmp_folder);
    if (memory_folder[0]) remove_tree(memory_folder);
}

static pid_t start_process(run_state *c, int job, bool verbose, char **parts, int n_parts) {
    fflush(stdout);
    pid_t child = fork();
    if (child != 0) return child;
    run_tests(c, job, verbose, parts, n_parts);
    exit(0);
}

static bool end_process(pid_t child, int *status) {
    if (child > 0) waitpid(child, status, 0);
    return *status == 0;
}

// In separate processes. One that does not return has failed at its current test, and another goes
// on in its place: else tests would be missing, unseen, once all had ended so.
static void run_in_processes(run_state *c, int n_jobs, bool verbose, char **parts, int n_parts) {
    pid_t children[JOBS_MAX];
    for (int job = 0; job < n_jobs; job++)
        children[job] = start_process(c, job, verbose, parts, n_parts);
    for (int job = 0; job < n_jobs; job++) {
        for (int status = -1; !end_process(children[job], &status); status = -1) {
            const test_case *t = c->now[job];
            const char *name = t ? t->name : "at the end of a process";
            printf("FAILED   %s (its process ended with status %d)\n", name, status);
            c->n_failed++;
            if (children[job] < 0) break;
            c->now[job] = NULL;
            children[job] = start_process(c, job, verbose, parts, n_parts);
        }
    }
}

// A crash without other processes would not say in which test it was. Sanitizers, which say more,
// and debuggers keep what they have set.
static const run_state *alone;
static void say_test(int sig) {
    const test_case *t = alone->now[0];
    const char *name = t ? t->name : "at the end";
    ssize_t n = write(STDERR_FILENO, "FAILED   ", 9);
    n += write(STDERR_FILENO, name, strlen(name));
    n += write(STDERR_FILENO, " (a signal ended it)\n", 21);
    if (n > 0) raise(sig); // as if nobody had caught it
}

static void catch_crashes(const run_state *c) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    alone = c;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now, to = {.sa_handler = say_test, .sa_flags = (int)SA_RESETHAND};
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(signals[i], &to, NULL);
    }
}

static const char usage[] =
    "usage: tern_tests [-v] [-l] [-j PROCESSES] [PART_OF_A_NAME ...] [!PART_OF_ANOTHER ...]\n"
    "Runs the tests whose names contain a part, or all. -v tells of each test, not only of slow "
    "and\n"
    "failed ones; -l lists them instead. A test that crashes ends its process: with -j 2 or more\n"
    "the others go on.\n";

static int list_tests(char **parts, int n_parts) {
    for (const test_case *t = first_test; t; t = t->next)
        if (is_wanted(t, parts, n_parts)) puts(t->name);
    return 0;
}

int main(int argc, char **argv) {
    int n_jobs = 1;
    bool verbose = false, lists = false;
    for (int o; (o = getopt(argc, argv, "vlj:")) != -1;) {
        if (o == 'v') verbose = true;
        if (o == 'l') lists = true;
        if (o == 'j') n_jobs = atoi(optarg);
        if (o == '?' || n_jobs < 1) {
            fputs(usage, stderr);
            return 2;
        }
    }
    if (lists) return list_tests(argv + optind, argc - optind);
    if (n_jobs > JOBS_MAX) n_jobs = JOBS_MAX;
    run_state *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED) {
        perror("tern_tests");
        return 2;
    }
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&c->lock, &shared);
    if (n_jobs == 1) catch_crashes(c);
    if (n_jobs == 1)
        run_tests(c, 0, verbose, argv + optind, argc - optind);
    else
        run_in_processes(c, n_jobs, verbose, argv + optind, argc - optind);
    printf("%d passed, %d failed, %d skipped\n", c->n_passed, c->n_failed, c->n_skipped);
    for (int i = 0; i < c->n_reasons; i++)
        printf("  %d skipped: %s\n", c->reasons[i].n, c->reasons[i].text);
    return c->n_failed != 0 || c->n_passed == 0;
}
