// The measured limits of the machine, to compare a benchmark's figures with.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_memory.h"
#include "base/os/os_processors.h"
#include "base/os/os_time.h"
#include "kernels/cpu/kernels.h"
#include "base/os/team.h"
#include "tasks/cpu_name.h"
#include "tasks/tasks.h"
#include "tern_tools.h"

tern_heap tern_heap_get(void) {
    tern_mem_stats s = tern_mem_get_stats();
    tern_heap m = {.heap_now = s.total_now, .heap_max = s.total_max, .n_allocs = s.n_allocs};
    m.process_max = tern_process_memory_max();
    return m;
}

#define READ_BYTES   ((size_t)512 << 20) // well beyond any cache
#define N_ROUNDS     5
#define INT8_SECONDS 0.05

typedef struct measurement {
    const tern_cpu_kernels *kernels;
    const uint64_t *data;
    size_t n; // words
    atomic_size_t counter;
    _Atomic uint64_t sink; // so that the loops are not optimised away
    _Atomic uint64_t n_macs;
} measurement;

static void read_all(void *ctx, const tern_team *team) {
    measurement *m = ctx;
    uint64_t sums[8] = {0};
    (void)team;
    for (size_t first, last; tern_team_claim(&m->counter, m->n, 1 << 16, &first, &last);)
        for (size_t i = first; i < last; i += 8)
            for (size_t k = 0; k < 8; k++) sums[k] += m->data[i + k];
    for (size_t k = 0; k < 8; k++) m->sink += sums[k];
}

static void multiply(void *ctx, const tern_team *team) {
    measurement *m = ctx;
    double end = tern_seconds() + INT8_SECONDS;
    uint64_t macs = 0;
    (void)team;
    while (tern_seconds() < end) macs += m->kernels->t->peak_loop();
    m->n_macs += macs;
}

static void read_cpu_name(char *out, size_t size) {
    if (tern_processor_name(out, size)) return;
    static const size_t most = 65536; // of machines with hundreds of processors, the first
    FILE *f = fopen("/proc/cpuinfo", "r");
    char *text = f ? tern_alloc(TERN_MEM_MISC, most) : NULL;
    if (text) text[fread(text, 1, most - 1, f)] = 0;
    tern_cpu_name(text ? text : "", out, size);
    tern_free(text);
    if (f) fclose(f);
}

tern_status tern_machine_measure(int n_threads, tern_machine_limits *out, tern_error *err) {
    tern_clear(err);
    tern_cpu_kernels kernels;
    tern_team *team;
    measurement m = {.kernels = &kernels, .n = READ_BYTES / sizeof(uint64_t)};
    TERN_NEED(out);
    *out = (tern_machine_limits){0};
    tern_cpu_kernels_select(NULL, &kernels);
    TERN_TRY(tern_team_open(&team, n_threads, err));
    out->n_threads = team->n_threads;
    read_cpu_name(out->cpu, sizeof out->cpu);
    snprintf(out->features, sizeof out->features, "%s", kernels.name);
    uint64_t *data = tern_alloc(TERN_MEM_MISC, READ_BYTES);
    if (!data) {
        tern_team_close(team);
        return tern_fail_memory(err, READ_BYTES);
    }
    memset(data, 1, READ_BYTES); // untouched pages all map to the same zero page
    m.data = data;
    for (int i = 0; i < N_ROUNDS; i++) {
        atomic_store(&m.counter, 0);
        double start = tern_seconds();
        tern_team_run(team, read_all, &m);
        double rate = (double)READ_BYTES / (tern_seconds() - start) * 1e-9;
        if (rate > out->read_gb_per_second) out->read_gb_per_second = rate;
        m.n_macs = 0;
        start = tern_seconds();
        tern_team_run(team, multiply, &m);
        rate = (double)m.n_macs / (tern_seconds() - start) * 1e-9;
        if (rate > out->int8_gmac_per_second) out->int8_gmac_per_second = rate;
    }
    tern_free(data);
    tern_team_close(team);
    return TERN_OK;
}

// ---- Kernels -----------------------------------------------------------------------------------

// Additions that wait for each other, one a cycle on any processor.
static double gigahertz(void) {
    enum { ADDITIONS = 1 << 20 };
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        uint64_t sum = 1, addend = (uint64_t)round;
        double start = tern_seconds();
        for (int i = 0; i < ADDITIONS; i += 8) {
#define ADD                                                                                        \
    sum += addend;                                                                                 \
    __asm__ volatile("" : "+r"(sum), "+r"(addend));
            ADD ADD ADD ADD ADD ADD ADD ADD
#undef ADD
        }
        double took = tern_seconds() - start;
        if (took < best) best = took;
    }
    return ADDITIONS / best * 1e-9;
}

typedef struct report {
    tern_text_fn on_text;
    void *user;
    double ghz;
} report;

static bool say(const report *r, const char *format, ...) {
    char line[256]; // longer than any
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return n < 0 || r->on_text(r->user, line, (size_t)n);
}

// One token is bound by bytes, a prompt by arithmetic.
static bool say_speed(const report *r, const char *level, const tern_cpu_speed *s) {
    const double ns = s->seconds * 1e9, cycles = ns * r->ghz;
    if (!say(r, "| %s | %zu | %s | %.0f |", s->kernel, s->n_tokens, level, ns)) return false;
    if (s->n_tokens == 1) {
        if (!say(r, " %.2f | %.2f |", s->bytes / ns, 16 * cycles / s->bytes)) return false;
    } else {
        if (!say(r, " | |")) return false;
    }
    return say(r, " %.1f | %.1f |\n", s->macs / ns, s->macs / cycles);
}

tern_status tern_machine_report(tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    TERN_NEED(on_text);
    char cpu[64];
    const char *names[8];
    tern_cpu_speed speeds[8][TERN_CPU_SPEEDS];
    tern_cpu_kernels k;
    const report r = {on_text, user, gigahertz()};
    const size_t n = tern_cpu_kernels_list(names), first = n > 1; // not the reference
    for (size_t i = first; i < n; i++)
        if (!tern_cpu_kernels_select(names[i], &k) || !tern_cpu_kernels_time(&k, speeds[i]))
            return tern_fail_memory(err, 1 << 20);
    read_cpu_name(cpu, sizeof cpu);
    bool go =
        say(&r, "%s, some %.1f GHz; tern %s uses %s; 64 rows of 2,560 in a cache, one thread\n\n",
            cpu, r.ghz, tern_version(), k.name) &&
        say(&r, "| kernel | tokens | level | ns | GB/s | cycles for 16 bytes |"
                " G multiply-adds/s | a cycle |\n|---|---:|---|---:|---:|---:|---:|---:|\n");
    for (size_t s = 0; s < TERN_CPU_SPEEDS; s++)
        for (size_t i = first; go && i < n; i++) go = say_speed(&r, names[i], &speeds[i][s]);
    return go ? TERN_OK : tern_fail(err, TERN_ERR_CANCELLED, "the report was stopped");
}
