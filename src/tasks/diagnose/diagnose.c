// tern diagnose: what a device is, and whether it computes what it should.
#include <stdio.h>
#include <string.h>
#include "base/os/os_time.h"
#include "tasks/diagnose/diagnose.h"

// ---- The report --------------------------------------------------------------------------------

static void send(tern_report *r) {
    if (r->text.failed || r->text.len == 0) return;
    r->cancelled = r->cancelled || !r->on_text(r->user, tern_strbuf_text(&r->text), r->text.len);
    tern_strbuf_clear(&r->text);
}

void tern_report_fact(void *report, const char *name, const char *value) {
    tern_report *r = report;
    if (!r->json)
        tern_strbuf_printf(&r->text, "%-28s%s\n", name, value);
    else {
        tern_strbuf_puts(&r->text, r->n_facts++ ? ",\n{\"fact\":" : "{\"fact\":");
        tern_strbuf_json(&r->text, name, strlen(name));
        tern_strbuf_puts(&r->text, ",\"value\":");
        tern_strbuf_json(&r->text, value, strlen(value));
        tern_strbuf_puts(&r->text, "}");
    }
    send(r);
}

void tern_report_check(void *report, const char *name, bool ok, const char *detail) {
    tern_report *r = report;
    double now = tern_seconds(), seconds = now - r->last;
    r->last = now;
    r->n_checks++;
    if (!ok && r->n_failed++ == 0) snprintf(r->first_failed, sizeof r->first_failed, "%s", name);
    if (!r->json)
        tern_strbuf_printf(&r->text, "%-7s%s%s%s (%.2f s)\n", ok ? "ok" : "FAILED", name,
                           detail[0] ? ": " : "", detail, seconds);
    else {
        tern_strbuf_puts(&r->text, r->n_facts++ ? ",\n{\"check\":" : "{\"check\":");
        tern_strbuf_json(&r->text, name, strlen(name));
        tern_strbuf_printf(
            &r->text, ",\"ok\":%s,\"seconds\":%.3f,\"detail\":", ok ? "true" : "false", seconds);
        tern_strbuf_json(&r->text, detail, strlen(detail));
        tern_strbuf_puts(&r->text, "}");
    }
    send(r);
}

// The verdict, for callers that want only this.
static void report_verdict(tern_report *r, bool is_gpu, bool no_gpu, bool with_model) {
    char text[500];
    const char *begin = no_gpu ? "no GPU can be used; " : "";
    if (r->n_failed == 0)
        snprintf(text, sizeof text, "%s%s computes what it should", begin, r->device);
    else
        snprintf(text, sizeof text,
                 "%s%s%s is not to be trusted: the first of %zu failures is \"%s\"%s", begin,
                 r->device, with_model ? ", or the model," : "", r->n_failed, r->first_failed,
                 is_gpu ? "; the device \"cpu\" does without a GPU" : "");
    tern_report_fact(r, "verdict", text);
}

// ---- The device --------------------------------------------------------------------------------

static tern_status open_device(const tern_diagnose_desc *desc, const tern_backend **backend,
                               tern_device **device, tern_error *no_gpu, tern_error *err) {
    const char *name = desc->device ? desc->device : "cpu";
    bool automatic = strcmp(name, "auto") == 0;
    const tern_device_desc d = {.n_threads = desc->n_threads,
                                .cpu_features = desc->cpu_features,
                                .webgpu = desc->webgpu,
                                .only_hardware = automatic};
    if (!automatic && strcmp(name, "webgpu") != 0 && strcmp(name, "cpu") != 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "device \"%s\": expected cpu, webgpu or auto",
                         name);
    if (strcmp(name, "cpu") != 0) {
        tern_error why = {0};
        *backend = &tern_backend_webgpu;
        tern_status status = tern_backend_open(*backend, device, &d, &why);
        if (status == TERN_OK || !automatic) {
            if (err) *err = why;
            return status;
        }
        *no_gpu = why;
    }
    *backend = &tern_backend_cpu;
    return tern_backend_open(*backend, device, &d, err);
}

static tern_status measure(tern_report *r, int n_threads, tern_error *err) {
    tern_machine_limits limits;
    char text[100];
    TERN_TRY(tern_machine_measure(n_threads, &limits, err));
    tern_report_fact(r, "processor", limits.cpu);
    snprintf(text, sizeof text, "%.1f GB/s, int8 %.0f G multiply-adds/s, %d threads",
             limits.read_gb_per_second, limits.int8_gmac_per_second, limits.n_threads);
    tern_report_fact(r, "reads", text);
    return TERN_OK;
}

static tern_status diagnose(tern_report *r, const tern_diagnose_desc *desc, tern_error *err) {
    const tern_backend *backend = NULL;
    tern_device *device = NULL;
    tern_error no_gpu = {0};
    TERN_TRY(open_device(desc, &backend, &device, &no_gpu, err));
    if (no_gpu.message[0]) tern_report_fact(r, "no GPU", no_gpu.message);
    snprintf(r->device, sizeof r->device, "%s", backend->describe(device));
    tern_report_fact(r, "device", r->device);
    backend->facts(device, tern_report_fact, r);
    r->last = tern_seconds();
    tern_status status = backend->selftest(device, tern_report_check, r, err);
    bool lost = backend->is_lost(device);
    if (lost) tern_report_check(r, "device after its own test", false, "it was lost");
    if (status == TERN_OK && !lost) status = tern_diagnose_random(r, backend, device, err);
    backend->close(device);
    TERN_TRY(status);
    if (backend == &tern_backend_cpu && !desc->quick) TERN_TRY(measure(r, desc->n_threads, err));
    r->last = tern_seconds();
    if (desc->model) TERN_TRY(tern_diagnose_model(r, desc, err));
    report_verdict(r, backend != &tern_backend_cpu, no_gpu.message[0] != 0, desc->model != NULL);
    return TERN_OK;
}

tern_status tern_diagnose(const tern_diagnose_desc *desc, tern_text_fn on_text, void *user,
                          size_t *n_failed, tern_error *err) {
    tern_clear(err);
    static const tern_diagnose_desc defaults = {0};
    size_t unused;
    TERN_NEED(on_text);
    if (!n_failed) n_failed = &unused;
    if (!desc) desc = &defaults;
    TERN_NEED_ENUM(desc->format, TERN_FORMAT_JSON);
    tern_report r = {.json = desc->format == TERN_FORMAT_JSON, .on_text = on_text, .user = user};
    *n_failed = 0;
    if (r.json) tern_strbuf_puts(&r.text, "[");
    tern_status status = diagnose(&r, desc, err);
    if (r.json)
        tern_strbuf_puts(&r.text, "]\n");
    else if (status == TERN_OK)
        tern_strbuf_printf(&r.text, "%zu check%s, %zu failed\n", r.n_checks,
                           r.n_checks == 1 ? "" : "s", r.n_failed);
    send(&r);
    *n_failed = r.n_failed;
    if (r.text.failed)
        status = tern_fail_memory(err, r.text.len);
    else if (r.cancelled && status == TERN_OK)
        status = tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    tern_strbuf_free(&r.text);
    return status;
}
