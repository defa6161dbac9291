// Agents: a model that calls tools until its task is done or a budget is spent. docs/agent.md
// describes `tern agent`, the program around this loop.
//
// The library has the loop: the prompts, the model's calls (each constrained by its tool's schema
// while it is generated), the results, the budget, and a context that fills up. The tools are the
// caller's functions; whether a call may be made is theirs to decide, too.
//
//     tern_agent *agent;
//     tern_session *session = NULL;
//     tern_agent_tool tool = {0};
//     tern_agent_desc desc = {0};
//     tern_agent_result result = {0};
//     tern_error err = {0};
//     tool.name = "clock";
//     tool.description = "Says what time it is";
//     tool.run = NULL; // the caller's: puts the result in pieces
//     desc.tools = &tool;
//     desc.n_tools = 1;
//     if (tern_agent_open(&agent, session, &desc, &err) == TERN_OK) {
//         if (tern_agent_run(agent, "How long is it until noon?", &result, &err) == TERN_OK)
//             puts(result.answer);
//         tern_agent_close(agent);
//     }
#ifndef TERN_AGENT_H
#define TERN_AGENT_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tern_agent tern_agent;

typedef struct tern_agent_call {
    const char *name, *id;
    const char *arguments; // a JSON object
    size_t tool;           // index in the desc's tools
    double seconds_left;   // of the budget; 0: no limit
} tern_agent_call;

// Runs a call. The result goes to put(put_user, ...) in any number of pieces; if put returns false,
// no more is wanted. Returns whether the call worked; if not, the result says why, and the model
// reads that, too.
typedef bool (*tern_agent_tool_fn)(void *user, const tern_agent_call *call, tern_text_fn put,
                                   void *put_user);

typedef struct tern_agent_tool {
    const char *name;        // letters, digits, '_' and '-', at most 64
    const char *description; // for the model; NULL: none
    const char *parameters;  // a JSON Schema of an object; NULL: the tool has no parameters
    tern_agent_tool_fn run;
    void *user;
} tern_agent_tool;

typedef enum tern_agent_event_kind {
    TERN_AGENT_WORKING = 0, // nothing new: a chance to stop, even while a prompt is computed
    TERN_AGENT_NOTE,        // text: one line for people
    TERN_AGENT_STEP,        // an answer begins
    TERN_AGENT_TEXT,        // text: a piece of it
    TERN_AGENT_REASONING,
    TERN_AGENT_MESSAGE,   // text: the whole answer as a message, JSON; stats
    TERN_AGENT_CALL,      // the call is about to be run
    TERN_AGENT_RESULT,    // text: the result as the model reads it
    TERN_AGENT_SHORTENED, // call: an earlier one, whose result no longer fits the context; text:
                          // the shortened result
} tern_agent_event_kind;

// Its pointers are valid during the callback.
typedef struct tern_agent_event {
    const char *text; // terminated
    size_t n_bytes;
    tern_agent_event_kind kind;
    const tern_agent_call *call;      // of CALL, RESULT and SHORTENED; else NULL
    const tern_generate_stats *stats; // of MESSAGE; else NULL
    size_t n_before;                  // of RESULT and SHORTENED: its bytes before it was cut
    bool failed;                      // of RESULT
    double seconds;                   // of MESSAGE and RESULT: how long it took
} tern_agent_event;
// Return false to stop.
typedef bool (*tern_agent_event_fn)(void *user, const tern_agent_event *event);

typedef struct tern_agent_desc {
    const tern_agent_tool *tools; // copied, but not the data behind `user`
    size_t n_tools;
    const char *system;            // the system message; NULL: none
    const tern_sampling *sampling; // NULL: tern_sampling_default()
    int32_t max_steps;             // answers from the model, 0: 20
    int32_t max_tokens;            // generated in all steps together; 0: no limit
    double max_seconds;            // 0: no limit
    int32_t answer_tokens; // of the context, kept free for an answer; 0: a quarter, at most 1024
    size_t result_bytes;   // of a result that the model reads, at most; 0: 16384
    bool one_call;         // at most one call in each answer
    bool must_call;        // the first answer of a run must be calls and nothing else
    tern_agent_event_fn on_event; // NULL: no events
    void *user;
} tern_agent_desc;

// No other code may use the session while the agent runs. Fails if the model's chat template does
// not support tools. A schema that grammars do not support (docs/grammar.md) is shown to the model
// as it is, and constrains the arguments only to be an object: a note says so when the agent runs.
TERN_API tern_status tern_agent_open(tern_agent **out, tern_session *session,
                                     const tern_agent_desc *desc, tern_error *err);
TERN_API void tern_agent_close(tern_agent *agent); // NULL is allowed

typedef enum tern_agent_end {
    TERN_AGENT_FINISHED = 0, // an answer without calls
    TERN_AGENT_STEPS,        // a budget is spent
    TERN_AGENT_TOKENS,
    TERN_AGENT_TIME,
    TERN_AGENT_CONTEXT, // it is full, and no result is left to shorten
    TERN_AGENT_STOPPED, // by on_event
} tern_agent_end;
TERN_API const char *tern_agent_end_name(tern_agent_end end); // "finished", "steps" ...

typedef struct tern_agent_result {
    const char *answer; // the text of the last answer; lives until the agent runs again
    size_t n_bytes;
    tern_agent_end end;
    int32_t n_steps, n_calls, n_failed; // n_failed: of the calls
    int32_t n_shortened;                // results
    uint64_t n_prompt, n_generated;     // tokens; of prompts, those that were computed
    double seconds;
} tern_agent_result;

// Does a task. If the agent has run before, the task continues that conversation, with a new
// budget. An error in a tool is not a failure: the model reads it.
TERN_API tern_status tern_agent_run(tern_agent *agent, const char *task, tern_agent_result *result,
                                    tern_error *err);
// The conversation so far, as the model reads it: a JSON array of messages, passed to on_text.
TERN_API tern_status tern_agent_messages(const tern_agent *agent, tern_text_fn on_text, void *user,
                                         tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
