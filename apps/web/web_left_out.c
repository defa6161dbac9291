// Parts of libraries that a module leaves out for its size (mk/web.mk), and what stands in for
// them.
#include <math.h>
#include <stddef.h>
#include <stdio.h>

// Of PCRE2: its texts of errors, whose numbers its manual lists; and what it finds out to save
// time: where matches may begin, and which repeats never give back. A tokenizer's expression
// matches at nearly every place. Memories, which search, have the originals (weak: theirs count).
int pcre2_get_error_message_8(int code, unsigned char *text, size_t n);
int pcre2_get_error_message_8(int code, unsigned char *text, size_t n) {
    return snprintf((char *)text, n, "PCRE2's error %d", code);
}

int _pcre2_study_8(void *expression);
__attribute__((weak)) int _pcre2_study_8(void *expression) {
    (void)expression;
    return 0;
}

int _pcre2_auto_possessify_8(unsigned char *code, const void *compiling);
__attribute__((weak)) int _pcre2_auto_possessify_8(unsigned char *code, const void *compiling) {
    (void)code, (void)compiling;
    return 0;
}

// A part of wasi-libc: exact sines of angles beyond 1.6 million, more than any position in a text.
// The angle is the sum of x[i] * 2^(e0 - 24 i); the result is its quadrant, and what remains is in
// y[0].
int __rem_pio2_large(double *x, double *y, int e0, int n, int precision);
int __rem_pio2_large(double *x, double *y, int e0, int n, int precision) {
    const double quarter = 1.57079632679489661923;
    double angle = 0;
    for (int i = 0; i < n; i++) angle += scalbn(x[i], e0 - 24 * i);
    double rest = fmod(angle, 4 * quarter);
    int quadrant = (int)(rest / quarter + 0.5);
    y[0] = rest - quadrant * quarter;
    if (precision > 0) y[1] = 0;
    return quadrant & 3;
}
