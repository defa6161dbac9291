// How fast a memory of many chunks recalls, and how much its 8-bit vectors lose.
//
//     build/memory_bench FOLDER [CHUNKS] [DIMENSIONS] [QUERIES]      (100000 384 400)
//
// Texts have 60 words whose frequencies follow Zipf's law; vectors lie around 2,000 centres, as
// those of real texts lie around topics. A query has six words of one chunk, common and rare ones
// as they come, and a vector near that chunk's. The store is written with SQL, since the time that
// a model takes is not what is measured; what reads it is what `tern memory recall` runs.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "store/store_recall.h"

enum { N_WORDS = 50000, N_CENTRES = 2000, WORDS = 60, QUERY_WORDS = 6, HITS = 10 };

static uint64_t state = 1;

static double uniform(void) { // splitmix64
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

static float normal(void) {
    return (float)(sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform()));
}

// Zipf: the r-th word is r times rarer than the first.
static int zipf(void) {
    int r = (int)exp(uniform() * log(N_WORDS + 1.0));
    return r < 1 ? 1 : r > N_WORDS ? N_WORDS : r;
}

static void check(tern_status status, const tern_error *err) {
    if (status == TERN_OK) return;
    fprintf(stderr, "memory_bench: %s\n", err->message);
    exit(1);
}

// Words such as "kadoru", different for each number.
static size_t put_word(char *out, int number) {
    static const char *const syllables[] = {"ka", "do", "ru", "mi", "ne", "so", "la", "ti",
                                            "po", "ge", "fu", "ba", "ze", "wi", "hu", "ya"};
    size_t n = 0;
    for (int x = number, i = 0; i < 4; i++, x /= 16)
        n += (size_t)sprintf(out + n, "%s", syllables[x % 16]);
    out[n] = 0;
    return n;
}

static void put_text(char *out, int n_words) {
    for (int i = 0; i < n_words; i++) {
        out += put_word(out, zipf());
        *out++ = ' ';
    }
    *out = 0;
}

static void normalize(float *v, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += v[i] * v[i];
    for (size_t i = 0; i < n; i++) v[i] /= sqrtf(sum);
}

static void step(tern_memory_store *s, sqlite3_stmt *st) {
    tern_error err = {0};
    check(tern_store_do(s, st, &err), &err);
}

static void write_store(tern_memory_store *s, int n, size_t n_dims) {
    tern_error err = {0};
    sqlite3_stmt *chunk, *words, *code, *vector;
    char sql[128], text[WORDS * 9 + 1];
    float *centres = malloc(N_CENTRES * n_dims * sizeof *centres), *v = malloc(n_dims * sizeof *v);
    uint8_t *row = malloc(tern_vectors_row_bytes(n_dims));
    for (size_t i = 0; i < N_CENTRES * n_dims; i++) centres[i] = normal();
    check(tern_store_run(s, "BEGIN IMMEDIATE", &err), &err);
    snprintf(sql, sizeof sql, "INSERT INTO meta VALUES('dims', %zu)", n_dims);
    check(tern_store_run(s, sql, &err), &err);
    check(
        tern_store_run(s, "INSERT INTO record(metadata, created, digest) VALUES('{}', 1, 1)", &err),
        &err);
    check(tern_store_prepare(s, &chunk,
                             "INSERT INTO chunk(record, first, line, n_tokens, heading,"
                             " text) VALUES(1, 0, 1, 80, '', ?)",
                             &err),
          &err);
    check(tern_store_prepare(s, &words, "INSERT INTO words(rowid, heading, text) VALUES(?, '', ?)",
                             &err),
          &err);
    check(tern_store_prepare(s, &code, "INSERT INTO code VALUES(?, ?)", &err), &err);
    check(tern_store_prepare(s, &vector, "INSERT INTO vector VALUES(?, ?)", &err), &err);
    for (int i = 0; i < n; i++) {
        const float *centre = centres + (size_t)(uniform() * N_CENTRES) * n_dims;
        for (size_t k = 0; k < n_dims; k++) v[k] = centre[k] + 0.7f * normal();
        normalize(v, n_dims);
        tern_vectors_encode(row, v, n_dims);
        put_text(text, WORDS);
        sqlite3_bind_text(chunk, 1, text, -1, SQLITE_STATIC);
        step(s, chunk);
        int64_t id = sqlite3_last_insert_rowid(s->db);
        sqlite3_bind_int64(words, 1, id);
        sqlite3_bind_text(words, 2, text, -1, SQLITE_STATIC);
        sqlite3_bind_int64(code, 1, id);
        sqlite3_bind_blob(code, 2, row, (int)tern_vectors_row_bytes(n_dims), SQLITE_STATIC);
        sqlite3_bind_int64(vector, 1, id);
        sqlite3_bind_blob(vector, 2, v, (int)(n_dims * sizeof *v), SQLITE_STATIC);
        step(s, words), step(s, code), step(s, vector);
    }
    sqlite3_finalize(chunk), sqlite3_finalize(words);
    sqlite3_finalize(code), sqlite3_finalize(vector);
    check(tern_store_run(s, "COMMIT", &err), &err);
    free(centres), free(v), free(row);
}

// A question that chunk `id` answers.
static void make_query(tern_memory_store *s, int64_t id, char *text, float *v, size_t n_dims) {
    tern_error err = {0};
    sqlite3_stmt *st;
    bool found;
    check(tern_store_prepare(s, &st, "SELECT text, f32 FROM chunk JOIN vector USING(id) WHERE id=?",
                             &err),
          &err);
    sqlite3_bind_int64(st, 1, id);
    check(tern_store_step(s, st, &found, &err), &err);
    tern_str words = tern_store_text(st, 0), bytes = tern_store_text(st, 1);
    size_t n = 0;
    for (int k = 0; k < QUERY_WORDS; k++) {
        size_t first = (size_t)(uniform() * WORDS) * 9; // a word and its blank are 9 bytes
        memcpy(text + n, words.ptr + first, 9);
        n += 9;
    }
    text[n] = 0;
    memcpy(v, bytes.ptr, bytes.len);
    for (size_t i = 0; i < n_dims; i++) v[i] += 0.6f * normal() / sqrtf((float)n_dims);
    normalize(v, n_dims);
    sqlite3_finalize(st);
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *seconds, int n) {
    qsort(seconds, (size_t)n, sizeof *seconds, by_time);
    printf("%-22s p50 %6.2f  p95 %6.2f  p99 %6.2f  most %6.2f ms\n", name, 1e3 * seconds[n / 2],
           1e3 * seconds[n * 95 / 100], 1e3 * seconds[n * 99 / 100], 1e3 * seconds[n - 1]);
}

typedef struct found {
    int64_t ids[HITS];
    size_t n;
} found;

static found ask(tern_memory_store *s, const char *text, const float *v, tern_memory_search search,
                 bool exact, double *seconds) {
    tern_error err = {0};
    tern_memory_hits *hits;
    const tern_memory_query q = {
        .text = text, .n_bytes = strlen(text), .n_most = HITS, .search = search, .exact = exact};
    double begin = tern_seconds();
    check(tern_store_recall(s, &q, v, &hits, &err), &err);
    *seconds = tern_seconds() - begin;
    found f = {.n = hits->n};
    for (size_t i = 0; i < hits->n; i++) f.ids[i] = hits->list[i].id;
    tern_memory_hits_free(hits);
    return f;
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[2]) : 100000, n_queries = argc > 4 ? atoi(argv[4]) : 400;
    size_t n_dims = argc > 3 ? (size_t)atoi(argv[3]) : 384;
    tern_memory_store *s;
    tern_error err = {0};
    if (argc < 2 || n < 1 || n_queries < 1 || n_dims < 1) {
        fprintf(stderr, "usage: memory_bench FOLDER [CHUNKS] [DIMENSIONS] [QUERIES]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    double begin = tern_seconds(), first;
    check(tern_memory_open(&s, argv[1], NULL, &err), &err);
    if (s->n_dims == 0) {
        write_store(s, n, n_dims);
        printf("%-22s %.1f s\n", "written in", tern_seconds() - begin);
    }
    tern_memory_close(s);
    check(tern_memory_open(&s, argv[1], NULL, &err), &err);
    tern_memory_info info;
    check(tern_memory_get_info(s, &info, &err), &err);
    n = (int)info.n_chunks, n_dims = (size_t)info.n_dims;
    printf("%-22s %d of %zu numbers, %.0f MB, %d threads\n", "chunks", n, n_dims,
           (double)info.n_bytes * 1e-6, s->team->n_threads);

    static const struct {
        const char *name;
        tern_memory_search search;
    } kinds[] = {{"vectors", TERN_MEMORY_VECTORS},
                 {"words", TERN_MEMORY_WORDS},
                 {"hybrid", TERN_MEMORY_HYBRID}};
    char text[QUERY_WORDS * 9 + 1];
    float *v = malloc(n_dims * sizeof *v);
    double *times = malloc((size_t)n_queries * sizeof *times);
    make_query(s, 1, text, v, n_dims);
    ask(s, text, v, TERN_MEMORY_HYBRID, false, &first);
    printf("%-22s %.0f ms\n", "first (reads codes)", 1e3 * first);
    for (size_t k = 0; k < 3; k++) {
        for (int i = -20; i < n_queries; i++) { // the first ones warm up
            make_query(s, 1 + (int64_t)(uniform() * n), text, v, n_dims);
            ask(s, text, v, kinds[k].search, false, &times[i < 0 ? 0 : i]);
        }
        report(kinds[k].name, times, n_queries);
    }
    int n_same = 0, n_all = 0, n_exact = n_queries < 30 ? n_queries : 30;
    for (int i = 0; i < n_exact; i++) {
        double ignored;
        make_query(s, 1 + (int64_t)(uniform() * n), text, v, n_dims);
        found a = ask(s, text, v, TERN_MEMORY_VECTORS, false, &ignored);
        found b = ask(s, text, v, TERN_MEMORY_VECTORS, true, &times[i]);
        for (size_t x = 0; x < b.n; x++, n_all++)
            for (size_t y = 0; y < a.n; y++) n_same += a.ids[y] == b.ids[x];
    }
    report("exact vectors", times, n_exact);
    printf("%-22s %.4f of its %d best\n", "vectors have", (double)n_same / n_all, HITS);
    tern_memory_close(s);
    free(v), free(times);
    return 0;
}
