// The n greatest of many numbers: a heap whose root is the worst of those kept. Among equal ones
// the lower id is the greater; NaN never comes in.
#ifndef TERN_KERNELS_CPU_TOP_LIST_H
#define TERN_KERNELS_CPU_TOP_LIST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct top_list {
    int32_t *ids;
    float *values;
    int32_t n;
} top_list;

// True when (a, id a) comes after (b, id b): smaller, or equal with the higher id.
static inline bool top_is_below(float a, int32_t id_a, float b, int32_t id_b) {
    return a < b || (a == b && id_a > id_b);
}

// Full from the start, with entries worse than any.
static inline top_list top_open(int32_t *ids, float *values, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        ids[i] = INT32_MAX;
        values[i] = -INFINITY;
    }
    return (top_list){ids, values, n};
}

static inline void top_swap(const top_list *t, int32_t i, int32_t j) {
    float v = t->values[i];
    int32_t id = t->ids[i];
    t->values[i] = t->values[j];
    t->ids[i] = t->ids[j];
    t->values[j] = v;
    t->ids[j] = id;
}

static inline bool top_is_worse(const top_list *t, int32_t i, int32_t j) {
    return top_is_below(t->values[i], t->ids[i], t->values[j], t->ids[j]);
}

static inline void top_sift(const top_list *t, int32_t n) {
    for (int32_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && top_is_worse(t, child + 1, child)) child++;
        if (!top_is_worse(t, child, at)) return;
        top_swap(t, at, child);
    }
}

static inline void top_put(const top_list *t, int32_t id, float value) {
    if (!top_is_below(t->values[0], t->ids[0], value, id)) return;
    t->values[0] = value;
    t->ids[0] = id;
    top_sift(t, t->n);
}

// The greatest first. No more can be put.
static inline void top_sort(const top_list *t) {
    for (int32_t n = t->n - 1; n > 0; n--) {
        top_swap(t, 0, n);
        top_sift(t, n);
    }
}

#endif
