// Mutates files of every kind and gives them to everything that reads them: crashes, hangs and
// leaks are findings. Built with the address and undefined-behaviour sanitizers by `make mutate`.
//
//     mutate [-n 20000] [-s SEED] [-j JOBS] [-k KIND] [-i INDEX]
//
// The files are made here, by the library itself, so no data is needed; mutation INDEX of a SEED is
// always the same one, and -i runs it alone. Each job is a separate process with a folder under
// $TMPDIR; it forks one that works through a batch, so that a crash costs one mutation. (Seen to
// find: without the check that a config has heads, 4 of 2,000 mutations divided by zero.)
#include "tools/mutate/mutate.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tern.h"

enum { BATCH = 64, SECONDS_MAX = 60, FILES_MAX = 24, FINDINGS_MAX = 100, PIECE = 512 };

typedef struct file {
    char name[256];
    uint8_t *bytes;
    size_t n;
} file;
typedef struct folder {
    file files[FILES_MAX];
    size_t n;
} folder;
typedef struct shared { // between all processes
    size_t n_done, n_findings;
    size_t at[256]; // by job: its current mutation
} shared;

static folder *originals; // by kind
static shared *all;
static unsigned long seed = 1, n_mutations = 20000, only_index = ~0ul;
static const char *only_kind;
static int n_jobs = 2;

static void die(const char *what) {
    fprintf(stderr, "mutate: %s: %s\n", what, strerror(errno));
    exit(2);
}

// Makes a sanitizer's report look like every other failure.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "exitcode=99:allocator_may_return_null=1"; }

// ---- Random numbers ----------------------------------------------------------------------------

static uint64_t state;
static uint64_t next(void) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static size_t below(size_t n) { return n ? (size_t)(next() % n) : 0; }

// ---- Folders -----------------------------------------------------------------------------------

static void read_folder(const char *path, folder *out) {
    DIR *d = opendir(path);
    if (!d) die(path);
    for (struct dirent *e; (e = readdir(d));) {
        char name[512];
        struct stat st;
        if (e->d_name[0] == '.' || out->n == FILES_MAX) continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (stat(name, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        file *f = &out->files[out->n++];
        FILE *in = fopen(name, "rb");
        snprintf(f->name, sizeof f->name, "%s", e->d_name);
        f->n = (size_t)st.st_size;
        f->bytes = malloc(f->n + 1);
        if (!in || !f->bytes || fread(f->bytes, 1, f->n, in) != f->n) die(name);
        fclose(in);
    }
    closedir(d);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const file *)a)->name, ((const file *)b)->name);
}

static void remove_folder(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[512];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (unlink(name) != 0) remove_folder(name);
    }
    if (d) closedir(d);
    rmdir(path);
}

static void write_file(const char *path, const char *name, const uint8_t *bytes, size_t n) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", path, name);
    FILE *out = fopen(full, "wb");
    if (!out || fwrite(bytes, 1, n, out) != n || fclose(out) != 0) die(full);
}

// ---- Mutations ---------------------------------------------------------------------------------

static void mutate_number(uint8_t *b, size_t n) {
    static const uint64_t odd[] = {0,        1,      0x7F,       0x80,       0xFF,
                                   0x7FFF,   0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                   1u << 20, ~0ull,  1ull << 63, 1ull << 40, 0x7FC000007FC00000};
    size_t bytes = (size_t)1 << below(4), at = below(n);
    uint64_t v = next() % 4 ? odd[below(sizeof odd / sizeof *odd)] : next() % 64;
    if (bytes > n - at) bytes = n - at;
    memcpy(b + at, &v, bytes);
}

// A digit, a bracket, a quote ... becomes another one: the building blocks of text.
static void mutate_text(uint8_t *b, size_t n) {
    static const char marks[] = "0123456789-+.eE[]{},:\"\\ \n<>/_%$\0";
    size_t at = below(n);
    for (size_t k = 0; k < 200 && !strchr(marks, b[at]); k++) at = (at + 1) % n;
    b[at] = (uint8_t)marks[below(sizeof marks)];
}

// Headers are where the structure is: half of the places lie in the first kilobyte.
static void mutate_once(uint8_t *b, size_t *n, size_t room) {
    size_t front = *n < 1024 || next() % 2 ? *n : 1024;
    size_t at = below(front), length = 1 + below(next() % 4 ? 16 : PIECE), from = below(*n);
    uint8_t piece[PIECE];
    if (*n == 0) return;
    switch (next() % 8) {
    case 0: b[at] ^= (uint8_t)(1u << below(8)); break;
    case 1: mutate_number(b, front); break;
    case 2: mutate_text(b, front); break;
    case 3: *n = below(*n); break; // cut off
    case 4:                        // taken out
        if (length > *n - at) length = *n - at;
        memmove(b + at, b + at + length, *n - at - length);
        *n -= length;
        break;
    case 5: // put in twice
        if (length > *n - from) length = *n - from;
        if (length > room - *n) length = room - *n;
        memcpy(piece, b + from, length);
        memmove(b + at + length, b + at, *n - at);
        memcpy(b + at, piece, length);
        *n += length;
        break;
    case 6: // copied over another place
        if (length > *n - from) length = *n - from;
        if (length > *n - at) length = *n - at;
        memmove(b + at, b + from, length);
        break;
    default:
        for (size_t i = 0; i < length && at + i < *n; i++) b[at + i] = (uint8_t)next();
    }
}

// Mutation `index`: the folder of a kind with one of its files changed.
static const mutate_kind *write_mutation(unsigned long index, const char *path) {
    state = seed * 0x9E3779B97F4A7C15u + index;
    size_t k = 0;
    for (bool ok = false; !ok; ok = !only_kind || !strcmp(mutate_kinds[k].name, only_kind))
        k = below(mutate_n_kinds);
    const mutate_kind *kind = &mutate_kinds[k];
    const folder *o = &originals[k];
    size_t which = below(o->n);
    while (kind->only && !strstr(o->files[which].name, kind->only)) which = (which + 1) % o->n;
    remove_folder(path);
    if (mkdir(path, 0777) != 0) die(path);
    for (size_t i = 0; i < o->n; i++) {
        const file *f = &o->files[i];
        if (i != which) write_file(path, f->name, f->bytes, f->n);
    }
    const file *f = &o->files[which];
    size_t n = f->n, room = f->n + 4096;
    uint8_t *b = malloc(room);
    if (!b) die("memory");
    memcpy(b, f->bytes, n);
    for (size_t i = 1 + below(4); i > 0; i--) mutate_once(b, &n, room);
    write_file(path, f->name, b, n);
    free(b);
    return kind;
}

// ---- Running -----------------------------------------------------------------------------------

static void run_one(unsigned long index, const char *path) {
    const mutate_kind *kind = write_mutation(index, path);
    size_t before = tern_heap_get().heap_now;
    alarm(SECONDS_MAX);
    kind->use(path);
    alarm(0);
    size_t after = tern_heap_get().heap_now;
    if (after == before) return;
    fprintf(stderr, "mutation %lu (%s): %zd bytes are not given back\n", index, kind->name,
            (ssize_t)(after - before));
    __atomic_add_fetch(&all->n_findings, 1, __ATOMIC_RELAXED);
}

// In a separate process; ends with 0 if nothing was found. Leaks are found at its end.
static void run_batch(int job, unsigned long first, unsigned long last, const char *path) {
    for (unsigned long i = first; i < last; i += (unsigned long)n_jobs) {
        all->at[job] = i;
        run_one(i, path);
        __atomic_add_fetch(&all->n_done, 1, __ATOMIC_RELAXED);
    }
    exit(0);
}

static void run_job(int job, const char *root) {
    char path[256];
    snprintf(path, sizeof path, "%s/work-%d", root, job);
    unsigned long step = (unsigned long)n_jobs * BATCH, i = (unsigned long)job;
    while (i < n_mutations && all->n_findings < FINDINGS_MAX) {
        unsigned long last = i + step < n_mutations ? i + step : n_mutations;
        pid_t child = fork();
        if (child == 0) run_batch(job, i, last, path);
        int status;
        waitpid(child, &status, 0);
        if (status == 0) {
            i += step;
            continue;
        }
        unsigned long at = all->at[job];
        const mutate_kind *kind = write_mutation(at, path);
        const char *what = !WIFSIGNALED(status)          ? "a sanitizer's report (above)"
                           : WTERMSIG(status) == SIGALRM ? "does not end"
                                                         : strsignal(WTERMSIG(status));
        fprintf(stderr, "mutation %lu (%s): %s; again with -s %lu -i %lu\n", at, kind->name, what,
                seed, at);
        __atomic_add_fetch(&all->n_findings, 1, __ATOMIC_RELAXED);
        i = at + (unsigned long)n_jobs;
    }
    remove_folder(path);
    exit(0);
}

static void make_originals(const char *root) {
    originals = calloc(mutate_n_kinds, sizeof *originals);
    if (!originals) die("memory");
    for (size_t k = 0; k < mutate_n_kinds; k++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", root, mutate_kinds[k].name);
        if (mkdir(path, 0777) != 0 || !mutate_kinds[k].make(path)) die(path);
        read_folder(path, &originals[k]);
        if (originals[k].n == 0) die(path);
        qsort(originals[k].files, originals[k].n, sizeof(file), by_name);
        mutate_kinds[k].use(path); // unchanged: must be fine
        remove_folder(path);
    }
}

static void read_options(int argc, char **argv) {
    for (int o; (o = getopt(argc, argv, "n:s:j:k:i:")) != -1;) {
        if (o == 'n')
            n_mutations = strtoul(optarg, NULL, 10);
        else if (o == 's')
            seed = strtoul(optarg, NULL, 10);
        else if (o == 'j')
            n_jobs = atoi(optarg);
        else if (o == 'k')
            only_kind = optarg;
        else if (o == 'i')
            only_index = strtoul(optarg, NULL, 10);
        else
            exit(2);
    }
    bool known = !only_kind;
    for (size_t k = 0; k < mutate_n_kinds; k++)
        known = known || !strcmp(mutate_kinds[k].name, only_kind);
    if (!known || n_jobs < 1 || n_jobs > 256) {
        fprintf(stderr, "mutate: no such kind, or jobs outside of 1 to 256\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    char root[200];
    const char *tmp = getenv("TMPDIR");
    read_options(argc, argv);
    snprintf(root, sizeof root, "%s/tern-mutate-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(root)) die(root);
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) die("memory");
    make_originals(root);
    if (only_index != ~0ul) {
        char path[256];
        snprintf(path, sizeof path, "%s/work", root);
        run_one(only_index, path);
        printf("mutation %lu: done; its files are in %s\n", only_index, path);
        return all->n_findings > 0;
    }
    for (int job = 0; job < n_jobs; job++)
        if (fork() == 0) run_job(job, root);
    while (wait(NULL) > 0) {
    }
    remove_folder(root);
    printf("%zu of %lu mutated files of %zu kinds (seed %lu), %zu findings\n", all->n_done,
           n_mutations, mutate_n_kinds, seed, all->n_findings);
    return all->n_findings > 0;
}
