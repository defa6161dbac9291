// How long grammars take: compiling each of a folder's schemas (files as MaskBench has them), and
// the mask in front of each token of its valid instances. Time of the thread, so that programs
// beside this one count little.
//
//     build/grammar_bench TOKENIZER.json FOLDER [STEP [MS]]
//
// of every STEP-th file; every mask that takes MS milliseconds or more is listed.
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "grammar/mask/automaton.h"
#include "tests/support/grammar_data.h"
#include "tests/support/harness.h"

// The vocabulary's reader says with it what is wrong.
void test_check(bool ok, const char *file, int line, const char *format, ...) {
    va_list arguments;
    if (ok) return;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
}

static char *read_whole(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    *n = 0;
    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0) {
        const long size = ftell(file);
        text = size < 0 ? NULL : malloc((size_t)size + 1);
        rewind(file);
        if (text) *n = fread(text, 1, (size_t)size, file);
    }
    fclose(file);
    return text;
}

// One of the slowest: how long, in which file, in front of which token.
typedef struct slow {
    double seconds;
    char name[64];
    size_t at;
} slow;

#define N_SLOW 8

typedef struct times {
    double *at; // [n] seconds
    size_t n, capacity;
    double sum;
    uint64_t work, most_work; // steps, as budgets count them: of all, and of one
    slow slowest[N_SLOW];     // falling
} times;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(times *t, double seconds, uint64_t work, const char *name, size_t at) {
    size_t i = N_SLOW;
    t->sum += seconds;
    t->work += work;
    if (work > t->most_work) t->most_work = work;
    for (; i > 0 && t->slowest[i - 1].seconds < seconds; i--)
        if (i < N_SLOW) t->slowest[i] = t->slowest[i - 1];
    if (i < N_SLOW) {
        t->slowest[i] = (slow){.seconds = seconds, .at = at};
        snprintf(t->slowest[i].name, sizeof t->slowest[i].name, "%s", name);
    }
    if (t->n == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 1024;
        t->at = realloc(t->at, t->capacity * sizeof *t->at);
    }
    t->at[t->n++] = seconds;
}

static int rising(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_times(const char *what, const times *t) {
    if (!t->n) return;
    qsort(t->at, t->n, sizeof *t->at, rising);
    printf("%s: %zu, p50 %.1f us, p90 %.1f us, p99 %.1f us, p99.9 %.1f us, at most %.1f us\n", what,
           t->n, 1e6 * t->at[t->n / 2], 1e6 * t->at[t->n * 9 / 10], 1e6 * t->at[t->n * 99 / 100],
           1e6 * t->at[t->n * 999 / 1000], 1e6 * t->at[t->n - 1]);
    printf("    steps of work: %.1f a microsecond, %.2f million at most\n",
           1e-6 * (double)t->work / t->sum, 1e-6 * (double)t->most_work);
    for (size_t i = 0; i < N_SLOW && t->slowest[i].seconds > 0; i++)
        printf("    %.1f us: %s, token %zu\n", 1e6 * t->slowest[i].seconds, t->slowest[i].name,
               t->slowest[i].at);
}

typedef struct bench {
    grammar_vocabulary v;
    uint64_t *bits;
    times compile, masks;
    double listed; // seconds from which on a mask is listed
    size_t n_refused;
    const char *name; // of the file
} bench;

static void run_instance(bench *b, tern_automaton *a, const tern_strbuf *text) {
    tern_ids ids = {0};
    tern_error err = {0};
    tern_gplace place = tern_automaton_start(a);
    if (tern_tokenizer_encode(b->v.tokenizer, text->ptr, text->len, TERN_TOKENIZE_PLAIN, &ids,
                              &err) != TERN_OK)
        return;
    for (size_t i = 0; i < ids.n && place; i++) {
        const uint64_t worked = a->terms.work;
        const double start = now();
        if (tern_automaton_mask(a, place, b->bits, NULL, &err) != TERN_OK) {
            printf("%s, token %zu: %s\n", b->name, i, err.message);
            break;
        }
        const double took = now() - start;
        note(&b->masks, took, a->terms.work - worked, b->name, i);
        if (took >= b->listed) printf("%.3f ms: %s, token %zu\n", 1e3 * took, b->name, i);
        if (tern_automaton_token(a, &place, ids.ids[i], &err) != TERN_OK) break;
    }
    tern_free(ids.ids);
}

static void run_schema(bench *b, const tern_json_doc *d) {
    const tern_json *root = tern_json_root(d), *tests = tern_json_get(d, root, "tests");
    tern_strbuf text = {0};
    tern_error err = {0};
    tern_automaton *a = NULL;
    grammar_write_value(d, tern_json_get(d, root, "schema"), &text);
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA,
                                        .text = {text.ptr, text.len}};
    const double start = now();
    b->n_refused += tern_automaton_open(&a, &source, b->v.tree, &err) != TERN_OK;
    note(&b->compile, now() - start, a ? a->terms.work : 0, b->name, 0);
    for (const tern_json *t = tern_json_first(d, tests); t && a; t = tern_json_next(d, tests, t)) {
        if (!tern_json_bool(tern_json_get(d, t, "valid"), false)) continue;
        tern_strbuf_clear(&text);
        grammar_write_value(d, tern_json_get(d, t, "data"), &text);
        run_instance(b, a, &text);
    }
    tern_automaton_close(a);
    tern_strbuf_free(&text);
}

static void run_file(bench *b, const char *path) {
    tern_json_doc d;
    tern_error err = {0};
    size_t n;
    char *text = read_whole(path, &n);
    if (text && tern_json_parse(&d, text, n, &err) == TERN_OK) {
        run_schema(b, &d);
        tern_json_free(&d);
    }
    free(text);
}

int main(int argc, char **argv) {
    bench b = {.n_refused = 0};
    struct dirent **entries;
    if (argc < 3) {
        fprintf(stderr, "usage: grammar_bench TOKENIZER.json FOLDER [STEP [MS]]\n");
        return 2;
    }
    const int step = argc > 3 && atoi(argv[3]) > 0 ? atoi(argv[3]) : 1;
    b.listed = argc > 4 ? 1e-3 * atof(argv[4]) : HUGE_VAL;
    int n = scandir(argv[2], &entries, NULL, alphasort);
    if (n < 0 || !grammar_vocabulary_open(&b.v, argv[1])) return 1;
    b.bits = calloc((b.v.n + 63) / 64, sizeof *b.bits);
    for (int i = 0; i < n; i++) {
        const char *end = strrchr(entries[i]->d_name, '.');
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", argv[2], entries[i]->d_name);
        b.name = entries[i]->d_name;
        if (end && strcmp(end, ".json") == 0 && i % step == 0) run_file(&b, path);
        free(entries[i]);
    }
    free(entries);
    printf("%zu tokens, %zu schemas refused\n", b.v.n, b.n_refused);
    print_times("compiling", &b.compile);
    print_times("masks", &b.masks);
    free(b.compile.at);
    free(b.masks.at);
    free(b.bits);
    grammar_vocabulary_close(&b.v);
    return 0;
}
