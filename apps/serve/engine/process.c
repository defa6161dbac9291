// The process metrics that Prometheus's client libraries export, by their names.
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "apps/serve/engine/metrics.h"

static void put(tern_strbuf *out, const char *name, const char *type, const char *help,
                double value) {
    tern_strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, type, name);
    tern_strbuf_json_number(out, value);
    tern_strbuf_putc(out, '\n');
}

void metrics_put_process(tern_strbuf *out, int64_t born) {
    unsigned long long virtual_pages, pages;
    double page = (double)sysconf(_SC_PAGESIZE);
    struct timespec cpu;
    FILE *f = fopen("/proc/self/statm", "r"); // Linux only; without it two lines are left out
    if (f && fscanf(f, "%llu %llu", &virtual_pages, &pages) == 2) {
        put(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
            (double)virtual_pages * page);
        put(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
            (double)pages * page);
    }
    if (f) fclose(f);
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
        put(out, "process_cpu_seconds_total", "counter",
            "Total user and system CPU time spent in seconds.",
            (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec);
    put(out, "process_start_time_seconds", "gauge",
        "Start time of the process since unix epoch in seconds.", (double)born);
}
