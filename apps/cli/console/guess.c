// Guesses the intended name from an unknown one.
#include "cli.h"

#include <string.h>

#define LETTERS_MAX 32

// The number of letters to add, remove, replace or swap with a neighbour.
static size_t distance(const char *a, size_t n, const char *b, size_t m) {
    size_t rows[3][LETTERS_MAX + 1];
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t least = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < least) least = above[j] + 1;
            if (now[j - 1] + 1 < least) least = now[j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < least) least = before[j - 2] + 1;
            now[j] = least;
        }
    }
    return rows[n % 3][m];
}

void guess_try(guess *g, const char *name) {
    const size_t n = g->length, m = strlen(name);
    if (n < 2 || n > LETTERS_MAX || m < 2 || m > LETTERS_MAX) return;
    size_t d = distance(g->word, n, name, m);
    const bool is_begun = n >= 3 && n < m && strncmp(g->word, name, n) == 0;
    if (is_begun)
        d = 1;
    else if (d > (n < 6 ? 1 : 2) || d >= m)
        return; // any word of that length is as near
    if (g->best && d >= g->least) return;
    g->best = name;
    g->least = d;
}

const char *guess_text(const guess *g, const char *front) {
    static char out[LETTERS_MAX + 32];
    out[0] = 0;
    if (g->best) snprintf(out, sizeof out, "did you mean %s%s? ", front, g->best);
    return out;
}
