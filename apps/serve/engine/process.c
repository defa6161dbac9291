// The process metrics that Prometheus's client libraries export, by their names.
#include <stdio.h>
#include <time.h>
#include "apps/serve/engine/metrics.h"
#include "base/os/os_memory.h"

static void put(tern_strbuf *out, const char *name, const char *type, const char *help,
                double value) {
    tern_strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, type, name);
    tern_strbuf_json_number(out, value);
    tern_strbuf_putc(out, '\n');
}

static double virtual_bytes(void) { // Linux only; else 0
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && !kib && fgets(line, sizeof line, f))
        if (sscanf(line, "VmSize: %llu", &kib) != 1) kib = 0;
    if (f) fclose(f);
    return (double)kib * 1024;
}

void metrics_put_process(tern_strbuf *out, int64_t born) {
    const double all = virtual_bytes(), resident = (double)tern_process_memory_now();
    struct timespec cpu;
    if (all > 0)
        put(out, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", all);
    if (resident > 0)
        put(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
            resident);
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
        put(out, "process_cpu_seconds_total", "counter",
            "Total user and system CPU time spent in seconds.",
            (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec);
    put(out, "process_start_time_seconds", "gauge",
        "Start time of the process since unix epoch in seconds.", (double)born);
}
