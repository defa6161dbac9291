// How long an unused model stays open: Ollama's "keep_alive", and `tern serve --keep-alive`.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/ollama/ollama.h"

// Reads a number at *at and moves *at behind it. False: there is none.
static bool read_number(const char **at, double *out) {
    char *end;
    size_t n = strspn(*at, "0123456789.");
    *out = strtod(*at, &end);
    if (n == 0 || end != *at + n) return false;
    *at = end;
    return true;
}

// Reads the unit at *at, in seconds, and moves *at behind it. 0: there is none.
static double read_unit(const char **at) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) != n || memcmp(units[i].name, *at, n) != 0) continue;
        *at += n;
        return units[i].seconds;
    }
    return 0;
}

bool serve_read_duration(const char *text, size_t n, double *seconds) {
    char copy[40];
    const char *at = copy;
    double sum = 0, number;
    if (n == 0 || n >= sizeof copy || memchr(text, 0, n)) return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    bool is_negative = *at == '-';
    at += is_negative;
    if (read_number(&at, &number) && *at == 0) {
        sum = number;
    } else {
        at = copy + is_negative;
        do {
            double unit = read_number(&at, &number) ? read_unit(&at) : 0;
            if (unit == 0) return false;
            sum += number * unit;
        } while (*at);
    }
    *seconds = is_negative ? -sum : sum;
    return true;
}

static bool read_keep_alive(request *req, api_error *e) {
    const fields f = fields_of_body(req, e);
    const tern_json *value = field_any(&f, "keep_alive");
    tern_str text = tern_json_str(value);
    if (!value) return e->status == 0;
    req->keep_seconds = tern_json_number(value, NAN);
    if (text.ptr) serve_read_duration(text.ptr, text.len, &req->keep_seconds);
    req->has_keep = isfinite(req->keep_seconds);
    if (!req->has_keep) field_fail(&f, "keep_alive", "seconds, or a time such as \"5m\"");
    return e->status == 0;
}

// A request with nothing to compute and a time of 0 unloads the model; a closed one is not opened
// for this.
void ollama_with_model(request *req, const char *content, void (*handle)(request *req)) {
    api_error e = {0};
    if (!read_keep_alive(req, &e)) {
        reply_error(req, &e);
        return;
    }
    const tern_json *value =
        content ? tern_json_get(&req->body, tern_json_root(&req->body), content) : NULL;
    bool gives_back =
        content && req->has_keep && req->keep_seconds == 0 && (!value || value->n == 0);
    if (gives_back && req->model->state == SERVED_CLOSED)
        handle(req);
    else
        request_with_model(req, handle);
}
