// A load for a server with OpenAI's chat interface, and its record: when each request was sent, how
// long prompts and answers are, and when each piece of each answer came.
//
// Two kinds of load. *Users*: a fixed number of requests at once, each followed by the next as soon
// as it is answered; it shows a server's capacity. *Arrivals*: requests come at random times, at a
// given rate per second (a Poisson process), however long earlier ones take; it shows the latency
// that people see, including queues.
#ifndef TERN_APPS_LOAD_H
#define TERN_APPS_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tern.h"

typedef struct load_desc {
    const char *url;   // of the server, "http://localhost:8080"; a path to its /v1 may follow
    const char *key;   // NULL: none
    const char *model; // NULL: the server's default
    int n_users;       // concurrent users; 0: arrivals
    double rate;       // arrivals per second
    int n_requests;
    int n_prompt, n_answer;      // tokens of each
    double range_ratio;          // r: lengths are drawn from n (1 - r) to n (1 + r); 0: all equal
    int n_shared;                // tokens at the beginning that all prompts share
    uint64_t seed;               // of arrivals and texts
    double stall_seconds;        // after this time without a byte the request has failed
    bool (*goes_on)(void *user); // called a few times a second; NULL: always
    void *user;
} load_desc;

typedef struct load_request {
    double due, began, first, ended;     // seconds since the load began; first 0: no piece came
    int status;                          // HTTP's; 0: there was no answer
    size_t n_prompt, n_cached, n_answer; // tokens, as the server counts them
    double *pieces;                      // [n_pieces] when the answer's pieces came
    size_t n_pieces, capacity;
    char error[160]; // "": it was answered
} load_request;

typedef struct load_result {
    load_request *list; // [n]
    size_t n;
    double seconds; // from the first request to the end of the last answer
} load_result;

bool load_is_possible(void); // the program was built with libcurl
// Fails if the server cannot be reached or refuses the load's requests; requests that fail within a
// load are in the result. The number of words of a prompt follows from the server's token counts of
// two texts. Free the result with load_free, also after a failure.
tern_status load_run(const load_desc *desc, load_result *out, tern_error *err);
void load_free(load_result *result);

// ---- Numbers (load_stats.c) --------------------------------------------------------------------

enum { LOAD_QUANTILES = 101 };

// Percentiles: the least value, the hundredths, the greatest.
typedef struct load_spread {
    double at[LOAD_QUANTILES];
    size_t n; // values
} load_spread;

typedef struct load_summary {
    size_t n_answered, n_failed;
    double seconds, tokens_per_s, prompt_per_s, requests_per_s;
    double cached;     // share of the prompts' tokens that came from the cache
    load_spread first; // seconds from a request to its first piece
    load_spread gap;   // seconds between two pieces of an answer
    load_spread whole; // seconds of a request
    const char *error; // of the first request that failed, in the result; NULL: none
} load_summary;

// False: out of memory.
bool load_summarize(const load_result *result, load_summary *out);

// ---- Reports (load_report.c, load_page.c) ------------------------------------------------------

typedef struct load_row {
    const char *server; // its address
    int n_users;        // 0: arrivals
    double rate;
    load_summary summary;
} load_row;

typedef struct load_report {
    const load_row *rows; // [n], grouped by server, in the order of load
    size_t n;
    int n_prompt, n_answer, n_shared;
    double range_ratio;
} load_report;

typedef enum load_format {
    LOAD_MD,
    LOAD_JSON,
    LOAD_HTML, // one self-contained page with plots
} load_format;
tern_status load_write(const load_report *report, load_format format, tern_text_fn on_text,
                       void *user, tern_error *err);

#endif
