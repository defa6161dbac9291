// Private to the agent's files: agent.c is the loop, agent_text.c the conversation as the model
// reads it, agent_tools.c the description of tools and the grammar of their calls.
#ifndef TERN_SESSION_AGENT_H
#define TERN_SESSION_AGENT_H

#include "base/json/json_write.h"
#include "session/session.h"
#include "tern_agent.h"

// A call, kept with its message while the conversation lasts.
typedef struct agent_call {
    char id[12];
    tern_strbuf name, arguments;
    size_t tool;   // SIZE_MAX: no tool has that name
    bool is_whole; // the answer was not cut within it
} agent_call;

typedef enum agent_role { AGENT_SYSTEM, AGENT_USER, AGENT_ASSISTANT, AGENT_RESULT } agent_role;

typedef struct agent_message {
    agent_role role;
    tern_strbuf content, reasoning;
    agent_call *calls; // [n_calls] of an answer; for a result, its call
    size_t n_calls, calls_capacity;
    bool is_stub; // a result that was shortened to its beginning
} agent_message;

typedef struct agent_texts { // names of tokens that no result may forge
    tern_str *list;          // [n] sorted by their first byte
    size_t n, capacity;
    size_t from[257]; // those with the first byte b: from[b] .. from[b + 1]
} agent_texts;

struct tern_agent {
    tern_session *session;
    tern_model *model;
    tern_agent_desc desc; // defaults are filled in; tools are the agent's
    tern_agent_tool *tools;
    tern_sampling sampling;
    char *system;
    tern_group *group;
    tern_strbuf shown, bound; // the list of tools: as the model reads it; as it constrains calls
    tern_strbuf notes;        // lines for the next run
    agent_texts marks;
    tern_grammar *grammar; // of calls after a prompt that ends like this
    char prompt_end[32];
    bool grammar_must;       // calls that must come
    agent_message *messages; // [n_messages]
    size_t n_messages, capacity;
    tern_strbuf rendered; // the last prompt
    tern_ids ids;         // its tokens
    uint32_t n_calls;     // in all runs, for ids
    // For a run.
    tern_agent_result result;
    double begin;
    bool is_stopped, is_late;
    bool is_running, is_closed; // closed in its own callback: it ends with the run
};

bool tern_agent_tell(tern_agent *a, const tern_agent_event *event); // false: stop
double tern_agent_seconds_left(const tern_agent *a);                // 0: no limit

// ---- agent_tools.c ------------------------------------------------------------------------------

tern_status tern_agent_take_tools(tern_agent *a, const tern_agent_desc *desc, tern_error *err);
void tern_agent_free_tools(tern_agent *a);
size_t tern_agent_find_tool(const tern_agent *a, const char *name); // SIZE_MAX: none
// The grammar for an answer to the rendered prompt; NULL without tools. must_call: the answer must
// be calls.
tern_status tern_agent_take_grammar(tern_agent *a, bool must_call, tern_grammar **out,
                                    tern_error *err);
// Runs a call; the result is cut to the bytes that the model may read, and its marks are made
// harmless. *n_before: its bytes before that. Returns whether it worked.
bool tern_agent_run_call(tern_agent *a, const agent_call *call, tern_strbuf *out, size_t *n_before);

// ---- agent_text.c -------------------------------------------------------------------------------

tern_status tern_agent_add(tern_agent *a, agent_role role, agent_message **out, tern_error *err);
void tern_agent_free_message(agent_message *m);
void tern_agent_put_message(const agent_message *m, tern_json_writer *w);
// Renders the conversation, and shortens results until it leaves room for an answer. *fits: whether
// it does in the end.
tern_status tern_agent_render(tern_agent *a, bool *fits, tern_error *err);
// Shortens one result. False: there is none left.
bool tern_agent_shorten(tern_agent *a);
// Cuts a text to about n bytes, at the end of a character.
size_t tern_agent_cut(const char *text, size_t n_bytes, size_t n_most);
void tern_agent_call_view(const tern_agent *a, const agent_call *c, tern_agent_call *out);

#endif
