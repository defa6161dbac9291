// Where the time of a profiled session went: a table for people, an array for programs.
#include "cli.h"

static double gb_per_s(const tern_profile_row *r) {
    return r->seconds > 0 ? (double)r->bytes / r->seconds * 1e-9 : 0;
}

void print_profile(FILE *f, const char *title, const tern_profile_row *rows, size_t n) {
    double seconds = 0;
    uint64_t n_calls = 0;
    for (size_t i = 0; i < n; i++) {
        seconds += rows[i].seconds;
        n_calls += rows[i].n_calls;
    }
    fprintf(f, "\n| %s | calls | us | share | us each | MB | GB/s |\n", title);
    fprintf(f, "|---|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < n; i++) {
        const tern_profile_row *r = &rows[i];
        fprintf(f, "| %s | %llu | %.0f | %.1f%% | %.2f | %.1f | %.1f |\n", r->name,
                (unsigned long long)r->n_calls, r->seconds * 1e6,
                seconds > 0 ? 100 * r->seconds / seconds : 0, r->seconds * 1e6 / (double)r->n_calls,
                (double)r->bytes * 1e-6, gb_per_s(r));
    }
    fprintf(f, "| all | %llu | %.0f | | | | |\n", (unsigned long long)n_calls, seconds * 1e6);
}

void put_profile(FILE *f, const tern_profile_row *rows, size_t n) {
    putc('[', f);
    for (size_t i = 0; i < n; i++)
        fprintf(f,
                "%s{\"kernel\":\"%s\",\"calls\":%llu,\"seconds\":%.9f,\"bytes\":%llu,"
                "\"gb_per_second\":%.3f}",
                i ? "," : "", rows[i].name, (unsigned long long)rows[i].n_calls, rows[i].seconds,
                (unsigned long long)rows[i].bytes, gb_per_s(&rows[i]));
    putc(']', f);
}

void print_device_memory(FILE *f, const char *cache, const tern_device_memory *m) {
    if (m->most == 0) return;
    fprintf(f,
            "device memory: %.0f MB at most; weights %.0f MB, %s%scache %.0f MB, activations and "
            "logits %.0f MB, results %.0f MB\n",
            (double)m->most * 1e-6, (double)m->weights * 1e-6, cache, cache[0] ? " " : "",
            (double)m->cache * 1e-6, (double)m->work * 1e-6, (double)m->results * 1e-6);
}

void put_device_memory(FILE *f, const tern_device_memory *m) {
    fprintf(f,
            "{\"most\":%llu,\"now\":%llu,\"weights\":%llu,\"cache\":%llu,\"work\":%llu,"
            "\"results\":%llu}",
            (unsigned long long)m->most, (unsigned long long)m->now, (unsigned long long)m->weights,
            (unsigned long long)m->cache, (unsigned long long)m->work,
            (unsigned long long)m->results);
}
