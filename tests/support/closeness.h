// Whether logits are those of another program, by bounds fixed before anything is compared: none of
// them depends on how far apart the two turn out to be.
#ifndef TERN_TESTS_CLOSENESS_H
#define TERN_TESTS_CLOSENESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The distance of a row is |got - want| / |want|. BitNet rounds activations to int8: from the first
// row in which one was rounded the other way ("flip") two programs are some 1e-3 apart, which
// the quantiles bound, and before it they are as close as float32 sums are.
typedef struct close_bounds {
    size_t n_exact;           // rows before the first possible flip; SIZE_MAX: all rows
    double exact;             // bound for each of these
    double median, p90, most; // bounds over all rows; 0: `exact`
    size_t n_choices;         // rows in which another logit may be the greatest...
    double tie; // ...if `want` has it less than this below its greatest, in units of the row's RMS
} close_bounds;

typedef struct closeness {
    double exact, median, p90, most; // `exact`: the greatest of the first n_exact rows
    size_t n_choices, first_flip;    // first_flip: rows before the first more than 1e-5 apart
    double tie;                      // the greatest among rows with different choices
    char why[200];                   // the first bound exceeded; empty: none
} closeness;

// Compares [n_rows, n_vocab] logits; false when a bound is exceeded. No rows, or numbers that are
// not finite, are never close.
bool close_logits(const float *got, const float *want, size_t n_rows, size_t n_vocab,
                  const close_bounds *bounds, closeness *out);

// How many tokens of the greedy text `want`'s rows determine: those before the first row whose two
// greatest logits are closer together than `tie`.
size_t close_n_certain(const float *want, size_t n_rows, size_t n_vocab, double tie);

size_t close_greatest(const float *row, size_t n);

// What another program wrote, as bytes; free(bytes).
typedef struct blob {
    char *bytes;
    size_t n;
} blob;
blob read_blob(const char *path);

#endif
