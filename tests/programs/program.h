// What the programs here share: each is written against the public headers alone, as C11 and as
// C++17, the way an embedder writes it, and checks what it sees. tests/programs_test.sh runs them,
// also under sanitizers.
#ifndef TERN_TESTS_PROGRAM_H
#define TERN_TESTS_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tern.h"

#ifdef __cplusplus
#define ZEROS                                                                                      \
    {}
#else
#define ZEROS                                                                                      \
    { 0 }
#endif

static int n_failed;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            n_failed++;                                                                            \
        }                                                                                          \
    } while (0)
// For what the rest needs.
#define NEED(call, err)                                                                            \
    do {                                                                                           \
        if ((call) != TERN_OK) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, (err).message);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// A text or bytes that grow.
typedef struct text {
    char *bytes; // terminated
    size_t n, capacity;
} text;

static inline bool text_put(void *user, const char *bytes, size_t n) {
    text *t = (text *)user;
    if (t->n + n + 1 > t->capacity) {
        size_t capacity = 2 * (t->n + n) + 64;
        char *grown = (char *)realloc(t->bytes, capacity);
        if (!grown) return false;
        t->bytes = grown;
        t->capacity = capacity;
    }
    if (n) memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = 0;
    return true;
}

static inline void text_free(text *t) {
    free(t->bytes);
    memset(t, 0, sizeof *t);
}

#endif
