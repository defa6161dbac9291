// How similar two vectors are.
#include <math.h>
#include "tern.h"
#include "tern_embed.h"

double tern_similarity(const float *a, const float *b, size_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; a && b && i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa) / sqrt(bb) : 0;
}
