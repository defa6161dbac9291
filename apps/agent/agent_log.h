// The transcript of an agent: a line of JSON for each event, written when it happens. docs/agent.md
// documents its members.
#ifndef TERN_AGENT_LOG_H
#define TERN_AGENT_LOG_H

#include "apps/agent/tools.h"

typedef struct agent_log { // begin with {.fd = -1}: nothing is written
    int fd;
    const char *path;
    tern_error err; // why writing failed; the rest is then not written
    tern_strbuf line;
} agent_log;

// Appends to the file, which may exist.
tern_status agent_log_open(agent_log *log, const char *path, tern_error *err);
void agent_log_close(agent_log *log);

typedef struct agent_log_start {
    const char *model, *task, *system;
    int n_context;
    const agent_tools *tools;
    const tern_agent_desc *desc; // the budget
} agent_log_start;
void agent_log_begin(agent_log *log, const agent_log_start *start);
// allowed: for a result, the permission for its call: "always", "asked", "refused" ...; else NULL.
void agent_log_event(agent_log *log, const tern_agent_event *event, const char *allowed);
void agent_log_end(agent_log *log, const tern_agent_result *result, const tern_error *failure);

// The outcome of a run as one JSON object, as --json prints it.
tern_status agent_put_result(const tern_agent_result *result, const tern_error *failure,
                             tern_text_fn put, void *put_user, tern_error *err);

#endif
