#include "harness.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static test_case *first_test;
static int n_failed_checks;
static const char *skipped_because;
static char tmp_folder[256];

void test_register(test_case *t) {
    test_case **at = &first_test; // kept sorted, so that the order does not depend on the linker
    while (*at && strcmp((*at)->name, t->name) < 0) at = &(*at)->next;
    t->next = *at;
    *at = t;
}

void test_check(bool ok, const char *file, int line, const char *format, ...) {
    if (ok) return;
    if (n_failed_checks++ > 20) return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "  %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void test_skip(const char *why) { skipped_because = why; }

const char *test_data(const char *relative_path) {
    static char paths[8][1024];
    static int turn;
    const char *root = getenv("TERN_TEST_DATA");
    struct stat st;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root ? root : "", relative_path);
    if (root && *root && stat(path, &st) == 0) return path;
    skipped_because = relative_path;
    return NULL;
}

const char *test_tmp(const char *name) {
    static char paths[8][512];
    static int turn;
    if (!tmp_folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(tmp_folder, sizeof tmp_folder, "%s/tern-test-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(tmp_folder)) {
            perror(tmp_folder);
            exit(1);
        }
    }
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", tmp_folder, name);
    return path;
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
#define JOBS_MAX 64
typedef struct course {
    _Atomic int next;                        // test that nobody has begun
    _Atomic int n_passed, n_failed, n_skipped;
    const test_case *_Atomic now[JOBS_MAX];  // what each is at
} course;

static bool is_wanted(const test_case *t, char **parts, int n_parts) {
    for (int i = 0; i < n_parts; i++)
        if (strstr(t->name, parts[i])) return true;
    return n_parts == 0;
}

static void run_test(const test_case *t, course *c, bool verbose) {
    n_failed_checks = 0;
    skipped_because = NULL;
    double start = now();
    t->run();
    double seconds = now() - start;
    const char *verdict = n_failed_checks ? "FAILED" : skipped_because ? "skipped" : "ok";
    if (n_failed_checks) c->n_failed++;
    else if (skipped_because) c->n_skipped++;
    else c->n_passed++;
    if (verbose || n_failed_checks || seconds > 5)
        printf("%-8s %s (%.2f s)%s%s\n", verdict, t->name, seconds, skipped_because ? " no " : "",
               skipped_because ? skipped_because : "");
    fflush(stdout);
}

// One after the other, those that no other process has begun.
static void run_tests(course *c, int job, bool verbose, char **parts, int n_parts) {
    int i = 0, mine = c->next++;
    for (const test_case *t = first_test; t; t = t->next) {
        if (!is_wanted(t, parts, n_parts) || i++ != mine) continue;
        c->now[job] = t;
        run_test(t, c, verbose);
        c->now[job] = NULL;
        mine = c->next++;
    }
    if (tmp_folder[0]) remove_tree(tmp_folder);
}

// In processes of their own. One that does not come back has failed at the test it was at.
static void run_in_processes(course *c, int n_jobs, bool verbose, char **parts, int n_parts) {
    pid_t children[JOBS_MAX];
    for (int job = 0; job < n_jobs; job++) {
        children[job] = fork();
        if (children[job] != 0) continue;
        run_tests(c, job, verbose, parts, n_parts);
        exit(0);
    }
    for (int job = 0; job < n_jobs; job++) {
        int status = -1;
        if (children[job] > 0) waitpid(children[job], &status, 0);
        if (status == 0) continue;
        const test_case *t = c->now[job];
        const char *name = t ? t->name : "at the end of a process";
        printf("FAILED   %s (its process ended with status %d)\n", name, status);
        c->n_failed++;
    }
}

// usage: tern_tests [-v] [-j PROCESSES] [PART_OF_A_NAME ...]
int main(int argc, char **argv) {
    int n_jobs = 1;
    bool verbose = false;
    for (int o; (o = getopt(argc, argv, "vj:")) != -1;) {
        if (o == 'v') verbose = true;
        if (o == 'j') n_jobs = atoi(optarg);
        if (o == '?' || n_jobs < 1) return 2;
    }
    if (n_jobs > JOBS_MAX) n_jobs = JOBS_MAX;
    course *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED) {
        perror("tern_tests");
        return 2;
    }
    if (n_jobs == 1) run_tests(c, 0, verbose, argv + optind, argc - optind);
    else run_in_processes(c, n_jobs, verbose, argv + optind, argc - optind);
    printf("%d passed, %d failed, %d skipped\n", c->n_passed, c->n_failed, c->n_skipped);
    return c->n_failed != 0 || c->n_passed == 0;
}
